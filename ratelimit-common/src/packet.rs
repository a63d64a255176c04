//! Bytes of a frame -> what the limiter needs to know of it.
//!
//! Generic over [`Frame`], so that the same code runs in the kernel, under proptest and in a fuzzer.
//!
//! Three ends are told apart. The *readable* data may stop early (the kernel's first buffer, a capture's
//! snap length): what lies beyond is unknown, never malformed. The *frame* ends where [`Frame::length`]
//! says; it may be padded. The *packet* ends where its IP header says, and every later header must lie
//! within that, not merely within the frame.
//!
//! For the verifier every offset is a small constant plus masked header lengths, every loop has a
//! constant bound, and nothing can panic.

use crate::{address::Address, record::Reason};

mod ethernet;
mod ipv4;
mod ipv6;
#[cfg(test)]
mod tests;
mod transport;

/// A frame as the parser sees it.
pub trait Frame {
    /// The `N` bytes at `offset`; `None` when they are not all within the readable data.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// The whole frame's length in bytes. Greater than the readable data when the frame continues in
    /// further buffers, or when a capture cut it.
    fn length(&self) -> usize;

    /// `value` again. A frame in the kernel makes the verifier forget what it knows of it, for example
    /// by two exclusive-ors with the same unknown number in inline assembly. Paths that differ only in
    /// such values (number of tags, lengths of extension headers) then count as one: measured on 6.18,
    /// 13 thousand verified instructions instead of 400 thousand. Nothing else depends on it.
    #[inline(always)]
    fn opaque(&self, value: usize) -> usize {
        value
    }
}

/// Which part of a datagram a frame carries. The numbers index [`crate::policy::direct::FRAGMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fragment {
    /// A whole datagram (also an IPv6 atomic fragment, RFC 6946).
    None = 0,
    /// The first fragment: it has the transport header.
    First = 1,
    /// A later fragment: it has no transport header.
    Later = 2,
}

/// Stands for a port, a set of flags or a VLAN that the packet does not have.
pub const ABSENT: u32 = u32::MAX;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Neither IPv4 nor IPv6, as far as the Ethernet header and up to two VLAN tags tell: ARP, LLC, LLDP,
    /// EAPOL, MPLS, PPP over Ethernet, and frames too short for an Ethernet header, which no stack takes
    /// for IP.
    NotIp,
    /// The frame goes on beyond the readable data before its addresses could be read.
    Cut,
    /// An IP header that cannot be trusted, not even for its addresses.
    Malformed(Reason),
    /// An IPv4 or IPv6 packet.
    Ip(Packet),
}

/// An IP packet. `malformed` speaks of what follows the IP header: the addresses hold, so allow and
/// deny lists apply before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
    /// The transport protocol: the IPv4 protocol, or the IPv6 next header after the extension headers.
    /// [`ABSENT`] when the walk over the extension headers did not reach it. In a later fragment of IPv6
    /// the next header of the fragment header, even where that is another extension header.
    pub protocol: u32,
    /// Source port of TCP, UDP or SCTP, or [`ABSENT`].
    pub source_port: u32,
    /// Destination port of TCP, UDP or SCTP, or [`ABSENT`].
    pub destination_port: u32,
    /// TCP flags byte (CWR ECE URG ACK PSH RST SYN FIN from the top), or [`ABSENT`].
    pub tcp_flags: u32,
    /// ICMP type, or 256 + ICMPv6 type, or [`ABSENT`].
    pub icmp_type: u32,
    /// The outer VLAN id (12 bits, 0 for a priority tag), or [`ABSENT`]. A card that takes tags off
    /// (`rx-vlan-offload`) and generic XDP, which runs after the stack took them off, leave frames untagged.
    pub vlan: u32,
    /// Which part of a datagram this is.
    pub fragment: Fragment,
    /// Neighbour discovery or multicast listener discovery as RFC 4861 and RFC 3810 require it to be sent.
    pub neighbour: bool,
    /// A header after the IP header is cut short or impossible.
    pub malformed: Option<Reason>,
    /// The extension header chain was longer than [`MAX_EXTENSION_HEADERS`]: the protocol is unknown.
    pub chain_too_long: bool,
    /// A header lies in the frame but beyond the readable data: what it holds is unknown.
    pub cut: bool,
}

/// IPv6 extension headers the walk passes before it gives up and judges the packet at layer 3 alone.
pub const MAX_EXTENSION_HEADERS: usize = 8;

/// Largest number in the 16-bit length field of an IP header; longer frames may leave that field zero.
const LONGEST_STATED: usize = 65_535;

/// Why a header could not be read.
#[derive(Clone, Copy)]
enum Missing {
    /// It does not fit before the end that holds for it.
    Short,
    /// It fits, but beyond the readable data.
    Cut,
}

/// Where an IP packet's payload lies, and how its extent is known.
struct Payload {
    /// Offset of its first byte in the frame.
    offset: usize,
    /// Offset one past its last byte in the frame.
    end: usize,
    /// The IP header's length field is zero because the packet is longer than the field can say
    /// (RFC 2675, Linux "big TCP"); a UDP length of zero is then right as well.
    jumbo: bool,
}

/// Why a frame gives no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPacket {
    /// See [`Parsed::NotIp`].
    NotIp,
    /// See [`Parsed::Cut`].
    Cut,
    /// See [`Parsed::Malformed`].
    Malformed(Reason),
}

/// Reads what the limiter needs to know of an Ethernet frame.
#[inline(always)]
pub fn parse<F: Frame>(frame: &F) -> Parsed {
    let nowhere = Address::v4([0; 4]);
    let mut packet = Packet::new(nowhere, nowhere, ABSENT, Fragment::None, ABSENT);
    match parse_into(frame, &mut packet) {
        Ok(()) => Parsed::Ip(packet),
        Err(NoPacket::NotIp) => Parsed::NotIp,
        Err(NoPacket::Cut) => Parsed::Cut,
        Err(NoPacket::Malformed(reason)) => Parsed::Malformed(reason),
    }
}

/// [`parse`], into a place that the caller has, which is all overwritten if there is a packet.
///
/// Each field is stored there at once, and once more if something is known of it. A packet that is put
/// together elsewhere costs the kernel several stores a field, and on a busy receiver, where loads of the
/// frame take long, it is the number of stores under way that a processor runs out of first.
#[inline(always)]
pub fn parse_into<F: Frame>(frame: &F, packet: &mut Packet) -> Result<(), NoPacket> {
    let link = ethernet::parse(frame)?.opaque(frame);
    match link.ethertype {
        ethernet::IPV4 => ipv4::parse(frame, &link, packet),
        ethernet::IPV6 => ipv6::parse(frame, &link, packet),
        _ => Err(NoPacket::NotIp),
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "it is `ABSENT` again")]
fn absent<F: Frame>(frame: &F) -> u32 {
    frame.opaque(ABSENT as usize) as u32
}

/// The header of `N` bytes at `offset`, which must end at or before `end`.
#[inline(always)]
fn header<F: Frame, const N: usize>(frame: &F, offset: usize, end: usize) -> Result<[u8; N], Missing> {
    if offset + N > end {
        return Err(Missing::Short);
    }
    frame.read(offset).ok_or(Missing::Cut)
}

/// The 16-bit number in network order at `at` of a header.
#[inline(always)]
fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

// === impl Packet ===

impl Packet {
    /// `absent` is [`ABSENT`], as a number that the compiler does not know: for several fields with the
    /// same known one it calls a memset that stores byte by byte.
    #[inline(always)]
    const fn new(source: Address, destination: Address, vlan: u32, fragment: Fragment, absent: u32) -> Self {
        Self {
            source,
            destination,
            protocol: absent,
            source_port: absent,
            destination_port: absent,
            tcp_flags: absent,
            icmp_type: absent,
            vlan,
            fragment,
            neighbour: false,
            malformed: None,
            chain_too_long: false,
            cut: false,
        }
    }

    /// Notes that a header after the IP header could not be read.
    #[inline(always)]
    const fn lacks(&mut self, missing: Missing, reason: Reason) {
        match missing {
            Missing::Short => self.malformed = Some(reason),
            Missing::Cut => self.cut = true,
        }
    }
}

// === impl Missing ===

impl Missing {
    /// The verdict when it is the IP header, or one before it, that could not be read.
    #[inline(always)]
    const fn before_addresses(self, reason: Reason) -> NoPacket {
        match self {
            Self::Short => NoPacket::Malformed(reason),
            Self::Cut => NoPacket::Cut,
        }
    }
}

// === impl Payload ===

impl Payload {
    /// What the ways to find the extent taught the verifier is forgotten. The offset keeps the small
    /// bound that it has.
    #[inline(always)]
    fn opaque<F: Frame>(self, frame: &F) -> Self {
        let Self { offset, end, jumbo } = self;
        Self { offset, end: frame.opaque(end), jumbo: frame.opaque(usize::from(jumbo)) & 1 != 0 }
    }
}
