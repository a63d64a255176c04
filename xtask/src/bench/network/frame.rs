//! The frames of the benchmark, of the shortest length that Ethernet has.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use etherparse::ip_number;

use crate::lab::{Interface, Link, Route};

/// The destination port of every frame: nobody listens there.
pub(super) const PORT: u16 = 9;

/// Makes up the 60 octets of the shortest frame.
const PAYLOAD: [u8; 18] = [0; 18];

/// Where the checksum of UDP over IPv4 without options stands.
const UDP_CHECKSUM: Range<usize> = 40..42;

/// A UDP datagram from `source` over `link`, without a UDP checksum: the source will be rewritten.
pub(super) fn udp_v4(link: &Link, source: Ipv4Addr) -> Vec<u8> {
    let Link { client, server } = link;
    let route = Route { from: client.mac, to: server.mac, destination: server.ipv4.into() };
    let mut frame = route.udp(source.into(), PORT, PORT, &PAYLOAD);
    frame[UDP_CHECKSUM].fill(0);
    frame
}

/// A UDP datagram behind four IPv6 extension headers: hop-by-hop options, destination options, an
/// unused routing header, and the header of an unfragmented "atomic" fragment
/// ([RFC 6946](https://www.rfc-editor.org/rfc/rfc6946)).
pub(super) fn udp_v6_extended(link: &Link, source: Ipv6Addr) -> Vec<u8> {
    let Interface { mac: to, ipv6: destination, .. } = link.server;
    // Eight octets each: next header, length beyond these eight, then padding or zeros.
    let pad = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let plain = |next: u8| [next, 0, 0, 0, 0, 0, 0, 0];
    let extensions = [
        pad(ip_number::IPV6_DESTINATION_OPTIONS.0),
        pad(ip_number::IPV6_ROUTE_HEADER.0),
        plain(ip_number::IPV6_FRAGMENTATION_HEADER.0),
        plain(ip_number::UDP.0),
    ]
    .concat();
    let udp_length = 8 + PAYLOAD.len();

    let mut frame = Vec::new();
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&link.client.mac);
    frame.extend_from_slice(&[0x86, 0xdd]);
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&length(extensions.len() + udp_length));
    frame.extend_from_slice(&[ip_number::IPV6_HEADER_HOP_BY_HOP.0, 64]);
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&destination.octets());
    frame.extend_from_slice(&extensions);
    frame.extend_from_slice(&PORT.to_be_bytes());
    frame.extend_from_slice(&PORT.to_be_bytes());
    frame.extend_from_slice(&length(udp_length));
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&PAYLOAD);
    frame
}

fn length(octets: usize) -> [u8; 2] {
    u16::try_from(octets).expect("a short frame").to_be_bytes()
}
