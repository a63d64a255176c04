//! Clients that are put under another rule for a time: what the XDP program and userspace agree on.
//!
//! A packet of such a client that meets the conditions of its rule is that rule's, whichever comes first in the
//! file. Only userspace writes the table, and the program looks into it while
//! [`crate::blocks::Runtime::overrides_until`] says that somebody is in it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::address::{Address, Family, prefix_mask};

/// Clients that may be in the table.
pub const CAPACITY: usize = 16_384;

/// A client: an IPv4 address, or what makes one client of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Client {
    /// [`Address::high`] of its prefix.
    pub high: u64,
    /// [`Address::low`] of its prefix.
    pub low: u64,
    /// The length of the prefix; an IPv4 address has [`Self::V4`].
    pub length: u64,
}

/// Which rule a client is put under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Override {
    /// Until when, in [`crate::block_table::seconds`].
    pub until: u32,
    /// The index of the rule in the policy that was in force when this was written.
    pub rule: u32,
    /// The counter slot of the rule: with another one the rule at that index is not the one that was meant.
    pub counter_slot: u32,
    /// Zero.
    pub unused: u32,
}

// === impl Client ===

impl Client {
    /// [`Self::length`] of an IPv4 address: no IPv6 prefix is as long.
    pub const V4: u64 = 1 << 8;

    /// The client that an address belongs to, of which so many bits count if it is an IPv6 one.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "there are no more than 128 bits")]
    pub const fn of(address: &Address, ipv6_bits: u32) -> Self {
        match address.family {
            Family::V4 => Self { high: address.high, low: address.low, length: Self::V4 },
            Family::V6 => {
                let [high, low] = prefix_mask(ipv6_bits as u8);
                Self { high: address.high & high, low: address.low & low, length: ipv6_bits as u64 }
            }
        }
    }
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding and no invalid bit pattern, both checked by zerocopy's derives.
    unsafe impl aya::Pod for super::Client {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::Override {}
}

#[cfg(test)]
mod tests;
