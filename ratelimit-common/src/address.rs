//! Source and destination addresses as two big-endian words, so that masking, hashing and comparing
//! cost the same few instructions for both families.

/// An IPv4 or IPv6 address.
///
/// IPv6: `high` holds the first eight octets in network order as a number, `low` the last eight.
/// IPv4: the four octets are the top 32 bits of `high`, all else is zero; a prefix length therefore
/// counts from the top of `high` in both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The family, which is part of the identity: 0.0.0.0 is not `::`.
    pub family: Family,
    /// The most significant 64 bits.
    pub high: u64,
    /// The least significant 64 bits; zero for IPv4.
    pub low: u64,
}

/// The address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4, 32-bit addresses.
    V4,
    /// IPv6, 128-bit addresses.
    V6,
}

impl Address {
    /// An IPv4 address from its octets in network order.
    #[inline(always)]
    pub const fn v4(octets: [u8; 4]) -> Self {
        Self { family: Family::V4, high: (u32::from_be_bytes(octets) as u64) << 32, low: 0 }
    }

    /// An IPv6 address from its octets in network order.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
    #[inline(always)]
    pub const fn v6(octets: [u8; 16]) -> Self {
        let value = u128::from_be_bytes(octets);
        Self { family: Family::V6, high: (value >> 64) as u64, low: value as u64 }
    }

    /// The octets of an IPv4 address in network order; meaningless for IPv6.
    #[inline(always)]
    pub const fn v4_octets(&self) -> [u8; 4] {
        ((self.high >> 32) as u32).to_be_bytes()
    }

    /// The octets of an IPv6 address in network order.
    #[inline(always)]
    pub const fn v6_octets(&self) -> [u8; 16] {
        (((self.high as u128) << 64) | self.low as u128).to_be_bytes()
    }
}

/// The first `length` bits set, as the two words of an [`Address`]; lengths above 128 count as 128.
pub const fn prefix_mask(length: u8) -> [u64; 2] {
    const fn word(bits: u32) -> u64 {
        if bits == 0 { 0 } else { u64::MAX << (64 - bits) }
    }
    let length = if length > 128 { 128 } else { length as u32 };
    if length <= 64 { [word(length), 0] } else { [u64::MAX, word(length - 64)] }
}
