//! A rule's conditions as one short line.

use std::{fmt::Display, ops::RangeInclusive};

use crate::config::policy::{FragmentKind, IcmpType, Match, TcpFlags, Vlan};

/// Values of one condition that are written out; the rest is a number.
const SHOWN: usize = 4;

/// TCP flags by bit, from the lowest.
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// What a rule applies to: conditions joined by `, `, values by `|`; `everything` when there are none.
pub(in crate::network) fn matches(matches: &Match) -> String {
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
        length,
    } = matches;
    let conditions = [
        condition("source", source.as_deref(), ToString::to_string),
        condition("destination", destination.as_deref(), ToString::to_string),
        condition("protocol", protocol.as_deref(), |number| protocol_name(*number)),
        condition("source port", source_port.as_deref(), range),
        condition("destination port", destination_port.as_deref(), range),
        condition("tcp flags", tcp_flags.as_deref(), |pattern| flags(*pattern)),
        condition("icmp type", icmp_type.as_deref(), |kind| match kind {
            IcmpType::V4(number) => number.to_string(),
            IcmpType::V6(number) => format!("{number} (v6)"),
        }),
        condition("fragment", fragment.as_deref(), |kind| {
            match kind {
                FragmentKind::None => "none",
                FragmentKind::First => "first",
                FragmentKind::Later => "later",
            }
            .to_owned()
        }),
        condition("vlan", vlan.as_deref(), |vlan| match vlan {
            Vlan::Id(id) => id.to_string(),
            Vlan::Untagged => "untagged".to_owned(),
        }),
        condition("length", length.as_deref(), range),
    ];
    let conditions: Vec<_> = conditions.into_iter().flatten().collect();
    if conditions.is_empty() { "everything".to_owned() } else { conditions.join(", ") }
}

fn condition<T>(name: &str, values: Option<&[T]>, words: impl Fn(&T) -> String) -> Option<String> {
    let values = values?;
    let shown: Vec<_> = values.iter().take(SHOWN).map(words).collect();
    let mut text = format!("{name} {}", shown.join("|"));
    if values.len() > SHOWN {
        text = format!("{text}|… ({} in all)", values.len());
    }
    Some(text)
}

fn range<T: PartialEq + Display>(range: &RangeInclusive<T>) -> String {
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{}-{}", range.start(), range.end())
    }
}

pub(crate) fn protocol_name(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        47 => "gre".to_owned(),
        50 => "esp".to_owned(),
        51 => "ah".to_owned(),
        58 => "icmpv6".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}

/// `syn+!ack`: SYN set and ACK clear.
pub(in crate::network) fn flags(pattern: TcpFlags) -> String {
    let named = |bits: u8, prefix: &'static str| {
        let set = (0..8).zip(FLAGS).filter(move |(bit, _)| bits >> bit & 1 == 1);
        set.map(move |(_, name)| format!("{prefix}{name}"))
    };
    let words: Vec<_> = named(pattern.set, "").chain(named(pattern.clear, "!")).collect();
    if words.is_empty() { "any".to_owned() } else { words.join("+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_read_in_one_line() {
        let matched = Match {
            protocol: Some(vec![6, 17, 89]),
            destination_port: Some(vec![53..=53, 5000..=5010]),
            tcp_flags: Some(vec![TcpFlags { set: 0x02, clear: 0x10 }]),
            ..Match::default()
        };
        assert_eq!(
            matches(&matched),
            "protocol tcp|udp|89, destination port 53|5000-5010, tcp flags syn+!ack"
        );
        assert_eq!(matches(&Match::default()), "everything");
    }

    #[test]
    fn long_lists_are_cut() {
        let matched = Match { vlan: Some((1..=100).map(Vlan::Id).collect()), ..Match::default() };
        assert_eq!(matches(&matched), "vlan 1|2|3|4|… (100 in all)");
    }
}
