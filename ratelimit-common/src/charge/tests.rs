//! What a charge does to one packet after another: all or none, the table under pressure, healing.

#![expect(clippy::cast_possible_truncation, reason = "indexes and counts are small")]

extern crate std;

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{
    address::prefix_mask,
    gcra::{self, Rate, TICK_SHIFT},
    policy::{Block, unit},
};

const SECOND: u64 = 1_000_000_000 << TICK_SHIFT;
/// Late enough that an hour ago is still after the table was made.
const START: u64 = 7_200 * SECOND;

struct Memory {
    sets: Vec<Set<AtomicU64>>,
    rules: [AtomicU64; 4],
    table: Table,
}

impl Buckets for Memory {
    type Cell = AtomicU64;

    fn set(&self, index: u64) -> Option<&Set<AtomicU64>> {
        self.sets.get(index as usize)
    }

    fn rule_bucket(&self, index: u32) -> Option<&AtomicU64> {
        self.rules.get(index as usize)
    }
}

impl Memory {
    fn new(capacity: u32, when_full: u32) -> Self {
        let sets = bucket_table::sets_for(capacity);
        let empty = || Set {
            tags: [const { AtomicU64::new(0) }; bucket_table::WAYS],
            tats: [const { AtomicU64::new(0) }; bucket_table::WAYS],
        };
        Self {
            sets: (0..sets).map(|_| empty()).collect(),
            rules: [const { AtomicU64::new(0) }; 4],
            table: Table { hash_key: [11, 12], set_mask: sets - 1, when_full },
        }
    }

    fn charge(&self, rule: &Rule, source: &Address, now: u64) -> Charge {
        charge(self, &self.table, rule, source, 100, now)
    }

    fn admits(&self, rule: &Rule, source: &Address, now: u64) -> bool {
        !matches!(self.charge(rule, source, now).verdict, Verdict::Refused { .. })
    }

    /// How many of `count` packets at once pass.
    fn offer(&self, rule: &Rule, source: &Address, now: u64, count: u32) -> u32 {
        (0..count).map(|_| u32::from(self.admits(rule, source, now))).sum()
    }

    fn snapshot(&self) -> Vec<u64> {
        let cells = self.sets.iter().flat_map(|set| set.tags.iter().chain(&set.tats)).chain(&self.rules);
        cells.map(|cell| cell.load(SeqCst)).collect()
    }

    /// Fills the table with live buckets: packets from ever new sources through `rule`.
    fn spray(&self, rule: &Rule, sources: core::ops::Range<u32>, now: u64) {
        for source in sources {
            self.charge(rule, &address(source), now);
        }
    }
}

fn address(number: u32) -> Address {
    Address::v4(number.to_be_bytes())
}

fn limit(id: u64, units: u64, seconds: u64, burst: u64) -> Limit {
    let rate = Rate { units, nanos: seconds * 1_000_000_000 };
    let gcra::Limit { multiplier, shift, capacity } = gcra::Limit::packets(rate, burst).unwrap();
    Limit {
        id,
        multiplier,
        shift,
        capacity,
        ipv4_mask: prefix_mask(32)[0],
        ipv6_mask: prefix_mask(64),
        scale: bucket_table::scale(capacity),
        ..Limit::UNUSED
    }
}

fn rule(limits: &[Limit]) -> Rule {
    let mut all = [Limit::UNUSED; MAX_LIMITS];
    all[..limits.len()].copy_from_slice(limits);
    Rule {
        limits: all,
        limit_count: limits.len() as u32,
        action: 0,
        counter_slot: 0,
        zero_limit: 0,
        block: Block::default(),
    }
}

/// 10 packets a second, burst 10.
fn fast() -> Rule {
    rule(&[limit(1, 10, 1, 10)])
}

/// 1 packet a day.
fn slow() -> Rule {
    rule(&[limit(2, 1, 86_400, 1)])
}

#[test]
fn each_source_has_its_burst() {
    let memory = Memory::new(64, when_full::PASS);
    for source in 0..8 {
        assert_eq!(memory.offer(&fast(), &address(source), START, 15), 10);
    }
    assert_eq!(memory.offer(&fast(), &address(3), START + SECOND / 2, 15), 5);
}

#[test]
fn a_prefix_shares_one_bucket() {
    let memory = Memory::new(64, when_full::PASS);
    let v6 = |host: u8| Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, host]);
    let passed: u32 = (0..200).map(|host| memory.offer(&fast(), &v6(host), START, 1)).sum();
    assert_eq!(passed, 10);
    let used = memory.sets.iter().flat_map(|set| &set.tags).filter(|tag| tag.load(SeqCst) != 0).count();
    assert_eq!(used, 1);
}

#[test]
fn a_byte_limit_costs_the_length() {
    let memory = Memory::new(64, when_full::PASS);
    let gcra::Limit { multiplier, shift, capacity } =
        gcra::Limit::bytes(Rate { units: 1_000, nanos: 1_000_000_000 }, 1_550).unwrap();
    let bytes = rule(&[Limit { multiplier, shift, capacity, unit: unit::BYTES, ..limit(1, 1, 1, 1) }]);
    assert_eq!(memory.offer(&bytes, &address(1), START, 100), 15);
}

proptest! {
    /// Whichever limit refuses, its index is told and not a word of shared memory changes.
    #[test]
    fn all_limits_are_charged_or_none(
        bursts in prop::collection::vec((1_u64..6, any::<bool>()), 1..=MAX_LIMITS),
        packets in prop::collection::vec(0_u32..3, 1..30),
    ) {
        let memory = Memory::new(64, when_full::PASS);
        let limits: Vec<Limit> = (0..).zip(&bursts).map(|(index, (burst, dense))| {
            let scope = if *dense { scope::RULE } else { scope::ADDRESS };
            Limit { scope, bucket: index, ..limit(u64::from(index), 1, 3_600, *burst) }
        }).collect();
        let rule = rule(&limits);
        let mut used = [[0_u64; MAX_LIMITS]; 3];
        for source in packets {
            let before = memory.snapshot();
            let verdict = memory.charge(&rule, &address(source), START).verdict;
            // A dense bucket counts all sources, another one only its own.
            let total = |index: usize| if bursts[index].1 {
                used.iter().map(|own| own[index]).sum()
            } else {
                used[source as usize][index]
            };
            if let Some(index) = (0..bursts.len()).find(|index| total(*index) >= bursts[*index].0) {
                prop_assert_eq!(verdict, Verdict::Refused { limit: index as u32 });
                prop_assert_eq!(memory.snapshot(), before);
            } else {
                prop_assert_eq!(verdict, Verdict::Admitted);
                (0..bursts.len()).for_each(|index| used[source as usize][index] += 1);
            }
        }
    }
}

/// Makes the last limit's bucket full in the middle of pass 2, between its look and its charge.
struct Interrupted<'a> {
    memory: &'a Memory,
    rule: &'a Rule,
}

impl Steps for Interrupted<'_> {
    fn refuses(&self, limit: u32, share: Share) -> bool {
        self.direct().refuses(limit, share)
    }

    fn ask(&self, limit: u32, share: Share) -> Outcome {
        self.direct().ask(limit, share)
    }

    fn take(&self, limit: u32, share: Share) -> Outcome {
        if limit == 2 {
            while !self.direct().take(limit, share).has(Outcome::REFUSED) {}
        }
        self.direct().take(limit, share)
    }

    fn give_back(&self, limit: u32, hash: u64, ticks: u64) {
        self.direct().give_back(limit, hash, ticks);
    }
}

impl Interrupted<'_> {
    fn direct(&self) -> Direct<'_, Memory> {
        Direct { buckets: self.memory, table: &self.memory.table, rule: self.rule }
    }
}

#[test]
fn what_was_charged_is_given_back() {
    let memory = Memory::new(64, when_full::PASS);
    let dense = Limit { scope: scope::RULE, ..limit(4, 1, 60, 7) };
    let rule = rule(&[limit(3, 1, 60, 5), dense, limit(5, 1, 60, 9)]);
    let steps = Interrupted { memory: &memory, rule: &rule };
    let charged = charge_by(&steps, &START, memory.table.hash_key, &rule, &address(1), 100);
    assert_eq!(charged.verdict, Verdict::Refused { limit: 2 });
    let only = |index: usize| self::rule(&rule.limits[index..=index]);
    assert_eq!(memory.offer(&only(0), &address(1), START, 20), 5);
    assert_eq!(memory.offer(&only(1), &address(1), START, 20), 7);
}

#[test]
fn a_bucket_beyond_its_capacity_is_pulled_back() {
    let memory = Memory::new(64, when_full::PASS);
    assert!(memory.admits(&fast(), &address(1), START));
    let tats = || memory.sets.iter().flat_map(|set| &set.tats);
    tats().filter(|tat| tat.load(SeqCst) != 0).for_each(|tat| tat.store(START + 86_400 * SECOND, SeqCst));
    assert!(!memory.admits(&fast(), &address(1), START));
    // From then on it is an empty bucket, which admits the next packet after a tenth of a second.
    assert!(!memory.admits(&fast(), &address(1), START + SECOND / 10 - 1));
    assert!(memory.admits(&fast(), &address(1), START + SECOND / 10));
}

#[test]
fn a_changed_rate_keeps_its_bucket() {
    let memory = Memory::new(64, when_full::PASS);
    assert_eq!(memory.offer(&slow(), &address(1), START, 5), 1);
    let faster = rule(&[limit(2, 1, 60, 1)]);
    assert_ne!(faster.limits[0].scale, slow().limits[0].scale);
    assert_eq!(memory.offer(&faster, &address(1), START, 5), 0);
    assert_eq!(memory.offer(&faster, &address(1), START + 60 * SECOND, 5), 1);
}

/// A hundred thousand sources, each idle when the next comes, cost nobody its state.
#[test]
fn idle_entries_never_displace_live_state() {
    let memory = Memory::new(256, when_full::DROP);
    let offender = address(u32::MAX);
    let patient = rule(&[limit(9, 1, 3_600, 3)]);
    assert_eq!(memory.offer(&patient, &offender, START, 10), 3);
    for step in 0..100_000 {
        // Each of these is full again before the next one comes.
        let charged = memory.charge(&fast(), &address(step), START + u64::from(step) * SECOND / 100);
        assert_eq!(charged, Charge { verdict: Verdict::Admitted, live_evicted: 0, table_full: false });
    }
    let end = START + 1_000 * SECOND;
    assert_eq!(memory.offer(&patient, &offender, end, 10), 0);
    assert_eq!(memory.offer(&patient, &offender, START + 3_600 * SECOND, 10), 1);
}

#[test]
fn small_tables_hold_what_they_promise() {
    let memory = Memory::new(256, when_full::DROP);
    for source in 0..16 {
        assert_eq!(memory.offer(&slow(), &address(source), START, 3), 1);
    }
    for source in 0..16 {
        assert_eq!(memory.offer(&slow(), &address(source), START, 3), 0);
    }
}

/// A flood of new sources fills the table; who is a new client then?
#[test]
fn new_sources_of_a_full_table() {
    for (when_full, passed, evicts, full) in [
        (when_full::PASS, 1, true, false),
        (when_full::SHARE, 0, true, false),
        (when_full::DROP, 0, false, true),
    ] {
        let memory = Memory::new(64, when_full);
        memory.spray(&slow(), 0..4_096, START);
        let client = address(1 << 30);
        let charged = memory.charge(&fast(), &client, START);
        assert_eq!(u32::from(charged.verdict == Verdict::Admitted), passed, "{when_full}");
        assert_eq!((charged.live_evicted > 0, charged.table_full), (evicts, full), "{when_full}");
        // One packet was its room. At its own rate it goes on, if it got a bucket at all.
        assert_eq!(memory.offer(&fast(), &client, START, 10), 0, "{when_full}");
        let later = memory.offer(&fast(), &client, START + SECOND, 20);
        assert_eq!(later, if when_full == when_full::DROP { 0 } else { 10 }, "{when_full}");
    }
}

/// `share` inherits the debt of a victim with a like limit, not more and not less.
#[test]
fn share_inherits_the_debt() {
    let memory = Memory::new(2, when_full::SHARE);
    for source in 0..2_000 {
        memory.offer(&fast(), &address(source), START, 4);
    }
    let charged = memory.charge(&fast(), &address(1 << 30), START);
    assert_eq!(charged.live_evicted, 1);
    let left =
        u32::from(charged.verdict == Verdict::Admitted) + memory.offer(&fast(), &address(1 << 30), START, 10);
    assert!(left < 7, "room for {left} although the victim had spent at least 4");
}

/// An offender that keeps sending, honest clients, and a flood through a slow limit, all at once.
#[test]
fn a_flood_hurts_neither_clients_nor_spares_offenders() {
    for when_full in [when_full::PASS, when_full::SHARE, when_full::DROP] {
        let memory = Memory::new(1_024, when_full);
        let (offender, clients) = (address(u32::MAX), 1 << 30..(1 << 30) + 50);
        let mut sprayed = 0;
        let (mut slipped, mut served, mut offered) = (0, 0, 0);
        // Clients send 5 of their 10 packets a second, evenly; the offender sends 100.
        for step in 0..1_000_u32 {
            let now = START + u64::from(step) * SECOND / 100;
            slipped += memory.offer(&fast(), &offender, now, 1);
            for client in clients.clone() {
                if (step + client) % 20 == 0 {
                    let charged = memory.charge(&fast(), &address(client), now);
                    let passed = charged.verdict == Verdict::Admitted;
                    assert!(passed || when_full != when_full::DROP || charged.table_full);
                    // The inherited debt of a client's first packet is what `share` is about.
                    if step >= 100 {
                        offered += 1;
                        served += u32::from(passed);
                    }
                }
            }
            // The flood begins when all are known.
            if step >= 50 {
                memory.spray(&slow(), sprayed..sprayed + 40, now);
                sprayed += 40;
            }
        }
        // 10 seconds at 10/s and a burst of 10; an evicted offender gets one packet more each time.
        assert!((100..=125).contains(&slipped), "{when_full}: {slipped} of the offender passed");
        let least = match when_full {
            // A client whose bucket filled up between two packets loses its way to the flood, and is shed
            // as a new source of a full table (checked above) until a bucket fills up.
            when_full::DROP => 0,
            // Then it pays the victim's debt with one packet, and goes on.
            when_full::SHARE => offered * 9 / 10,
            // Its packets come slower than its rate, so room for one is enough.
            _ => offered,
        };
        assert!(served >= least, "{when_full}: {served} of {offered} served");
    }
}

/// A clock whose cheap time is as late as it may be.
struct Coarse(u64);

impl Clock for Coarse {
    fn now(&self) -> u64 {
        self.0
    }

    fn latest(&self) -> u64 {
        self.0 + SECOND / 10
    }
}

#[test]
fn a_cheap_clock_refuses_only_what_an_exact_one_does() {
    let [cheap, exact] = [Memory::new(64, when_full::PASS), Memory::new(64, when_full::PASS)];
    let mut rule = rule(&[limit(1, 5, 1, 3)]);
    let mut admitted = [0; 2];
    // An odd step, so that packets come at every distance from a refill.
    for now in (START..START + 10 * SECOND).step_by(SECOND as usize / 997) {
        for (slow, memory) in [(1, &cheap), (0, &exact)] {
            rule.limits[0].slow = slow;
            let direct = Direct { buckets: memory, table: &memory.table, rule: &rule };
            let charged = charge_by(&direct, &Coarse(now), memory.table.hash_key, &rule, &address(1), 100);
            admitted[slow as usize] += u32::from(charged.verdict == Verdict::Admitted);
        }
    }
    assert_eq!(admitted, [52, 52]);
}

#[test]
fn a_cheap_clock_does_not_keep_a_debt_beyond_the_capacity() {
    let memory = Memory::new(64, when_full::PASS);
    // Once 100 seconds' worth, now one second's.
    assert_eq!(memory.offer(&rule(&[limit(1, 1, 1, 100)]), &address(1), START, 100), 100);
    let mut rule = rule(&[limit(1, 1, 1, 1)]);
    rule.limits[0].slow = 1;
    assert_eq!(memory.offer(&rule, &address(1), START, 1), 0);
    assert_eq!(memory.offer(&rule, &address(1), START + 3 * SECOND, 1), 1);
}
