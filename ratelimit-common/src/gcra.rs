//! The token bucket, as one word of time.
//!
//! A token bucket of rate `r` and capacity `b` is the generic cell rate algorithm (ITU-T I.371): its
//! whole state is the theoretical arrival time (TAT), the moment at which the bucket will be full again.
//! A request of a given cost is admitted iff `max(tat, now) + cost - now <= capacity`, and then the new
//! TAT is `max(tat, now) + cost`. There is no refill, no remainder to lose and nothing to do while idle.
//!
//! Time is in ticks of 2^-6 ns since the table was made: fine enough that 100 M packets/s is off by less
//! than 0.1%, coarse enough to last nine years. Clocks of different CPUs disagree a little, so `now` may
//! run backwards; every operation saturates, and a TAT further ahead than the capacity is pulled back to
//! it, so no state can lock a client out for longer than an empty bucket does (and [`STALENESS`]).
//!
//! **Bytes.** At 400 Gbit/s a byte takes 1.28 ticks and a small frame 77, so rounding every frame the same
//! way would be off by more than a percent. A cost is therefore rounded up or down in proportion to its
//! fraction, by a dither drawn from the TAT that it is added to: deterministic, without bias, and
//! different from one packet to the next because each packet moves the TAT.

/// `nanoseconds << TICK_SHIFT` is the same time in ticks.
pub const TICK_SHIFT: u32 = 6;

/// A bucket may take at most this long to fill, so that `now + capacity` cannot overflow.
pub const MAX_FILL_NANOS: u64 = 90 * 86_400 * 1_000_000_000;

/// The largest cost in units that one packet can have: a frame of a big-TCP super-packet. A larger one
/// is charged as this many.
pub const MAX_UNITS: u64 = 1 << 20;

/// The fewest ticks a packet may take (128 M packets/s): rounding to a whole tick is off by 0.1% here.
pub const MIN_PACKET_TICKS: u64 = 500;

/// The fewest ticks a byte may take (512 Gbit/s).
pub const MIN_BYTE_TICKS: u64 = 1;

/// A byte must take fewer ticks than this (two minutes), and so must every `multiplier` of a byte limit
/// be smaller: [`MAX_UNITS`] times it, plus the dither, stays below 2^64.
pub const MAX_BYTE_TICKS: u64 = 1 << 43;

/// How old a CPU's `now` may be: one second. The clocks of two CPUs agree far better, but a hypervisor may
/// stop a CPU between its look at the clock and its look at the bucket. A TAT that is no further than this
/// beyond the capacity may well be right, and pulling it back would give what it holds away once more.
pub const STALENESS: u64 = 1_000_000_000 << TICK_SHIFT;

/// Bytes of a full Ethernet frame without its checksum.
pub const FULL_FRAME: u64 = 1514;

const MAX_CAPACITY: u64 = MAX_FILL_NANOS << TICK_SHIFT;

/// Rate and capacity of a bucket, ready for the packet's way: no division is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Ticks per unit, times `2^shift`.
    pub multiplier: u64,
    /// The binary point of `multiplier`: 0 when one unit costs a whole number of ticks.
    pub shift: u32,
    /// Ticks that a full bucket holds.
    pub capacity: u64,
}

/// Units of a rate: `units` (packets or bytes) every `nanos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many units; at least 1.
    pub units: u64,
    /// In how many nanoseconds; at least 1.
    pub nanos: u64,
}

/// Why a rate and burst cannot be held to 0.1%.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The rate is zero: that is a block, not a bucket.
    ZeroRate,
    /// The burst is zero: nothing could ever pass.
    ZeroBurst,
    /// The bucket would take longer than [`MAX_FILL_NANOS`] to fill.
    FillTooLong,
    /// One unit takes less than [`MIN_PACKET_TICKS`] (packets) or [`MIN_BYTE_TICKS`] (bytes).
    TooFast,
    /// One byte takes [`MAX_BYTE_TICKS`] or more.
    TooSlow,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It fits; the bucket's new state is `tat`.
    Admit {
        /// The theoretical arrival time to store.
        tat: u64,
    },
    /// It does not fit; the state stays as it is.
    Refuse {
        /// Ticks until the same request fits, if nobody else asks. `u64::MAX`: never, the cost is above
        /// the capacity.
        wait: u64,
    },
}

impl Limit {
    /// A limit in packets. The burst is the capacity: after idling exactly `burst` packets pass back to
    /// back.
    #[expect(clippy::cast_possible_truncation, reason = "multiplier <= capacity, and that was compared")]
    pub const fn packets(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        if let Err(error) = check(rate, burst) {
            return Err(error);
        }
        let (ticks, units) = ((rate.nanos as u128) << TICK_SHIFT, rate.units as u128);
        if ticks < MIN_PACKET_TICKS as u128 * units {
            return Err(LimitError::TooFast);
        }
        let multiplier = (ticks + units / 2) / units;
        match multiplier.checked_mul(burst as u128) {
            Some(capacity) if capacity <= MAX_CAPACITY as u128 => {
                Ok(Self { multiplier: multiplier as u64, shift: 0, capacity: capacity as u64 })
            }
            _ => Err(LimitError::FillTooLong),
        }
    }

    /// A limit in bytes. After idling, `burst` bytes in full frames pass back to back, and not one full
    /// frame more.
    ///
    /// Where a byte is no whole number of ticks, each frame may be rounded up by less than a tick, so the
    /// capacity gets a slack of one tick for each full frame of the burst, but no more than 4 ticks times
    /// the square root of their number: the roundings are independent with a standard deviation of at
    /// most half a tick, and eight of those do not happen. The slack is about a thousandth of the
    /// burst, and below one full frame for bursts up to a gigabyte at 10 Gbit/s and 80 MB at 400 Gbit/s.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "multiplier <= MAX_BYTE_TICKS; capacity was compared"
    )]
    pub const fn bytes(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        if let Err(error) = check(rate, burst) {
            return Err(error);
        }
        let (ticks, units) = ((rate.nanos as u128) << TICK_SHIFT, rate.units as u128);
        if ticks < MIN_BYTE_TICKS as u128 * units {
            return Err(LimitError::TooFast);
        }
        if ticks / units >= MAX_BYTE_TICKS as u128 {
            return Err(LimitError::TooSlow);
        }
        let mut shift = 0;
        if !ticks.is_multiple_of(units) {
            // ticks < 2^70 and shift < 43: no overflow. One below the bound leaves room for rounding up.
            while (ticks << (shift + 1)) / units < MAX_BYTE_TICKS as u128 - 1 {
                shift += 1;
            }
        }
        let multiplier = ((ticks << shift) + units / 2) / units;
        let frames = burst.div_ceil(FULL_FRAME);
        let slack = match shift {
            0 => 0,
            _ if frames < 16 => frames,
            _ => 4 * frames.isqrt(),
        };
        match multiplier.checked_mul(burst as u128) {
            Some(product) if (product >> shift) < MAX_CAPACITY as u128 - slack as u128 => Ok(Self {
                multiplier: multiplier as u64,
                shift,
                // The fraction that the shift cuts off belongs to the burst: one more tick.
                capacity: (product >> shift) as u64 + if shift == 0 { 0 } else { 1 + slack },
            }),
            _ => Err(LimitError::FillTooLong),
        }
    }

    /// Ticks that `units` cost when they are added to a TAT of `base`; `u64::MAX` when that is more than
    /// any capacity.
    #[inline(always)]
    pub const fn cost(&self, units: u64, base: u64) -> u64 {
        // The top `shift` bits of a hash of the base, spread evenly over [0, 2^shift). One multiplication
        // alone (a Weyl sequence) keeps step with some frame sizes and is off by 0.11% for a thousand
        // frames of 95 bytes at 100 Gbit/s.
        let mixed = base.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.rounded_cost(units, mixed >> 1 >> (63 - (self.shift & 63)))
    }

    /// The cost of `units`, with `dither` in [0, 2^shift) to round it.
    #[inline(always)]
    const fn rounded_cost(&self, units: u64, dither: u64) -> u64 {
        let units = if units > MAX_UNITS { MAX_UNITS } else { units };
        // The product in two halves, for BPF has no 128-bit multiplication. `units` is at most 2^20, so
        // `low` is below 2^52, and `high` below 2^31 for every byte limit.
        let high = (self.multiplier >> 32).wrapping_mul(units);
        let low = (self.multiplier & 0xffff_ffff).wrapping_mul(units);
        if high >> 31 != 0 {
            return u64::MAX;
        }
        ((high << 32).wrapping_add(low).wrapping_add(dither)) >> (self.shift & 63)
    }

    /// Whether a bucket in state `tat` refuses `units` at `now` for certain and rightly: even the least
    /// that they may cost, and not as one that must be [pulled back](Limit::pulled_back). Where this is
    /// false, [`Limit::decide`] decides; where it is true, it would refuse as well, now and at any time
    /// before. This is what a flood is shed by, so it is short.
    #[inline(always)]
    pub const fn surely_refuses(&self, tat: u64, now: u64, units: u64) -> bool {
        let ceiling = now.saturating_add(self.capacity);
        tat.saturating_add(self.rounded_cost(units, 0)) > ceiling && tat <= ceiling.saturating_add(STALENESS)
    }

    /// Whether a bucket in state `tat` admits a request of `units` at `now`.
    ///
    /// A TAT beyond `now + capacity` counts as `now + capacity`, but a refusal stores nothing: see
    /// [`Limit::pulled_back`].
    #[inline(always)]
    pub const fn decide(&self, tat: u64, now: u64, units: u64) -> Decision {
        let ceiling = now.saturating_add(self.capacity);
        let base = if tat < now {
            now
        } else if tat > ceiling {
            ceiling
        } else {
            tat
        };
        let cost = self.cost(units, base);
        // base <= ceiling, and an admitted cost is at most the difference: neither can wrap.
        let room = ceiling.wrapping_sub(base);
        if cost <= room {
            Decision::Admit { tat: base.wrapping_add(cost) }
        } else if cost > self.capacity {
            Decision::Refuse { wait: u64::MAX }
        } else {
            Decision::Refuse { wait: cost.wrapping_sub(room) }
        }
    }

    /// The state that must replace `tat`, if `tat` is so far ahead that no packet of this limit can have
    /// put it there (the bucket changed hands, or its limit changed). Without the replacement the client
    /// would be locked out until time has caught up.
    #[inline(always)]
    pub const fn pulled_back(&self, tat: u64, now: u64) -> Option<u64> {
        let ceiling = now.saturating_add(self.capacity);
        if tat > ceiling.saturating_add(STALENESS) { Some(ceiling) } else { None }
    }
}

const fn check(rate: Rate, burst: u64) -> Result<(), LimitError> {
    if rate.units == 0 {
        Err(LimitError::ZeroRate)
    } else if burst == 0 {
        Err(LimitError::ZeroBurst)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
