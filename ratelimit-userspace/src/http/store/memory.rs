//! Counters in memory: bounded, and in shards, each under its own lock.
//!
//! The counters of one request are locked together, always in the order of their shards, so that they are
//! looked at and charged as if by nobody else.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use smallvec::SmallVec;

use self::{index::Slot, shard::Shard};
use super::Identity;
use crate::{
    config::http::OnFull,
    http::{
        algorithm::{Meter, State},
        clock::Now,
        rules::{Metered, RuleBook},
    },
};

mod index;
mod room;
mod shard;
mod sweep;

pub(crate) use self::{room::Terms, shard::OWN};

/// Counters in memory.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Lane<Mutex<Shard>>]>,
    /// Entries and those that are about to be; never above `max_keys`, unless that was lowered.
    keys: Lane<AtomicUsize>,
    max_keys: AtomicUsize,
    on_full: RwLock<OnFull>,
    tally: Tally,
    sweep: Mutex<sweep::Progress>,
}

/// What happened because memory was full, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters that are held.
    pub keys: usize,
    /// Counters that may be held.
    pub max_keys: usize,
    /// Counters that were displaced by new ones, and of which something was lost.
    pub evictions: u64,
    /// Counters that were whole and made way for new ones.
    pub forgotten: u64,
    /// Requests that were refused because a counter of theirs found no room.
    pub refusals: u64,
    /// Requests that were not refused although counters of theirs found no room and were not kept.
    pub uncounted: u64,
}

#[derive(Debug, Default)]
struct Tally {
    evictions: AtomicU64,
    forgotten: AtomicU64,
    refusals: AtomicU64,
    uncounted: AtomicU64,
}

/// On cache lines of its own, and away from the pairs that processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct Lane<T>(T);

/// The shards of one request's counters, locked.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    memory: &'a Memory,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 4]>,
}

/// A counter that is visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) identity: Identity,
    pub(crate) state: &'a State,
    /// The limit that the state was written under, by its version.
    pub(crate) version: u32,
    /// That limit.
    pub(crate) meter: &'a Meter,
}

/// Where a counter is, as long as no counter is added or removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Which of the locked shards.
    shard: usize,
    slot: Option<Slot>,
}

// === impl Memory ===

impl Memory {
    /// For so many counters.
    pub fn new(max_keys: usize, on_full: OnFull) -> Self {
        // Enough shards that threads seldom meet, few enough that each holds some counters to choose from;
        // and none so large that its slots run out.
        let wanted = (max_keys / 1_024).clamp(1, 128).max(max_keys.min(1 << 34) >> 20);
        let seeds = RandomState::new();
        let shard = |number| Lane(Mutex::new(Shard::new(seeds.hash_one(number))));
        Self {
            shards: (0..wanted.next_power_of_two()).map(shard).collect(),
            keys: Lane(AtomicUsize::new(0)),
            max_keys: AtomicUsize::new(max_keys),
            on_full: RwLock::new(on_full),
            tally: Tally::default(),
            sweep: Mutex::default(),
        }
    }

    /// Holds another number of counters from now on. What is too much leaves with the next sweep.
    pub fn set_bounds(&self, max_keys: usize, on_full: OnFull) {
        self.max_keys.store(max_keys, Ordering::Relaxed);
        *self.on_full.write() = on_full;
    }

    /// What happens to new counters when memory is full.
    pub(crate) fn on_full(&self) -> OnFull {
        *self.on_full.read()
    }

    /// Takes note that a request found no room, and whether it was refused.
    pub(crate) fn note_full(&self, refused: bool) {
        let Tally { refusals, uncounted, .. } = &self.tally;
        if refused { refusals } else { uncounted }.fetch_add(1, Ordering::Relaxed);
    }

    /// What it holds, and what happened because it was full.
    pub fn stats(&self) -> Stats {
        let Tally { evictions, forgotten, refusals, uncounted } = &self.tally;
        Stats {
            keys: self.keys.0.load(Ordering::Relaxed),
            max_keys: self.max_keys.load(Ordering::Relaxed),
            evictions: evictions.load(Ordering::Relaxed),
            forgotten: forgotten.load(Ordering::Relaxed),
            refusals: refusals.load(Ordering::Relaxed),
            uncounted: uncounted.load(Ordering::Relaxed),
        }
    }

    /// Locks the counters of one request.
    pub(crate) fn lock(&self, identities: impl Iterator<Item = Identity>) -> Locked<'_> {
        let mut numbers: SmallVec<[usize; 8]> = SmallVec::new();
        for identity in identities {
            numbers.push(self.shard_of(identity));
        }
        if numbers.len() > 1 {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let mut shards = SmallVec::new();
        for number in numbers {
            shards.push((number, self.shards[number].0.lock()));
        }
        Locked { memory: self, shards }
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Calls with every counter of a shard.
    pub(crate) fn visit(&self, shard: usize, book: &RuleBook, mut visit: impl FnMut(Seen<'_>)) {
        let shard = self.shards[shard].0.lock();
        for entry in shard.entries() {
            if let (Some(state), Some(meter)) = (&entry.state, shard.meter(entry, book)) {
                visit(Seen { identity: entry.identity, state, version: entry.version, meter });
            }
        }
    }

    /// Adds a counter if it is not there and there is room; whether it was added.
    pub(crate) fn put(&self, identity: Identity, state: State, metered: &Metered) -> bool {
        let mut locked = self.lock(std::iter::once(identity));
        let put = locked.locate(identity).is_absent() && locked.take_rooms(&[identity]);
        if put {
            locked.insert(identity, state, metered);
        }
        put
    }

    fn shard_of(&self, identity: Identity) -> usize {
        let [low, _] = identity.hash();
        // Bits that the index makes no use of. The number of shards is a power of two.
        usize::try_from(low & 0xFFFF_FFFF).unwrap_or(0) & (self.shards.len() - 1)
    }
}

// === impl Locked ===

impl Locked<'_> {
    /// The place of a counter.
    pub(crate) fn locate(&self, identity: Identity) -> Place {
        let shard = self.shard_index(identity);
        Place { shard, slot: self.shards[shard].1.find(identity) }
    }

    /// Puts a counter under this limit if it is under another. Whether these rules know that other one; if
    /// not, nothing is changed.
    pub(crate) fn convert(&mut self, place: Place, metered: &Metered, book: &RuleBook, now: Now) -> bool {
        let Some(slot) = place.slot else { return true };
        let shard = &mut self.shards[place.shard].1;
        let version = shard.entry(slot).version;
        version == metered.version || shard.convert(slot, metered, book, now)
    }

    /// What has been counted.
    pub(crate) fn state(&self, place: Place) -> Option<&State> {
        let shard = &self.shards[place.shard].1;
        place.slot.and_then(|slot| shard.entry(slot).state.as_ref())
    }

    /// The state of a counter that is there. Who makes it `None` [removes](Self::remove) the counter.
    pub(crate) fn state_mut(&mut self, place: Place) -> Option<&mut Option<State>> {
        let shard = &mut self.shards[place.shard].1;
        place.slot.map(|slot| &mut shard.entry_mut(slot).state)
    }

    /// Adds a counter that is not there, in a room that was [taken](Self::take_rooms).
    pub(crate) fn insert(&mut self, identity: Identity, state: State, metered: &Metered) {
        let shard = self.shard_index(identity);
        self.shards[shard].1.insert(identity, state, metered);
    }

    /// Removes a counter; whether it was there.
    pub(crate) fn remove(&mut self, identity: Identity) -> bool {
        let shard = self.shard_index(identity);
        let shard = &mut self.shards[shard].1;
        let Some(slot) = shard.find(identity) else { return false };
        shard.remove(slot);
        self.memory.release(1);
        true
    }

    fn shard_index(&self, identity: Identity) -> usize {
        if self.shards.len() == 1 {
            return 0;
        }
        let number = self.memory.shard_of(identity);
        self.shards.iter().position(|(locked, _)| *locked == number).unwrap_or(0)
    }
}

// === impl Place ===

impl Place {
    /// Whether the counter is not there.
    pub(crate) fn is_absent(self) -> bool {
        self.slot.is_none()
    }
}
