//! The bucket against a naive model in exact fractions, and the accuracy of byte costs.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the figures are small, or shares of large ones"
)]

extern crate std;

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

fn ticks(nanos: u64) -> u64 {
    nanos << TICK_SHIFT
}

fn packets(units: u64, nanos: u64, burst: u64) -> Limit {
    Limit::packets(Rate { units, nanos }, burst).unwrap()
}

fn bytes(units: u64, burst: u64) -> Limit {
    Limit::bytes(Rate { units, nanos: SECOND }, burst).unwrap()
}

/// A bucket with its limit.
struct Bucket {
    limit: Limit,
    tat: u64,
}

impl Bucket {
    fn new(limit: Limit) -> Self {
        Self { limit, tat: 0 }
    }

    fn ask(&mut self, now: u64, units: u64) -> bool {
        match self.limit.decide(self.tat, now, units) {
            Decision::Admit { tat } => {
                self.tat = tat;
                true
            }
            Decision::Refuse { .. } => false,
        }
    }

    /// Offers `count` packets at once; how many pass.
    fn offer(&mut self, now: u64, count: u64) -> u64 {
        (0..count).map(|_| u64::from(self.ask(now, 1))).sum()
    }
}

/// A token bucket as the textbook has it, in fractions of a token with the denominator `nanos`.
struct Model {
    rate: Rate,
    burst: u64,
    level: u128,
    last: u64,
}

impl Model {
    fn new(rate: Rate, burst: u64) -> Self {
        Self { rate, burst, level: u128::from(burst) * u128::from(rate.nanos), last: 0 }
    }

    fn ask(&mut self, nanos: u64, units: u64) -> bool {
        let refill = u128::from(nanos - self.last) * u128::from(self.rate.units);
        self.last = nanos;
        self.level = (self.level + refill).min(u128::from(self.burst) * u128::from(self.rate.nanos));
        let cost = u128::from(units) * u128::from(self.rate.nanos);
        if cost <= self.level {
            self.level -= cost;
            true
        } else {
            false
        }
    }
}

proptest! {
    /// Where a packet is a whole number of ticks, every decision equals the model's.
    #[test]
    fn decides_as_the_exact_model(
        per_packet in 1_000_u64..10_000_000_000,
        burst in 1_u64..500,
        steps in prop::collection::vec((0_u64..4, 0_u64..3_000, 1_u64..4), 1..300),
    ) {
        let rate = Rate { units: 1, nanos: per_packet };
        let mut bucket = Bucket::new(Limit::packets(rate, burst).unwrap());
        let mut model = Model::new(rate, burst);
        let mut nanos = 0_u64;
        for (kind, permille, units) in steps {
            nanos += match kind {
                0 => 0,
                1 => per_packet / 1_000 * permille,
                2 => per_packet * permille / 100,
                _ => [15 * SECOND, 3_600 * SECOND, 30 * DAY][(permille % 3) as usize],
            };
            prop_assert_eq!(bucket.ask(ticks(nanos), units), model.ask(nanos, units), "at {} ns", nanos);
        }
    }

    /// Every accepted limit, whatever the state and the time: nothing overflows, a state never lies
    /// beyond the capacity, and waiting as long as asked is enough.
    #[test]
    fn no_state_locks_out(
        units in 1_u64..=u64::MAX,
        nanos in 1_u64..=100 * DAY,
        burst in 1_u64..=u64::MAX,
        shrink in (0_u32..64, 0_u32..64),
        cost in 0_u64..=MAX_UNITS * 2,
        in_bytes: bool,
        tat: u64,
        now in 0_u64..=u64::MAX / 2,
    ) {
        let rate = Rate { units: (units >> shrink.0).max(1), nanos };
        let burst = (burst >> shrink.1).max(1);
        let limit = if in_bytes { Limit::bytes(rate, burst) } else { Limit::packets(rate, burst) };
        let Ok(limit) = limit else { return Ok(()) };
        prop_assert!(limit.capacity <= MAX_CAPACITY);
        let state = limit.pulled_back(tat, now).unwrap_or(tat);
        match limit.decide(state, now, cost) {
            Decision::Admit { tat: next } => {
                prop_assert!(next >= now.max(state.min(now + limit.capacity)));
                prop_assert!(next - now <= limit.capacity);
            }
            Decision::Refuse { wait: u64::MAX } => prop_assert!(limit.cost(cost, state) >= limit.capacity),
            Decision::Refuse { wait } => {
                // A state that is ahead by less than the staleness is not pulled back: it costs that much more.
                prop_assert!(wait <= limit.capacity);
                let later = now + wait + state.saturating_sub(now + limit.capacity);
                let admitted = matches!(limit.decide(state, later, cost), Decision::Admit { .. });
                prop_assert!(admitted);
                if wait > 0 && state <= now + limit.capacity {
                    let early = limit.decide(state, now + wait - 1, cost);
                    prop_assert_eq!(early, Decision::Refuse { wait: 1 });
                }
            }
        }
    }

    /// The long-run rate of packets is right to 0.1%, from 1 a day to 100 M/s.
    #[test]
    fn packet_rates_are_exact(units in 1_u64..=100_000_000, nanos in prop::sample::select(&[SECOND, 60 * SECOND, 3600 * SECOND, DAY][..])) {
        let limit = packets(units, nanos, 1);
        let error = (u128::from(limit.multiplier) * u128::from(units)).abs_diff(u128::from(nanos) << TICK_SHIFT);
        prop_assert!(error * 1_000 <= u128::from(nanos) << TICK_SHIFT);
    }

    /// A TAT ahead of a clock that steps back: at most the capacity's worth of debt.
    #[test]
    fn time_running_back_is_no_lock_out(burst in 1_u64..100, back in 0_u64..100 * SECOND) {
        let mut bucket = Bucket::new(packets(10, SECOND, burst));
        let start = 1_000 * SECOND;
        prop_assert_eq!(bucket.offer(ticks(start), burst + 1), burst);
        let now = ticks(start - back);
        prop_assert!(bucket.offer(now, 1) == 0);
        if let Some(state) = bucket.limit.pulled_back(bucket.tat, now) {
            bucket.tat = state;
        }
        let full = now + bucket.limit.capacity + STALENESS;
        prop_assert_eq!(bucket.offer(full, burst + 1), burst);
    }
}

#[test]
fn ten_of_fifteen_pass() {
    let mut bucket = Bucket::new(packets(10, SECOND, 10));
    let verdicts: Vec<bool> = (0..15).map(|_| bucket.ask(ticks(5 * SECOND), 1)).collect();
    assert_eq!(verdicts, [[true; 5], [true; 5], [false; 5]].concat());
}

#[test]
fn refusals_tell_the_wait() {
    let mut bucket = Bucket::new(packets(5, SECOND, 5));
    let start = ticks(SECOND);
    assert_eq!(bucket.offer(start, 7), 5);
    assert_eq!(bucket.limit.decide(bucket.tat, start, 1), Decision::Refuse { wait: ticks(200_000_000) });
    assert!(!bucket.ask(start + ticks(199_000_000), 1));
    assert!(bucket.ask(start + ticks(200_000_000), 1));
    assert_eq!(bucket.limit.decide(0, start, 6), Decision::Refuse { wait: u64::MAX });
}

#[test]
fn a_drained_bucket_admits_at_its_rate() {
    let mut bucket = Bucket::new(packets(1, 2 * SECOND, 5));
    for second in 0..30 {
        let expected = if second == 0 { 5 } else { u64::from(second % 2 == 0) };
        assert_eq!(bucket.offer(ticks((100 + second) * SECOND), 10), expected, "second {second}");
    }
    let mut bucket = Bucket::new(packets(60, 60 * SECOND, 60));
    let passed: u64 = (0..6_000).map(|step| bucket.offer(ticks(DAY + step * SECOND / 100), 60)).sum();
    assert_eq!(passed, 119);
}

#[test]
fn the_edge_of_a_window_lets_no_double_burst_through() {
    let mut bucket = Bucket::new(packets(100, SECOND, 100));
    let passed = bucket.offer(ticks(99 * SECOND / 100), 100) + bucket.offer(ticks(101 * SECOND / 100), 100);
    assert_eq!(passed, 102);
}

#[test]
fn spacing_loses_no_remainder() {
    for units in [3, 7, 50, 999, 10_000, 1_000_003] {
        let limit = packets(units, SECOND, 2);
        for (numerator, denominator) in [(100, 150), (100, 199), (150, 100), (199, 100)] {
            let mut bucket = Bucket::new(limit);
            let (mut offered, mut passed) = (0_u64, 0_u64);
            while offered < 100_000 {
                let nanos =
                    u128::from(offered) * u128::from(SECOND) * numerator / denominator / u128::from(units);
                passed += u64::from(bucket.ask(ticks(DAY + u64::try_from(nanos).unwrap()), 1));
                offered += 1;
            }
            let expected = (u128::from(offered) * numerator.min(denominator) / denominator) as u64;
            assert!(passed.abs_diff(expected) <= 2 + expected / 1_000, "{units}/s: {passed} of {expected}");
        }
    }
}

#[test]
fn idling_fills_up_to_the_burst_and_no_further() {
    for idle in [15 * SECOND, 3_600 * SECOND, 30 * DAY] {
        let mut bucket = Bucket::new(packets(1_000_000, SECOND, 1_000));
        assert_eq!(bucket.offer(ticks(SECOND), 2_000), 1_000);
        assert_eq!(bucket.offer(ticks(SECOND + idle), 2_000), 1_000);
        let mut bucket = Bucket::new(bytes(1_250_000_000, 1_514 * 100));
        for start in [SECOND, SECOND + idle] {
            let passed = (0..200).filter(|_| bucket.ask(ticks(start), 1_514)).count();
            assert_eq!(passed, 100);
        }
    }
}

#[test]
fn impossible_limits_are_refused() {
    let rate = |units, nanos| Rate { units, nanos };
    assert_eq!(Limit::packets(rate(0, SECOND), 1), Err(LimitError::ZeroRate));
    assert_eq!(Limit::bytes(rate(0, SECOND), 1), Err(LimitError::ZeroRate));
    assert_eq!(Limit::packets(rate(1, SECOND), 0), Err(LimitError::ZeroBurst));
    assert_eq!(Limit::bytes(rate(1, SECOND), 0), Err(LimitError::ZeroBurst));
    assert!(Limit::packets(rate(128_000_000, SECOND), 1).is_ok());
    assert_eq!(Limit::packets(rate(128_000_001, SECOND), 1), Err(LimitError::TooFast));
    assert!(Limit::bytes(rate(64_000_000_000, SECOND), 1).is_ok());
    assert_eq!(Limit::bytes(rate(64_000_000_001, SECOND), 1), Err(LimitError::TooFast));
    assert_eq!(Limit::bytes(rate(1, 138 * SECOND), 1), Err(LimitError::TooSlow));
    assert!(Limit::bytes(rate(1, 8 * SECOND), 1_514).is_ok());
    assert!(Limit::packets(rate(1, DAY), 90).is_ok());
    assert_eq!(Limit::packets(rate(1, DAY), 91), Err(LimitError::FillTooLong));
    assert_eq!(Limit::packets(rate(1, DAY), 1_000_000_000), Err(LimitError::FillTooLong));
    assert_eq!(Limit::packets(rate(1, u64::MAX), u64::MAX), Err(LimitError::FillTooLong));
    assert_eq!(Limit::bytes(rate(1_000, SECOND), u64::MAX), Err(LimitError::FillTooLong));
}

/// Rates that no power of two divides, so that most have a fraction to dither.
const BYTE_RATES: [u64; 14] = [
    1_000,
    1_001,
    12_345,
    125_000,
    999_983,
    1_250_000,
    7_654_321,
    125_000_000,
    333_333_333,
    1_250_000_000,
    9_876_543_211,
    12_500_000_000,
    37_037_037_037,
    50_000_000_000,
];

/// Any 1,000 packets in a row take the time that their bytes are worth, to 0.1%.
#[test]
fn byte_costs_are_exact_over_a_thousand_packets() {
    let mut worst = 0.0_f64;
    let mut check = |limit: Limit, rate: u64, size: &dyn Fn(usize) -> u64, base: u64| {
        let mut base = base;
        let mut bases = std::vec![base];
        let mut total = std::vec![0_u64];
        for packet in 0..5_000 {
            let units = size(packet);
            base += limit.cost(units, base);
            bases.push(base);
            total.push(total[packet] + units);
        }
        for end in 1_000..bases.len() {
            let exact = (total[end] - total[end - 1_000]) as f64 * 64e9 / rate as f64;
            let error = ((bases[end] - bases[end - 1_000]) as f64 - exact).abs() / exact;
            worst = worst.max(error);
            assert!(error < 0.001, "{rate} B/s, first size {}: {error}", size(0));
        }
    };
    for rate in BYTE_RATES {
        let limit = bytes(rate, 9_000);
        for start in [ticks(SECOND), ticks(DAY) + 12_345] {
            for size in (60..1_600).step_by(7).chain([1_514, 3_000, 9_000]) {
                check(limit, rate, &|_| size, start);
            }
            check(limit, rate, &|packet| 60 + (packet as u64).wrapping_mul(2_654_435_761) % 8_941, start);
            check(limit, rate, &|packet| if packet % 2 == 0 { 60 } else { 61 }, start);
        }
    }
    assert!(worst > 0.0, "no rate was dithered");
}

/// After idling, `burst` bytes in full frames pass back to back, and not one full frame more.
#[test]
fn byte_bursts_are_whole_frames() {
    for rate in BYTE_RATES {
        for frames in [1, 2, 3, 15, 16, 17, 100, 1_000, 33_000] {
            for start in 0..20 {
                let Ok(limit) = Limit::bytes(Rate { units: rate, nanos: SECOND }, frames * FULL_FRAME) else {
                    continue;
                };
                let mut bucket = Bucket::new(limit);
                let now = ticks(DAY) + start * 7_919;
                let passed = (0..frames + 3).filter(|_| bucket.ask(now, FULL_FRAME)).count();
                assert_eq!(passed as u64, frames, "{rate} B/s, start {start}");
            }
        }
    }
}

#[test]
fn a_cost_beyond_all_capacities_saturates() {
    let limit = packets(1, 90 * DAY, 1);
    assert_eq!(limit.cost(MAX_UNITS, 0), u64::MAX);
    assert_eq!(limit.decide(0, u64::MAX, MAX_UNITS), Decision::Refuse { wait: u64::MAX });
    let limit = Limit::bytes(Rate { units: 1, nanos: 137 * SECOND }, 1_000).unwrap();
    assert_eq!(limit.cost(MAX_UNITS, 0), limit.multiplier << 20);
    assert_eq!(limit.cost(u64::MAX, 0), limit.cost(MAX_UNITS, 0));
}
