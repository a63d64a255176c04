//! How often a rule shed packets of a source, for rules that block whom they shed too often: counts of
//! sampled packets in a small set-associative table, generic over its cells like [`crate::bucket_table`].
//!
//! **Drawing.** Shed packets are the ones that come by the million, so not each of them is written down where
//! all CPUs share it. The per-CPU count of shed packets, which is kept anyway, decides: of every stretch of
//! packets in which one draw is due, one at random is drawn ([`is_drawn`]). A source that floods alone is drawn
//! almost exactly in proportion; sources that come by turns, however regular, share the draws like a random
//! choice. [`SAMPLES`] drawn packets stand for `after`, so that the count of one among many is off by less than
//! 30% in 999 of 1000 cases; where `after` is not more than that, each packet is drawn and the count is exact.
//!
//! **Counting.** A sliding window of two counts in one word: those drawn since a multiple of `within`, and
//! those of the window before it, weighed by how much of that still counts.
//!
//! **Room.** [`SETS`] sets of four. Whose windows are over is displaced first, then who has been counted least:
//! a spray of new sources displaces its own.

use crate::bucket_table::Cell;

/// Ways in a set.
pub const WAYS: usize = 4;
/// Sets: 128 KiB in all.
pub const SETS: u32 = 2048;
/// Drawn packets that stand for the number that a rule blocks after, at most.
pub const SAMPLES: u32 = 128;

/// `nanoseconds >> MOMENT_SHIFT` is the same time in moments of about a millisecond.
pub const MOMENT_SHIFT: u32 = 20;

/// Tries of a count that loses its race.
const ATTEMPTS: u32 = 2;

const WAY_BITS: u32 = WAYS.trailing_zeros();
const WAY_MASK: u64 = WAYS as u64 - 1;
const COUNT_BITS: u32 = 12;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
const SCALE_BITS: u32 = 6;
const SCALE_MASK: u64 = (1 << SCALE_BITS) - 1;

/// Four sources in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Set<C> {
    /// Whose the ways are: a hash of rule and source, and in the low bits the size class of the window.
    pub tags: [C; WAYS],
    /// Their counts: when the window began, in moments, then the counts of the window before and of this.
    pub counts: [C; WAYS],
}

/// When a rule blocks, ready for the packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Drawn packets that are too many, 1 to [`SAMPLES`].
    pub samples: u32,
    /// The time to count them in, in moments; at least 1.
    pub window: u32,
}

/// The probability of a draw, as a fraction of 2^32, and the drawn packets that stand for `after`.
#[expect(clippy::cast_possible_truncation, reason = "the quotient is below 2^32 where the divisor is larger")]
pub const fn sampling(after: u32) -> (u32, u32) {
    if after <= SAMPLES {
        (u32::MAX, after)
    } else {
        ((((SAMPLES as u64) << 32) / after as u64) as u32, SAMPLES)
    }
}

/// Whether the shed packet is drawn that makes the count of shed packets on its CPU `count`.
///
/// Each packet advances by `probability`; where that fills 2^32, a stretch ends. Of the packets of a stretch
/// the one is drawn that passes a place which is random, or sources that take turns with the stretches would
/// have all the draws or none.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the place within the stretch is the lower half")]
pub const fn is_drawn(count: u64, probability: u32) -> bool {
    let position = count.wrapping_mul(probability as u64);
    let place = scatter(position >> 32);
    probability == u32::MAX || (position as u32).wrapping_sub(place) < probability
}

/// A number that looks random for each number of a stretch: the finalizer of `SplitMix64` (Steele, Lea, Flood,
/// OOPSLA 2014).
#[inline(always)]
const fn scatter(stretch: u64) -> u32 {
    let mut mixed = stretch.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32) as u32
}

/// Counts a drawn packet of the source with this hash; whether it was one too many. Then its count begins
/// anew.
#[inline(always)]
pub fn count<C: Cell>(set: &Set<C>, hash: u64, threshold: Threshold, now: u64) -> bool {
    let window = u64::from(threshold.window);
    let scale = u64::from(u64::BITS - window.leading_zeros());
    let tag = (hash & !SCALE_MASK) | scale;
    let Some(way) = find(set, tag).or_else(|| claim(set, tag, now)) else { return false };
    let Some(cell) = set.counts.get(way % WAYS) else { return false };
    for _ in 0..ATTEMPTS {
        let word = cell.read();
        let (next, reached) = advance(word, threshold, now);
        if cell.compare_exchange(word, next).is_ok() {
            return reached;
        }
    }
    // Others count the same source at this very moment, and theirs are counted.
    false
}

/// The count after one more drawn packet, and whether that was one too many.
#[inline(always)]
fn advance(word: u64, Threshold { samples, window }: Threshold, now: u64) -> (u64, bool) {
    let window = if window == 0 { 1 } else { u64::from(window) };
    let elapsed = now % window;
    let start = now - elapsed;
    let (began, before, current) = parts(word);
    let (before, current) = if began == start {
        (before, current)
    } else if began + window == start {
        (current, 0)
    } else {
        (0, 0)
    };
    let current = if current < MAX_COUNT { current + 1 } else { current };
    if current * window + before * (window - elapsed) >= u64::from(samples) * window {
        return (join(start, 0, 0), true);
    }
    (join(start, before, current), false)
}

/// The way with this tag: arithmetic instead of branches, for the reasons given at
/// [`crate::bucket_table::Set::find`].
#[inline(always)]
fn find<C: Cell>(set: &Set<C>, tag: u64) -> Option<usize> {
    // 1 if the tags differ: one of the two halves of the difference is not 0.
    let differs = |cell: &C| {
        let difference = cell.read() ^ tag;
        ((difference >> 1) | (difference & 1)).wrapping_add(u64::MAX >> 1) >> 63
    };
    let [a, b, c, d] = &set.tags;
    let not_a = differs(a);
    let not_b = not_a & differs(b);
    let not_c = not_b & differs(c);
    let none = not_c & differs(d) != 0;
    #[expect(clippy::cast_possible_truncation, reason = "it is below 4")]
    let way = (not_a + not_b + not_c) as usize & (WAYS - 1);
    if none { None } else { Some(way) }
}

/// Takes the way that is missed least. Two CPUs may take it at once; then one of them is counted wrongly once.
#[inline(always)]
fn claim<C: Cell>(set: &Set<C>, tag: u64, now: u64) -> Option<usize> {
    // Among equals the hash decides, or those who come at the same time would fight for one way.
    let salt = tag >> SCALE_BITS;
    let mut least = u64::MAX;
    for (way, (tag, count)) in (0..).zip(set.tags.iter().zip(&set.counts)) {
        let (began, before, current) = parts(count.read());
        // Twice the size class is more than two windows: nothing of it counts any more.
        let ends = began + (2 << (tag.read() & SCALE_MASK));
        let goes_on = now.wrapping_sub(ends) >> 63;
        let rank = (before + current + 1) & goes_on.wrapping_neg();
        least = least.min((rank << WAY_BITS) | ((way ^ salt) & WAY_MASK));
    }
    let victim = ((least ^ salt) & WAY_MASK) as usize;
    let old = set.tags[victim].read();
    set.tags[victim].compare_exchange(old, tag).ok()?;
    set.counts[victim].write(0);
    Some(victim)
}

const fn parts(word: u64) -> (u64, u64, u64) {
    (word >> (2 * COUNT_BITS), word >> COUNT_BITS & MAX_COUNT, word & MAX_COUNT)
}

const fn join(start: u64, before: u64, current: u64) -> u64 {
    (start << (2 * COUNT_BITS)) | (before << COUNT_BITS) | current
}

#[cfg(test)]
mod tests;
