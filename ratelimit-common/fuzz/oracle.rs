//! The parser against `etherparse`, a parser written independently of it, on the same bytes. Used by the
//! fuzz target and by the differential tests.
//!
//! `etherparse` finds and checks each header; which header comes next and what its absence means is
//! restated here. Where the two differ knowingly, a comment says so.

use etherparse::{
    EtherType, Icmpv4Slice, IpAuthHeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionsSlice,
    Ipv6FragmentHeaderSlice, Ipv6HeaderSlice, Ipv6RawExtHeaderSlice, LaxLinkExtSlice, LaxSlicedPacket,
    SlicedPacket, TcpHeaderSlice, TransportSlice, UdpHeaderSlice, UdpSlice, err, ether_type, ip_number,
};
use ratelimit_common::{
    address::Address,
    packet::{ABSENT, Fragment, Frame, MAX_EXTENSION_HEADERS, Packet, Parsed, parse},
    record::Reason,
};

/// A frame in memory, of which only `data` is readable.
#[derive(Debug)]
pub(crate) struct Bytes<'a> {
    /// What is readable.
    pub(crate) data: &'a [u8],
    /// Length of the whole frame.
    pub(crate) length: usize,
}

impl<'a> Bytes<'a> {
    /// A frame that is all there.
    pub(crate) fn whole(data: &'a [u8]) -> Self {
        Self { data, length: data.len() }
    }
}

impl Frame for Bytes<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        assert!(offset + N <= 0x8000, "the verifier is promised small offsets, this is {offset}");
        self.data.get(offset..offset + N)?.try_into().ok()
    }

    fn length(&self) -> usize {
        self.length
    }
}

/// Fails when the parser and `etherparse` disagree about `data`.
pub(crate) fn compare(data: &[u8]) {
    let ours = parse(&Bytes::whole(data));
    match expected(data) {
        Expected::Exactly(theirs) => assert_eq!(ours, theirs, "{data:02x?}"),
        Expected::Addresses(theirs) => {
            let Parsed::Ip(ours) = ours else { panic!("{ours:?} instead of {theirs:?}: {data:02x?}") };
            assert_eq!(
                (ours.source, ours.destination, ours.vlan),
                (theirs.source, theirs.destination, theirs.vlan),
                "{data:02x?}"
            );
        }
    }
    compare_whole(data, ours);
}

/// What the parser must say.
enum Expected {
    /// This.
    Exactly(Parsed),
    /// A packet with these addresses and VLAN; what follows the IP header cannot be compared.
    Addresses(Packet),
}

fn expected(data: &[u8]) -> Expected {
    match link(data) {
        Ok((ether_type::IPV4, vlan, ip)) => ipv4(data, vlan, ip),
        Ok((ether_type::IPV6, vlan, ip)) => ipv6(data, vlan, ip),
        Ok(_) => Expected::Exactly(Parsed::NotIp),
        Err(parsed) => Expected::Exactly(parsed),
    }
}

/// The ethertype after the tags, the outer VLAN, and what follows.
fn link(data: &[u8]) -> Result<(EtherType, u32, &[u8]), Parsed> {
    let packet = LaxSlicedPacket::from_ethernet(data).map_err(|_| Parsed::NotIp)?;
    // MACsec is followed by etherparse; here it is no IP.
    let tags: Vec<_> = packet
        .link_exts
        .iter()
        .map_while(|extension| match extension {
            LaxLinkExtSlice::Vlan(tag) => Some(tag),
            LaxLinkExtSlice::Macsec(_) => None,
        })
        .collect();
    let cut_tag = matches!(packet.stop_err, Some((_, err::Layer::VlanHeader)));
    if tags.len() > 2 || (cut_tag && tags.len() == packet.link_exts.len()) {
        return Err(Parsed::Malformed(Reason::MalformedVlan));
    }
    let ethertype = match tags.last() {
        Some(tag) => tag.ether_type(),
        None => EtherType(u16::from_be_bytes([data[12], data[13]])),
    };
    let vlan = tags.first().map_or(ABSENT, |tag| u32::from(tag.vlan_identifier().value()));
    Ok((ethertype, vlan, &data[14 + 4 * tags.len()..]))
}

fn packet(source: Address, destination: Address, vlan: u32) -> Packet {
    Packet {
        source,
        destination,
        protocol: ABSENT,
        source_port: ABSENT,
        destination_port: ABSENT,
        tcp_flags: ABSENT,
        icmp_type: ABSENT,
        vlan,
        fragment: Fragment::None,
        neighbour: false,
        malformed: None,
        chain_too_long: false,
        cut: false,
    }
}

fn ipv4(data: &[u8], vlan: u32, ip: &[u8]) -> Expected {
    let malformed = Expected::Exactly(Parsed::Malformed(Reason::MalformedIpv4));
    let Ok(header) = Ipv4HeaderSlice::from_slice(ip) else { return malformed };
    let jumbo = header.total_len() == 0 && data.len() > 65_535;
    let length = if jumbo { ip.len() } else { usize::from(header.total_len()) };
    let Some(payload) = ip.get(header.slice().len()..length) else { return malformed };

    let mut packet = packet(Address::v4(header.source()), Address::v4(header.destination()), vlan);
    packet.fragment = fragment(header.fragments_offset().value(), header.more_fragments());
    // An authentication header over IPv4 is a protocol here and a header to pass for etherparse.
    packet.protocol = u32::from(header.protocol().0);
    if packet.fragment != Fragment::Later {
        match header.protocol() {
            ip_number::ICMP => icmp(payload, &mut packet),
            protocol => transport(protocol, payload, jumbo, &mut packet),
        }
    }
    Expected::Exactly(Parsed::Ip(packet))
}

fn ipv6(data: &[u8], vlan: u32, ip: &[u8]) -> Expected {
    let malformed = Expected::Exactly(Parsed::Malformed(Reason::MalformedIpv6));
    let Ok(header) = Ipv6HeaderSlice::from_slice(ip) else { return malformed };
    // etherparse takes a zero length as "to the end" in any packet.
    let jumbo = header.payload_length() == 0
        && (data.len() > 65_535 || header.next_header() == ip_number::IPV6_HEADER_HOP_BY_HOP);
    let length = if jumbo { ip.len() } else { 40 + usize::from(header.payload_length()) };
    let Some(payload) = ip.get(40..length) else { return malformed };

    let mut packet = packet(Address::v6(header.source()), Address::v6(header.destination()), vlan);
    let (extensions, protocol, payload, stopped) =
        Ipv6ExtensionsSlice::from_slice_lax(header.next_header(), payload);
    // Not by etherparse's iterator: it reads past the slice when hop-by-hop options come late.
    let (mut kind, mut rest) = (header.next_header(), extensions.slice());
    let mut count = 0;
    let mut fragmented = false;
    while !rest.is_empty() {
        // etherparse has no bound.
        if count == MAX_EXTENSION_HEADERS {
            packet.chain_too_long = true;
            return Expected::Exactly(Parsed::Ip(packet));
        }
        count += 1;
        let length = match kind {
            ip_number::IPV6_FRAGMENTATION_HEADER => {
                let header = Ipv6FragmentHeaderSlice::from_slice(rest).expect("passed before");
                fragmented = true;
                kind = header.next_header();
                match fragment(header.fragment_offset().value(), header.more_fragments()) {
                    // etherparse walks on through a later fragment's data.
                    Fragment::Later => {
                        packet.fragment = Fragment::Later;
                        packet.protocol = u32::from(kind.0);
                        return Expected::Exactly(Parsed::Ip(packet));
                    }
                    Fragment::First => packet.fragment = Fragment::First,
                    Fragment::None => {}
                }
                header.slice().len()
            }
            ip_number::AUTHENTICATION_HEADER => {
                let header = IpAuthHeaderSlice::from_slice(rest).expect("passed before");
                kind = header.next_header();
                header.slice().len()
            }
            _ => {
                let header = Ipv6RawExtHeaderSlice::from_slice(rest).expect("passed before");
                kind = header.next_header();
                header.slice().len()
            }
        };
        rest = &rest[length..];
    }
    // The ninth header need not be whole to be the ninth.
    if count == MAX_EXTENSION_HEADERS && stopped.is_some() {
        packet.chain_too_long = true;
        return Expected::Exactly(Parsed::Ip(packet));
    }
    match stopped {
        // etherparse wants hop-by-hop options first and no authentication header without a check value;
        // the walk here does not judge what it passes.
        Some((err::ipv6_exts::HeaderSliceError::Content(_), _)) => return Expected::Addresses(packet),
        // Nor does it take an authentication header of eight bytes, which the length byte can state.
        Some((_, err::Layer::IpAuthHeader)) if payload.get(1) == Some(&0) => {
            return Expected::Addresses(packet);
        }
        Some((err::ipv6_exts::HeaderSliceError::Len(_), _)) => {
            packet.malformed = Some(Reason::MalformedExtension);
            return Expected::Exactly(Parsed::Ip(packet));
        }
        None => {}
    }
    // Mobility, HIP and Shim6 are extension headers by IANA's list; etherparse does not pass them.
    if matches!(protocol.0, 135 | 139 | 140) {
        return Expected::Addresses(packet);
    }
    packet.protocol = u32::from(protocol.0);
    match protocol {
        ip_number::IPV6_ICMP => icmpv6(payload, &header, fragmented, &mut packet),
        _ => transport(protocol, payload, jumbo, &mut packet),
    }
    Expected::Exactly(Parsed::Ip(packet))
}

fn fragment(offset: u16, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::None,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

fn icmp(payload: &[u8], packet: &mut Packet) {
    // etherparse asks more of timestamp messages than the eight bytes of all.
    match payload.get(..8).map(Icmpv4Slice::from_slice) {
        Some(_) => packet.icmp_type = u32::from(payload[0]),
        None => packet.malformed = Some(Reason::MalformedIcmp),
    }
}

fn icmpv6(payload: &[u8], ip: &Ipv6HeaderSlice<'_>, fragmented: bool, packet: &mut Packet) {
    // etherparse asks for eight bytes, RFC 4443 for four.
    let [kind, code, _, _, ..] = *payload else {
        packet.malformed = Some(Reason::MalformedIcmp);
        return;
    };
    packet.icmp_type = 256 + u32::from(kind);
    let source = ip.source_addr();
    let discovery = (133..=137).contains(&kind) && code == 0 && ip.hop_limit() == 255;
    let listener = [130, 131, 132, 143].contains(&kind)
        && ip.hop_limit() == 1
        && (source.is_unicast_link_local() || source.is_unspecified());
    packet.neighbour = !fragmented && (discovery || listener);
}

fn transport(protocol: IpNumber, payload: &[u8], jumbo: bool, packet: &mut Packet) {
    let whole = packet.fragment == Fragment::None;
    match protocol {
        ip_number::TCP => match tcp(payload, whole) {
            Some((source, destination, flags)) => {
                (packet.source_port, packet.destination_port) = (source, destination);
                packet.tcp_flags = flags;
            }
            None => packet.malformed = Some(Reason::MalformedTcp),
        },
        ip_number::UDP => match udp(payload, whole, jumbo) {
            Some((source, destination)) => {
                (packet.source_port, packet.destination_port) = (source, destination);
            }
            None => packet.malformed = Some(Reason::MalformedUdp),
        },
        // etherparse has no SCTP.
        ip_number::SCTP => match payload {
            [a, b, c, d, rest @ ..] if rest.len() >= 8 => {
                packet.source_port = u32::from(u16::from_be_bytes([*a, *b]));
                packet.destination_port = u32::from(u16::from_be_bytes([*c, *d]));
            }
            _ => packet.malformed = Some(Reason::MalformedSctp),
        },
        _ => {}
    }
}

/// Ports and flags.
fn tcp(payload: &[u8], whole: bool) -> Option<(u32, u32, u32)> {
    // etherparse reads nothing of a first fragment; here the options may be in the next one.
    let padding: &[u8] = if whole || payload.len() < 20 { &[] } else { &[0; 40] };
    let bytes = [payload, padding].concat();
    let tcp = TcpHeaderSlice::from_slice(&bytes).ok()?;
    let flags = [tcp.cwr(), tcp.ece(), tcp.urg(), tcp.ack(), tcp.psh(), tcp.rst(), tcp.syn(), tcp.fin()];
    let flags = flags.iter().fold(0, |flags, bit| (flags << 1) | u32::from(*bit));
    Some((tcp.source_port().into(), tcp.destination_port().into(), flags))
}

/// Ports.
fn udp(payload: &[u8], whole: bool, jumbo: bool) -> Option<(u32, u32)> {
    let udp = UdpHeaderSlice::from_slice(payload).ok()?;
    let length = udp.length();
    // etherparse takes a zero length as "to the end" in any datagram, and reads nothing of a first fragment.
    let possible = match length {
        0 => jumbo,
        _ if whole => UdpSlice::from_slice(payload).is_ok(),
        _ => length >= 8,
    };
    possible.then(|| (udp.source_port().into(), udp.destination_port().into()))
}

/// Whatever `etherparse` takes for a flawless TCP or UDP packet, reading it in one go, has the same ports
/// here, or is one of the known differences.
fn compare_whole(data: &[u8], ours: Parsed) {
    let Ok(theirs) = SlicedPacket::from_ethernet(data) else { return };
    let ports = match theirs.transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(TransportSlice::Udp(udp)) if udp.length() != 0 => (udp.source_port(), udp.destination_port()),
        _ => return,
    };
    match ours {
        // MACsec, a third tag, a version that is not the ethertype's, a zero length of the IP packet.
        Parsed::NotIp | Parsed::Malformed(_) => {}
        Parsed::Cut => panic!("nothing is cut: {data:02x?}"),
        Parsed::Ip(packet) => {
            let is_transport = [6, 17].contains(&packet.protocol) && packet.malformed.is_none();
            if is_transport {
                let ours = (packet.source_port, packet.destination_port);
                assert_eq!(ours, (u32::from(ports.0), u32::from(ports.1)), "{data:02x?}");
            }
        }
    }
}
