//! Sources that are never shed.

use ipnet::IpNet;

use super::{no_effect, reach};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place},
    policy::Management,
};

/// Shorter prefixes are no network of one's own: the largest of those are `10.0.0.0/8` and `fc00::/7`.
const SHORTEST: [u8; 2] = [8, 7];

/// Warns about `management` entries, each with its place, given the prefixes that beat them.
pub(in crate::config) fn management(
    entries: &[(Place, Management)],
    allow: &[IpNet],
    diagnostics: &mut Diagnostics<'_>,
) {
    let allow = if entries.is_empty() { Vec::new() } else { reach::merged(allow) };
    for (place, Management { prefix, ports: _ }) in entries {
        let [shortest_v4, shortest_v6] = SHORTEST;
        let shortest = if prefix.addr().is_ipv4() { shortest_v4 } else { shortest_v6 };
        if reach::nets_are_within(&[*prefix], &allow) {
            no_effect("management", "`allow` covers this prefix, on every port", *place, diagnostics);
        } else if prefix.prefix_len() < shortest {
            let message = format!(
                "{prefix} takes in much of the internet, and whatever comes from there to these ports is never \
                 shed, however much it is"
            );
            let mistake = Mistake::new(Code::WideManagement, message)
                .expected("the networks that this host is managed from");
            diagnostics.warn(*place, mistake);
        }
    }
}
