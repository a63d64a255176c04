//! Packets in words, and the frames that they are. Fixed headers come from `etherparse`; tags, options,
//! extension headers and whatever no sane sender builds are put together here.

use std::{iter, net::IpAddr};

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header, TcpHeader, UdpHeader};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;

/// Offset of the IP header in an untagged frame.
pub(crate) const IP: usize = 14;

/// A packet; [`Packet::frame`] is its frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Types and ids of VLAN tags, the outer one first.
    pub(crate) tags: Vec<(u16, u16)>,
    /// IPv4: 32-bit words of options, up to 10.
    pub(crate) option_words: u8,
    /// IPv6: extension headers of eight bytes each.
    pub(crate) extensions: Vec<u8>,
    /// Offset in units of eight bytes, and whether more fragments follow.
    pub(crate) fragment: Option<(u16, bool)>,
    pub(crate) hop_limit: u8,
    pub(crate) transport: Transport,
    /// Bytes of zeroes after the transport header.
    pub(crate) payload: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    /// Source and destination port.
    Udp(u16, u16),
    /// Source port, destination port, flags.
    Tcp(u16, u16, u8),
    /// Source and destination port.
    Sctp(u16, u16),
    /// ICMP or ICMPv6, as the addresses are: type and code.
    Icmp(u8, u8),
    /// A protocol number without any header: the payload follows at once.
    Bare(u8),
}

/// A datagram to the port 53.
pub(crate) fn udp(source: &str) -> Packet {
    packet(source, Transport::Udp(4000, 53))
}

/// A segment to the port 80.
pub(crate) fn tcp(source: &str, flags: u8) -> Packet {
    packet(source, Transport::Tcp(4000, 80, flags))
}

/// A message of this type.
pub(crate) fn icmp(source: &str, kind: u8) -> Packet {
    packet(source, Transport::Icmp(kind, 0))
}

/// A packet with 32 bytes of payload, to `203.0.113.5` or `2001:db8:ffff::5`.
pub(crate) fn packet(source: &str, transport: Transport) -> Packet {
    let source: IpAddr = source.parse().expect("an address");
    let destination = if source.is_ipv4() { "203.0.113.5" } else { "2001:db8:ffff::5" };
    Packet {
        source,
        destination: destination.parse().expect("an address"),
        tags: Vec::new(),
        option_words: 0,
        extensions: Vec::new(),
        fragment: None,
        hop_limit: 64,
        transport,
        payload: 32,
    }
}

/// An Ethernet frame of this type around `payload`, which is padded to the shortest frame.
pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

// === impl Packet ===

impl Packet {
    pub(crate) fn to(self, destination: &str) -> Self {
        Self { destination: destination.parse().expect("an address"), ..self }
    }

    pub(crate) fn tagged(self, tags: &[(u16, u16)]) -> Self {
        Self { tags: tags.to_vec(), ..self }
    }

    pub(crate) fn extended(self, extensions: &[u8]) -> Self {
        Self { extensions: extensions.to_vec(), ..self }
    }

    pub(crate) fn options(self, option_words: u8) -> Self {
        Self { option_words, ..self }
    }

    pub(crate) fn fragment(self, offset: u16, more: bool) -> Self {
        Self { fragment: Some((offset, more)), ..self }
    }

    pub(crate) fn hop_limit(self, hop_limit: u8) -> Self {
        Self { hop_limit, ..self }
    }

    pub(crate) fn payload(self, payload: usize) -> Self {
        Self { payload, ..self }
    }

    /// The frame, not padded: as long as its headers say.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let (protocol, mut body) = self.transport.header(self.source.is_ipv6(), self.payload);
        body.resize(body.len() + self.payload, 0);
        let ip = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Ipv4Header::new(
                    length(&body),
                    self.hop_limit,
                    protocol.into(),
                    source.octets(),
                    destination.octets(),
                )
                .expect("it is short");
                header.dont_fragment = self.fragment.is_none();
                let (offset, more) = self.fragment.unwrap_or_default();
                header.fragment_offset = IpFragOffset::try_new(offset).expect("13 bits");
                header.more_fragments = more;
                let options = vec![1; usize::from(self.option_words) * 4];
                header.options = Ipv4Options::try_from(options.as_slice()).expect("at most 40 bytes");
                header.set_payload_len(body.len()).expect("it is short");
                let mut bytes = Vec::new();
                header.write(&mut bytes).expect("a vector takes it");
                bytes
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (first, extensions) = self.extension_headers(protocol);
                let header = Ipv6Header {
                    payload_length: length(&extensions) + length(&body),
                    next_header: IpNumber(first),
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                };
                let mut bytes = Vec::new();
                header.write(&mut bytes).expect("a vector takes it");
                bytes.extend(extensions);
                bytes
            }
            mixed => panic!("a packet has one family: {mixed:?}"),
        };
        let mut frame = vec![0x02; 12];
        for (kind, id) in &self.tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(id.to_be_bytes());
        }
        frame.extend(if self.source.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(ip);
        frame.extend(body);
        frame
    }

    /// The number of the first extension header, or the protocol, and the headers.
    fn extension_headers(&self, protocol: u8) -> (u8, Vec<u8>) {
        let kinds: Vec<u8> = self.extensions.iter().copied().chain(self.fragment.map(|_| FRAGMENT)).collect();
        let following = kinds.iter().copied().skip(1).chain(iter::once(protocol));
        let mut bytes = Vec::new();
        for (kind, next) in kinds.iter().zip(following) {
            let (offset, more) = self.fragment.filter(|_| *kind == FRAGMENT).unwrap_or_default();
            let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
            // Every other kind reads zeroes here: a length of eight bytes, and padding.
            bytes.extend([next, 0, high, low, 0, 0, 0, 0]);
        }
        (kinds.first().copied().unwrap_or(protocol), bytes)
    }
}

// === impl Transport ===

impl Transport {
    /// The protocol's number and the header before `payload` bytes.
    fn header(self, v6: bool, payload: usize) -> (u8, Vec<u8>) {
        let mut bytes = Vec::new();
        match self {
            Self::Udp(source, destination) => {
                let header = UdpHeader::without_ipv4_checksum(source, destination, payload);
                header.expect("it is short").write(&mut bytes).expect("a vector takes it");
                (17, bytes)
            }
            Self::Tcp(source, destination, flags) => {
                TcpHeader::new(source, destination, 1, 1024).write(&mut bytes).expect("a vector takes it");
                bytes[13] = flags;
                (6, bytes)
            }
            Self::Sctp(source, destination) => {
                bytes.extend(source.to_be_bytes());
                bytes.extend(destination.to_be_bytes());
                bytes.extend([0; 8]);
                (132, bytes)
            }
            Self::Icmp(kind, code) => (if v6 { 58 } else { 1 }, vec![kind, code, 0, 0, 0, 0, 0, 0]),
            Self::Bare(protocol) => (protocol, bytes),
        }
    }
}

fn length(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("it is short")
}
