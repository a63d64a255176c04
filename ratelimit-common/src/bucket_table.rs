//! Where the buckets of addresses live: a set-associative table, generic over its cells, so that the code
//! which runs in the kernel also runs under loom.
//!
//! A set is one cache line: four tags and four TATs (see [`crate::gcra`]). A tag is 58 bits of the key's
//! hash and, in the low six, the time scale of the limit that owns the way. A key has two candidate sets,
//! and at most one way in them. A way whose TAT lies in the past is a full bucket: it can be given to
//! another key without loss. When every way is live, the victim is the one nearest to full, by debt in
//! the scale of its own limit, so that a slow limit cannot pin the table.
//!
//! **Placement.** A new key goes to its first set while that has three free ways, else to the emptier of
//! the two. Simulated with 2^18 keys in 2^19 ways (`bucket_table/tests.rs` holds these figures): of the
//! keys that fill the table to the configured capacity, this many find no free way, and this many need
//! their second set:
//!
//! | placement | lost | in the second set |
//! |---|---|---|
//! | one set | 3.7% | 0 |
//! | first set that has room | 0.37% | 3.5% |
//! | first set while it has 2 free ways, else the emptier | 0.029% | 9.6% |
//! | first set while it has 3 free ways, else the emptier | 0.0023% | 19% |
//! | the emptier | 0.0019% | 28% |

mod hash;

pub use self::hash::hash;

/// Ways in a set: four tags and four TATs fill a cache line.
pub const WAYS: usize = 4;

/// [`WAYS`], to count places with: ways of the first set, then of the second.
pub const PLACES: u32 = 4;

/// A way that no key ever had.
pub const EMPTY: u64 = 0;

/// Free ways that keep a new key in its first set.
const ROOMY: u64 = 3;

const WAY_BITS: u32 = WAYS.trailing_zeros();
const WAY_MASK: u64 = WAYS as u64 - 1;

const SCALE_BITS: u32 = 6;
const SCALE_MASK: u64 = (1 << SCALE_BITS) - 1;

/// One shared word.
///
/// Every operation must be sequentially consistent with respect to the read-modify-write ones: a claim
/// is announced by a compare-and-swap and then looked at by reads.
pub trait Cell {
    /// The word as it is now.
    fn read(&self) -> u64;
    /// Stores `new` if the word is `current`; the word that was there, as `Ok` if it was stored.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
    /// Adds, wrapping; returns the word that was there.
    fn add(&self, delta: u64) -> u64;
    /// Stores `value`, whatever is there.
    fn write(&self, value: u64);
}

/// Four buckets in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Set<C> {
    /// Whose the ways are; [`EMPTY`] if nobody's.
    pub tags: [C; WAYS],
    /// The ways' buckets.
    pub tats: [C; WAYS],
}

/// The scale of a key that displaced a live bucket: whatever its debt, it is the first to go again. A spray
/// of new keys so displaces its own, and not one bucket after another of those that were there before.
pub const ON_TRIAL: u32 = (1 << SCALE_BITS) - 1;

/// The size class of a capacity: a debt shifted right by it has at most 16 bits, so that the debts of
/// limits with different speeds compare. At least 1, so that no tag is [`EMPTY`].
pub const fn scale(capacity: u64) -> u32 {
    let bits = u64::BITS - capacity.leading_zeros();
    if bits > 17 { bits - 16 } else { 1 }
}

/// Sets of a table for `capacity` buckets: a power of two, with twice as many ways as buckets.
pub const fn sets_for(capacity: u32) -> u64 {
    let sets = (capacity as u64 * 2).div_ceil(WAYS as u64);
    // Two at least, or the candidate sets of a key would be one.
    if sets < 2 { 2 } else { sets.next_power_of_two() }
}

/// The tag of the key with this hash, under a limit of this scale.
#[inline(always)]
pub const fn tag(hash: u64, scale: u32) -> u64 {
    (hash & !SCALE_MASK) | (scale as u64 & SCALE_MASK)
}

/// The index of the key's first candidate set.
#[inline(always)]
pub const fn first_set(hash: u64, mask: u64) -> u64 {
    hash & mask
}

/// The index of the key's second candidate set: another than the first, since their last bits differ.
#[inline(always)]
pub const fn second_set(hash: u64, mask: u64) -> u64 {
    (hash ^ ((hash >> 32) | 1)) & mask
}

impl<C: Cell> Set<C> {
    /// The way of the key with this tag, whatever the scale was when it was claimed (a limit may have
    /// changed since).
    ///
    /// Arithmetic instead of branches: which of the ways it is cannot be predicted, and the verifier
    /// would follow the rest of the program once for each. The way is a sum of three bits, so that even
    /// verifiers which learn nothing from a comparison with "none" (before Linux 6.8) see that it is one.
    #[inline(always)]
    pub fn find(&self, tag: u64) -> Option<u32> {
        // 1 if the hashes differ, else 0: the sum reaches bit 63 unless the 58-bit difference is 0.
        let differs = |cell: &C| (((cell.read() ^ tag) >> SCALE_BITS) + (u64::MAX >> 1)) >> 63;
        let [a, b, c, d] = &self.tags;
        let not_a = differs(a);
        let not_b = not_a & differs(b);
        let not_c = not_b & differs(c);
        let none = not_c & differs(d) != 0;
        if none { None } else { Some(((not_a + not_b + not_c) & WAY_MASK) as u32) }
    }

    /// The tag of a way, by its place in one set or in two.
    #[inline(always)]
    pub fn tag(&self, place: u32) -> Option<&C> {
        self.tags.get((place % PLACES) as usize)
    }

    /// The bucket of a way, by its place in one set or in two.
    #[inline(always)]
    pub fn tat(&self, place: u32) -> Option<&C> {
        self.tats.get((place % PLACES) as usize)
    }

    /// How many ways are free, and the rank of the way nearest to full: its debt in the scale of its
    /// limit, then the way XOR `salt` in the low bits.
    ///
    /// Arithmetic, for the reasons given at [`Set::find`]. Times more than 2^63 ticks (four years) apart
    /// compare wrongly; that only makes for a worse choice.
    #[inline(always)]
    fn survey(&self, now: u64, salt: u64) -> (u64, u64) {
        let (mut live, mut lowest) = (0, u64::MAX);
        for (way, (tag, tat)) in (0..).zip(self.tags.iter().zip(&self.tats)) {
            let (tag, tat) = (tag.read(), tat.read());
            let is_live = now.wrapping_sub(tat) >> 63;
            let debt = tat.wrapping_sub(now) & is_live.wrapping_neg();
            // `is_live` rounds up, so that no live way ranks with the free ones.
            let rank = (debt >> (tag & SCALE_MASK)) + is_live;
            live += is_live;
            lowest = lowest.min((rank << WAY_BITS) | ((way ^ salt) & WAY_MASK));
        }
        (WAYS as u64 - live, lowest)
    }
}

/// A way for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vacancy {
    /// The way, counted over both sets of the key.
    pub place: u32,
    /// Its bucket was full when it was looked at: nothing is lost with it.
    pub free: bool,
}

/// The way to give to a new key: a free one, else the one nearest to full.
///
/// Among equals the key's hash decides, so that CPUs which insert different keys do not fight for the
/// same way (and so that the verifier cannot tell the ways apart).
#[inline(always)]
pub fn vacancy<C: Cell>(first: &Set<C>, second: &Set<C>, now: u64, hash: u64) -> Vacancy {
    let (free, lowest) = first.survey(now, hash);
    let (other_free, other_lowest) = second.survey(now, hash);
    let emptier = other_free > free || (other_free == free && other_lowest >> WAY_BITS < lowest >> WAY_BITS);
    let (lowest, offset) = if free < ROOMY && emptier { (other_lowest, PLACES) } else { (lowest, 0) };
    Vacancy { place: ((lowest ^ hash) & WAY_MASK) as u32 + offset, free: lowest >> WAY_BITS == 0 }
}

#[cfg(test)]
mod tests;
