//! Real threads on one table, under a virtual clock: however they interleave, what is admitted lies
//! between the rate's worth and that plus the burst plus one packet per thread.
#![cfg(not(loom))]

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use ratelimit_common::{
    address::{Address, prefix_mask},
    bucket_table::{self, Cell, Set},
    charge::{Buckets, Table, Verdict, charge},
    gcra::{self, Rate},
    policy::{Block, Limit, MAX_LIMITS, Rule, scope, when_full},
};

const THREADS: u64 = 4;
const SECOND: u64 = 1_000_000_000 << gcra::TICK_SHIFT;

struct Word(AtomicU64);

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

struct Memory {
    sets: Vec<Set<Word>>,
    rule_buckets: Vec<Word>,
    table: Table,
    clock: AtomicU64,
}

impl Buckets for Memory {
    type Cell = Word;

    fn set(&self, index: u64) -> Option<&Set<Word>> {
        self.sets.get(usize::try_from(index).unwrap())
    }

    fn rule_bucket(&self, index: u32) -> Option<&Word> {
        self.rule_buckets.get(index as usize)
    }
}

impl Memory {
    fn new(capacity: u32) -> Self {
        let sets = bucket_table::sets_for(capacity);
        let words = || core::array::from_fn(|_| Word(AtomicU64::new(0)));
        Self {
            sets: (0..sets).map(|_| Set { tags: words(), tats: words() }).collect(),
            rule_buckets: (0..4).map(|_| Word(AtomicU64::new(0))).collect(),
            table: Table { hash_key: [5, 6], set_mask: sets - 1, when_full: when_full::PASS },
            clock: AtomicU64::new(1_000 * SECOND),
        }
    }

    /// Each thread offers `packets`, one every `step` ticks of the shared clock, from `sources` in turn.
    /// The admitted, and the ticks that passed.
    fn run(&self, rule: &Rule, packets: u64, step: u64, sources: u32) -> (u64, u64) {
        let start = self.clock.load(SeqCst);
        let offer = |thread: u64| {
            (0..packets).filter(move |packet| {
                let now = self.clock.fetch_add(step, SeqCst);
                let source = u32::try_from((packet * THREADS + thread) % u64::from(sources)).unwrap();
                let source = Address::v4(source.to_be_bytes());
                let charged = charge(self, &self.table, rule, &source, 100, now);
                !matches!(charged.verdict, Verdict::Refused { .. })
            })
        };
        let admitted = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || offer(thread).count() as u64)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        (admitted, self.clock.load(SeqCst) - start)
    }
}

fn rule(limits: &[(u64, u64, u32)]) -> Rule {
    let mut all = [Limit::UNUSED; MAX_LIMITS];
    for (index, (place, (rate, burst, scope))) in (0..).zip(all.iter_mut().zip(limits)) {
        let rate = Rate { units: *rate, nanos: 1_000_000_000 };
        let gcra::Limit { multiplier, shift, capacity } = gcra::Limit::packets(rate, *burst).unwrap();
        let scale = bucket_table::scale(capacity);
        let ipv4_mask = prefix_mask(32)[0];
        let scope = *scope;
        *place = Limit {
            id: u64::from(index),
            bucket: index,
            multiplier,
            shift,
            capacity,
            scope,
            scale,
            ipv4_mask,
            ..Limit::UNUSED
        };
    }
    let limit_count = u32::try_from(limits.len()).unwrap();
    Rule { limits: all, limit_count, action: 0, counter_slot: 0, zero_limit: 0, block: Block::default() }
}

/// `buckets` buckets of `rate` a second and `burst`, after `ticks`, with overload all along.
fn assert_exact(admitted: u64, ticks: u64, buckets: u64, rate: u64, burst: u64) {
    let worth = ticks * rate / SECOND * buckets;
    let most = worth + (burst + THREADS + 1) * buckets;
    assert!((worth..=most).contains(&admitted), "{admitted} admitted, {worth} to {most} are right");
}

#[test]
fn one_source_on_all_cpus() {
    // 400,000 packets at 1 M/s against 10,000/s.
    let memory = Memory::new(64);
    let (admitted, ticks) =
        memory.run(&rule(&[(10_000, 100, scope::ADDRESS)]), 100_000, SECOND / 1_000_000, 1);
    assert_exact(admitted, ticks, 1, 10_000, 100);
}

#[test]
fn one_rule_on_all_cpus() {
    let memory = Memory::new(64);
    let (admitted, ticks) =
        memory.run(&rule(&[(300_000, 1_000, scope::RULE)]), 100_000, SECOND / 1_000_000, 999);
    assert_exact(admitted, ticks, 1, 300_000, 1_000);
}

#[test]
fn many_sources_inserted_by_all_cpus() {
    // 997 sources offer 1,003 packets/s each against 100/s.
    let memory = Memory::new(2_048);
    let (admitted, ticks) = memory.run(&rule(&[(100, 10, scope::ADDRESS)]), 100_000, SECOND / 1_000_000, 997);
    assert_exact(admitted, ticks, 997, 100, 10);
}

#[test]
fn the_narrowest_of_several_limits_decides() {
    let memory = Memory::new(64);
    let limits = [(50_000, 500, scope::ADDRESS), (20_000, 200, scope::RULE), (90_000, 900, scope::ADDRESS)];
    let (admitted, ticks) = memory.run(&rule(&limits), 100_000, SECOND / 1_000_000, 1);
    // A charge that is given back may have kept another thread's packet out in between.
    let worth = ticks * 20_000 / SECOND;
    assert!((worth * 999 / 1_000..=worth + 200 + THREADS + 1).contains(&admitted), "{admitted} of {worth}");
}
