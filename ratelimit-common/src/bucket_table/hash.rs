//! SipHash-1-3 of a bucket's key.
//!
//! A keyed hash without seed-independent collisions is what keeps an attacker from choosing addresses
//! that share a set. SipHash-1-3 (Aumasson and Bernstein, "`SipHash`: a fast short-input PRF", 2012, with
//! one compression and three finalisation rounds) costs 6 rounds for an IPv4 key.

use crate::{
    address::{Address, Family},
    policy,
};

#[derive(Clone, Copy)]
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline(always)]
    const fn new(key: [u64; 2]) -> Self {
        let [k0, k1] = key;
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline(always)]
    const fn round(self) -> Self {
        let Self { mut v0, mut v1, mut v2, mut v3 } = self;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32).wrapping_add(v3);
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        Self { v0, v1, v2, v3 }
    }

    #[inline(always)]
    const fn word(mut self, word: u64) -> Self {
        self.v3 ^= word;
        self = self.round();
        self.v0 ^= word;
        self
    }

    #[inline(always)]
    const fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        let Self { v0, v1, v2, v3 } = self.round().round().round();
        v0 ^ v1 ^ v2 ^ v3
    }
}

/// The hash of the bucket that `limit` keeps for `source`: over the limit's id, the masked address and
/// the family.
///
/// The message is the id and the masked words, least significant octet first, then one octet for the
/// family: 17 octets for IPv4 and for an IPv6 prefix of at most 64 bits, 25 for a longer one. So no two
/// keys share a message, and the common kinds cost one round less.
#[inline(always)]
pub const fn hash(key: [u64; 2], limit: &policy::Limit, source: &Address) -> u64 {
    let state = State::new(key).word(limit.id);
    match source.family {
        Family::V4 => state.word(source.high & limit.ipv4_mask).word((17 << 56) | 4),
        Family::V6 => {
            let [high, low] = limit.ipv6_mask;
            let state = state.word(source.high & high);
            if low == 0 {
                state.word((17 << 56) | 6)
            } else {
                state.word(source.low & low).word((25 << 56) | 6)
            }
        }
    }
    .finish()
}

#[cfg(test)]
mod tests;
