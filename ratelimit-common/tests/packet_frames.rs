//! The parser over generated frames: against what the generator knows of them, cut at every byte, damaged,
//! and against `etherparse`.

use std::iter;

use etherparse::{Ipv4Header, Ipv6FragmentHeader, Ipv6Header, TcpHeader, UdpHeader};
use proptest::{collection::vec, prelude::*, sample::select};
use ratelimit_common::{
    address::Address,
    packet::{ABSENT, Fragment, MAX_EXTENSION_HEADERS, Packet, Parsed, parse},
    record::Reason,
};

#[path = "../fuzz/oracle.rs"]
mod oracle;

use oracle::{Bytes, compare};

/// A well-formed frame, and what the parser must say of it.
#[derive(Clone, Debug)]
struct Generated {
    frame: Vec<u8>,
    packet: Packet,
    /// Offset of the IP header.
    ip: usize,
    /// Offset one past the addresses, and so of the first byte that can be missing without hiding them.
    addresses: usize,
    /// Offset one past the IP packet; trailing padding follows.
    end: usize,
}

#[derive(Clone, Debug)]
enum Transport {
    Tcp { flags: u8, options: usize },
    Udp,
    Sctp,
    Icmp { kind: u8 },
    Other { protocol: u8 },
}

#[derive(Clone, Debug)]
enum Extension {
    /// Hop-by-hop, routing, destination options, mobility, HIP, Shim6: the kind and its length byte.
    Units(u8, u8),
    Authentication(u8),
    /// Offset in eight-byte units, and more-fragments.
    Fragment(u16, bool),
}

// === impl Transport ===

impl Transport {
    /// The protocol number, the header with some payload, and what the packet says then.
    fn write(&self, ports: (u16, u16), v6: bool, data: &[u8], packet: &mut Packet) -> (u8, Vec<u8>) {
        let mut bytes = Vec::new();
        let protocol = match *self {
            Self::Tcp { flags, options } => {
                let mut tcp = TcpHeader::new(ports.0, ports.1, 1, 1024);
                tcp.set_options_raw(&vec![1; options * 4]).unwrap();
                tcp.write(&mut bytes).unwrap();
                bytes[13] = flags;
                packet.tcp_flags = u32::from(flags);
                6
            }
            Self::Udp => {
                UdpHeader::without_ipv4_checksum(ports.0, ports.1, data.len())
                    .unwrap()
                    .write(&mut bytes)
                    .unwrap();
                17
            }
            Self::Sctp => {
                bytes.extend(ports.0.to_be_bytes());
                bytes.extend(ports.1.to_be_bytes());
                bytes.extend([0; 8]);
                132
            }
            Self::Icmp { kind } => {
                bytes.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
                packet.icmp_type = if v6 { 256 } else { 0 } + u32::from(kind);
                if v6 { 58 } else { 1 }
            }
            Self::Other { protocol } => protocol,
        };
        if matches!(self, Self::Tcp { .. } | Self::Udp | Self::Sctp) {
            (packet.source_port, packet.destination_port) = (ports.0.into(), ports.1.into());
        }
        bytes.extend(data);
        packet.protocol = protocol.into();
        (protocol, bytes)
    }
}

// === impl Extension ===

impl Extension {
    const fn kind(&self) -> u8 {
        match self {
            Self::Units(kind, _) => *kind,
            Self::Authentication(_) => 51,
            Self::Fragment(..) => 44,
        }
    }

    fn write(&self, next: u8, bytes: &mut Vec<u8>) {
        match *self {
            Self::Units(_, units) => {
                bytes.extend([next, units]);
                bytes.extend(iter::repeat_n(0, 6 + usize::from(units) * 8));
            }
            Self::Authentication(units) => {
                bytes.extend([next, units]);
                bytes.extend(iter::repeat_n(0, 6 + usize::from(units) * 4));
            }
            Self::Fragment(offset, more) => {
                let header = Ipv6FragmentHeader::new(next.into(), offset.try_into().unwrap(), more, 7);
                header.write(bytes).unwrap();
            }
        }
    }
}

fn empty(source: Address, destination: Address) -> Packet {
    Packet {
        source,
        destination,
        protocol: ABSENT,
        source_port: ABSENT,
        destination_port: ABSENT,
        tcp_flags: ABSENT,
        icmp_type: ABSENT,
        vlan: ABSENT,
        fragment: Fragment::None,
        neighbour: false,
        malformed: None,
        chain_too_long: false,
        cut: false,
    }
}

/// What is left of a packet's description when its transport header is not there to be read.
fn without_transport(packet: Packet) -> Packet {
    Packet {
        source_port: ABSENT,
        destination_port: ABSENT,
        tcp_flags: ABSENT,
        icmp_type: ABSENT,
        neighbour: false,
        ..packet
    }
}

/// The frame around an IP packet.
fn frame(tags: &[(u16, u16)], ethertype: u16, ip: &[u8], padding: usize, packet: Packet) -> Generated {
    let mut frame = vec![2; 12];
    for (tag, control) in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    let start = frame.len();
    frame.extend(ip);
    let end = frame.len();
    frame.extend(vec![0xff; padding]);
    let vlan = tags.first().map_or(ABSENT, |(_, control)| u32::from(control & 0x0fff));
    let addresses = start + if ethertype == 0x0800 { 20 } else { 40 };
    Generated { frame, packet: Packet { vlan, ..packet }, ip: start, addresses, end }
}

fn transport() -> impl Strategy<Value = Transport> {
    prop_oneof![
        (any::<u8>(), 0..=10_usize).prop_map(|(flags, options)| Transport::Tcp { flags, options }),
        Just(Transport::Udp),
        Just(Transport::Sctp),
        any::<u8>().prop_map(|kind| Transport::Icmp { kind }),
        select(vec![2, 4, 33, 41, 47, 50, 59, 89, 112, 136, 253])
            .prop_map(|protocol| Transport::Other { protocol }),
    ]
}

fn tags() -> impl Strategy<Value = Vec<(u16, u16)>> {
    vec((select(vec![0x8100, 0x88a8, 0x9100]), any::<u16>()), 0..=2)
}

/// Flags above the 13 bits of offset: reserved, don't fragment, more fragments.
fn ipv4_frame() -> impl Strategy<Value = Generated> {
    let addresses = any::<([u8; 4], [u8; 4])>();
    let fragment = prop_oneof![Just(0_u16), Just(0x2000), 0..0x4000_u16];
    let flags = select(vec![0_u16, 0x4000, 0x8000, 0xc000]);
    let shape = (0..=10_usize, fragment, flags, transport(), any::<(u16, u16)>());
    (tags(), addresses, shape, vec(any::<u8>(), 0..40), 0..50_usize).prop_map(
        |(tags, (source, destination), (options, fragment, flags, transport, ports), data, padding)| {
            let mut packet = empty(Address::v4(source), Address::v4(destination));
            let (protocol, payload) = transport.write(ports, false, &data, &mut packet);
            let length = u16::try_from(payload.len()).unwrap();
            let mut header = Ipv4Header::new(length, 64, protocol.into(), source, destination).unwrap();
            header.options = vec![1; options * 4].as_slice().try_into().unwrap();
            header.set_payload_len(payload.len()).unwrap();
            let mut ip = Vec::new();
            header.write(&mut ip).unwrap();
            ip[6..8].copy_from_slice(&(fragment | flags).to_be_bytes());
            ip.extend(payload);
            if fragment & 0x1fff != 0 {
                packet = Packet { fragment: Fragment::Later, ..without_transport(packet) };
            } else if fragment != 0 {
                packet.fragment = Fragment::First;
            }
            frame(&tags, 0x0800, &ip, padding, packet)
        },
    )
}

fn extension() -> impl Strategy<Value = Extension> {
    let kinds = select(vec![0, 43, 60, 135, 139, 140]);
    prop_oneof![
        3 => (kinds, prop_oneof![0..3_u8, Just(255)]).prop_map(|(kind, units)| Extension::Units(kind, units)),
        1 => (1..10_u8).prop_map(Extension::Authentication),
        1 => (prop_oneof![3 => Just(0), 1 => 1..0x2000_u16], any::<bool>())
            .prop_map(|(offset, more)| Extension::Fragment(offset, more)),
    ]
}

fn ipv6_frame() -> impl Strategy<Value = Generated> {
    let source = prop_oneof![
        any::<[u8; 16]>(),
        Just([0; 16]),
        any::<[u8; 14]>().prop_map(|rest| {
            let mut address = [0xfe; 16];
            address[2..].copy_from_slice(&rest);
            address[1] = 0x80 | (rest[0] & 0x7f);
            address
        })
    ];
    let addresses = (source, any::<[u8; 16]>());
    let icmp = (128..150_u8).prop_map(|kind| Transport::Icmp { kind });
    let hop_limit = select(vec![1, 64, 254, 255]);
    let shape = (vec(extension(), 0..11), hop_limit, prop_oneof![transport(), icmp], any::<(u16, u16)>());
    (tags(), addresses, shape, vec(any::<u8>(), 0..40), 0..50_usize).prop_map(
        |(tags, (source, destination), (extensions, hop_limit, transport, ports), data, padding)| {
            let mut packet = empty(Address::v6(source), Address::v6(destination));
            let (protocol, payload) = transport.write(ports, true, &data, &mut packet);
            let mut ip = Vec::new();
            let header = Ipv6Header {
                payload_length: 0,
                next_header: extensions.first().map_or(protocol, Extension::kind).into(),
                hop_limit,
                source,
                destination,
                ..Ipv6Header::default()
            };
            header.write(&mut ip).unwrap();
            for (index, extension) in extensions.iter().enumerate() {
                let next = extensions.get(index + 1).map_or(protocol, Extension::kind);
                extension.write(next, &mut ip);
            }
            ip.extend(payload);
            let length = u16::try_from(ip.len() - 40).unwrap();
            ip[4..6].copy_from_slice(&length.to_be_bytes());
            packet.neighbour = protocol == 58
                && match (packet.icmp_type - 256, hop_limit) {
                    (133..=137, 255) => true,
                    (130..=132 | 143, 1) => {
                        source == [0; 16] || (source[0] == 0xfe && source[1] & 0xc0 == 0x80)
                    }
                    _ => false,
                };
            packet = after_extensions(&extensions, packet);
            frame(&tags, 0x86dd, &ip, padding, packet)
        },
    )
}

/// What a packet with these extension headers before its transport header is.
fn after_extensions(extensions: &[Extension], mut packet: Packet) -> Packet {
    for (index, extension) in extensions.iter().enumerate() {
        if index == MAX_EXTENSION_HEADERS {
            return Packet { protocol: ABSENT, chain_too_long: true, ..without_transport(packet) };
        }
        match *extension {
            Extension::Fragment(0, more) => {
                packet.neighbour = false;
                if more {
                    packet.fragment = Fragment::First;
                }
            }
            Extension::Fragment(..) => {
                let next = extensions.get(index + 1).map_or(packet.protocol, |next| next.kind().into());
                return Packet { fragment: Fragment::Later, protocol: next, ..without_transport(packet) };
            }
            Extension::Units(..) | Extension::Authentication(_) => {}
        }
    }
    packet
}

fn any_frame() -> impl Strategy<Value = Generated> {
    prop_oneof![2 => ipv4_frame(), 3 => ipv6_frame()]
}

/// What the parser must say when the frame ends after `length` bytes.
fn ended(generated: &Generated, length: usize) -> Parsed {
    let Generated { packet, ip, addresses, end, .. } = *generated;
    if length >= end {
        Parsed::Ip(packet)
    } else if length < 14 {
        Parsed::NotIp
    } else if length < ip {
        Parsed::Malformed(Reason::MalformedVlan)
    } else if addresses - ip == 20 {
        Parsed::Malformed(Reason::MalformedIpv4)
    } else {
        Parsed::Malformed(Reason::MalformedIpv6)
    }
}

proptest! {
    #[test]
    fn a_frame_is_what_it_was_made_of(generated in any_frame()) {
        prop_assert_eq!(parse(&Bytes::whole(&generated.frame)), Parsed::Ip(generated.packet));
    }

    #[test]
    fn a_frame_that_ends_early_is_malformed_from_any_byte_on(generated in any_frame()) {
        for length in 0..=generated.frame.len() {
            let frame = Bytes::whole(&generated.frame[..length]);
            prop_assert_eq!(parse(&frame), ended(&generated, length), "ends after {}", length);
        }
    }

    /// What is known of a packet grows with what can be read of it, and is never wrong.
    #[test]
    fn a_frame_that_is_cut_is_never_malformed(generated in any_frame()) {
        let Generated { frame, packet: whole, addresses, .. } = &generated;
        for readable in 0..=frame.len() {
            let parsed = parse(&Bytes { data: &frame[..readable], length: frame.len() });
            if readable < *addresses {
                prop_assert_eq!(parsed, Parsed::Cut, "{} readable", readable);
                continue;
            }
            let Parsed::Ip(packet) = parsed else { panic!("{parsed:?}") };
            if !packet.cut {
                prop_assert_eq!(packet, *whole, "{} readable", readable);
                continue;
            }
            let fragment = if packet.protocol == ABSENT { packet.fragment } else { whole.fragment };
            let protocol = if packet.protocol == ABSENT { ABSENT } else { whole.protocol };
            let known = Packet { cut: true, chain_too_long: false, fragment, protocol, ..without_transport(*whole) };
            prop_assert_eq!(packet, known, "{} readable", readable);
        }
        prop_assert_eq!(parse(&Bytes::whole(frame)), Parsed::Ip(*whole));
    }

    #[test]
    fn etherparse_agrees(generated in any_frame()) {
        compare(&generated.frame);
    }

    #[test]
    fn etherparse_agrees_on_every_prefix(generated in any_frame()) {
        for length in 0..generated.frame.len() {
            compare(&generated.frame[..length]);
        }
    }

    /// The IP length is made to fit after the cut, so that the cut hits what follows the IP header.
    #[test]
    fn etherparse_agrees_on_packets_that_end_within_a_later_header(generated in any_frame()) {
        let Generated { frame, ip, addresses, end, .. } = &generated;
        for end in *addresses..*end {
            let mut frame = frame[..end].to_vec();
            let (at, length) = if addresses - ip == 20 { (ip + 2, end - ip) } else { (ip + 4, end - addresses) };
            frame[at..at + 2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            compare(&frame);
        }
    }

    #[test]
    fn etherparse_agrees_on_damaged_frames(
        generated in any_frame(),
        damage in vec((0..200_usize, any::<u8>()), 1..6),
    ) {
        let mut frame = generated.frame;
        for (at, byte) in damage {
            let at = at % frame.len();
            frame[at] = byte;
        }
        compare(&frame);
    }

    #[test]
    fn etherparse_agrees_on_arbitrary_bytes(data in vec(any::<u8>(), 0..200)) {
        compare(&data);
    }
}
