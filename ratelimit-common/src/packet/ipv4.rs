//! IPv4 (RFC 791).

use super::{
    Fragment, Frame, LONGEST_STATED, NoPacket, Packet, Payload, absent, be16, ethernet::Link, header,
    transport,
};
use crate::{address::Address, record::Reason};

/// The header without options.
const HEADER: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

const ICMP: u8 = 1;
/// Every ICMP message has at least these bytes (RFC 792).
const ICMP_HEADER: usize = 8;

/// Reads an IPv4 packet.
#[inline(always)]
pub(super) fn parse<F: Frame>(frame: &F, link: &Link, packet: &mut Packet) -> Result<(), NoPacket> {
    let ip: [u8; HEADER] = header(frame, link.offset, link.end)
        .map_err(|missing| missing.before_addresses(Reason::MalformedIpv4))?;
    let Some(payload) = payload(link, &ip) else {
        return Err(NoPacket::Malformed(Reason::MalformedIpv4));
    };
    let payload = payload.opaque(frame);
    *packet = Packet::new(
        Address::v4([ip[12], ip[13], ip[14], ip[15]]),
        Address::v4([ip[16], ip[17], ip[18], ip[19]]),
        link.vlan,
        fragment(be16(&ip, 6)),
        absent(frame),
    );
    let protocol = ip[9];
    packet.protocol = u32::from(protocol);
    match (packet.fragment, protocol) {
        (Fragment::Later, _) => {}
        (_, ICMP) => icmp(frame, &payload, packet),
        _ => transport::parse(frame, &payload, protocol, packet),
    }
    Ok(())
}

/// Where the payload lies; `None` when version and lengths contradict each other or the frame.
#[inline(always)]
fn payload(link: &Link, ip: &[u8; HEADER]) -> Option<Payload> {
    // Masked so that the verifier, too, sees at most 60.
    let header_length = usize::from(ip[0] << 2) & 0x3c;
    let stated = usize::from(be16(ip, 2));
    let jumbo = stated == 0 && link.end > LONGEST_STATED;
    let end = if jumbo { link.end } else { link.offset + stated };
    let offset = link.offset + header_length;
    let possible = ip[0] >> 4 == 4 && header_length >= HEADER && offset <= end && end <= link.end;
    possible.then_some(Payload { offset, end, jumbo })
}

/// Don't-fragment and the reserved bit say nothing about whether this is a fragment.
#[inline(always)]
const fn fragment(word: u16) -> Fragment {
    if word & FRAGMENT_OFFSET != 0 {
        Fragment::Later
    } else if word & MORE_FRAGMENTS != 0 {
        Fragment::First
    } else {
        Fragment::None
    }
}

#[inline(always)]
fn icmp<F: Frame>(frame: &F, payload: &Payload, packet: &mut Packet) {
    match header::<F, ICMP_HEADER>(frame, payload.offset, payload.end) {
        Ok(icmp) => packet.icmp_type = u32::from(icmp[0]),
        Err(missing) => packet.lacks(missing, Reason::MalformedIcmp),
    }
}
