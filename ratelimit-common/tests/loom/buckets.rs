//! Races for buckets. What must hold is the bound that `charge` states: at most one packet too many per
//! CPU and event, and no state that locks a client out.

use ratelimit_common::{
    address::{Address, prefix_mask},
    bucket_table::{self, Set},
    charge::{Buckets, Table, Verdict, charge},
    gcra::{self, Rate},
    policy::{Block, Limit, MAX_LIMITS, Rule, scope, when_full},
};

use super::{Word, explore};

const NOW: u64 = 1 << 50;
const SECOND: u64 = 1_000_000_000 << gcra::TICK_SHIFT;

struct Memory {
    sets: Vec<Set<Word>>,
    rule_bucket: Word,
    table: Table,
}

impl Buckets for Memory {
    type Cell = Word;

    fn set(&self, index: u64) -> Option<&Set<Word>> {
        self.sets.get(usize::try_from(index).unwrap())
    }

    fn rule_bucket(&self, _: u32) -> Option<&Word> {
        Some(&self.rule_bucket)
    }
}

impl Memory {
    /// Two sets, so that every key may be in any of eight ways.
    fn new(when_full: u32) -> Self {
        let words = || core::array::from_fn(|_| Word::new(0));
        Self {
            sets: (0..2).map(|_| Set { tags: words(), tats: words() }).collect(),
            rule_bucket: Word::new(0),
            table: Table { hash_key: [1, 2], set_mask: 1, when_full },
        }
    }

    fn admits(&self, rule: &Rule, source: u8, now: u64) -> bool {
        let source = Address::v4([192, 0, 2, source]);
        !matches!(charge(self, &self.table, rule, &source, 100, now).verdict, Verdict::Refused { .. })
    }

    fn offer(&self, rule: &Rule, source: u8, now: u64, count: u32) -> u32 {
        (0..count).map(|_| u32::from(self.admits(rule, source, now))).sum()
    }

    /// Whatever happened: after the time that an empty bucket takes to fill, exactly the burst passes.
    fn assert_no_lock_out(&self, rule: &Rule, source: u8, burst: u32) {
        self.admits(rule, source, NOW);
        let later = NOW + 2 * rule.limits[0].capacity + SECOND;
        assert_eq!(self.offer(rule, source, later, burst + 2), burst);
    }
}

fn limit(id: u64, seconds: u64, burst: u64) -> Limit {
    let rate = Rate { units: 1, nanos: seconds * 1_000_000_000 };
    let gcra::Limit { multiplier, shift, capacity } = gcra::Limit::packets(rate, burst).unwrap();
    let scale = bucket_table::scale(capacity);
    Limit { id, multiplier, shift, capacity, ipv4_mask: prefix_mask(32)[0], scale, ..Limit::UNUSED }
}

fn rule(limits: &[Limit]) -> Rule {
    let mut all = [Limit::UNUSED; MAX_LIMITS];
    all[..limits.len()].copy_from_slice(limits);
    let limit_count = u32::try_from(limits.len()).unwrap();
    Rule { limits: all, limit_count, action: 0, counter_slot: 0, zero_limit: 0, block: Block::default() }
}

#[test]
fn one_token_goes_to_one_cpu() {
    let rule = rule(&[limit(1, 60, 2)]);
    explore(
        move || {
            let memory = Memory::new(when_full::PASS);
            assert!(memory.admits(&rule, 1, NOW));
            memory
        },
        move |memory| memory.offer(&rule, 1, NOW, 1),
        move |memory| memory.offer(&rule, 1, NOW, 1),
        move |memory, a, b| {
            assert_eq!(a + b, 1);
            memory.assert_no_lock_out(&rule, 1, 2);
        },
    );
}

#[test]
fn contention_sheds_nothing_that_fits() {
    let dense = rule(&[Limit { scope: scope::RULE, ..limit(1, 60, 4) }]);
    explore(
        || Memory::new(when_full::PASS),
        move |memory| memory.offer(&dense, 1, NOW, 2),
        move |memory| memory.offer(&dense, 1, NOW, 2),
        move |memory, a, b| {
            assert_eq!(a + b, 4);
            assert_eq!(memory.offer(&dense, 1, NOW, 2), 0);
        },
    );
}

#[test]
fn a_key_inserted_twice_admits_one_too_many_at_most() {
    let rule = rule(&[limit(1, 60, 1)]);
    explore(
        || Memory::new(when_full::PASS),
        move |memory| memory.offer(&rule, 1, NOW, 1),
        move |memory| memory.offer(&rule, 1, NOW, 1),
        move |memory, a, b| {
            assert!((1..=2).contains(&(a + b)), "{a} + {b}");
            assert_eq!(memory.offer(&rule, 1, NOW, 2), 0);
            memory.assert_no_lock_out(&rule, 1, 1);
        },
    );
}

#[test]
fn a_way_that_changes_hands_is_off_by_one_packet_at_most() {
    for when_full in [when_full::PASS, when_full::SHARE, when_full::DROP] {
        let rule = rule(&[limit(1, 60, 2)]);
        explore(
            move || {
                let memory = Memory::new(when_full);
                // Source 1 has the least debt, so its way is the one that a new source takes.
                assert!(memory.admits(&rule, 1, NOW - SECOND));
                for source in 2..=8 {
                    assert_eq!(memory.offer(&rule, source, NOW, 3), 2);
                }
                memory
            },
            move |memory| memory.offer(&rule, 1, NOW, 1),
            move |memory| memory.offer(&rule, 100, NOW, 1),
            move |memory, _, _| {
                // Both at most their own room and one packet more.
                assert!(memory.offer(&rule, 100, NOW, 4) <= 2);
                memory.assert_no_lock_out(&rule, 2, 2);
                if when_full != when_full::DROP {
                    memory.assert_no_lock_out(&rule, 100, 2);
                }
            },
        );
    }
}

#[test]
fn all_or_none_holds_between_cpus() {
    let both = rule(&[limit(1, 60, 2), Limit { scope: scope::RULE, ..limit(2, 60, 1) }]);
    let own = rule(&[limit(1, 60, 2)]);
    explore(
        move || {
            let memory = Memory::new(when_full::PASS);
            // Known to the table, and full again.
            assert!(memory.admits(&own, 1, NOW - 120 * SECOND));
            assert!(memory.admits(&own, 2, NOW - 120 * SECOND));
            memory
        },
        move |memory| memory.offer(&both, 1, NOW, 1),
        move |memory| memory.offer(&both, 2, NOW, 1),
        move |memory, a, b| {
            assert_eq!(a + b, 1);
            // The one that was refused has its own bucket as it was.
            assert_eq!(memory.offer(&own, 1, NOW, 3), 2 - a);
            assert_eq!(memory.offer(&own, 2, NOW, 3), 2 - b);
        },
    );
}
