use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ratelimit_common::{
    bucket_table::{Cell, WAYS},
    charge::{Charge, Verdict, charge},
    policy::{Rule, when_full},
};

use super::*;
use crate::{
    config::policy::{self as config, Bucket, Match, Per, Unit},
    network::{
        compile::{
            Slots,
            tests::{network, rule},
        },
        in_force::{self, Policy},
    },
};

const SECOND: u64 = 1_000_000_000 << TICK_SHIFT;
/// Late enough that an hour before is still after the table was made.
const START: u64 = 7_200 * SECOND;
const KEY: [u64; 2] = [11, 12];

/// A table of this test's own.
pub(in crate::network) struct Memory {
    sets: Vec<Set<Word>>,
    rules: Vec<Word>,
}

#[derive(Default)]
pub(in crate::network) struct Word(AtomicU64);

impl Cell for Word {
    fn read(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, SeqCst, SeqCst)
    }

    fn add(&self, delta: u64) -> u64 {
        self.0.fetch_add(delta, SeqCst)
    }

    fn write(&self, value: u64) {
        self.0.store(value, SeqCst);
    }
}

impl charge::Buckets for &Memory {
    type Cell = Word;

    fn set(&self, index: u64) -> Option<&Set<Word>> {
        self.sets.get(usize::try_from(index).ok()?)
    }

    fn rule_bucket(&self, index: u32) -> Option<&Word> {
        self.rules.get(index as usize)
    }
}

impl Memory {
    pub(in crate::network) fn new() -> Self {
        let empty = || Set {
            tags: [const { Word(AtomicU64::new(0)) }; WAYS],
            tats: [const { Word(AtomicU64::new(0)) }; WAYS],
        };
        let rules = (0..policy::MAX_RULE_BUCKETS).map(|_| Word::default()).collect();
        Self { sets: (0..64).map(|_| empty()).collect(), rules }
    }

    /// Charges packets as the program does, and says how many pass.
    pub(in crate::network) fn send(&self, rule: &Rule, from: &str, length: u64, now: u64, count: u64) -> u64 {
        let table = charge::Table { hash_key: KEY, set_mask: self.mask(), when_full: when_full::PASS };
        let source = address(from);
        let passes = |_: &u64| {
            let Charge { verdict, .. } = charge(&self, &table, rule, &source, length, now);
            !matches!(verdict, Verdict::Refused { .. })
        };
        (0..count).filter(passes).count() as u64
    }

    pub(in crate::network) fn at(&self, now: u64) -> Buckets<&Self> {
        Buckets::new(self, KEY, self.mask(), now)
    }

    fn mask(&self) -> u64 {
        self.sets.len() as u64 - 1
    }
}

pub(in crate::network) fn address(text: &str) -> Address {
    in_force::address(text.parse().expect("an address"))
}

/// A policy of one rule with these limits.
fn limited(limits: Vec<config::Limit>) -> Policy {
    let mut all = rule("all", Match::default());
    all.limits = limits;
    Policy::of_file(network(vec![all]), None).expect("a policy")
}

fn limit(per: Per, unit: Unit, rate: u64, burst: u64) -> config::Limit {
    let rate = ratelimit_common::gcra::Rate { units: rate, nanos: 1_000_000_000 };
    config::Limit { per, unit, bucket: Some(Bucket { rate, burst }) }
}

#[test]
fn what_was_sent_is_not_left_any_more() {
    let policy = limited(vec![limit(Per::Source, Unit::Packets, 10, 20)]);
    let [rule] = &policy.compiled.rules[..] else { panic!("one rule") };
    let memory = Memory::new();
    let level = |from: &str, now, units| memory.at(now).level(&rule.limits[0], 20, &address(from), units);

    let untouched = level("192.0.2.1", START, 1);
    assert_eq!(untouched, Level { left: 20, outcome: Outcome::Admits, full_in: Duration::ZERO });
    assert_eq!(memory.send(rule, "192.0.2.1", 100, START, 15), 15);
    let some = level("192.0.2.1", START, 1);
    assert_eq!((some.left, some.outcome, some.full_in), (5, Outcome::Admits, Duration::from_millis(1500)));
    assert_eq!(level("192.0.2.2", START, 1), untouched, "another source has its own");

    assert_eq!(memory.send(rule, "192.0.2.1", 100, START, 10), 5);
    let empty = level("192.0.2.1", START, 1);
    assert_eq!((empty.left, empty.outcome), (0, Outcome::Refuses(Duration::from_millis(100))));
    assert_eq!(level("192.0.2.1", START + SECOND / 10, 1).outcome, Outcome::Admits, "that long is enough");
    assert_eq!(
        level("192.0.2.1", START + SECOND / 10 - 64, 1).outcome,
        Outcome::Refuses(Duration::from_nanos(1))
    );
    assert_eq!(level("192.0.2.1", START + SECOND, 1).left, 10);
    assert_eq!(level("192.0.2.1", START + 9 * SECOND, 1), untouched, "no more than full");
}

#[test]
fn what_is_larger_than_the_bucket_never_fits() {
    let policy = limited(vec![limit(Per::Source, Unit::Bytes, 1_000_000, 3000)]);
    let limit = &policy.compiled.rules[0].limits[0];
    let memory = Memory::new();
    let buckets = memory.at(START);
    assert_eq!(buckets.level(limit, 3000, &address("192.0.2.1"), 1500).outcome, Outcome::Admits);
    assert_eq!(buckets.level(limit, 3000, &address("192.0.2.1"), 9000).outcome, Outcome::Never);
    assert_eq!(full(limit, 3000, 9000).outcome, Outcome::Never);
}

#[test]
fn bytes_are_left_to_the_frame_and_never_more_than_the_burst() {
    // A third of a gigabit: a byte takes no whole number of ticks.
    let policy = limited(vec![limit(Per::Source, Unit::Bytes, 41_666_667, 150_000)]);
    let [rule] = &policy.compiled.rules[..] else { panic!("one rule") };
    let memory = Memory::new();
    let left = |now| memory.at(now).level(&rule.limits[0], 150_000, &address("2001:db8::1"), 64).left;
    assert_eq!(left(START), 150_000);
    assert_eq!(memory.send(rule, "2001:db8::1", 1500, START, 40), 40);
    let half = left(START);
    assert!((89_900..=90_100).contains(&half), "{half}");
}

#[test]
fn sources_of_one_prefix_and_all_of_a_rule_share_what_is_left() {
    let prefix = Per::Prefix { ipv4_prefix: 24, ipv6_prefix: 48 };
    let policy = limited(vec![limit(prefix, Unit::Packets, 1, 10), limit(Per::Rule, Unit::Packets, 1, 100)]);
    let [rule] = &policy.compiled.rules[..] else { panic!("one rule") };
    let memory = Memory::new();
    assert_eq!(memory.send(rule, "192.0.2.1", 100, START, 4), 4);
    let left = |from: &str, index: usize, burst| {
        memory.at(START).level(&rule.limits[index], burst, &address(from), 1).left
    };
    assert_eq!((left("192.0.2.200", 0, 10), left("192.0.3.1", 0, 10)), (6, 10));
    assert_eq!((left("192.0.2.200", 1, 100), left("2001:db8::1", 1, 100)), (96, 96));
}

#[test]
fn a_rule_that_was_never_in_force_has_full_buckets() {
    use crate::network::{description::Description, explain::limit_states};

    let mut old = rule("old", Match::default());
    old.limits = vec![limit(Per::Rule, Unit::Packets, 1, 10)];
    let before = Policy::of_file(network(vec![old.clone()]), None).expect("a policy");
    let (slots, _) = Slots::assign(&Slots::default(), ["old"]);
    let rules = before.compiled.descriptions.clone();
    let file = std::path::Path::new("rules.yaml");
    let in_force = Description::new(file, &[], &before.network, rules, slots, 7);

    let memory = Memory::new();
    assert_eq!(memory.send(&before.compiled.rules[0], "192.0.2.1", 64, START, 10), 10);
    // Whatever stands where the new rule's bucket will be belongs to nobody.
    memory.rules.iter().for_each(|bucket| bucket.write(bucket.read().max(START + 5 * SECOND)));
    let new = config::Rule { name: "new".to_owned(), ..old.clone() };
    let after = Policy::of_file(network(vec![old, new]), Some(&in_force)).expect("a policy");
    let left = |rule| limit_states(&after, rule, &address("192.0.2.1"), 64, Some(&memory.at(START)))[0].left;
    assert_eq!((left(0), left(1)), (0, 10));
}
