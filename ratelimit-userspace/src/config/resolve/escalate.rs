//! What `escalate` needs of the rest of the file: packets that are shed, clients that are known, and their
//! own packets arriving here.

use std::collections::BTreeSet;

use crate::config::{
    diagnostic::{Code, Diagnostic, Diagnostics, Mistake, Place, Quoted, Reported, nearest},
    http::{ADDRESS_KEYS, Descriptor, Domain, Escalate, Http},
    policy::Network,
};

/// The rules on packets that clients are put under, by their names.
pub(super) fn rules(http: &Http) -> BTreeSet<&str> {
    let escalating = http.domains.iter().flat_map(Domain::escalating);
    escalating.filter_map(|escalate| escalate.shed.as_deref()).collect()
}

/// Checks every `escalate`. `network` is `None` where the file has no such section.
pub(super) fn check(
    http: &Http,
    network: Option<&Network>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<(), Reported> {
    let mut outcome = Ok(());
    for domain in &http.domains {
        for escalate in domain.escalating() {
            if let Some(mistake) = mistake(domain, escalate, http, network) {
                let place = Place { line: escalate.line, column: escalate.column };
                let file = domain.file.display().to_string();
                outcome = Err(diagnostics.error_elsewhere(Diagnostic::at(&file, place, "", mistake)));
            }
        }
    }
    outcome
}

fn mistake(domain: &Domain, escalate: &Escalate, http: &Http, network: Option<&Network>) -> Option<Mistake> {
    let Some(network) = network else {
        let message = "`escalate` has packets shed, and the rules file has no `network:` section to do so";
        return Some(
            Mistake::new(Code::Conflict, message).expected("a `network:` section, or no `escalate`"),
        );
    };
    let remote = http.trusted_proxies.iter().find(|proxy| !is_loopback(proxy));
    if let Some(remote) = remote {
        let message = format!(
            "`escalate` sheds the packets of a client on this host, and those of clients behind the proxy \
             {remote} of `trusted_proxies` do not arrive here: what would be shed is nothing, or somebody else"
        );
        return Some(Mistake::new(Code::Conflict, message).expected(
            "proxies that run on this host and ask over the loopback or a Unix socket, or no `escalate`",
        ));
    }
    let identified = http.identify.iter().any(|item| item.domain == domain.name);
    if !identified && !has_address(&domain.descriptors) {
        let message = format!(
            "`escalate` needs the address of the client, and nothing tells it in the domain {}",
            Quoted(&domain.name)
        );
        return Some(Mistake::new(Code::Conflict, message).expected(format!(
            "an `identify` item for the domain, or a descriptor with the key {}",
            ADDRESS_KEYS.join(" or ")
        )));
    }
    escalate.shed.as_deref().and_then(|name| no_rule(name, network))
}

/// Why nobody can be put under a rule of this name.
fn no_rule(name: &str, network: &Network) -> Option<Mistake> {
    let Some(rule) = network.rules.iter().find(|rule| rule.name == name) else {
        let names: Vec<_> = network.rules.iter().map(|rule| rule.name.as_str()).collect();
        let message = format!("`shed` of this `escalate`: `network` has no rule {}", Quoted(name));
        let expected = match &names[..] {
            [] => "a rule in `network`, with a limit for such clients".to_owned(),
            names => format!("one of its rules: {}", names.join(", ")),
        };
        return Some(Mistake::new(Code::BadValue, message).expected(expected).nearest(nearest(name, names)));
    };
    rule.count_only.then(|| {
        let message =
            format!("`shed` of this `escalate`: the rule {} only counts, and sheds nothing", Quoted(name));
        Mistake::new(Code::Conflict, message).expected("a rule without `action: count`")
    })
}

fn is_loopback(proxy: &ipnet::IpNet) -> bool {
    proxy.network().is_loopback() && proxy.broadcast().is_loopback()
}

fn has_address(descriptors: &[Descriptor]) -> bool {
    descriptors.iter().any(|descriptor| {
        ADDRESS_KEYS.contains(&descriptor.key.as_str()) || has_address(&descriptor.descriptors)
    })
}
