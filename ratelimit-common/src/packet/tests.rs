//! One packet of each kind that has gone wrong elsewhere, by hand. Generated frames: `tests/packet_frames.rs`.

extern crate std;

use std::{vec, vec::Vec};

use etherparse::PacketBuilder;

use super::{ABSENT, Fragment, Frame, MAX_EXTENSION_HEADERS, Packet, Parsed, parse};
use crate::{address::Address, record::Reason};

const SOURCE_V4: [u8; 4] = [192, 0, 2, 1];
const TARGET_V4: [u8; 4] = [198, 51, 100, 7];
const SOURCE_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const TARGET_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SYN: u32 = 0x02;

/// Offset of the IP header in an untagged frame.
const IP: usize = 14;

struct Bytes<'a> {
    data: &'a [u8],
    length: usize,
}

impl Frame for Bytes<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.data.get(offset..offset + N)?.try_into().ok()
    }

    fn length(&self) -> usize {
        self.length
    }
}

fn whole(data: &[u8]) -> Parsed {
    parse(&Bytes { data, length: data.len() })
}

/// The packet in a frame that is all there.
fn packet(data: &[u8]) -> Packet {
    match whole(data) {
        Parsed::Ip(packet) => packet,
        other => panic!("{other:?}"),
    }
}

fn tcp_syn_v4() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(SOURCE_V4, TARGET_V4, 64);
    let builder = builder.tcp(40000, 443, 1, 1024).syn();
    let mut frame = Vec::new();
    builder.write(&mut frame, b"payload").unwrap();
    frame
}

fn udp_v4() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(SOURCE_V4, TARGET_V4, 64).udp(5000, 53);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"payload").unwrap();
    frame
}

fn tcp_syn_v6() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(SOURCE_V6, TARGET_V6, 64);
    let builder = builder.tcp(40000, 443, 1, 1024).syn();
    let mut frame = Vec::new();
    builder.write(&mut frame, b"payload").unwrap();
    frame
}

/// An untagged frame with this IPv6 packet.
fn ipv6(next_header: u8, hop_limit: u8, source: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend([next_header, hop_limit]);
    frame.extend(source);
    frame.extend(TARGET_V6);
    frame.extend(payload);
    frame
}

/// An untagged frame with this IPv4 packet.
fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(SOURCE_V4);
    frame.extend(TARGET_V4);
    frame.extend(payload);
    frame
}

/// The transport part of a frame made by the builders above.
fn transport(frame: &[u8]) -> &[u8] {
    match frame[12] {
        0x08 => &frame[IP + 20..],
        _ => &frame[IP + 40..],
    }
}

fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], tags.as_flattened(), &frame[12..]].concat()
}

fn destination_options(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

fn fragment_header(next: u8, offset_and_more: u16) -> [u8; 8] {
    let [high, low] = offset_and_more.to_be_bytes();
    [next, 0, high, low, 0, 0, 0, 9]
}

#[test]
fn one_tag_changes_nothing_but_the_vlan() {
    let plain = udp_v4();
    let packet_in_vlan = packet(&tagged(&plain, &[[0x81, 0x00, 0xa0, 0x05]]));
    assert_eq!(packet_in_vlan, Packet { vlan: 5, ..packet(&plain) });
    assert_eq!(packet_in_vlan.source, Address::v4(SOURCE_V4));
    assert_eq!((packet_in_vlan.source_port, packet_in_vlan.destination_port), (5000, 53));
}

#[test]
fn two_tags_change_nothing_but_the_vlan_which_is_the_outer_one() {
    let plain = tcp_syn_v6();
    for outer in [[0x88, 0xa8], [0x91, 0x00], [0x81, 0x00]] {
        let tags = [[outer[0], outer[1], 0x1f, 0xff], [0x81, 0x00, 0x00, 0x07]];
        assert_eq!(packet(&tagged(&plain, &tags)), Packet { vlan: 0xfff, ..packet(&plain) });
    }
    assert_eq!(packet(&plain).tcp_flags, SYN);
}

#[test]
fn a_third_tag_is_malformed() {
    let tag = [0x81, 0x00, 0x00, 0x01];
    assert_eq!(whole(&tagged(&udp_v4(), &[tag; 3])), Parsed::Malformed(Reason::MalformedVlan));
}

#[test]
fn a_frame_that_ends_within_a_tag_is_malformed() {
    let frame = tagged(&udp_v4(), &[[0x88, 0xa8, 0, 1], [0x81, 0x00, 0, 2]]);
    for length in 14..22 {
        assert_eq!(whole(&frame[..length]), Parsed::Malformed(Reason::MalformedVlan), "{length}");
    }
}

#[test]
fn what_is_not_ip_is_left_alone() {
    let llc = [[2_u8; 12].as_slice(), &[0x00, 0x26, 0x42, 0x42, 0x03], &[0; 43]].concat();
    assert_eq!(whole(&llc), Parsed::NotIp);
    for ethertype in [0x0806_u16, 0x88cc, 0x888e, 0x8847, 0x8864, 0x05ff, 0x86dc] {
        let mut frame = udp_v4();
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        assert_eq!(whole(&frame), Parsed::NotIp, "{ethertype:#06x}");
        assert_eq!(whole(&tagged(&frame, &[[0x81, 0x00, 0, 1]])), Parsed::NotIp, "tagged {ethertype:#06x}");
    }
}

#[test]
fn a_frame_without_an_ethernet_header_is_not_ip() {
    for length in 0..14 {
        assert_eq!(whole(&udp_v4()[..length]), Parsed::NotIp);
    }
}

#[test]
fn the_version_must_be_the_ethertypes() {
    let mut four = udp_v4();
    four[IP] = 0x65;
    assert_eq!(whole(&four), Parsed::Malformed(Reason::MalformedIpv4));
    let mut six = tcp_syn_v6();
    six[IP] = 0x40;
    assert_eq!(whole(&six), Parsed::Malformed(Reason::MalformedIpv6));
}

#[test]
fn ipv4_options_of_every_length_are_skipped() {
    let plain = tcp_syn_v4();
    for words in 0..=10_u8 {
        let options = vec![1; usize::from(words) * 4];
        let mut frame = [&plain[..IP + 20], &options, &plain[IP + 20..]].concat();
        frame[IP] = 0x45 + words;
        let length = u16::try_from(frame.len() - IP).unwrap();
        frame[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(packet(&frame), packet(&plain), "{words} words of options");
    }
}

#[test]
fn an_impossible_ipv4_header_length_is_malformed() {
    for ihl in 0..5 {
        let mut frame = tcp_syn_v4();
        frame[IP] = 0x40 | ihl;
        assert_eq!(whole(&frame), Parsed::Malformed(Reason::MalformedIpv4), "{ihl} words");
    }
    let mut beyond = ipv4(17, 0, &[0; 8]);
    beyond[IP] = 0x4f;
    assert_eq!(whole(&beyond), Parsed::Malformed(Reason::MalformedIpv4));
}

#[test]
fn an_impossible_ipv4_total_length_is_malformed() {
    let fits = u16::try_from(udp_v4().len() - IP).unwrap();
    for length in [0, 19, fits + 1, u16::MAX] {
        let mut frame = udp_v4();
        frame[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(whole(&frame), Parsed::Malformed(Reason::MalformedIpv4), "{length}");
    }
}

#[test]
fn an_impossible_ipv6_payload_length_is_malformed() {
    let fits = u16::try_from(tcp_syn_v6().len() - IP - 40).unwrap();
    for length in [fits + 1, u16::MAX] {
        let mut frame = tcp_syn_v6();
        frame[IP + 4..IP + 6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(whole(&frame), Parsed::Malformed(Reason::MalformedIpv6), "{length}");
    }
}

/// A short packet in a frame padded to the Ethernet minimum: the padding is no part of it.
#[test]
fn padding_is_no_transport_header() {
    let mut four = ipv4(6, 0, &[0; 4]);
    four.resize(60, 0x50);
    assert_eq!(packet(&four).malformed, Some(Reason::MalformedTcp));
    let mut six = ipv6(17, 64, SOURCE_V6, &[]);
    six.resize(80, 0);
    assert_eq!(packet(&six).malformed, Some(Reason::MalformedUdp));
    let mut padded = udp_v4();
    padded.resize(100, 0xff);
    assert_eq!(packet(&padded), packet(&udp_v4()));
}

#[test]
fn a_packet_too_long_for_its_length_field_reaches_to_the_end_of_the_frame() {
    let mut four = udp_v4();
    four[IP + 2..IP + 4].copy_from_slice(&[0, 0]);
    four[IP + 20 + 4..IP + 20 + 6].copy_from_slice(&[0, 0]);
    assert_eq!(whole(&four), Parsed::Malformed(Reason::MalformedIpv4));
    four.resize(70_000, 0);
    assert_eq!((packet(&four).destination_port, packet(&four).malformed), (53, None));

    let mut six = tcp_syn_v6();
    six[IP + 4..IP + 6].copy_from_slice(&[0, 0]);
    assert_eq!(packet(&six).malformed, Some(Reason::MalformedTcp));
    six.resize(70_000, 0);
    assert_eq!((packet(&six).destination_port, packet(&six).malformed), (443, None));
}

#[test]
fn a_jumbogram_reaches_to_the_end_of_the_frame() {
    let udp = [0x13, 0x88, 0, 53, 0, 0, 0, 0];
    let hop_by_hop = [17, 0, 0xc2, 4, 0, 1, 0x11, 0x70];
    let mut frame = ipv6(0, 64, SOURCE_V6, &[hop_by_hop.as_slice(), &udp].concat());
    assert_eq!(
        packet(&frame).malformed,
        Some(Reason::MalformedUdp),
        "a UDP length of zero needs a jumbogram"
    );
    frame[IP + 4..IP + 6].copy_from_slice(&[0, 0]);
    assert_eq!((packet(&frame).destination_port, packet(&frame).malformed), (53, None));
}

#[test]
fn only_offset_and_more_fragments_make_a_fragment() {
    let tcp = transport(&tcp_syn_v4()).to_vec();
    for bits in [0x0000, 0x4000, 0x8000, 0xc000] {
        let packet = packet(&ipv4(6, bits, &tcp));
        assert_eq!((packet.fragment, packet.tcp_flags), (Fragment::None, SYN), "{bits:#06x}");
        assert_eq!((packet.source_port, packet.destination_port), (40000, 443), "{bits:#06x}");
    }
}

#[test]
fn a_first_fragment_has_ports_and_flags() {
    for bits in [0x2000, 0x6000, 0xa000] {
        let packet = packet(&ipv4(6, bits, transport(&tcp_syn_v4())));
        assert_eq!((packet.fragment, packet.tcp_flags), (Fragment::First, SYN));
        assert_eq!((packet.source_port, packet.destination_port), (40000, 443));
    }
}

/// The bytes of a later fragment look like a SYN here; nothing may be read into them.
#[test]
fn a_later_fragment_has_a_protocol_but_no_ports_and_no_flags() {
    for bits in [0x0001, 0x1fff, 0x2001, 0x60b9] {
        let packet = packet(&ipv4(6, bits, transport(&tcp_syn_v4())));
        assert_eq!((packet.fragment, packet.protocol), (Fragment::Later, 6), "{bits:#06x}");
        assert_eq!((packet.source_port, packet.destination_port), (ABSENT, ABSENT), "{bits:#06x}");
        assert_eq!((packet.tcp_flags, packet.malformed), (ABSENT, None), "{bits:#06x}");
    }
    let tiny = packet(&ipv4(1, 0x0001, &[8]));
    assert_eq!((tiny.icmp_type, tiny.malformed), (ABSENT, None));
}

#[test]
fn ipv6_fragments_are_told_apart() {
    let tcp = transport(&tcp_syn_v6()).to_vec();
    let fragment = |bits| packet(&ipv6(44, 64, SOURCE_V6, &[&fragment_header(6, bits)[..], &tcp].concat()));
    let atomic = fragment(0x0006);
    assert_eq!((atomic.fragment, atomic.tcp_flags, atomic.protocol), (Fragment::None, SYN, 6));
    let first = fragment(0x0001);
    assert_eq!((first.fragment, first.tcp_flags, first.destination_port), (Fragment::First, SYN, 443));
    for bits in [0x0008, 0x0009, 0xfff8] {
        let later = fragment(bits);
        assert_eq!((later.fragment, later.protocol), (Fragment::Later, 6), "{bits:#06x}");
        assert_eq!((later.tcp_flags, later.destination_port), (ABSENT, ABSENT), "{bits:#06x}");
    }
}

#[test]
fn a_later_fragments_data_is_not_walked() {
    let data = [&fragment_header(60, 0x0008)[..], &destination_options(6), transport(&tcp_syn_v6())].concat();
    let packet = packet(&ipv6(44, 64, SOURCE_V6, &data));
    assert_eq!((packet.protocol, packet.tcp_flags, packet.malformed), (60, ABSENT, None));
}

#[test]
fn a_first_fragment_needs_a_whole_header_but_not_the_whole_datagram() {
    let mut tcp = transport(&tcp_syn_v4())[..20].to_vec();
    tcp[12] = 0xf0;
    assert_eq!(packet(&ipv4(6, 0x2000, &tcp)).malformed, None);
    assert_eq!(packet(&ipv4(6, 0, &tcp)).malformed, Some(Reason::MalformedTcp));
    assert_eq!(packet(&ipv4(6, 0x2000, &tcp[..19])).malformed, Some(Reason::MalformedTcp));
    let udp = [0, 1, 0, 2, 0xff, 0xff, 0, 0];
    assert_eq!(packet(&ipv4(17, 0x2000, &udp)).malformed, None);
    assert_eq!(packet(&ipv4(17, 0, &udp)).malformed, Some(Reason::MalformedUdp));
}

#[test]
fn extension_headers_up_to_the_bound_are_passed() {
    let plain = packet(&tcp_syn_v6());
    for count in 0..=MAX_EXTENSION_HEADERS {
        let mut payload: Vec<u8> =
            (0..count).flat_map(|at| destination_options(if at + 1 == count { 6 } else { 60 })).collect();
        payload.extend(transport(&tcp_syn_v6()));
        let first = if count == 0 { 6 } else { 60 };
        assert_eq!(packet(&ipv6(first, 64, SOURCE_V6, &payload)), plain, "{count} headers");
    }
}

#[test]
fn a_longer_chain_is_judged_by_its_addresses_alone() {
    for count in [MAX_EXTENSION_HEADERS + 1, 40] {
        let mut payload: Vec<u8> =
            (0..count).flat_map(|at| destination_options(if at + 1 == count { 6 } else { 60 })).collect();
        payload.extend(transport(&tcp_syn_v6()));
        let packet = packet(&ipv6(60, 64, SOURCE_V6, &payload));
        assert!(packet.chain_too_long, "{count} headers");
        assert_eq!((packet.source, packet.protocol), (Address::v6(SOURCE_V6), ABSENT));
        assert_eq!((packet.tcp_flags, packet.destination_port, packet.malformed), (ABSENT, ABSENT, None));
    }
}

#[test]
fn every_kind_of_extension_header_is_passed_by_its_own_length() {
    let tcp = transport(&tcp_syn_v6()).to_vec();
    for kind in [0, 43, 60, 135, 139, 140] {
        let payload = [&[6, 1][..], &[0; 14], &tcp].concat();
        assert_eq!(packet(&ipv6(kind, 64, SOURCE_V6, &payload)).tcp_flags, SYN, "{kind}");
    }
    let authentication = [&[6, 4][..], &[0; 22], &tcp].concat();
    assert_eq!(packet(&ipv6(51, 64, SOURCE_V6, &authentication)).tcp_flags, SYN);
    let longest = [&[6, 255][..], &[0; 2046], &tcp].concat();
    assert_eq!(packet(&ipv6(60, 64, SOURCE_V6, &longest)).tcp_flags, SYN);
}

/// Eight bytes are too few for an authentication header, but that is for the stack to say; found by the
/// fuzzer, since `etherparse` calls it cut short.
#[test]
fn an_authentication_header_is_passed_by_the_length_it_states() {
    let payload = [&[6, 0][..], &[0; 6], transport(&tcp_syn_v6())].concat();
    assert_eq!(packet(&ipv6(51, 64, SOURCE_V6, &payload)).tcp_flags, SYN);
    let end = packet(&ipv6(51, 64, SOURCE_V6, &[58, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!((end.protocol, end.malformed), (58, Some(Reason::MalformedIcmp)));
}

#[test]
fn an_extension_header_cut_short_is_malformed_and_keeps_the_addresses() {
    for kind in [0, 43, 44, 51, 60, 135, 139, 140] {
        for length in 0..8 {
            let packet = packet(&ipv6(kind, 64, SOURCE_V6, &vec![0; length]));
            // A packet with hop-by-hop options and a length of zero is a jumbogram, here an empty one.
            assert_eq!(packet.malformed, Some(Reason::MalformedExtension), "{kind}, {length} bytes");
            assert_eq!((packet.source, packet.protocol), (Address::v6(SOURCE_V6), ABSENT));
        }
    }
    let overlong = packet(&ipv6(60, 64, SOURCE_V6, &[6, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(overlong.malformed, Some(Reason::MalformedExtension));
}

#[test]
fn a_transport_header_cut_short_is_malformed_and_keeps_the_addresses() {
    let kinds = [
        (6, 20, Reason::MalformedTcp),
        (17, 8, Reason::MalformedUdp),
        (132, 12, Reason::MalformedSctp),
        (1, 8, Reason::MalformedIcmp),
    ];
    for (protocol, whole, reason) in kinds {
        for length in 0..whole {
            let packet = packet(&ipv4(protocol, 0, &vec![0; length]));
            assert_eq!((packet.malformed, packet.protocol), (Some(reason), protocol.into()));
            assert_eq!((packet.source, packet.destination_port), (Address::v4(SOURCE_V4), ABSENT));
        }
    }
    for length in 0..4 {
        let packet = packet(&ipv6(58, 64, SOURCE_V6, &vec![128; length]));
        assert_eq!((packet.malformed, packet.icmp_type), (Some(Reason::MalformedIcmp), ABSENT));
    }
}

#[test]
fn an_impossible_transport_length_is_malformed() {
    for offset in 0..5 {
        let mut tcp = transport(&tcp_syn_v4()).to_vec();
        tcp[12] = offset << 4;
        assert_eq!(packet(&ipv4(6, 0, &tcp)).malformed, Some(Reason::MalformedTcp), "{offset} words");
    }
    for length in [0, 7, 9] {
        let udp = [0, 1, 0, 2, 0, length, 0, 0];
        assert_eq!(packet(&ipv4(17, 0, &udp)).malformed, Some(Reason::MalformedUdp), "{length} bytes");
    }
}

/// Lists are looked up for every one of these.
#[test]
fn every_kind_of_packet_has_a_source() {
    let gre = ipv4(47, 0, &[0; 4]);
    let esp = ipv6(50, 64, SOURCE_V6, &[0; 4]);
    let icmpv6 = ipv6(58, 64, SOURCE_V6, &[128, 0, 0, 0, 0, 0, 0, 0]);
    let options = ipv6(60, 64, SOURCE_V6, &destination_options(59));
    let vlan = tagged(&udp_v4(), &[[0x81, 0x00, 0, 9]]);
    for (frame, protocol) in [(gre, 47), (esp, 50), (icmpv6, 58), (options, 59), (vlan, 17)] {
        let packet = packet(&frame);
        assert!([Address::v4(SOURCE_V4), Address::v6(SOURCE_V6)].contains(&packet.source));
        assert_eq!((packet.protocol, packet.malformed), (protocol, None));
    }
}

#[test]
fn icmp_types_of_the_two_families_are_apart() {
    assert_eq!(packet(&ipv4(1, 0, &[8, 0, 0, 0, 0, 0, 0, 0])).icmp_type, 8);
    assert_eq!(packet(&ipv6(58, 64, SOURCE_V6, &[128, 0, 0, 0])).icmp_type, 256 + 128);
    // ICMP over IPv6 and ICMPv6 over IPv4 are neither.
    assert_eq!(packet(&ipv6(1, 64, SOURCE_V6, &[8, 0, 0, 0, 0, 0, 0, 0])).icmp_type, ABSENT);
    assert_eq!(packet(&ipv4(58, 0, &[128, 0, 0, 0, 0, 0, 0, 0])).icmp_type, ABSENT);
}

#[test]
fn neighbour_discovery_comes_from_the_link_and_is_never_fragmented() {
    for kind in 133..=137 {
        let message = [kind, 0, 0, 0, 0, 0, 0, 0];
        assert!(packet(&ipv6(58, 255, SOURCE_V6, &message)).neighbour, "{kind}");
        for hop_limit in [0, 1, 64, 254] {
            assert!(!packet(&ipv6(58, hop_limit, SOURCE_V6, &message)).neighbour, "{kind}, {hop_limit}");
        }
        assert!(!packet(&ipv6(58, 255, SOURCE_V6, &[kind, 1, 0, 0])).neighbour, "{kind} with a code");
        let options = [&destination_options(58)[..], &message].concat();
        assert!(packet(&ipv6(60, 255, SOURCE_V6, &options)).neighbour, "{kind} after options");
        for bits in [0x0000, 0x0001, 0x0008] {
            let fragment = [&fragment_header(58, bits)[..], &message].concat();
            assert!(!packet(&ipv6(44, 255, SOURCE_V6, &fragment)).neighbour, "{kind} in a fragment");
        }
    }
    for kind in [1, 128, 129, 132, 138] {
        assert!(!packet(&ipv6(58, 255, SOURCE_V6, &[kind, 0, 0, 0])).neighbour, "{kind}");
    }
}

#[test]
fn listener_discovery_comes_from_the_link() {
    let last_link_local = {
        let mut address = LINK_LOCAL;
        address[1] = 0xbf;
        address
    };
    let mut beyond = LINK_LOCAL;
    beyond[1] = 0xc0;
    for kind in [130, 131, 132, 143] {
        let message = [kind, 0, 0, 0, 0, 0, 0, 0];
        for source in [LINK_LOCAL, last_link_local, [0; 16]] {
            assert!(packet(&ipv6(58, 1, source, &message)).neighbour, "{kind}");
            assert!(!packet(&ipv6(58, 255, source, &message)).neighbour, "{kind}, hop limit 255");
        }
        for source in [SOURCE_V6, beyond] {
            assert!(!packet(&ipv6(58, 1, source, &message)).neighbour, "{kind}");
        }
    }
}

/// The kernel's first buffer may hold as little as the Ethernet header.
#[test]
fn what_lies_beyond_the_readable_data_is_unknown_and_not_malformed() {
    let frame = tcp_syn_v4();
    let cut = |readable: usize| parse(&Bytes { data: &frame[..readable], length: frame.len() });
    for readable in 0..34 {
        assert_eq!(cut(readable), Parsed::Cut, "{readable} readable");
    }
    for readable in 34..54 {
        let Parsed::Ip(packet) = cut(readable) else { panic!("{readable} readable") };
        assert_eq!((packet.cut, packet.malformed), (true, None), "{readable} readable");
        assert_eq!((packet.source, packet.protocol), (Address::v4(SOURCE_V4), 6));
        assert_eq!((packet.destination_port, packet.tcp_flags), (ABSENT, ABSENT));
    }
    assert_eq!(cut(54), whole(&frame));
}

#[test]
fn a_header_that_no_length_has_room_for_is_malformed_even_when_cut() {
    let frame = ipv4(6, 0, &[0; 10]);
    let Parsed::Ip(packet) = parse(&Bytes { data: &frame[..36], length: frame.len() }) else { panic!() };
    assert_eq!((packet.cut, packet.malformed), (false, Some(Reason::MalformedTcp)));
}
