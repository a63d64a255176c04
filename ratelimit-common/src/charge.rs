//! Charging a packet to all limits of a rule, or to none.
//!
//! Pass 1 reads every bucket and writes nothing; if one refuses, that is the verdict, so a flood that is
//! shed leaves no mark in shared memory, on however many CPUs it arrives. Pass 2 charges in order by
//! compare-and-swap; if a bucket no longer admits, those already charged are given back. A CPU that keeps
//! losing the race for a bucket re-reads it and, if it admits, adds: contention never sheds a packet that
//! fits.
//!
//! **Bounds.** Each CPU has one packet under way, so it can add to a bucket that another has just filled,
//! charge a way that has just changed hands, or charge the duplicate of a key that two CPUs insert at
//! once: at most one packet too many per CPU and event. A bucket pushed beyond its capacity by a way's
//! former owner is pulled back by the next refusal ([`crate::gcra::Limit::pulled_back`]).
//!
//! **Exceptions to "writes nothing".** That pull-back; and under `when_full: share` a refused packet of a
//! new key claims its way all the same, else the inherited debt would stay the victim's, and drain at
//! the victim's rate instead of the new key's.

use crate::{
    address::Address,
    bucket_table::{self, Cell, PLACES, Set, Vacancy},
    gcra::Decision,
    policy::{Limit, MAX_LIMITS, Rule, scope, when_full},
};

/// Compare-and-swaps before a charge is added unconditionally.
const ATTEMPTS: u32 = 4;

/// Where buckets are. An access outside the maps cannot happen; if it did, `None` would let the packet
/// pass uncharged.
pub trait Buckets {
    /// The shared word.
    type Cell: Cell;
    /// A set of the table.
    fn set(&self, index: u64) -> Option<&Set<Self::Cell>>;
    /// The bucket of a `per: rule` limit.
    fn rule_bucket(&self, index: u32) -> Option<&Self::Cell>;
}

/// What is fixed when a table is made or a policy loaded.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The key of the hash.
    pub hash_key: [u64; 2],
    /// Number of sets, a power of two, minus one.
    pub set_mask: u64,
    /// One of [`when_full`].
    pub when_full: u32,
}

/// What the limits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All limits are charged.
    Admitted,
    /// Admitted after losing a race several times.
    Raced,
    /// Nothing is charged.
    Refused {
        /// The limit that refused.
        limit: u32,
    },
}

/// The verdict and what happened on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The verdict.
    pub verdict: Verdict,
    /// Buckets displaced that were not full.
    pub live_evicted: u32,
    /// Refused because `when_full: drop` found only live buckets.
    pub table_full: bool,
}

/// The time in ticks since the table was made, as exactly as it is asked for.
///
/// Reading a clock exactly costs more than all the rest of a refusal: the instruction waits for every
/// memory access under way, which on a busy receiver are the next packets' (measured: 100 ns and more a
/// packet). A time that is surely not in the past costs nothing, and a bucket that refuses even then needs
/// no better one.
pub trait Clock {
    /// Now.
    fn now(&self) -> u64;
    /// Never before now, by less than a slow limit ([`Limit::slow`]) makes a packet wait. Were it before, a
    /// packet that fits would be refused.
    fn latest(&self) -> u64;
}

/// A clock that stands still.
impl Clock for u64 {
    #[inline(always)]
    fn now(&self) -> u64 {
        *self
    }

    #[inline(always)]
    fn latest(&self) -> u64 {
        *self
    }
}

/// The steps of a charge, one limit at a time.
///
/// [`Direct`] is what they do. The kernel puts a function call in between for each, which its verifier
/// follows once and not once for every limit, every caller and every state that those may be in.
pub trait Steps {
    /// Whether the limit has a bucket, and it refuses for certain.
    fn refuses(&self, limit: u32, share: Share) -> bool;
    /// Pass 1: asks the bucket of a limit, by its index in the rule.
    fn ask(&self, limit: u32, share: Share) -> Outcome;
    /// Pass 2: charges it.
    fn take(&self, limit: u32, share: Share) -> Outcome;
    /// Undoes a charge of so many ticks.
    fn give_back(&self, limit: u32, hash: u64, ticks: u64);
}

/// What a packet is to one limit of its rule.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Hash of the key; unused by `per: rule` limits.
    pub hash: u64,
    /// What the packet costs: 1, or its length in bytes.
    pub units: u64,
    /// The time in ticks since the table was made.
    pub now: u64,
}

/// Charges a packet of `length` bytes from `source` to every limit of `rule`, if all of them admit it.
///
/// `now` is in ticks since the table was made. Rules with a rate of zero are the caller's business.
#[inline(always)]
pub fn charge<B: Buckets>(
    buckets: &B,
    table: &Table,
    rule: &Rule,
    source: &Address,
    length: u64,
    now: u64,
) -> Charge {
    charge_by(&Direct { buckets, table, rule }, &now, table.hash_key, rule, source, length)
}

/// [`charge`], by steps and on a clock of the caller's choice.
#[inline(always)]
pub fn charge_by(
    steps: &impl Steps,
    clock: &impl Clock,
    hash_key: [u64; 2],
    rule: &Rule,
    source: &Address,
    length: u64,
) -> Charge {
    let [first, ..] = &rule.limits;
    let hash = key(hash_key, first, source);
    if first.slow != 0 {
        let share = Share { hash, units: first.units(length), now: clock.latest() };
        if steps.refuses(0, share) {
            return Charge { verdict: Verdict::Refused { limit: 0 }, live_evicted: 0, table_full: false };
        }
    }
    let now = clock.now();
    if rule.limit_count == 1 {
        let outcome = steps.take(0, Share { hash, units: first.units(length), now });
        let refused = if outcome.has(Outcome::REFUSED) { 0 } else { NONE };
        return Charge::new(refused, outcome.0, outcome.evicted());
    }

    // Filled with what is at hand: for zeroes LLVM calls a memset that stores byte by byte.
    let mut hashes = [hash; MAX_LIMITS];
    let mut costs = [now; MAX_LIMITS];
    // Always a number: a verdict that carries one only sometimes makes LLVM read a register that the
    // verifier knows nobody wrote.
    let mut refused = NONE;
    let mut flags = 0;
    let mut live_evicted = 0;
    // The loops count up to a constant and break: of a length that is the lesser of two numbers LLVM takes
    // the negative, of which verifiers before Linux 6.18 know nothing, and the loop has no end for them.
    for (index, (limit, hash)) in (0..).zip(rule.limits.iter().zip(&mut hashes)) {
        if index == rule.limit_count {
            break;
        }
        if index > 0 {
            *hash = key(hash_key, limit, source);
        }
        let outcome = steps.ask(index, Share { hash: *hash, units: limit.units(length), now });
        live_evicted += outcome.evicted();
        flags |= outcome.0;
        if outcome.has(Outcome::REFUSED) {
            refused = index;
            break;
        }
    }
    if refused == NONE {
        for (index, (limit, (hash, cost))) in (0..).zip(rule.limits.iter().zip(hashes.iter().zip(&mut costs)))
        {
            if index == rule.limit_count {
                break;
            }
            let outcome = steps.take(index, Share { hash: *hash, units: limit.units(length), now });
            live_evicted += outcome.evicted();
            flags |= outcome.0;
            *cost = outcome.ticks();
            if outcome.has(Outcome::REFUSED) {
                refused = index;
                break;
            }
        }
        if refused != NONE {
            for (index, (hash, cost)) in (0..).zip(hashes.iter().zip(&costs)) {
                if index == refused {
                    break;
                }
                steps.give_back(index, *hash, *cost);
            }
        }
    }
    Charge::new(refused, flags, live_evicted)
}

/// What a limit's bucket is found by; a `per: rule` bucket has its place.
#[inline(always)]
fn key(hash_key: [u64; 2], limit: &Limit, source: &Address) -> u64 {
    if limit.scope == scope::ADDRESS { bucket_table::hash(hash_key, limit, source) } else { limit.id }
}

impl Charge {
    /// The sum of what the limits said: which refused, or [`NONE`], and the flags of all.
    #[inline(always)]
    const fn new(refused: u32, flags: u64, live_evicted: u32) -> Self {
        let flags = Outcome(flags);
        let verdict = if refused != NONE {
            Verdict::Refused { limit: refused }
        } else if flags.has(Outcome::RACED) {
            Verdict::Raced
        } else {
            Verdict::Admitted
        };
        Self { verdict, live_evicted, table_full: flags.has(Outcome::FULL) }
    }
}

/// No limit.
const NONE: u32 = u32::MAX;

/// What became of one limit, in one register, for a BPF function returns no more: the ticks charged, and
/// flags above them. A charge is at most a capacity, so it is below 2^59.
#[derive(Clone, Copy, Debug)]
pub struct Outcome(pub u64);

impl Outcome {
    const REFUSED: u64 = 1 << 63;
    const FULL: u64 = 1 << 62;
    const EVICTED_BIT: u32 = 61;
    const RACED: u64 = 1 << 60;

    #[inline(always)]
    const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    #[inline(always)]
    const fn evicted(self) -> u32 {
        (self.0 >> Self::EVICTED_BIT) as u32 & 1
    }

    #[inline(always)]
    const fn ticks(self) -> u64 {
        self.0 & (Self::RACED - 1)
    }
}

/// The steps, taken right here.
#[derive(Clone, Copy, Debug)]
pub struct Direct<'a, B> {
    /// Where buckets are.
    pub buckets: &'a B,
    /// What is fixed.
    pub table: &'a Table,
    /// The rule whose limits are meant.
    pub rule: &'a Rule,
}

impl<B: Buckets> Steps for Direct<'_, B> {
    #[inline(always)]
    fn refuses(&self, limit: u32, share: Share) -> bool {
        self.request(limit, share).is_some_and(|request| request.refuses())
    }

    #[inline(always)]
    fn ask(&self, limit: u32, share: Share) -> Outcome {
        self.request(limit, share).map_or(Outcome(0), |request| request.ask())
    }

    #[inline(always)]
    fn take(&self, limit: u32, share: Share) -> Outcome {
        self.request(limit, share).map_or(Outcome(0), |request| request.take())
    }

    #[inline(always)]
    fn give_back(&self, limit: u32, hash: u64, ticks: u64) {
        if let Some(request) = self.request(limit, Share { hash, units: 0, now: 0 }) {
            request.give_back(ticks);
        }
    }
}

impl<'a, B: Buckets> Direct<'a, B> {
    #[inline(always)]
    fn request(&self, limit: u32, share: Share) -> Option<Request<'a, B>> {
        let Self { buckets, table, rule } = *self;
        let Share { hash, units, now } = share;
        let limit = rule.limits.get(limit as usize)?;
        Some(Request { buckets, table, limit, hash, units, now })
    }
}

/// A packet, as one limit of its rule sees it.
struct Request<'a, B> {
    buckets: &'a B,
    table: &'a Table,
    limit: &'a Limit,
    hash: u64,
    units: u64,
    now: u64,
}

/// What a look-up finds.
enum Found<'a, C> {
    /// The bucket.
    Held(&'a C),
    /// The key has no bucket in its two sets.
    Absent,
    /// A map access failed: nothing to ask or charge.
    Nothing,
}

impl<'a, B: Buckets> Request<'a, B> {
    #[inline(always)]
    fn tag(&self) -> u64 {
        bucket_table::tag(self.hash, self.limit.scale)
    }

    #[inline(always)]
    fn first(&self) -> Option<&'a Set<B::Cell>> {
        self.buckets.set(bucket_table::first_set(self.hash, self.table.set_mask))
    }

    #[inline(always)]
    fn second(&self) -> Option<&'a Set<B::Cell>> {
        self.buckets.set(bucket_table::second_set(self.hash, self.table.set_mask))
    }

    #[inline(always)]
    fn find(&self) -> Found<'a, B::Cell> {
        let Self { buckets, limit, .. } = *self;
        if limit.scope == scope::RULE {
            return buckets.rule_bucket(limit.bucket).map_or(Found::Nothing, Found::Held);
        }
        let tag = self.tag();
        let Some(mut set) = self.first() else { return Found::Nothing };
        let mut way = set.find(tag);
        if way.is_none() {
            let Some(second) = self.second() else { return Found::Nothing };
            set = second;
            way = set.find(tag);
        }
        match way {
            Some(way) => set.tat(way).map_or(Found::Nothing, Found::Held),
            None => Found::Absent,
        }
    }

    /// The state of a bucket in state `tat` after this packet, or `None` if it refuses.
    #[inline(always)]
    fn next(&self, tat: u64) -> Option<u64> {
        match self.limit.gcra().decide(tat, self.now, self.units) {
            Decision::Admit { tat } => Some(tat),
            Decision::Refuse { .. } => None,
        }
    }

    /// Whether the bucket refuses for certain.
    #[inline(always)]
    fn refuses(&self) -> bool {
        match self.find() {
            Found::Held(cell) => self.limit.gcra().surely_refuses(cell.read(), self.now, self.units),
            Found::Absent | Found::Nothing => false,
        }
    }

    /// Pass 1: asks the bucket.
    #[inline(always)]
    fn ask(&self) -> Outcome {
        match self.find() {
            Found::Held(cell) => {
                let tat = cell.read();
                match self.next(tat) {
                    Some(next) => self.charged(tat, next),
                    None => self.refuse(cell, tat),
                }
            }
            Found::Absent => self.insert(false),
            Found::Nothing => Outcome(0),
        }
    }

    /// Pass 2: charges the bucket.
    #[inline(always)]
    fn take(&self) -> Outcome {
        let (mut found, mut flags) = (self.find(), 0);
        if let Found::Absent = found {
            let outcome = self.insert(true);
            if outcome.has(Outcome::REFUSED) {
                return outcome;
            }
            flags = outcome.0;
            found = self.find();
        }
        match found {
            Found::Held(cell) => Outcome(flags | self.charge(cell).0),
            // The way was lost to another key, or there is none: nothing to charge.
            Found::Absent | Found::Nothing => Outcome(flags | Outcome::RACED),
        }
    }

    #[inline(always)]
    fn charge(&self, cell: &B::Cell) -> Outcome {
        let mut seen = cell.read();
        for _ in 0..ATTEMPTS {
            let Some(tat) = self.next(seen) else { return self.refuse(cell, seen) };
            match cell.compare_exchange(seen, tat) {
                Ok(_) => return self.charged(seen, tat),
                Err(actual) => seen = actual,
            }
        }
        seen = cell.read();
        let Some(tat) = self.next(seen) else { return self.refuse(cell, seen) };
        // Whoever won the last race left a TAT of about `now` or later, so the difference is this
        // packet's cost and no idle time that two CPUs could add twice.
        cell.add(tat.wrapping_sub(seen));
        Outcome(Outcome::RACED | self.charged(seen, tat).0)
    }

    /// The ticks that a packet cost which took the bucket from one state to the next.
    #[inline(always)]
    fn charged(&self, tat: u64, next: u64) -> Outcome {
        Outcome(next.wrapping_sub(tat.max(self.now)))
    }

    #[inline(always)]
    fn refuse(&self, cell: &B::Cell, tat: u64) -> Outcome {
        if let Some(state) = self.limit.gcra().pulled_back(tat, self.now) {
            // If another CPU was faster, the bucket is as good as pulled back.
            let _ = cell.compare_exchange(tat, state);
        }
        Outcome(Outcome::REFUSED)
    }

    /// Undoes a charge of pass 2, unless the bucket is gone.
    #[inline(always)]
    fn give_back(&self, ticks: u64) {
        if let Found::Held(cell) = self.find() {
            cell.add(ticks.wrapping_neg());
        }
    }

    /// Decides on a key without a bucket and, if `commit`, gives it a way (but does not charge it).
    ///
    /// Losing the way to another CPU is no refusal: the caller looks again.
    #[inline(always)]
    fn insert(&self, commit: bool) -> Outcome {
        let Self { table, limit, units, now, .. } = *self;
        let (Some(first), Some(second)) = (self.first(), self.second()) else { return Outcome(0) };
        let Vacancy { place, free } = bucket_table::vacancy(first, second, now, self.hash);
        let set = if place < PLACES { first } else { second };
        let (Some(owner), Some(cell)) = (set.tag(place), set.tat(place)) else { return Outcome(0) };
        let (tag, tat) = (owner.read(), cell.read());
        let live = tat > now;
        if live && free {
            // Another CPU was faster, perhaps with this very key.
            return Outcome(0);
        }

        let ceiling = now.saturating_add(limit.capacity);
        let opening = match table.when_full {
            _ if !live => now,
            when_full::DROP => return Outcome(Outcome::REFUSED | Outcome::FULL),
            when_full::SHARE => tat.min(ceiling),
            // One tick more than the cost, which may be rounded the other way when it is charged.
            _ => ceiling.saturating_sub(limit.gcra().cost(units, now).saturating_add(1)),
        };
        let refused = if self.next(opening).is_some() { 0 } else { Outcome::REFUSED };
        let shared = live && table.when_full == when_full::SHARE;
        if if refused == 0 { !commit } else { !shared } {
            return Outcome(refused);
        }

        let on_trial = live && table.when_full == when_full::PASS;
        let scale = if on_trial { bucket_table::ON_TRIAL } else { limit.scale };
        let own = bucket_table::tag(self.hash, scale);
        if owner.compare_exchange(tag, own).is_err() {
            return Outcome(refused);
        }
        // A full bucket stays as it is. If the exchange fails, the former owner, or a CPU with this very
        // key, has charged the bucket in between: then that is its state.
        if live {
            let _ = cell.compare_exchange(tat, opening);
        }
        // Look-ups take the first way that holds a key, so when two CPUs insert the same key at once,
        // the one whose way comes later gives it up, and leaves it full.
        let held = first.find(own).or_else(|| second.find(own).map(|way| way + PLACES));
        if held.is_some_and(|held| held < place) {
            let _ = cell.compare_exchange(opening, 0);
            let _ = owner.compare_exchange(own, bucket_table::EMPTY);
        }
        // The sign is `live` once more: as a constant it would double the paths that the verifier follows.
        Outcome(refused | (now.wrapping_sub(tat) >> 63 << Outcome::EVICTED_BIT))
    }
}

#[cfg(test)]
mod tests;
