//! The compiled policy: what userspace writes into a generation's own maps and load-time constants, and
//! the XDP program only reads.
//!
//! **Classification.** Each dimension of a packet that some rule looks at maps the packet's value to a
//! 64-bit mask of the rules that accept it (bit `i` = rule `i`, in file order). The AND of the masks
//! holds the rules that match, its lowest set bit the first of them. Small domains index `direct_masks`
//! at the offsets below; ports and lengths go through a class byte per value (`range_classes`), then
//! `range_masks`; addresses through a longest-prefix trie whose nodes carry an index into
//! `address_masks`, where the mask already is the union over all covering prefixes. A dimension that no
//! rule uses is compiled out by its bit in [`stage`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::gcra;

/// Rules a policy may hold: one bit each in a mask.
pub const MAX_RULES: usize = 64;
/// Limits a rule may hold.
pub const MAX_LIMITS: usize = 4;
/// `per: rule` buckets that exist: [`MAX_LIMITS`] for each of the [`MAX_COUNTER_SLOTS`].
pub const MAX_RULE_BUCKETS: usize = MAX_COUNTER_SLOTS * MAX_LIMITS;
/// Counter slots: twice [`MAX_RULES`], so that a freed one can rest while its old program drains.
pub const MAX_COUNTER_SLOTS: usize = 2 * MAX_RULES;

/// Prefixes of `management` that a policy may hold: one bit each in a mask while it is compiled.
pub const MAX_MANAGEMENT: usize = 64;

/// More than the kernel's coarse clock ever lags behind, in nanoseconds: it moves with the timer's tick
/// (1 to 10 ms), and a CPU that sees it stand still for five of its own ticks moves it itself
/// (`MAX_STALLED_JIFFIES` in the kernel's `kernel/time/tick-sched.c`). Measured: 10 ms on a busy virtual
/// machine with 4 ms ticks.
///
/// A limit is slow if a [`gcra::FULL_FRAME`] costs more than this.
pub const COARSE_LAG_NANOS: u64 = 100_000_000;

/// Bits of the load-time constant `STAGES`: what this policy uses. A bit that is clear removes its code.
pub mod stage {
    /// Source addresses are looked up in the lists: allow, deny and management.
    pub const LISTS_V4: u64 = 1 << 0;
    /// The same for IPv6.
    pub const LISTS_V6: u64 = 1 << 1;
    /// Some list entry is an IPv6 prefix shorter than /32 (prefilter level of 16 bits).
    pub const LISTS_V6_16: u64 = 1 << 2;
    /// Some list entry is an IPv6 prefix of /32 to /47 (prefilter level of 32 bits).
    pub const LISTS_V6_32: u64 = 1 << 3;
    /// Some list entry is an IPv6 prefix of /48 or longer (prefilter level of 48 bits).
    pub const LISTS_V6_48: u64 = 1 << 4;
    /// There are rules at all.
    pub const RULES: u64 = 1 << 5;
    /// A rule matches on the source address.
    pub const SOURCE: u64 = 1 << 6;
    /// A rule matches on the destination address.
    pub const DESTINATION: u64 = 1 << 7;
    /// A rule matches on the protocol.
    pub const PROTOCOL: u64 = 1 << 8;
    /// A rule matches on the source port.
    pub const SOURCE_PORT: u64 = 1 << 9;
    /// A rule matches on the destination port.
    pub const DESTINATION_PORT: u64 = 1 << 10;
    /// A rule matches on TCP flags.
    pub const TCP_FLAGS: u64 = 1 << 11;
    /// A rule matches on the ICMP or ICMPv6 type.
    pub const ICMP_TYPE: u64 = 1 << 12;
    /// A rule matches on the fragment kind.
    pub const FRAGMENT: u64 = 1 << 13;
    /// A rule matches on the VLAN.
    pub const VLAN: u64 = 1 << 14;
    /// A rule matches on the frame length.
    pub const LENGTH: u64 = 1 << 15;
    /// Malformed frames pass (they are counted all the same).
    pub const MALFORMED_PASS: u64 = 1 << 16;
    /// Nothing is shed; what would be is counted.
    pub const MONITOR: u64 = 1 << 17;
    /// Time, frame length and the verdict's details go through the `replay` map instead of the kernel's
    /// clock and the frame: for tests and `ratelimit replay`, never attached to an interface.
    pub const REPLAY: u64 = 1 << 18;
    /// A rule may block sources: they are looked up among those that it did block.
    pub const RULE_BLOCKS: u64 = 1 << 19;
    /// Some sources are never shed on some ports.
    pub const MANAGEMENT: u64 = 1 << 20;
    /// Packets are sampled: sources are accounted, and refused packets told of.
    pub const SAMPLING: u64 = 1 << 21;
    /// Another program gets what passes.
    pub const NEXT: u64 = 1 << 22;
    /// Clients may be put under a rule: they are looked up among [`crate::overrides`].
    pub const OVERRIDES: u64 = 1 << 23;
}

/// Offsets into `direct_masks`, one 64-bit rule mask per value of a small domain.
pub mod direct {
    /// By IP protocol number, 256 entries, then one for packets whose protocol is out of reach.
    pub const PROTOCOL: u32 = 0;
    /// By TCP flags byte, 256 entries, then one for packets without readable flags.
    pub const TCP_FLAGS: u32 = PROTOCOL + 257;
    /// By ICMP type, 256 entries; then by ICMPv6 type, 256 entries; then one for all other packets.
    pub const ICMP_TYPE: u32 = TCP_FLAGS + 257;
    /// By [`crate::packet::Fragment`], 3 entries.
    pub const FRAGMENT: u32 = ICMP_TYPE + 513;
    /// By outer VLAN id, 4096 entries, then one for untagged packets.
    pub const VLAN: u32 = FRAGMENT + 3;
    /// Entries in all.
    pub const LEN: u32 = VLAN + 4097;
}

/// Rows of `range_classes` (65,536 class bytes each) and blocks of `range_masks` ([`range::MASKS`] masks
/// each: 256 classes, then one for packets that have no such value).
pub mod range {
    /// By source port.
    pub const SOURCE_PORT: u32 = 0;
    /// By destination port.
    pub const DESTINATION_PORT: u32 = 1;
    /// By frame length in bytes; longer frames count as 65,535.
    pub const LENGTH: u32 = 2;
    /// Rows in all.
    pub const ROWS: u32 = 3;
    /// Masks in one block.
    pub const MASKS: u32 = 257;
    /// Classes in one row, at most.
    pub const CLASSES: usize = 256;
}

/// Indexes into `address_masks` for addresses that no prefix of any rule covers; the tries' values
/// start at [`address_class::FIRST`].
pub mod address_class {
    /// A source that no prefix covers.
    pub const UNLISTED_SOURCE: u32 = 0;
    /// A destination that no prefix covers.
    pub const UNLISTED_DESTINATION: u32 = 1;
    /// The first class of a trie node.
    pub const FIRST: u32 = 2;
}

/// Bits of a value in the `listed` tries: the union over all covering prefixes of all lists.
pub mod listed {
    /// An allow entry covers the address.
    pub const ALLOW: u32 = 1;
    /// A deny entry covers the address.
    pub const DENY: u32 = 2;
    /// A deny entry is exactly this address: it also stops neighbour discovery.
    pub const DENY_EXACT: u32 = 4;
    /// A management entry covers the address: on the ports of [`management_class`] it is never shed.
    pub const MANAGEMENT: u32 = 8;

    /// Where the number of the class of ports begins.
    pub const CLASS_SHIFT: u32 = 8;

    /// The index into `management` that goes with [`MANAGEMENT`].
    #[inline(always)]
    pub const fn management_class(bits: u32) -> u32 {
        bits >> CLASS_SHIFT
    }
}

/// A value of the map `management`: one bit for each port. Sources that the same entries cover share one, so
/// there are at most [`MAX_MANAGEMENT`] of them.
pub mod ports {
    /// Words of 64 bits in a value.
    pub const WORDS: usize = 1024;

    /// The word and the place in it of a port; [`crate::packet::ABSENT`] has none.
    #[inline(always)]
    pub const fn bit(port: u32) -> Option<(usize, u32)> {
        if port < 65_536 { Some(((port / 64) as usize, port % 64)) } else { None }
    }
}

/// The prefilter before the `listed` tries: a trie is read only where a bit is set, because a trie
/// look-up costs up to a microsecond with a million prefixes and a bit costs one cache line.
pub mod prefilter {
    /// Both bitmaps have 2^24 bits (one per IPv4 /24; IPv6 hashed), kept in array values of this many
    /// 64-bit words so that userspace writes one in few calls.
    pub const CHUNK_WORDS: usize = 1024;
    /// Chunks in one bitmap.
    pub const CHUNKS: u32 = 256;

    /// The bit of an IPv4 address, given the `high` word of its [`crate::address::Address`].
    #[inline(always)]
    pub const fn v4_bit(high: u64) -> u32 {
        (high >> 40) as u32
    }

    /// The bit of an IPv6 prefix of `level` bits (16, 32 or 48), given the address' `high` word.
    ///
    /// A multiplicative hash: the bitmap only saves time, so an adversary who aims at set bits gains
    /// a trie look-up per packet and nothing else.
    #[inline(always)]
    pub const fn v6_bit(high: u64, level: u32) -> u32 {
        let prefix = high >> (64 - level);
        // The level is mixed in, so that 2001::/16 and 0:2001::/32 do not share a bit.
        ((prefix | ((level as u64) << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
    }
}

/// How a limit picks its bucket.
pub mod scope {
    /// By source address, masked: a bucket in the table.
    pub const ADDRESS: u32 = 0;
    /// One bucket for the whole rule, in the dense array.
    pub const RULE: u32 = 1;
}

/// What one unit of a limit is.
pub mod unit {
    /// Every packet costs 1.
    pub const PACKETS: u32 = 0;
    /// A packet costs its frame length in bytes.
    pub const BYTES: u32 = 1;
}

/// What a rule does when a limit refuses.
pub mod action {
    /// Sheds the packet.
    pub const SHED: u32 = 0;
    /// Lets it pass and counts it: the rule is monitored.
    pub const COUNT: u32 = 1;
}

/// What happens to a new key when both its sets hold only live buckets.
pub mod when_full {
    /// The bucket nearest to full gives way; the new one starts with room for this one packet.
    pub const PASS: u32 = 0;
    /// The bucket nearest to full gives way; the new one inherits its debt.
    pub const SHARE: u32 = 1;
    /// The packet is shed.
    pub const DROP: u32 = 2;
}

/// One limit of a rule, 72 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limit {
    /// Hash of (rule name, `per`, unit, ordinal among equals): the bucket's identity, whatever the numbers.
    pub id: u64,
    /// See [`gcra::Limit::multiplier`].
    pub multiplier: u64,
    /// See [`gcra::Limit::capacity`]; 0 means a rate of zero: every packet is refused.
    pub capacity: u64,
    /// Mask for the `high` word of an IPv4 source.
    pub ipv4_mask: u64,
    /// Masks for both words of an IPv6 source.
    pub ipv6_mask: [u64; 2],
    /// See [`gcra::Limit::shift`].
    pub shift: u32,
    /// One of [`scope`].
    pub scope: u32,
    /// One of [`mod@unit`].
    pub unit: u32,
    /// Index into the dense array of `per: rule` buckets; 0 for other scopes.
    pub bucket: u32,
    /// The size class of `capacity`, kept in the table's tags: see [`crate::bucket_table`].
    pub scale: u32,
    /// 1 if a packet can be refused for longer than [`COARSE_LAG_NANOS`], so that a look at the bucket with
    /// the coarse clock may settle it; else 0.
    pub slow: u32,
}

/// One rule, ready to charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// The limits; only the first `limit_count` count.
    pub limits: [Limit; MAX_LIMITS],
    /// How many limits there are, 1 to [`MAX_LIMITS`].
    pub limit_count: u32,
    /// One of [`action`].
    pub action: u32,
    /// The rule's index in the counters: below [`MAX_COUNTER_SLOTS`].
    pub counter_slot: u32,
    /// 1 + the index of a limit with a rate of zero; 0 when there is none. Such a rule refuses every
    /// packet and touches no bucket.
    pub zero_limit: u32,
    /// When a source is blocked for what the rule shed of it.
    pub block: Block,
}

/// When a rule blocks a source: see [`crate::offenders`]. All zeroes: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Block {
    /// The probability that a shed packet is counted, as a fraction of 2^32; `u32::MAX`: each one is.
    pub probability: u32,
    /// See [`crate::offenders::Threshold::samples`].
    pub samples: u32,
    /// See [`crate::offenders::Threshold::window`].
    pub window: u32,
    /// How long it is blocked, in seconds.
    pub seconds: u32,
}

impl Limit {
    /// A limit of all zeroes, for unused places.
    pub const UNUSED: Self = Self {
        id: 0,
        multiplier: 0,
        capacity: 0,
        ipv4_mask: 0,
        ipv6_mask: [0; 2],
        shift: 0,
        scope: 0,
        unit: 0,
        bucket: 0,
        scale: 0,
        slow: 0,
    };

    /// What a packet of `length` bytes costs.
    #[inline(always)]
    pub const fn units(&self, length: u64) -> u64 {
        if self.unit == unit::BYTES { length } else { 1 }
    }

    /// The bucket's arithmetic.
    #[inline(always)]
    pub const fn gcra(&self) -> gcra::Limit {
        gcra::Limit { multiplier: self.multiplier, shift: self.shift, capacity: self.capacity }
    }
}

#[cfg(feature = "user")]
mod pod {
    use super::{Limit, Rule};

    // SAFETY: repr(C), no padding and no invalid bit pattern, both checked by zerocopy's derives.
    unsafe impl aya::Pod for Limit {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Rule {}
}
