//! Look-ups, victims, and the figures on placement that the module's head gives.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the figures are small, or shares of large ones"
)]

extern crate std;

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

impl Cell for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(SeqCst)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, SeqCst, SeqCst)
    }

    fn add(&self, delta: u64) -> u64 {
        self.fetch_add(delta, SeqCst)
    }

    fn write(&self, value: u64) {
        self.store(value, SeqCst);
    }
}

fn set(tags: [u64; WAYS], arrivals: [u64; WAYS]) -> Set<AtomicU64> {
    Set { tags: tags.map(AtomicU64::new), tats: arrivals.map(AtomicU64::new) }
}

proptest! {
    #[test]
    fn finds_the_first_way_whatever_its_scale(
        tags: [u64; WAYS], wanted: u64, at in prop::collection::vec((0_usize..WAYS, 0_u32..64), 0..3),
    ) {
        let mut tags = tags;
        for (way, scale) in at {
            tags[way] = tag(wanted, scale);
        }
        let expected = tags.iter().position(|other| other >> 6 == wanted >> 6);
        let found = set(tags, [0; WAYS]).find(tag(wanted, 9));
        prop_assert_eq!(found.map(|way| way as usize), expected);
    }

    #[test]
    fn candidate_sets_differ(hash: u64, bits in 1_u32..24) {
        let mask = (1 << bits) - 1;
        prop_assert!(first_set(hash, mask) <= mask && second_set(hash, mask) <= mask);
        prop_assert_ne!(first_set(hash, mask), second_set(hash, mask));
    }

    /// The victim is free if any way is, and otherwise nobody's debt is smaller in its own scale.
    #[test]
    fn the_victim_is_nearest_to_full(
        hash: u64, now in 1_u64 << 40..1 << 50,
        ways in prop::collection::vec((1_u32..44, 0_u64..1 << 30, any::<bool>()), 2 * WAYS),
    ) {
        let tag_of = |way: usize| tag(!(way as u64) << 6, ways[way].0);
        let tat_of = |way: usize| if ways[way].2 { now + 1 + ways[way].1 } else { now - ways[way].1 };
        let half = |start| set(core::array::from_fn(|way| tag_of(start + way)), core::array::from_fn(|way| tat_of(start + way)));
        let rank = |way: usize| if ways[way].2 { 1 + ((1 + ways[way].1) >> ways[way].0) } else { 0 };
        let free = |start: usize| (start..start + WAYS).filter(|way| rank(*way) == 0).count();

        let victim = vacancy(&half(0), &half(WAYS), now, hash).place as usize;
        let any_free = free(0) + free(WAYS) > 0;
        prop_assert_eq!(rank(victim) == 0, any_free);
        if any_free {
            let in_first = free(0) >= 3 || free(0) >= free(WAYS);
            prop_assert_eq!(victim < WAYS, in_first);
        } else {
            prop_assert_eq!(rank(victim), (0..2 * WAYS).map(rank).min().unwrap());
        }
    }
}

#[test]
fn a_set_is_a_cache_line() {
    assert_eq!((size_of::<Set<AtomicU64>>(), align_of::<Set<AtomicU64>>()), (64, 64));
}

#[test]
fn tables_have_twice_as_many_ways_as_buckets() {
    assert_eq!(sets_for(0), 2);
    assert_eq!(sets_for(4), 2);
    assert_eq!(sets_for(5), 4);
    assert_eq!(sets_for(1 << 20), 1 << 19);
    assert_eq!(sets_for(u32::MAX), 1 << 31);
}

#[test]
fn scales_make_debts_comparable() {
    for bits in 17..59 {
        let capacity = (1 << bits) | 1;
        let rank = capacity >> scale(capacity);
        assert!((1 << 15..1 << 16).contains(&rank), "{bits}: {rank}");
        assert!(scale(capacity) < 64);
    }
    assert_eq!(scale(0), 1);
    assert_eq!(scale(500), 1);
}

/// Fills a table to its capacity with live buckets; keys that found no way, and keys in their second set.
fn fill(placement: impl Fn(u64, u64) -> Option<bool>) -> (f64, f64) {
    const SETS: u64 = 1 << 17;
    let mut live = std::vec![0_u64; SETS as usize];
    let (mut lost, mut second) = (0_u32, 0_u32);
    let keys = SETS * WAYS as u64 / 2;
    // SplitMix64 (Steele, Lea and Flood 2014) stands for the keyed hash.
    for key in 1..=keys {
        let mut hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        let sets = [first_set(hash, SETS - 1), second_set(hash, SETS - 1)].map(|set| set as usize);
        let [a, b] = sets.map(|set| WAYS as u64 - live[set]);
        match placement(a, b) {
            Some(other) => {
                live[sets[usize::from(other)]] += 1;
                second += u32::from(other);
            }
            None => lost += 1,
        }
    }
    (f64::from(lost) / keys as f64, f64::from(second) / keys as f64)
}

#[test]
fn placement_loses_as_few_as_the_head_says() {
    let emptier = |roomy: u64| {
        move |a: u64, b: u64| match (a, b) {
            (0, 0) => None,
            _ => Some(a < roomy && b > a),
        }
    };
    let figures: Vec<(f64, f64)> = std::vec![
        fill(|a, _| (a > 0).then_some(false)),
        fill(emptier(1)),
        fill(emptier(2)),
        fill(emptier(ROOMY)),
        fill(emptier(WAYS as u64)),
    ];
    let expected = [(0.037, 0.0), (0.0037, 0.035), (0.000_29, 0.096), (0.000_023, 0.19), (0.000_019, 0.28)];
    for (figure, expected) in figures.iter().zip(expected) {
        assert!((figure.0 - expected.0).abs() < 0.1 * expected.0 + 0.000_03, "{figures:?}");
        assert!((figure.1 - expected.1).abs() < 0.01, "{figures:?}");
    }
    assert!(figures[3].0 < 0.0001);
}
