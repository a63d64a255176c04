//! Ethernet frames with made-up sources, built by etherparse.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep};

const HOP_LIMIT: u8 = 64;
const WINDOW: u16 = 64_240;
/// A frame goes into a growing vector and the payloads here are short, so building cannot fail.
const BUILDS: &str = "a short frame can be built";

/// The way a frame takes: the hardware addresses of both ends and the IP address it is for.
///
/// The methods build one frame each. They panic when source and destination are not of one family.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Hardware address of the sender.
    pub from: [u8; 6],
    /// Hardware address of the receiver.
    pub to: [u8; 6],
    /// IP address of the receiver.
    pub destination: IpAddr,
}

// === impl Route ===

impl Route {
    /// A UDP datagram.
    pub fn udp(&self, source: IpAddr, source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ip(source).udp(source_port, destination_port).write(&mut frame, payload).expect(BUILDS);
        frame
    }

    /// The first segment of a TCP handshake, without options.
    pub fn syn(&self, source: IpAddr, source_port: u16, destination_port: u16, sequence: u32) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ip(source)
            .tcp(source_port, destination_port, sequence, WINDOW)
            .syn()
            .write(&mut frame, &[])
            .expect(BUILDS);
        frame
    }

    /// An echo request of ICMP or `ICMPv6`.
    pub fn echo(&self, source: IpAddr, identifier: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let ip = self.ip(source);
        match source {
            IpAddr::V4(_) => ip.icmpv4_echo_request(identifier, sequence).write(&mut frame, payload),
            IpAddr::V6(_) => ip.icmpv6_echo_request(identifier, sequence).write(&mut frame, payload),
        }
        .expect(BUILDS);
        frame
    }

    fn ip(&self, source: IpAddr) -> PacketBuilderStep<IpHeaders> {
        let ethernet = PacketBuilder::ethernet2(self.from, self.to);
        match (source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ethernet.ipv4(source.octets(), destination.octets(), HOP_LIMIT)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                ethernet.ipv6(source.octets(), destination.octets(), HOP_LIMIT)
            }
            (source, destination) => {
                panic!("{source} and {destination} are not of one address family")
            }
        }
    }
}

/// `count` different addresses of `10.128.0.0/9`, which no link uses.
///
/// # Panics
/// If asked for more than that network holds, 2^23 - 1.
pub fn sources_v4(count: u32) -> impl Iterator<Item = IpAddr> {
    let first = u32::from(Ipv4Addr::new(10, 128, 0, 1));
    assert!(count < 1 << 23, "10.128.0.0/9 does not hold {count} sources");
    (0..count).map(move |number| Ipv4Addr::from(first + number).into())
}

/// `count` addresses of `fd00:128::/32`, each in a /64 of its own.
pub fn sources_v6(count: u32) -> impl Iterator<Item = IpAddr> {
    let network = u128::from(Ipv6Addr::new(0xfd00, 0x128, 0, 0, 0, 0, 0, 1));
    (0..count).map(move |number| Ipv6Addr::from(network | u128::from(number) << 64).into())
}
