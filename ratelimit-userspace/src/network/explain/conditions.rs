//! Which condition of a rule a packet does not meet: the rule, tried by hand.

use std::ops::RangeInclusive;

use ratelimit_common::packet::{ABSENT, Fragment, Packet};

use super::packet::{flags_words, fragment_words, icmp_words, optional, protocol_words, vlan_words};
use crate::{
    config::policy::{FragmentKind, IcmpType, Match, Vlan},
    network::{description, in_force::ip},
};

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmet {
    /// What the rule wants.
    pub(super) wants: String,
    /// What the packet has.
    pub(super) has: String,
}

/// The first condition that a packet of `length` bytes does not meet.
pub(super) fn unmet(matches: &Match, packet: &Packet, length: u32) -> Option<Unmet> {
    let Match {
        source,
        destination,
        protocol,
        source_port,
        destination_port,
        tcp_flags,
        icmp_type,
        fragment,
        vlan,
        length: lengths,
    } = matches;
    let any = Match::default;
    let (from, to) = (ip(&packet.source), ip(&packet.destination));
    let check = [
        check(
            source.as_ref(),
            |prefix| prefix.contains(&from),
            || from.to_string(),
            |source| Match { source, ..any() },
        ),
        check(
            destination.as_ref(),
            |prefix| prefix.contains(&to),
            || to.to_string(),
            |destination| Match { destination, ..any() },
        ),
        check(
            protocol.as_ref(),
            |number| u32::from(*number) == packet.protocol,
            || protocol_words(packet),
            |protocol| Match { protocol, ..any() },
        ),
        check(
            source_port.as_ref(),
            |range| holds(range, packet.source_port),
            || optional(packet.source_port),
            |it| Match { source_port: it, ..any() },
        ),
        check(
            destination_port.as_ref(),
            |range| holds(range, packet.destination_port),
            || optional(packet.destination_port),
            |destination_port| Match { destination_port, ..any() },
        ),
        check(
            tcp_flags.as_ref(),
            |pattern| {
                let (set, clear) = (u32::from(pattern.set), u32::from(pattern.clear));
                packet.tcp_flags != ABSENT && packet.tcp_flags & (set | clear) == set
            },
            || flags_words(packet.tcp_flags),
            |tcp_flags| Match { tcp_flags, ..any() },
        ),
        check(
            icmp_type.as_ref(),
            |kind| {
                packet.icmp_type
                    == match *kind {
                        IcmpType::V4(number) => u32::from(number),
                        IcmpType::V6(number) => 256 + u32::from(number),
                    }
            },
            || icmp_words(packet.icmp_type),
            |icmp_type| Match { icmp_type, ..any() },
        ),
        check(
            fragment.as_ref(),
            |kind| {
                packet.fragment
                    == match kind {
                        FragmentKind::None => Fragment::None,
                        FragmentKind::First => Fragment::First,
                        FragmentKind::Later => Fragment::Later,
                    }
            },
            || fragment_words(packet.fragment).to_owned(),
            |fragment| Match { fragment, ..any() },
        ),
        check(
            vlan.as_ref(),
            |vlan| match vlan {
                Vlan::Id(id) => packet.vlan == u32::from(*id),
                Vlan::Untagged => packet.vlan == ABSENT,
            },
            || vlan_words(packet.vlan),
            |vlan| Match { vlan, ..any() },
        ),
        check(
            lengths.as_ref(),
            |range| (clamped(*range.start())..=clamped(*range.end())).contains(&clamped(length)),
            || format!("{length} bytes"),
            |length| Match { length, ..any() },
        ),
    ];
    check.into_iter().flatten().next()
}

/// Nothing if there is no condition or one of its values accepts.
fn check<T: Clone>(
    condition: Option<&Vec<T>>,
    accepts: impl Fn(&T) -> bool,
    has: impl FnOnce() -> String,
    alone: impl FnOnce(Option<Vec<T>>) -> Match,
) -> Option<Unmet> {
    let values = condition?;
    if values.iter().any(accepts) {
        return None;
    }
    Some(Unmet { wants: description::matches(&alone(Some(values.clone()))), has: has() })
}

fn holds(range: &RangeInclusive<u16>, port: u32) -> bool {
    u16::try_from(port).is_ok_and(|port| range.contains(&port))
}

/// Longer frames count as the longest that can be told apart.
fn clamped(length: u32) -> u32 {
    length.min(u16::MAX.into())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::network::{
        compile::tests::{matches, network, packet, rule},
        in_force::Policy,
    };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_rule_before_the_one_that_is_met_has_an_unmet_condition(
            conditions in vec(matches(), 0..12),
            packets in vec(packet(), 64),
        ) {
            let rules =
                (0..).zip(conditions.clone()).map(|(n, matches)| rule(&format!("r{n}"), matches)).collect();
            let policy = Policy::of_file(network(rules), None).expect("few values make few classes");
            for (packet, length) in packets {
                let met = policy.compiled.classify(&packet, length);
                let by_hand = conditions.iter().position(|it| unmet(it, &packet, length).is_none());
                prop_assert_eq!(met, by_hand, "{:?} of {} bytes", packet, length);
            }
        }
    }
}
