//! How many different clients there were, in a fixed number of bytes.
//!
//! A `HyperLogLog` of 1,024 registers, read with the estimator of Ertl ("New cardinality estimation
//! algorithms for `HyperLogLog` sketches", 2017), which is unbiased from 0 up and needs no tables. Its
//! standard error is 3.3%.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::http::{algorithm::Nanos, store::Identity};

const BITS: u32 = 10;
const REGISTERS: usize = 1 << BITS;

/// The rank of a hash whose bits beyond those that choose the register are all zero.
const MAX_RANK: usize = 64 - BITS as usize + 1;

const HOUR: Nanos = 3_600_000_000_000;

/// Different identities of the current hour and the one before.
#[derive(Debug)]
pub(super) struct Recent {
    /// The current hour's number.
    hour: AtomicU64,
    /// Even hours, odd hours.
    sketches: [Sketch; 2],
}

/// A set of identities of which only the size can be asked.
#[derive(Debug)]
struct Sketch {
    registers: [AtomicU8; REGISTERS],
}

// === impl Recent ===

impl Recent {
    pub(super) fn new() -> Self {
        Self { hour: AtomicU64::new(0), sketches: [Sketch::new(), Sketch::new()] }
    }

    /// Adds one.
    pub(super) fn add(&self, identity: Identity, now: Nanos) {
        let hour = self.turn(now);
        self.sketches[parity(hour)].add(identity);
    }

    /// About how many there were.
    pub(super) fn count(&self, now: Nanos) -> u64 {
        self.turn(now);
        estimate(&self.sketches)
    }

    /// Forgets what is older than the hour before. What another thread adds to the new hour while it is
    /// being emptied may be forgotten with the old: a client of the first microseconds, until it comes
    /// again.
    fn turn(&self, now: Nanos) -> u64 {
        let hour = now / HOUR;
        let before = self.hour.load(Ordering::Relaxed);
        if hour <= before {
            return before;
        }
        if self.hour.compare_exchange(before, hour, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.sketches[parity(hour)].clear();
            if hour - before > 1 {
                self.sketches[parity(hour + 1)].clear();
            }
        }
        hour
    }
}

fn parity(hour: u64) -> usize {
    usize::from(hour % 2 == 1)
}

// === impl Sketch ===

impl Sketch {
    fn new() -> Self {
        Self { registers: [const { AtomicU8::new(0) }; REGISTERS] }
    }

    fn add(&self, identity: Identity) {
        let (register, rank) = place(identity);
        let register = &self.registers[register];
        // A register soon holds all it will: reading first leaves its line shared by all processors.
        if register.load(Ordering::Relaxed) < rank {
            register.fetch_max(rank, Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        for register in &self.registers {
            register.store(0, Ordering::Relaxed);
        }
    }
}

/// Register and rank of an identity, which is a keyed hash, so any 64 of its bits do.
#[expect(clippy::cast_possible_truncation, reason = "ten bits, and a number up to 55")]
fn place(identity: Identity) -> (usize, u8) {
    let [_, hash] = identity.hash();
    let rank = (hash << BITS | 1 << (BITS - 1)).leading_zeros() + 1;
    ((hash >> (64 - BITS)) as usize, rank as u8)
}

/// The size of the union of both.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of at most 2^63 or so, never negative"
)]
fn estimate([even, odd]: &[Sketch; 2]) -> u64 {
    let mut of_rank = [0u32; MAX_RANK + 1];
    for (even, odd) in even.registers.iter().zip(&odd.registers) {
        let rank = even.load(Ordering::Relaxed).max(odd.load(Ordering::Relaxed));
        of_rank[usize::from(rank)] += 1;
    }
    let registers = REGISTERS as f64;
    let share = |rank: usize| f64::from(of_rank[rank]) / registers;
    let mut sum = registers * tau(1.0 - share(MAX_RANK));
    for rank in (1..MAX_RANK).rev() {
        sum = f64::midpoint(sum, f64::from(of_rank[rank]));
    }
    sum += registers * sigma(share(0));
    (registers * registers / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
}

/// `x + x^2 + 2 x^4 + 4 x^8 + …`
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut factor) = (x, 1.0);
    loop {
        x *= x;
        let next = sum + x * factor;
        if next <= sum {
            return sum;
        }
        (sum, factor) = (next, factor * 2.0);
    }
}

/// `(1 - x - (1 - x^(1/2))^2 / 2 - (1 - x^(1/4))^2 / 4 - …) / 3`
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut sum, mut factor) = (1.0 - x, 1.0);
    loop {
        x = x.sqrt();
        factor /= 2.0;
        let next = sum - (1.0 - x).powi(2) * factor;
        if next >= sum {
            return sum / 3.0;
        }
        sum = next;
    }
}

#[cfg(test)]
pub(super) mod tests;
