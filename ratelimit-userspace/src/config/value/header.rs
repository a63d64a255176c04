//! Values of packet headers: protocols, TCP flags, ICMP types, fragments, VLANs.

use super::{is_digits, number};
use crate::config::{
    diagnostic::{Code, Mistake, Quoted, nearest},
    policy::{FragmentKind, IcmpType, TcpFlags, Vlan},
};

/// ICMP's protocol number; this one and the others are from the IANA registry of protocol numbers.
pub(in crate::config) const ICMP: u8 = 1;
/// TCP's protocol number.
pub(in crate::config) const TCP: u8 = 6;
/// UDP's protocol number.
pub(in crate::config) const UDP: u8 = 17;
/// The protocol number of ICMP for IPv6.
pub(in crate::config) const ICMPV6: u8 = 58;
/// SCTP's protocol number.
pub(in crate::config) const SCTP: u8 = 132;
/// The protocols whose ports are read.
pub(in crate::config) const WITH_PORTS: [u8; 3] = [TCP, UDP, SCTP];

const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", ICMP),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", TCP),
    ("udp", UDP),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("icmpv6", ICMPV6),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", SCTP),
    ("udplite", 136),
];

/// The names that nftables gives to ICMP types, which follow the IANA registry.
const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

/// The same for ICMP for IPv6.
const ICMPV6_TYPES: &[(&str, u8)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("mld2-listener-report", 143),
];

/// Flags by the bit they have in the TCP header's flags byte (RFC 9293, section 3.1).
const FLAGS: &[(&str, u8)] = &[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
];

/// Patterns with a name of their own. A lone `syn` is the packet that opens a connection, so it demands
/// that ACK is clear; ECE and CWR are ignored throughout, since a SYN may carry them (RFC 3168).
const PATTERNS: &[(&str, TcpFlags)] = &[
    ("syn", TcpFlags { set: 0x02, clear: 0x10 }),
    ("syn-ack", TcpFlags { set: 0x12, clear: 0 }),
    ("null", TcpFlags { set: 0, clear: 0x3f }),
    ("xmas", TcpFlags { set: 0x29, clear: 0 }),
];

/// Reads a protocol's name or number.
pub(in crate::config) fn protocol(text: &str) -> Result<u8, Mistake> {
    named_or_number(text, PROTOCOLS).ok_or_else(|| {
        let names = PROTOCOLS.iter().map(|(name, _)| *name);
        not_known(text, "protocol").nearest(nearest(text, names))
    })
}

/// Reads a pattern of TCP flags: a name, or flags joined by commas, `!` before those that must be clear.
pub(in crate::config) fn tcp_flags(text: &str) -> Result<TcpFlags, Mistake> {
    if let Some((_, pattern)) = PATTERNS.iter().find(|(name, _)| *name == text) {
        return Ok(*pattern);
    }
    let mut pattern = TcpFlags { set: 0, clear: 0 };
    for part in text.split(',').map(str::trim) {
        let (name, side) = match part.strip_prefix('!') {
            Some(name) => (name, &mut pattern.clear),
            None => (part, &mut pattern.set),
        };
        let Some((_, bit)) = FLAGS.iter().find(|(flag, _)| *flag == name) else {
            let names =
                FLAGS.iter().chain(&[("syn-ack", 0), ("null", 0), ("xmas", 0)]).map(|(name, _)| *name);
            return Err(not_known(part, "TCP flag").nearest(nearest(name, names)));
        };
        *side |= bit;
    }
    if pattern.set & pattern.clear != 0 {
        let message = format!("{} wants a flag to be both set and clear", Quoted(text));
        return Err(Mistake::new(Code::BadValue, message));
    }
    Ok(pattern)
}

/// Reads an ICMP type, for the families that the match has.
pub(in crate::config) fn icmp_types(text: &str, v4: bool, v6: bool) -> Result<Vec<IcmpType>, Mistake> {
    let v4_type = named_or_number(text, ICMP_TYPES).filter(|_| v4).map(IcmpType::V4);
    let v6_type = named_or_number(text, ICMPV6_TYPES).filter(|_| v6).map(IcmpType::V6);
    if v4_type.is_none() && v6_type.is_none() {
        let family = |names: &'static [(&str, u8)], wanted| names.iter().filter(move |_| wanted);
        let names = || family(ICMP_TYPES, v4).chain(family(ICMPV6_TYPES, v6)).map(|(name, _)| *name);
        let what = match (v4, v6) {
            (true, false) => "type of ICMP",
            (false, true) => "type of ICMPv6",
            _ => "type of ICMP or ICMPv6",
        };
        let names_listed = names().collect::<Vec<_>>().join(", ");
        return Err(not_known(text, what)
            .expected(format!("a number, 0 to 255, or one of {names_listed}"))
            .nearest(nearest(text, names())));
    }
    Ok(v4_type.into_iter().chain(v6_type).collect())
}

/// Reads a part of a datagram.
pub(in crate::config) fn fragments(text: &str) -> Result<&'static [FragmentKind], Mistake> {
    super::choice::<&[FragmentKind]>(&[
        ("none", &[FragmentKind::None]),
        ("first", &[FragmentKind::First]),
        ("later", &[FragmentKind::Later]),
        ("any", &[FragmentKind::First, FragmentKind::Later]),
    ])(text)
}

/// Reads a VLAN id or `untagged`.
pub(in crate::config) fn vlan(text: &str) -> Result<Vlan, Mistake> {
    /// 4095 is reserved (IEEE 802.1Q, table 9-2).
    const MAX_ID: u32 = 4094;
    if text == "untagged" {
        return Ok(Vlan::Untagged);
    }
    let id = number(0..=MAX_ID)(text).map_err(|mistake| {
        mistake.expected("VLAN ids, 0 to 4094, or untagged").nearest(nearest(text, ["untagged"]))
    })?;
    Ok(Vlan::Id(u16::try_from(id).unwrap_or(u16::MAX)))
}

fn named_or_number(text: &str, names: &[(&str, u8)]) -> Option<u8> {
    if is_digits(text) {
        return text.parse().ok().filter(|_| text == "0" || !text.starts_with('0'));
    }
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

fn not_known(text: &str, what: &str) -> Mistake {
    Mistake::new(Code::BadValue, format!("{} is no {what}", Quoted(text)))
}
