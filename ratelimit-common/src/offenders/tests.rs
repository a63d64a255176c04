extern crate std;

use core::sync::atomic::AtomicU64;
use std::{collections::HashMap, vec::Vec};

use proptest::prelude::*;

use super::*;

fn set() -> Set<AtomicU64> {
    Set { tags: Default::default(), counts: Default::default() }
}

const SECOND: u64 = 1_000_000_000 >> MOMENT_SHIFT;

fn threshold(after: u32, seconds: u32) -> (u32, Threshold) {
    let (probability, samples) = sampling(after);
    (probability, Threshold { samples, window: seconds * u32::try_from(SECOND).unwrap() })
}

/// Packets that one of `sources` sends until it is blocked, if all send by turns in an order that `random`
/// draws, so many a second in all.
fn packets_until_blocked(after: u32, seconds: u32, sources: u64, rate: u64, mut random: u64) -> Vec<u64> {
    let order = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % sources
    };
    packets_in_order_until_blocked(after, seconds, sources, rate, order)
}

/// The same in the order given.
fn packets_in_order_until_blocked(
    after: u32,
    seconds: u32,
    sources: u64,
    rate: u64,
    mut order: impl FnMut() -> u64,
) -> Vec<u64> {
    let (probability, threshold) = threshold(after, seconds);
    let sets: Vec<_> = (0..SETS).map(|_| set()).collect();
    let mut sent = HashMap::new();
    let mut blocked = HashMap::new();
    let mut shed = 0;
    for packet in 0..200 * u64::from(after) * sources {
        let source = order();
        if blocked.contains_key(&source) {
            continue;
        }
        *sent.entry(source).or_insert(0) += 1;
        shed += 1;
        let now = SECOND * 1000 + packet * SECOND / rate;
        let hash = source.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &sets[usize::try_from(hash % u64::from(SETS)).unwrap()];
        if is_drawn(shed, probability) && count(place, hash, threshold, now) {
            blocked.insert(source, sent[&source]);
            if blocked.len() as u64 == sources {
                break;
            }
        }
    }
    blocked.into_values().collect()
}

#[test]
fn a_small_number_is_exact() {
    for after in [1, 2, 10, 100, SAMPLES] {
        assert_eq!(packets_until_blocked(after, 10, 1, 1_000_000, 7), [u64::from(after)]);
        let several = packets_until_blocked(after, 3600, 20, 100_000, 7);
        assert_eq!(several, [u64::from(after); 20]);
    }
}

#[test]
fn a_source_that_floods_alone_is_counted_to_three_percent() {
    for after in [129, 1000, 12_345, 1_000_000] {
        let [packets] = packets_until_blocked(after, 3600, 1, 1_000_000, 7)[..] else { panic!("blocked") };
        assert!(packets.abs_diff(u64::from(after)) * 100 <= u64::from(after) * 3, "{packets} of {after}");
    }
}

#[test]
fn sources_among_many_are_counted_to_thirty_percent() {
    let mut wrong = 0;
    let mut all = 0;
    for random in 1..=20 {
        for after in [200, 1000, 5000] {
            let packets = packets_until_blocked(after, 86_400, 50, 1_000_000, random * 0x1234_5678_9abc);
            assert_eq!(packets.len(), 50);
            all += packets.len();
            let off = |packets: &&u64| packets.abs_diff(u64::from(after)) * 10 > u64::from(after) * 3;
            wrong += packets.iter().filter(off).count();
        }
    }
    assert!(wrong * 1000 <= all * 2, "{wrong} of {all} off by more than 30%");
}

#[test]
fn sources_in_strict_turns_are_counted_to_thirty_percent() {
    let mut wrong = 0;
    let mut all = 0;
    // Numbers that divide powers of two, Fibonacci numbers, primes.
    for sources in [2, 3, 4, 5, 8, 13, 16, 21, 31, 34, 55, 64, 89, 100, 128, 144] {
        for after in [256, 512, 1000, 1024, 4096, 5000] {
            let mut turn = 0;
            let packets = packets_in_order_until_blocked(after, 86_400, sources, 1_000_000, || {
                turn += 1;
                turn % sources
            });
            assert_eq!(packets.len() as u64, sources);
            all += packets.len();
            let off = |packets: &&u64| packets.abs_diff(u64::from(after)) * 10 > u64::from(after) * 3;
            wrong += packets.iter().filter(off).count();
        }
    }
    assert!(wrong * 1000 <= all * 2, "{wrong} of {all} off by more than 30%");
}

#[test]
fn who_stays_below_is_never_blocked_and_who_is_above_soon() {
    // 1000 within 10 s.
    let below = packets_until_blocked(1000, 10, 1, 90, 7);
    assert!(below.is_empty(), "90 a second: {below:?}");
    let above = packets_until_blocked(1000, 10, 1, 115, 7);
    assert_eq!(above.len(), 1, "115 a second");
}

#[test]
fn a_count_begins_anew_when_it_was_reached() {
    let (_, threshold) = threshold(3, 10);
    let set = set();
    for round in 0..4 {
        let now = 1_000_000 + round;
        assert!(!count(&set, 1 << 10, threshold, now));
        assert!(!count(&set, 1 << 10, threshold, now));
        assert!(count(&set, 1 << 10, threshold, now));
    }
}

#[test]
fn what_is_two_windows_ago_does_not_count() {
    let (_, threshold) = threshold(3, 10);
    let window = u64::from(threshold.window);
    let set = set();
    let start = window * 100;
    assert!(!count(&set, 64, threshold, start));
    assert!(!count(&set, 64, threshold, start));
    assert!(!count(&set, 64, threshold, start + 2 * window));
    assert!(!count(&set, 64, threshold, start + 2 * window));
    assert!(count(&set, 64, threshold, start + 2 * window));
}

#[test]
fn a_spray_does_not_displace_an_offender() {
    let (_, threshold) = threshold(100, 10);
    let set = set();
    let now = SECOND * 1000;
    for round in 0..99 {
        assert!(!count(&set, 1 << 20, threshold, now + round));
        for other in 0..2 {
            assert!(!count(&set, (2 + round * 2 + other) << 20, threshold, now + round));
        }
    }
    assert!(count(&set, 1 << 20, threshold, now + 100));
}

#[test]
fn whose_windows_are_over_is_displaced_first() {
    let (_, short) = threshold(100, 1);
    let set = set();
    for source in 1..=4 {
        for _ in 0..50 {
            assert!(!count(&set, source << 20, short, SECOND * 10));
        }
    }
    // Long after, a newcomer gets the way of one of them and keeps it.
    let late = SECOND * 100;
    for _ in 0..99 {
        assert!(!count(&set, 9 << 20, short, late));
    }
    assert!(count(&set, 9 << 20, short, late));
}

proptest! {
    /// Against a list of times, in a sliding window counted as its definition says.
    #[test]
    fn a_count_is_that_of_the_two_windows(
        samples in 1_u32..=128,
        window in 1_u32..100_000,
        steps in prop::collection::vec(0_u64..50_000, 1..200),
    ) {
        let threshold = Threshold { samples, window };
        let set = set();
        let mut now = 10_000_000;
        let mut times: Vec<u64> = Vec::new();
        for step in steps {
            now += step;
            times.push(now);
            let window = u64::from(window);
            let start = now - now % window;
            let current = times.iter().filter(|&&time| time >= start).count() as u64;
            let before = times.iter().filter(|&&time| time < start && time + window >= start).count() as u64;
            let expected = current * window + before * (start + window - now) >= u64::from(samples) * window;
            let reached = count(&set, 1 << 30, threshold, now);
            prop_assert_eq!(reached, expected);
            if reached {
                times.clear();
            }
        }
    }

    #[test]
    fn draws_are_in_proportion(probability in 1_u32.., from in 0_u64..1 << 48) {
        let drawn = (from..from + 10_000).filter(|&count| is_drawn(count, probability)).count() as u64;
        let expected = (u64::from(probability) * 10_000) >> 32;
        prop_assert!(drawn.abs_diff(expected) < 250, "{drawn} of {expected}");
    }
}
