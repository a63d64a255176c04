//! A packet that is asked about, and packets in words.

use std::net::IpAddr;

use ratelimit_common::{
    address::{Address, Family},
    packet::{ABSENT, Fragment, Packet},
    policy::stage,
};

use crate::{
    config::policy::TcpFlags,
    network::{
        description,
        in_force::{self, Policy},
    },
};

/// The first ICMPv6 type: the types of both families are one field.
const ICMPV6: u32 = 256;
/// Protocol numbers with ports.
const WITH_PORTS: [u8; 3] = [TCP, UDP, SCTP];
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const SCTP: u8 = 132;
/// The ACK bit: a segment of a connection that stands.
const ACK: u8 = 0x10;
/// What a port is unless it is said: one that clients use.
const SOURCE_PORT: u16 = 40_000;
/// Bytes of a small frame.
const LENGTH: u32 = 64;

/// A packet, as far as it is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unclear {
    /// Its protocol.
    pub protocol: Option<u8>,
    /// Its destination.
    pub destination: Option<IpAddr>,
    /// Its source port.
    pub source_port: Option<u16>,
    /// Its destination port.
    pub destination_port: Option<u16>,
    /// Its TCP flags.
    pub flags: Option<u8>,
    /// Its ICMP or ICMPv6 type.
    pub icmp_type: Option<u8>,
    /// Which fragment it is.
    pub fragment: Option<Fragment>,
    /// Its VLAN.
    pub vlan: Option<u16>,
    /// Bytes of the whole frame.
    pub length: Option<u32>,
}

/// A packet in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// It.
    pub packet: Packet,
    /// Bytes of the whole frame.
    pub length: u32,
    /// What was not said, with the stage that looks at it.
    assumed: Vec<(u64, String)>,
}

// === impl Unclear ===

impl Unclear {
    /// The packet, with what is not said taken for the usual; or what is said that does not go together.
    pub fn clear(self, source: IpAddr) -> Result<Question, String> {
        let source = in_force::address(source);
        let protocol = self.protocol(source.family)?;
        let fragment = self.fragment.unwrap_or(Fragment::None);
        let with_transport = fragment != Fragment::Later;
        let has_ports = WITH_PORTS.contains(&protocol) && with_transport;
        let is_tcp = protocol == TCP && with_transport;
        let is_icmp = matches!(protocol, ICMP | ICMP_V6) && with_transport;
        let name = description::protocol_name(protocol);
        let without = if with_transport { format!("{name} packets") } else { "later fragments".to_owned() };
        for (given, can, what) in [
            (self.source_port.or(self.destination_port).is_some(), has_ports, "ports"),
            (self.flags.is_some(), is_tcp, "TCP flags"),
            (self.icmp_type.is_some(), is_icmp, "an ICMP type"),
        ] {
            if given && !can {
                return Err(format!("{without} have no {}", what.trim_start_matches("an ")));
            }
        }

        let mut assumed = Vec::new();
        let mut assume = |stage, words: String| assumed.push((stage, words));
        let destination = match self.destination.map(in_force::address) {
            Some(destination) if destination.family != source.family => {
                return Err("the source and the destination are of different families".to_owned());
            }
            Some(destination) => destination,
            None => {
                assume(stage::DESTINATION, "a destination that no rule names".to_owned());
                unspecified(source.family)
            }
        };
        let mut port = |given: Option<u16>, usual: u16, stage, what: &str| match given {
            _ if !has_ports => ABSENT,
            Some(port) => port.into(),
            None => {
                assume(stage, format!("{what} port {usual}"));
                usual.into()
            }
        };
        let source_port = port(self.source_port, SOURCE_PORT, stage::SOURCE_PORT, "source");
        let destination_port = port(self.destination_port, 0, stage::DESTINATION_PORT, "destination");
        let tcp_flags = match self.flags {
            _ if !is_tcp => ABSENT,
            Some(flags) => flags.into(),
            None => {
                assume(stage::TCP_FLAGS, "the flag ack alone: data of a connection".to_owned());
                ACK.into()
            }
        };
        let icmp_type = match self.icmp_type {
            _ if !is_icmp => ABSENT,
            Some(number) => u32::from(number) + if protocol == ICMP_V6 { ICMPV6 } else { 0 },
            None => {
                assume(stage::ICMP_TYPE, "an echo request".to_owned());
                if protocol == ICMP_V6 { ICMPV6 + 128 } else { 8 }
            }
        };
        let length = self.length.unwrap_or_else(|| {
            assume(stage::LENGTH, format!("{LENGTH} bytes"));
            LENGTH
        });
        if self.vlan.is_none() {
            assume(stage::VLAN, "no VLAN tag".to_owned());
        }
        let neighbour = fragment == Fragment::None && is_neighbour(icmp_type, &source);
        if neighbour {
            assume(u64::MAX, "the hop limit and code that neighbour discovery must have".to_owned());
        }
        let packet = Packet {
            source,
            destination,
            protocol: protocol.into(),
            source_port,
            destination_port,
            tcp_flags,
            icmp_type,
            vlan: self.vlan.map_or(ABSENT, u32::from),
            fragment,
            neighbour,
            malformed: None,
            chain_too_long: false,
            cut: false,
        };
        Ok(Question { packet, length, assumed })
    }

    /// The protocol, or the one that what is said can only be of.
    fn protocol(&self, family: Family) -> Result<u8, String> {
        match self.protocol {
            Some(protocol) => Ok(protocol),
            None if self.flags.is_some() => Ok(TCP),
            None if self.icmp_type.is_some() => Ok(if family == Family::V4 { ICMP } else { ICMP_V6 }),
            None => Err("which protocol? say --protocol tcp, udp, icmp or a number".to_owned()),
        }
    }
}

/// Whether the kernel takes a message for neighbour or listener discovery, if its hop limit is right.
fn is_neighbour(icmp_type: u32, source: &Address) -> bool {
    let from_the_link = source.high >> 54 == 0xfe80 >> 6 || (source.high == 0 && source.low == 0);
    match icmp_type.checked_sub(ICMPV6) {
        Some(133..=137) => true,
        Some(130..=132 | 143) => from_the_link,
        _ => false,
    }
}

fn unspecified(family: Family) -> Address {
    match family {
        Family::V4 => Address::v4([0; 4]),
        Family::V6 => Address::v6([0; 16]),
    }
}

// === impl Question ===

impl Question {
    /// What was not said of the packet and what the policy looks at.
    pub(super) fn assumed_by(&self, policy: &Policy) -> Vec<String> {
        let mut looked_at = policy.compiled.stages;
        if !policy.network.management.is_empty() {
            looked_at |= stage::DESTINATION_PORT;
        }
        self.assumed
            .iter()
            .filter(|(stage, _)| looked_at & stage != 0)
            .map(|(_, words)| words.clone())
            .collect()
    }
}

// === words ===

/// `tcp 192.0.2.1:40000 -> 198.51.100.1:443, flags syn, 64 bytes`.
pub fn describe(packet: &Packet, length: u32) -> String {
    let end = |address: &Address, port: u32| {
        let address = in_force::ip(address);
        match u16::try_from(port) {
            Ok(port) => std::net::SocketAddr::new(address, port).to_string(),
            Err(_) => address.to_string(),
        }
    };
    let to = if packet.destination == unspecified(packet.destination.family) {
        u16::try_from(packet.destination_port).map(|port| format!(" -> port {port}")).unwrap_or_default()
    } else {
        format!(" -> {}", end(&packet.destination, packet.destination_port))
    };
    let mut text = format!("{} {}{to}", protocol_words(packet), end(&packet.source, packet.source_port));
    if packet.tcp_flags != ABSENT {
        text = format!("{text}, flags {}", flags_words(packet.tcp_flags));
    }
    if packet.icmp_type != ABSENT {
        text = format!("{text}, type {}", packet.icmp_type % ICMPV6);
    }
    if packet.fragment != Fragment::None {
        text = format!("{text}, {}", fragment_words(packet.fragment));
    }
    if packet.vlan != ABSENT {
        text = format!("{text}, {}", vlan_words(packet.vlan));
    }
    format!("{text}, {length} bytes")
}

pub(super) fn protocol_words(packet: &Packet) -> String {
    u8::try_from(packet.protocol)
        .map_or_else(|_| "an unknown protocol".to_owned(), description::protocol_name)
}

/// A number, or that there is none.
pub(super) fn optional(value: u32) -> String {
    if value == ABSENT { "none".to_owned() } else { value.to_string() }
}

pub(super) fn flags_words(flags: u32) -> String {
    match u8::try_from(flags) {
        Ok(0) => "none at all".to_owned(),
        Ok(set) => description::flags(TcpFlags { set, clear: 0 }),
        Err(_) => "none".to_owned(),
    }
}

pub(super) fn icmp_words(kind: u32) -> String {
    match kind {
        ABSENT => "none".to_owned(),
        kind if kind >= ICMPV6 => format!("{} (v6)", kind - ICMPV6),
        kind => kind.to_string(),
    }
}

pub(super) fn fragment_words(fragment: Fragment) -> &'static str {
    match fragment {
        Fragment::None => "no fragment",
        Fragment::First => "a first fragment",
        Fragment::Later => "a later fragment",
    }
}

pub(super) fn vlan_words(vlan: u32) -> String {
    if vlan == ABSENT { "no tag".to_owned() } else { format!("vlan {vlan}") }
}
