//! Room for new counters when memory is full.

use std::{cmp::Ordering as Order, sync::atomic::Ordering};

use smallvec::SmallVec;

use super::{Locked, Memory, Slot, shard::Shard};
use crate::{
    config::http::{Algorithm, Limit, OnFull},
    http::{clock::Now, rules::RuleBook, store::Identity},
};

/// Entries that are looked at to find one that may go.
const SAMPLE: usize = 16;

/// What decides which counters make way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// The limits of counters.
    pub(crate) book: &'a RuleBook,
    /// The time.
    pub(crate) now: Now,
    /// Counters that must stay, those of the request itself; sorted.
    pub(crate) keep: &'a [Identity],
}

/// How far a counter is from being whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debt {
    used: u64,
    capacity: u64,
    left: u64,
}

// === impl Memory ===

impl Memory {
    /// Takes so many of the rooms that are free, or none.
    pub(super) fn take(&self, rooms: usize) -> bool {
        let max_keys = self.max_keys.load(Ordering::Relaxed);
        let more = |keys: usize| keys.checked_add(rooms).filter(|keys| *keys <= max_keys);
        self.keys.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives rooms back.
    pub(super) fn release(&self, rooms: usize) {
        self.keys.0.fetch_sub(rooms, Ordering::Relaxed);
    }
}

// === impl Locked ===

impl Locked<'_> {
    /// Takes a room for each of these counters, or for none, if there is as much.
    pub(crate) fn take_rooms(&mut self, identities: &[Identity]) -> bool {
        let has_slots =
            |identity: &Identity| self.shards[self.shard_index(*identity)].1.has_slots(identities.len());
        identities.is_empty() || identities.iter().all(has_slots) && self.memory.take(identities.len())
    }

    /// The same where memory is full: other counters make way, and every [`Place`](super::Place) must be
    /// located anew, whatever comes of it.
    pub(crate) fn make_rooms(&mut self, identities: &[Identity], terms: &Terms<'_>) -> bool {
        let on_full = self.memory.on_full();
        let made = identities
            .iter()
            .take_while(|identity| self.memory.take(1) || self.make_way(**identity, on_full, terms));
        let made = made.count();
        if made < identities.len() {
            self.memory.release(made);
        }
        made == identities.len()
    }

    /// A room that another counter leaves: one that is whole, or else one that is nearly so.
    fn make_way(&mut self, identity: Identity, on_full: OnFull, terms: &Terms<'_>) -> bool {
        let memory = self.memory;
        let first = memory.shard_of(identity);
        // Whoever must not displace anything does not search long: what is whole leaves by itself.
        let searched = if on_full == OnFull::Evict { memory.shards.len() } else { 1 };
        (0..searched).any(|offset| {
            let number = (first + offset) % memory.shards.len();
            if let Some((_, shard)) = self.shards.iter_mut().find(|(locked, _)| *locked == number) {
                return memory.make_way_in(shard, on_full, terms);
            }
            // Waiting for a lock out of order could wait for ever.
            let shard = memory.shards[number].0.try_lock();
            shard.is_some_and(|mut shard| memory.make_way_in(&mut shard, on_full, terms))
        })
    }
}

// === impl Memory ===

impl Memory {
    /// Removes counters of a shard so that one room is the caller's; whether it could.
    pub(super) fn make_way_in(&self, shard: &mut Shard, on_full: OnFull, terms: &Terms<'_>) -> bool {
        let mut whole: SmallVec<[Identity; SAMPLE]> = SmallVec::new();
        let mut nearest: Option<(Debt, Identity)> = None;
        let entries = shard.len();
        let start = shard.random(entries);
        // Neighbours, since a cache line away costs less than anywhere; who they are is chance all the same.
        for offset in 0..SAMPLE.min(entries) {
            let Ok(slot) = Slot::try_from((start + offset) % entries) else { break };
            let identity = shard.entry(slot).identity;
            if terms.keep.binary_search(&identity).is_ok() {
                continue;
            }
            match shard.debt(slot, terms.book, terms.now) {
                None => whole.push(identity),
                Some(debt) if nearest.is_none_or(|(least, _)| debt.compare(&least).is_lt()) => {
                    nearest = Some((debt, identity));
                }
                Some(_) => {}
            }
        }
        if !whole.is_empty() {
            for identity in &whole {
                shard.forget(*identity);
            }
            self.release(whole.len() - 1);
            self.tally.forgotten.fetch_add(whole.len() as u64, Ordering::Relaxed);
            return true;
        }
        let Some((_, identity)) = nearest.filter(|_| on_full == OnFull::Evict) else { return false };
        shard.forget(identity);
        self.tally.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }
}

// === impl Shard ===

impl Shard {
    /// How far an entry is from being whole; `None` if it is.
    pub(super) fn debt(&self, slot: Slot, book: &RuleBook, now: Now) -> Option<Debt> {
        let entry = self.entry(slot);
        let state = entry.state.as_ref()?;
        // Of a limit that nobody knows any more, nothing can be said.
        let meter = self.meter(entry, book)?;
        let left = meter.whole_at(state).checked_sub(meter.time(now)).filter(|left| *left > 0)?;
        Some(Debt { used: meter.used(Some(state), now), capacity: capacity(meter.limit()), left })
    }

    fn forget(&mut self, identity: Identity) {
        if let Some(slot) = self.find(identity) {
            self.remove(slot);
        }
    }
}

fn capacity(limit: &Limit) -> u64 {
    match limit.algorithm {
        Algorithm::TokenBucket { burst, .. } | Algorithm::LeakyBucket { burst, .. } => burst,
        _ => limit.units,
    }
}

// === impl Debt ===

impl Debt {
    /// By the share of the limit that is used: the times of limits with different speeds do not compare.
    /// Among equals, by the time that is left.
    fn compare(&self, other: &Self) -> Order {
        let share = |a: &Self, b: &Self| u128::from(a.used) * u128::from(b.capacity.max(1));
        share(self, other).cmp(&share(other, self)).then(self.left.cmp(&other.left))
    }
}
