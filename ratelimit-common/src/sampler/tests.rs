//! The figures that the module's head gives, on a virtual clock.

extern crate std;

use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// What is known of a source.
#[derive(Clone, Copy, Default)]
struct Account {
    /// Packets that it sent.
    sent: u64,
    estimate: u64,
    variance: u64,
}

/// One CPU and the accounts of its sources.
struct Cpu {
    sampler: Sampler,
    accounts: Vec<Account>,
    now: u64,
    began: u64,
    samples: u64,
    /// Samples ahead of [`RATE`], and how few it ever were: what lies between is a window's excess.
    ahead: i128,
    least_ahead: i128,
    most_excess: i128,
}

impl Cpu {
    /// `seed` is the time, and so begins the generator.
    fn new(sources: usize, seed: u64) -> Self {
        Self {
            sampler: Sampler::default(),
            accounts: vec![Account::default(); sources],
            now: seed,
            began: seed,
            samples: 0,
            ahead: 0,
            least_ahead: 0,
            most_excess: 0,
        }
    }

    /// A packet of a source; its weight if it is a sample.
    fn packet(&mut self, source: usize) -> Option<u64> {
        let account = &mut self.accounts[source];
        account.sent += 1;
        if !self.sampler.is_due() {
            return None;
        }
        let weight = self.sampler.draw(self.now);
        account.estimate += weight;
        account.variance += spread(weight);
        self.samples += 1;
        // Times COST, so that there is nothing to round.
        self.ahead = i128::from(self.samples * COST) - i128::from(self.now - self.began);
        self.least_ahead = self.least_ahead.min(self.ahead - i128::from(COST));
        self.most_excess = self.most_excess.max(self.ahead - self.least_ahead);
        Some(weight)
    }

    /// Packets of sources in turn, `rate` a second in all.
    fn in_turn(&mut self, packets: u64, rate: u64) {
        let sources = self.accounts.len();
        for n in 0..packets {
            self.packet(usize::try_from(n).unwrap() % sources);
            self.now += SECOND / rate;
        }
    }

    /// How many accounts are off by more than they say.
    fn wrong(&self) -> usize {
        let heaviest = self.sampler.heaviest(self.began);
        self.accounts
            .iter()
            .filter(|account| account.estimate.abs_diff(account.sent) > error(account.variance, heaviest))
            .count()
    }

    #[track_caller]
    fn assert_bounded(&self) {
        let most = i128::from(MOST * COST);
        assert!(self.most_excess <= most, "{} of {most}", self.most_excess);
    }
}

#[test]
fn at_low_rates_every_packet_is_a_sample_and_counts_are_exact() {
    for rate in [1, 100, 5000, RATE] {
        let mut cpu = Cpu::new(3, SECOND);
        cpu.in_turn(20_000, rate);
        assert_eq!(cpu.samples, 20_000, "{rate}/s");
        assert_eq!(cpu.sampler.heaviest(0), 1);
        for account in &cpu.accounts {
            assert_eq!((account.estimate, error(account.variance, 1)), (account.sent, 0));
        }
    }
}

#[test]
fn bursts_of_2600_packets_are_counted_exactly() {
    let mut cpu = Cpu::new(1, SECOND);
    for _ in 0..10 {
        cpu.in_turn(2600, 100 * SECOND);
        cpu.now += SECOND;
    }
    assert_eq!((cpu.samples, cpu.sampler.heaviest(0)), (26_000, 1));
}

#[test]
fn samples_settle_at_the_rate_whatever_the_load() {
    for rate in [15_000, 20_000, 50_000, 333_333, 1_000_000, 5_000_000] {
        let mut cpu = Cpu::new(1, SECOND);
        cpu.in_turn(rate, rate);
        cpu.assert_bounded();
        let before = cpu.samples;
        cpu.in_turn(rate / 2, rate);
        let settled = (cpu.samples - before) * 2;
        assert!((9_000..11_000).contains(&settled), "{rate}/s: {settled} samples a second");
    }
}

#[test]
fn more_than_a_cpu_can_take_is_still_thinned_to_the_longest_period() {
    let mut cpu = Cpu::new(1, SECOND);
    cpu.in_turn(20_000_000, SECOND);
    let share = 20_000_000 / cpu.samples;
    assert!((1500..2200).contains(&share), "one in {share}");
}

#[test]
fn a_single_source_is_within_the_error() {
    for rate in [12_000, 40_000, 170_000, 1_000_000] {
        let trials = 100;
        let wrong: usize = (0..trials)
            .map(|trial| {
                let mut cpu = Cpu::new(1, SECOND + trial * 7919);
                cpu.in_turn(100_000, rate);
                cpu.wrong()
            })
            .sum();
        assert!(wrong <= 5, "{rate}/s: {wrong} of {trials}");
    }
}

#[test]
fn sources_that_take_turns_share_the_samples_fairly() {
    // Among them multiples of the periods, one more and one less.
    for sources in [2, 3, 7, 16, 63, 64, 65, 127, 128, 255, 1000] {
        let trials = 10;
        let (mut wrong, mut sent, mut counted) = (0, 0, vec![0; sources]);
        for trial in 0..trials {
            let mut cpu = Cpu::new(sources, SECOND + trial * 104_729);
            cpu.in_turn(400_000, 1_000_000);
            wrong += cpu.wrong();
            for (counted, account) in counted.iter_mut().zip(&cpu.accounts) {
                *counted += account.estimate;
            }
            sent += cpu.accounts[0].sent;
        }
        let accounts = sources * usize::try_from(trials).unwrap();
        assert!(wrong * 20 <= accounts, "{sources} sources: {wrong} of {accounts}");
        // Nobody escapes, and nobody is counted for the others: the sum over the trials is 3 times as exact.
        if sources <= 16 {
            for (source, counted) in counted.iter().enumerate() {
                assert!(counted * 10 > sent * 8 && counted * 10 < sent * 12, "{source}: {counted} of {sent}");
            }
        }
    }
}

#[test]
fn small_sources_among_a_flood_are_within_the_error_seen_or_not() {
    const SMALL: usize = 400;
    let (mut wrong, trials) = (0, 5);
    for trial in 0..trials {
        // Source n sends about n packets; source 0 floods.
        let mut cpu = Cpu::new(SMALL, SECOND + trial * 15_485_863);
        let mut turn = 0;
        for n in 0..1_500_000_u64 {
            // A source of a number that grows by the golden ratio comes up evenly and without a pattern.
            turn += 0x9e37_79b9_7f4a_7c15_u64 % (1 << 40);
            let drawn = usize::try_from((turn >> 8) % 8_000_000).unwrap();
            let small = drawn % SMALL;
            let source = if (drawn / SMALL).is_multiple_of(20) && n % 2 == 0 { small } else { 0 };
            cpu.packet(source);
            cpu.now += 1000;
        }
        assert!(cpu.accounts[1..].iter().any(|account| account.estimate == 0 && account.sent > 0));
        wrong += cpu.wrong();
    }
    let accounts = SMALL * usize::try_from(trials).unwrap();
    assert!(wrong * 20 <= accounts, "{wrong} of {accounts}");
}

#[test]
fn after_a_flood_counts_are_exact_again() {
    let mut cpu = Cpu::new(2, SECOND);
    cpu.in_turn(2_000_000, 4_000_000);
    let before_quiet = cpu.now;
    let heaviest = cpu.sampler.heaviest(SECOND);
    assert!((256..=512).contains(&heaviest), "{heaviest}");

    // What is left of the flood's gap is passed over; whoever ends it is not taken for the flood.
    cpu.now += SECOND;
    let mut passed_over = 0;
    let ends = loop {
        cpu.now += SECOND / 1000;
        match cpu.packet(0) {
            Some(weight) => break weight,
            None => passed_over += 1,
        }
    };
    assert_eq!(ends, 1);
    assert!(passed_over <= 2 * heaviest - 2, "{passed_over}");

    let quiet = cpu.now;
    cpu.now += 1;
    for _ in 0..5000 {
        assert_eq!(cpu.packet(1), Some(1));
        cpu.now += SECOND / 1000;
    }
    // Who was there before may have been passed over; who came after was not.
    assert_eq!(cpu.sampler.heaviest(before_quiet), heaviest);
    assert_eq!(cpu.sampler.heaviest(quiet + 1), 1);
}

#[test]
fn a_gap_that_is_not_over_counts_as_in_use() {
    let mut cpu = Cpu::new(1, SECOND);
    cpu.in_turn(1_000_000, 1_000_000);
    let long_after = cpu.now + 3600 * SECOND;
    assert!(cpu.sampler.heaviest(long_after) >= 64);
}

#[test]
fn time_that_runs_back_neither_stops_the_samples_nor_frees_them() {
    let mut cpu = Cpu::new(1, 3600 * SECOND);
    cpu.in_turn(1_000_000, 1_000_000);
    let mut sampler = cpu.sampler;
    let mut drawn = 0;
    for packet in 0..2_000_000_u64 {
        if sampler.is_due() {
            sampler.draw(SECOND + packet * 1000);
            drawn += 1;
        }
    }
    assert!((15_000..24_000).contains(&drawn), "{drawn} in two seconds");
}

#[test]
fn the_mean_distance_is_the_period_and_every_distance_comes() {
    for level in 0..=7 {
        let period = 1_u64 << level;
        let mut sampler = Sampler::default();
        let mut seen = vec![0_u64; usize::try_from(2 * period).unwrap()];
        let draws = 20_000 * period;
        let mut sum = 0;
        for _ in 0..draws {
            let distance = sampler.distance(level, SECOND);
            seen[usize::try_from(distance).unwrap()] += 1;
            sum += distance;
        }
        assert!(sum.abs_diff(draws * period) * 100 < draws * period, "{sum} of {}", draws * period);
        assert_eq!(seen[0], 0);
        assert!(seen[1..].iter().all(|&seen| seen > 9000), "{seen:?}");
    }
}

#[test]
fn the_error_is_zero_only_where_everything_was_counted() {
    assert_eq!(error(0, 1), 0);
    assert_eq!(error(0, 0), 0);
    assert_eq!(error(0, 64), 192);
    assert_eq!(error(spread(64), 64), 239);
    assert_eq!(error(1_000_000, 1), 2237);
    assert_eq!(error(u64::MAX, u64::MAX), u64::from(u32::MAX) + 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_pattern_of_arrival_takes_more_samples_than_stated(
        phases in prop::collection::vec((1_u64..500_000, 100_u64..10_000_000, 0_u64..300_000_000), 1..6),
    ) {
        let mut cpu = Cpu::new(1, SECOND);
        for (packets, rate, pause) in phases {
            cpu.in_turn(packets.min(rate), rate);
            cpu.now += pause;
        }
        let most = i128::from(MOST * COST);
        prop_assert!(cpu.most_excess <= most, "{} of {most}", cpu.most_excess);
    }
}
