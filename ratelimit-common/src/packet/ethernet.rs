//! Ethernet II and VLAN tags.

use super::{ABSENT, Frame, Missing, NoPacket, be16, header};
use crate::record::Reason;

/// Ethertype of IPv4.
pub(super) const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub(super) const IPV6: u16 = 0x86dd;

const HEADER: usize = 14;
const TAG: usize = 4;
/// Above the largest offset of what follows.
const OFFSET_MASK: usize = 0x1f;
const _: () = assert!(HEADER + 2 * TAG < OFFSET_MASK);
/// Customer tag (802.1Q), service tag (802.1ad), and what switches used for the latter before 802.1ad.
const TAG_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// What the link layer says.
pub(super) struct Link {
    /// The ethertype after any tags; below 0x600 it is an 802.3 length and the frame is LLC.
    pub(super) ethertype: u16,
    /// Offset of what follows.
    pub(super) offset: usize,
    /// The outer VLAN id, or [`ABSENT`].
    pub(super) vlan: u32,
    /// Offset one past the frame's last byte.
    pub(super) end: usize,
}

/// Reads the Ethernet header and at most two tags.
#[inline(always)]
pub(super) fn parse<F: Frame>(frame: &F) -> Result<Link, NoPacket> {
    let ethernet: [u8; HEADER] = header(frame, 0, frame.length()).map_err(|missing| match missing {
        Missing::Short => NoPacket::NotIp,
        Missing::Cut => NoPacket::Cut,
    })?;
    let untagged = Link { ethertype: be16(&ethernet, 12), offset: HEADER, vlan: ABSENT, end: frame.length() };
    if !is_tag(untagged.ethertype) {
        return Ok(untagged);
    }
    let outer = tag(frame, HEADER)?;
    if !is_tag(outer.ethertype) {
        return Ok(outer);
    }
    let inner = tag(frame, HEADER + TAG)?;
    if is_tag(inner.ethertype) {
        return Err(NoPacket::Malformed(Reason::MalformedVlan));
    }
    Ok(Link { vlan: outer.vlan, ..inner })
}

/// Reads the tag at `offset`: its control word, then the type of what follows.
#[inline(always)]
fn tag<F: Frame>(frame: &F, offset: usize) -> Result<Link, NoPacket> {
    let tag: [u8; TAG] = header(frame, offset, frame.length())
        .map_err(|missing| missing.before_addresses(Reason::MalformedVlan))?;
    Ok(Link {
        ethertype: be16(&tag, 2),
        offset: offset + TAG,
        vlan: u32::from(be16(&tag, 0) & 0x0fff),
        end: frame.length(),
    })
}

#[inline(always)]
const fn is_tag(ethertype: u16) -> bool {
    ethertype == TAG_TYPES[0] || ethertype == TAG_TYPES[1] || ethertype == TAG_TYPES[2]
}

// === impl Link ===

impl Link {
    /// What the number of tags taught the verifier is forgotten, so that it walks all that follows once.
    #[inline(always)]
    pub(super) fn opaque<F: Frame>(self, frame: &F) -> Self {
        let Self { ethertype, offset, vlan, end } = self;
        Self { ethertype, offset: frame.opaque(offset) & OFFSET_MASK, vlan, end: frame.opaque(end) }
    }
}
