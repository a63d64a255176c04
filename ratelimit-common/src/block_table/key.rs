//! Where the ways of an address may be.

use super::{CLAIMED, Memory, Table, WAYS, is_of, until_of};
use crate::{
    address::{Address, Family},
    bucket_table::{Cell, hash},
    policy,
};

/// Ways of both candidate sets: those of the first, then of the second.
pub(super) const PLACES: u32 = 2 * WAYS;

/// Free ways that keep a new key in its first set.
const ROOMY: u32 = 4;

const UNTIL_BITS: u32 = 31;
const FAMILY: u64 = 1 << UNTIL_BITS;
const TAG: u64 = !(u32::MAX as u64);

/// The candidate sets of an address, and what its ways have in common.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) sets: [u32; 2],
    /// The tag and the family of its ways.
    owner: u64,
}

/// The tag of a way, in the upper half.
pub(super) const fn tag(word: u64) -> u64 {
    word & TAG
}

/// Whether a way is one of an IPv6 address.
pub(super) const fn is_v6(word: u64) -> bool {
    word & FAMILY != 0
}

/// The hash of a whole address and an identity.
#[inline(always)]
pub(super) const fn hash_of(hash_key: [u64; 2], id: u64, address: &Address) -> u64 {
    let whole = policy::Limit { id, ipv4_mask: u64::MAX, ipv6_mask: [u64::MAX; 2], ..policy::Limit::UNUSED };
    hash(hash_key, &whole, address)
}

// === impl Key ===

impl Key {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "indexes of sets are below their number")]
    pub(super) const fn new(table: &Table, address: &Address) -> Self {
        const LOW: u64 = u32::MAX as u64;
        let hash = hash_of(table.hash_key, table.id, address);
        let sets = table.sets as u64;
        // Each half of the hash, taken as a fraction, of the sets, and of the other sets.
        let first = ((hash & LOW) * sets) >> 32;
        let second = first + 1 + (((hash >> 32) * (sets - 1)) >> 32);
        let second = if second < sets { second } else { second - sets };
        let owner = match address.family {
            Family::V4 => address.high,
            // The sets do not tell the lower bits of the halves: the product's upper half has them all.
            Family::V6 => tag(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | FAMILY,
        };
        Self { sets: [first as u32, second as u32], owner }
    }

    /// A way of this key with this end.
    #[inline(always)]
    pub(super) const fn word(&self, until: u32) -> u64 {
        self.owner | until as u64
    }

    /// Whether a way has this key's tag and family. One that nobody has is not even that of 0.0.0.0.
    #[inline(always)]
    pub(super) const fn owns(&self, word: u64) -> bool {
        (word ^ self.owner) >> UNTIL_BITS == 0 && word != 0
    }

    /// The index of a place's detail.
    #[inline(always)]
    pub(super) const fn index(&self, place: u32) -> u32 {
        self.set(place) * WAYS + place % WAYS
    }

    #[inline(always)]
    pub(super) fn way<'a, M: Memory>(&self, memory: &'a M, place: u32) -> Option<&'a M::Cell> {
        memory.set(self.set(place))?.way(place)
    }

    #[inline(always)]
    const fn set(&self, place: u32) -> u32 {
        let [first, second] = self.sets;
        if place < WAYS { first } else { second }
    }

    /// The first place that the address has. A claimed way counts by its tag alone.
    #[inline(always)]
    pub(super) fn search<M: Memory>(&self, memory: &M, address: &Address) -> Option<u32> {
        for place in 0..PLACES {
            let word = self.way(memory, place)?.read();
            if self.owns(word) && (until_of(word) == CLAIMED || is_of(memory, self.index(place), address)) {
                return Some(place);
            }
        }
        None
    }

    /// The place for this key when it is new: a way that was free at `now`.
    #[inline(always)]
    pub(super) fn vacancy<M: Memory>(&self, memory: &M, now: u32) -> Option<u32> {
        let [first, second] = self.sets;
        let (first, second) = (free_ways(memory, first, now), free_ways(memory, second, now));
        let emptier = second.count_ones() > first.count_ones();
        let (free, offset) = if first.count_ones() < ROOMY && emptier { (second, WAYS) } else { (first, 0) };
        if free == 0 { None } else { Some(offset + free.trailing_zeros() % WAYS) }
    }
}

/// A bit for each way of a set that is free at `now`.
///
/// Arithmetic instead of branches: the verifier would follow the rest once for each combination.
#[inline(always)]
fn free_ways<M: Memory>(memory: &M, set: u32, now: u32) -> u32 {
    let Some(set) = memory.set(set) else { return 0 };
    let mut free = 0;
    for (way, cell) in (0..).zip(&set.ways) {
        // Below 2^31 both: the difference is negative if the way is live.
        let live = now.wrapping_sub(until_of(cell.read())) >> 31;
        free |= (live ^ 1) << way;
    }
    free
}
