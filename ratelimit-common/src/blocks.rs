//! What the XDP program and userspace agree on about blocks, beside the [`crate::block_table`].
//!
//! Blocked single addresses are in two tables: those of the operator, which userspace alone writes, and
//! those that rules made, which the program writes. Blocked prefixes are in a longest-prefix trie a family,
//! behind a bitmap like those of the lists ([`crate::policy::prefilter`]). What of all that is in use says
//! [`Runtime`], so that a host which blocks nobody pays one load a packet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`crate::block_table::Table::id`] of the operator's table.
pub const OPERATOR: u64 = 0xb10c_0000_0000_0000;

/// Hashed with a source to find its count among the [`crate::offenders`] of a rule.
pub const fn offender_id(counter_slot: u32) -> u64 {
    0xb10c_0002_0000_0000 | counter_slot as u64
}

/// Single addresses that rules may have blocked at a time.
pub const RULE_CAPACITY: u32 = 32_768;

/// Blocks of prefixes that have ended, one within the other, that are passed over on the way to one that
/// has not. Userspace takes them out of the tries now and then.
pub const NESTED: u32 = 8;

/// Bits of [`Runtime::held`].
pub mod held {
    /// The operator's table holds IPv4 addresses.
    pub const V4: u64 = 1 << 0;
    /// The operator's table holds IPv6 addresses.
    pub const V6: u64 = 1 << 1;
    /// An IPv4 prefix is blocked.
    pub const PREFIXES_V4: u64 = 1 << 2;
    /// An IPv6 prefix shorter than /32 is blocked (prefilter level of 16 bits).
    pub const PREFIXES_V6_16: u64 = 1 << 3;
    /// An IPv6 prefix of /32 to /47 is blocked (prefilter level of 32 bits).
    pub const PREFIXES_V6_32: u64 = 1 << 4;
    /// An IPv6 prefix of /48 or longer is blocked (prefilter level of 48 bits).
    pub const PREFIXES_V6_48: u64 = 1 << 5;
    /// Any of the three.
    pub const PREFIXES_V6: u64 = PREFIXES_V6_16 | PREFIXES_V6_32 | PREFIXES_V6_48;
}

/// Single words that change in place while the program runs: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Runtime<C> {
    /// Bits of [`mod@held`]. What ends by itself leaves its bit until userspace looks.
    pub held: C,
    /// When the last of the blocks that rules made ends, in [`crate::block_table::seconds`]; 0 if there is
    /// none.
    pub rule_blocks_until: C,
    /// How many blocks of the operator there are, by [`Kind`], those counted that have ended since userspace
    /// last looked.
    pub counts: [C; Kind::COUNT],
    /// When the last of the [`crate::overrides`] ends, in [`crate::block_table::seconds`]; 0 if there is none.
    pub overrides_until: C,
    /// Zero.
    pub unused: [C; 1],
}

/// Kinds of the operator's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// Single IPv4 addresses.
    V4,
    /// Single IPv6 addresses.
    V6,
    /// IPv4 prefixes.
    PrefixV4,
    /// IPv6 prefixes.
    PrefixV6,
}

/// The block of a prefix: what the tries hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Prefix {
    /// When it ends, like [`crate::block_table::Entry::until`].
    pub until: u32,
    /// The prefix' own length, which a look-up does not tell.
    pub length: u32,
    /// The number of the reason.
    pub reason: u32,
    /// When it began.
    pub since: u32,
}

/// What a block in the table of rules is about: [`crate::block_table::Entry::about`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByRule {
    /// The rule's counter slot.
    pub counter_slot: u32,
    /// Length of the prefix that the address stands for: that of `sources` when the block was made.
    pub length: u32,
}

// === impl Kind ===

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 4;
}

// === impl ByRule ===

impl ByRule {
    /// [`crate::block_table::Table::id`] of the table of rules for addresses that stand for prefixes of this
    /// length: a prefix is not taken for another that starts with the same address.
    #[inline(always)]
    pub const fn table_id(length: u32) -> u64 {
        0xb10c_0001_0000_0000 | length as u64
    }

    /// The length that a [`Self::table_id`] is for.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the length")]
    pub const fn length_of(table_id: u64) -> u32 {
        table_id as u32
    }

    /// As one word.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        ((self.length as u64) << 32) | self.counter_slot as u64
    }

    /// From that word.
    #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
    pub const fn from_word(word: u64) -> Self {
        Self { counter_slot: word as u32, length: (word >> 32) as u32 }
    }
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding and no invalid bit pattern, both checked by zerocopy's derives.
    unsafe impl aya::Pod for super::Prefix {}
}
