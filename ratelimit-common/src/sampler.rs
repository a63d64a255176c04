//! Which packets are samples, and how many packets each stands for.
//!
//! Every CPU decides for itself. It draws how many packets to pass over, at random between none and
//! `2 * period - 2`, so that the mean distance of two samples is the *period*; a sample weighs one period. A
//! packet that is no sample costs a load, a subtraction and a store.
//!
//! **Cost.** Samples are metered like packets: they may come at [`RATE`] with a burst of [`EXACT`], and while
//! they keep to that the period is 1: every packet is a sample, every count exact. Beyond, the period doubles
//! with every [`BAND`] of debt, so it settles where the CPU takes [`RATE`] samples a second, whatever the
//! load: never more than `RATE * t + MOST` in any time `t`, up to ten million packets a second and CPU. The
//! clock is read at samples only.
//!
//! **Error.** Each packet is a sample with probability 1/period, whoever sends the others: the random
//! distance keeps sources that take turns from sharing the samples unfairly. So the weights of a source's
//! samples add up to an unbiased estimate of its packets, whose variance is less than the sum of
//! `weight * (weight - 1)` ([`spread`]). With `heaviest` the largest weight in use since the source was
//! first seen, the true number is within [`error`] of the estimate in at least 19 of 20 cases; nothing is
//! off, and the error 0, while that weight is 1 (`sampler/tests.rs` holds these figures).
//!
//! A gap that lasts longer than [`LATE`] began under a load that has ended: it would hand the weight of the
//! flood to whoever comes after. Such a sample weighs 1, and what was passed over counts for nobody: at most
//! `2 * period - 2` packets of a CPU at each such pause, which [`error`] has room for.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Samples a second that a CPU takes under load.
pub const RATE: u64 = 10_000;

/// Nanoseconds of debt that a sample costs.
const COST: u64 = 1_000_000_000 / RATE;

/// The debt in nanoseconds up to which every packet is a sample: 2684 samples at once.
pub const EXACT: u64 = 1 << 28;

/// The debt in nanoseconds that doubles the period: 42 samples.
pub const BAND: u64 = 1 << 22;

/// Periods are `1 << level`, for levels below this.
pub const LEVELS: usize = 12;

/// The level of the longest period.
pub const LAST_LEVEL: u64 = LEVELS as u64 - 1;

/// More samples than this are never taken ahead of [`RATE`].
pub const MOST: u64 = (EXACT + LEVELS as u64 * BAND) / COST + 1;

/// A gap of so many nanoseconds has outlived its load: at the last level that is 15,000 packets a second,
/// where the level is for 20 million.
pub const LATE: u64 = 1 << 27;

/// The state of one CPU; all zeroes at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sampler {
    /// Packets to pass over before the next sample.
    skip: u64,
    /// The level at which that number was drawn.
    level: u64,
    /// The time in nanoseconds until which samples are paid for at [`RATE`].
    paid_until: u64,
    /// The state of the generator; never 0 once it has begun.
    random: u64,
    /// When a gap of each level last began or ended, in nanoseconds.
    last: [u64; LEVELS],
}

/// What a sample adds to the variance of an estimate, for each packet or byte squared that it is about.
#[inline(always)]
pub const fn spread(weight: u64) -> u64 {
    weight * (weight - 1)
}

/// By how many packets an estimate is off at most, in at least 19 of 20 cases, given the sum of its
/// [`spread`]s and the heaviest weight that was in use meanwhile.
///
/// `sqrt(5 * variance + 9 * heaviest^2)`: a good two standard deviations, and for estimates from few samples,
/// or none, where there is nothing to tell the deviation from, three periods.
pub const fn error(variance: u64, heaviest: u64) -> u64 {
    if variance == 0 && heaviest <= 1 {
        return 0;
    }
    let unseen = heaviest.saturating_mul(heaviest).saturating_mul(9);
    let square = variance.saturating_mul(5).saturating_add(unseen);
    let root = square.isqrt();
    if root * root < square { root + 1 } else { root }
}

// === impl Sampler ===

impl Sampler {
    /// Whether the packet at hand is a sample. If so, [`Self::draw`] must follow.
    #[inline(always)]
    pub const fn is_due(&mut self) -> bool {
        let skip = self.skip;
        self.skip = skip.wrapping_sub(1);
        skip == 0
    }

    /// The weight of the sample that is due, at `now` in nanoseconds; draws the next.
    #[inline(always)]
    pub fn draw(&mut self, now: u64) -> u64 {
        let level = self.level;
        let began = self.note(level, now);
        let weight = if now.saturating_sub(began) > LATE { 1 } else { 1 << (level & 63) };

        // Time that ran back, or a debt from before, must not hold the period up for longer than this.
        let paid_until = self.paid_until.max(now).min(now.saturating_add(EXACT + LAST_LEVEL * BAND));
        self.paid_until = paid_until.saturating_add(COST);
        let debt = self.paid_until - now;
        let bands = if debt > EXACT { 1 + ((debt - EXACT) / BAND) } else { 0 };
        let next = if bands < LAST_LEVEL { bands } else { LAST_LEVEL };

        self.level = next;
        self.note(next, now);
        self.skip = self.distance(next, now) - 1;
        weight
    }

    /// The heaviest weight that was in use at `since`, in nanoseconds, or after.
    pub fn heaviest(&self, since: u64) -> u64 {
        let in_use = |&(level, last): &(u64, u64)| (last >= since && last != 0) || level == self.level;
        (0..).zip(self.last).filter(in_use).map(|(level, _)| 1 << level).max().unwrap_or(1)
    }

    /// Notes that a gap of a level begins or ends; when the last one did.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "levels are few")]
    fn note(&mut self, level: u64, now: u64) -> u64 {
        match self.last.get_mut(level as usize) {
            Some(last) => core::mem::replace(last, now),
            None => 0,
        }
    }

    /// A distance of 1 to `2 * period - 1`, `period` in the mean: of the `2 * period` numbers below that,
    /// 0 stands for the mean of the others.
    #[inline(always)]
    fn distance(&mut self, level: u64, now: u64) -> u64 {
        let period = 1 << (level & 63);
        // The upper half: the lower bits of a product depend on fewer bits of the factor.
        let drawn = (self.next_random(now) >> 32) & (2 * period - 1);
        if drawn == 0 { period } else { drawn }
    }

    /// The next number of xorshift64* (Marsaglia, "Xorshift RNGs", 2003; Vigna, "An experimental exploration
    /// of Marsaglia's xorshift generators, scrambled", 2016), which begins with the time.
    #[inline(always)]
    const fn next_random(&mut self, now: u64) -> u64 {
        let mut random = if self.random == 0 { now | 1 } else { self.random };
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        self.random = random;
        random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding and no invalid bit pattern, both checked by zerocopy's derives.
    unsafe impl aya::Pod for super::Sampler {}
}

#[cfg(test)]
mod tests;
