//! IPv6 (RFC 8200): the fixed header, a bounded walk over extension headers, ICMPv6.

use super::{
    Fragment, Frame, LONGEST_STATED, MAX_EXTENSION_HEADERS, Missing, NoPacket, Packet, Payload, absent, be16,
    ethernet::Link, header, transport,
};
use crate::{address::Address, record::Reason};

const HEADER: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;
const ICMPV6: u8 = 58;

/// No extension header is shorter.
const SHORTEST_EXTENSION: usize = 8;
/// Above any offset that the walk can reach: two tags, the fixed header, and extension headers of at most
/// 256 * 8 bytes. Applied to each new offset to give the verifier the bound that it cannot derive.
const OFFSET_MASK: usize = 0x7fff;
const _: () = assert!(22 + HEADER + MAX_EXTENSION_HEADERS * 256 * 8 < OFFSET_MASK);

const MORE_FRAGMENTS: u16 = 0x0001;
const FRAGMENT_OFFSET: u16 = 0xfff8;

/// ICMPv6 types in [`Packet::icmp_type`] follow those of ICMP.
const ICMPV6_TYPES: u32 = 256;
/// Type, code and checksum: all that every ICMPv6 message has (RFC 4443).
const ICMPV6_HEADER: usize = 4;

/// A walk over extension headers: where it stands, and in the end how it ended.
struct Walk {
    /// The next header of the last header passed.
    next: u8,
    /// Where that next header lies.
    offset: usize,
    /// What the fragment headers passed say: the bits below. One number, not flags, so that it can be
    /// made opaque.
    fragments: usize,
}

/// How a walk ended.
enum End {
    /// At a header that is no extension header, or at a later fragment's data.
    Protocol,
    /// At an extension header that could not be read.
    Missing(Missing),
    /// At the bound.
    TooLong,
}

/// Reads an IPv6 packet.
#[inline(always)]
pub(super) fn parse<F: Frame>(frame: &F, link: &Link, packet: &mut Packet) -> Result<(), NoPacket> {
    let ip: [u8; HEADER] = header(frame, link.offset, link.end)
        .map_err(|missing| missing.before_addresses(Reason::MalformedIpv6))?;
    let Some(payload) = payload(link, &ip) else {
        return Err(NoPacket::Malformed(Reason::MalformedIpv6));
    };
    let mut payload = payload.opaque(frame);
    let mut walk = Walk { next: ip[6], offset: payload.offset, fragments: 0 };
    let end = walk.run(frame, payload.end);
    *packet = Packet::new(
        Address::v6([
            ip[8], ip[9], ip[10], ip[11], ip[12], ip[13], ip[14], ip[15], ip[16], ip[17], ip[18], ip[19],
            ip[20], ip[21], ip[22], ip[23],
        ]),
        Address::v6([
            ip[24], ip[25], ip[26], ip[27], ip[28], ip[29], ip[30], ip[31], ip[32], ip[33], ip[34], ip[35],
            ip[36], ip[37], ip[38], ip[39],
        ]),
        link.vlan,
        walk.fragment(),
        absent(frame),
    );
    match end {
        End::Protocol => {
            packet.protocol = u32::from(walk.next);
            payload.offset = walk.offset;
            match (packet.fragment, walk.next) {
                (Fragment::Later, _) => {}
                (_, ICMPV6) => icmpv6(frame, &payload, ip[7], walk.is_unfragmented(), packet),
                _ => transport::parse(frame, &payload, walk.next, packet),
            }
        }
        End::Missing(missing) => packet.lacks(missing, Reason::MalformedExtension),
        End::TooLong => packet.chain_too_long = true,
    }
    Ok(())
}

/// Where the payload lies; `None` when version and length contradict the frame.
#[inline(always)]
fn payload(link: &Link, ip: &[u8; HEADER]) -> Option<Payload> {
    let stated = usize::from(be16(ip, 4));
    // The jumbo payload option stands in a hop-by-hop header; what it says is left to the stack.
    let jumbo = stated == 0 && (ip[6] == HOP_BY_HOP || link.end > LONGEST_STATED);
    let offset = link.offset + HEADER;
    let end = if jumbo { link.end } else { offset + stated };
    let possible = ip[0] >> 4 == 6 && end <= link.end;
    possible.then_some(Payload { offset, end, jumbo })
}

// === impl Walk ===

impl Walk {
    /// A fragment header was passed, be it an atomic one.
    const FRAGMENTED: usize = 1;
    /// One of them said that this is a first fragment.
    const FIRST: usize = 2;
    /// The last of them said that this is a later fragment.
    const LATER: usize = 4;

    /// Passes extension headers up to the transport protocol.
    ///
    /// Order and repetition are not judged, so a chain that no stack accepts still leads to its protocol.
    /// A later fragment ends the walk: what follows its fragment header is data.
    #[inline(always)]
    fn run<F: Frame>(&mut self, frame: &F, payload_end: usize) -> End {
        for _ in 0..MAX_EXTENSION_HEADERS {
            if !is_extension(self.next) {
                return End::Protocol;
            }
            let extension: [u8; SHORTEST_EXTENSION] = match header(frame, self.offset, payload_end) {
                Ok(extension) => extension,
                Err(missing) => return End::Missing(missing),
            };
            let end = self.offset + extension_length(self.next, extension[1]);
            if end > payload_end {
                return End::Missing(Missing::Short);
            }
            let found = if self.next == FRAGMENT { fragments(be16(&extension, 2)) } else { 0 };
            self.fragments = frame.opaque(self.fragments | found) & 7;
            self.offset = frame.opaque(end) & OFFSET_MASK;
            self.next = extension[0];
            if self.fragments & Self::LATER != 0 {
                return End::Protocol;
            }
        }
        if is_extension(self.next) { End::TooLong } else { End::Protocol }
    }

    #[inline(always)]
    const fn fragment(&self) -> Fragment {
        if self.fragments & Self::LATER != 0 {
            Fragment::Later
        } else if self.fragments & Self::FIRST != 0 {
            Fragment::First
        } else {
            Fragment::None
        }
    }

    #[inline(always)]
    const fn is_unfragmented(&self) -> bool {
        self.fragments & Self::FRAGMENTED == 0
    }
}

/// What a fragment header's offset and more-fragments word says, as bits of [`Walk::fragments`].
#[inline(always)]
const fn fragments(word: u16) -> usize {
    if word & FRAGMENT_OFFSET != 0 {
        Walk::FRAGMENTED | Walk::LATER
    } else if word & MORE_FRAGMENTS != 0 {
        Walk::FRAGMENTED | Walk::FIRST
    } else {
        Walk::FRAGMENTED
    }
}

#[inline(always)]
const fn is_extension(next: u8) -> bool {
    matches!(
        next,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

/// Length in bytes of an extension header from its length byte, which a fragment header does not have.
#[inline(always)]
fn extension_length(kind: u8, stated: u8) -> usize {
    match kind {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(stated) + 2) * 4,
        _ => (usize::from(stated) + 1) * 8,
    }
}

#[inline(always)]
fn icmpv6<F: Frame>(frame: &F, payload: &Payload, hop_limit: u8, unfragmented: bool, packet: &mut Packet) {
    match header::<F, ICMPV6_HEADER>(frame, payload.offset, payload.end) {
        Ok([kind, code, ..]) => {
            packet.icmp_type = ICMPV6_TYPES + u32::from(kind);
            // RFC 6980: neighbour discovery is never fragmented, not even atomically.
            packet.neighbour = unfragmented && is_neighbour(kind, code, hop_limit, packet.source);
        }
        Err(missing) => packet.lacks(missing, Reason::MalformedIcmp),
    }
}

/// Whether a receiver accepts this message as neighbour discovery (RFC 4861, sections 6.1, 7.1 and 8.1)
/// or multicast listener discovery (RFC 3810, section 5; RFC 2710, section 3).
#[inline(always)]
const fn is_neighbour(kind: u8, code: u8, hop_limit: u8, source: Address) -> bool {
    match kind {
        133..=137 => hop_limit == 255 && code == 0,
        130..=132 | 143 => hop_limit == 1 && is_link_local_or_unspecified(source),
        _ => false,
    }
}

#[inline(always)]
const fn is_link_local_or_unspecified(address: Address) -> bool {
    address.high >> 54 == 0xfe80 >> 6 || (address.high == 0 && address.low == 0)
}
