//! A part of the store under one lock: entries that lie densely, and an index into them.

use std::{collections::HashMap, sync::Arc};

use super::index::{Index, MAX_SLOTS, Slot};
use crate::http::{
    algorithm::{Meter, State},
    clock::Now,
    rules::{Metered, RuleBook},
    store::Identity,
};

/// The version of a counter whose limit is in no rule file: the asker sent it, or a snapshot had it.
pub(crate) const OWN: u32 = u32::MAX;

/// Entries a chunk. They are never moved to grow, so no more than a chunk is ever unused.
const CHUNK: usize = 64;

/// One counter.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) identity: Identity,
    /// `None` is whole, and stays only until the request that made it so is done.
    pub(super) state: Option<State>,
    /// The limit under which the state was written.
    pub(super) version: u32,
}

/// The counters under one lock.
#[derive(Debug)]
pub(super) struct Shard {
    index: Index,
    chunks: Vec<Vec<Entry>>,
    /// The limits of counters of [`OWN`] version.
    own: HashMap<Identity, Arc<Meter>>,
    random: u64,
}

// === impl Shard ===

impl Shard {
    /// An empty one. The seed decides which entries are looked at when memory is full.
    pub(super) fn new(seed: u64) -> Self {
        Self { index: Index::default(), chunks: Vec::new(), own: HashMap::new(), random: seed | 1 }
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub(super) fn find(&self, identity: Identity) -> Option<Slot> {
        self.index.find(identity, |slot| self.entry(slot).identity == identity)
    }

    pub(super) fn entry(&self, slot: Slot) -> &Entry {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    pub(super) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    /// All entries, by slot.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flatten()
    }

    /// The limit under which an entry was written, if it is still known.
    pub(super) fn meter<'a>(&'a self, entry: &Entry, book: &'a RuleBook) -> Option<&'a Arc<Meter>> {
        if entry.version == OWN { self.own.get(&entry.identity) } else { book.meter(entry.version) }
    }

    /// Puts an entry under another limit. Whether the one before is known; if not, nothing is changed.
    pub(super) fn convert(&mut self, slot: Slot, metered: &Metered, book: &RuleBook, now: Now) -> bool {
        let Some(old) = self.meter(self.entry(slot), book).cloned() else { return false };
        let entry = self.entry_mut(slot);
        let state = entry.state.take();
        entry.state = state.and_then(|state| metered.meter.convert(&old, state, now));
        let identity = entry.identity;
        let before = std::mem::replace(&mut entry.version, metered.version);
        self.own_limit(identity, before, metered);
        true
    }

    fn own_limit(&mut self, identity: Identity, before: u32, metered: &Metered) {
        if metered.version == OWN {
            self.own.insert(identity, Arc::clone(&metered.meter));
        } else if before == OWN {
            self.own.remove(&identity);
        }
    }

    /// Adds a counter that is not there.
    pub(super) fn insert(&mut self, identity: Identity, state: State, metered: &Metered) {
        let entries = self.len() + 1;
        if self.index.is_full(entries) {
            self.rebuild_index(entries);
        }
        let Ok(slot) = Slot::try_from(entries - 1) else { return };
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            if self.chunks.len() == self.chunks.capacity() {
                self.chunks.reserve_exact(self.chunks.len() / 8 + 4);
            }
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(last) = self.chunks.last_mut() {
            last.push(Entry { identity, state: Some(state), version: metered.version });
        }
        self.index.insert(identity, slot);
        self.own_limit(identity, metered.version, metered);
    }

    /// Whether it can name so many more.
    pub(super) fn has_slots(&self, more: usize) -> bool {
        self.len() + more <= MAX_SLOTS
    }

    /// Removes an entry; the last one takes its slot.
    pub(super) fn remove(&mut self, slot: Slot) {
        let identity = self.entry(slot).identity;
        let Self { index, chunks, .. } = self;
        index.remove(identity, slot, |slot| chunks[slot as usize / CHUNK][slot as usize % CHUNK].identity);
        let Some(last) = self.pop() else { return };
        if last.identity != identity {
            if let Ok(from) = Slot::try_from(self.len()) {
                self.index.relocate(last.identity, from, slot);
            }
            *self.entry_mut(slot) = last;
        }
        if !self.own.is_empty() {
            self.own.remove(&identity);
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let chunk = self.chunks.last_mut()?;
        let entry = chunk.pop();
        if chunk.is_empty() {
            self.chunks.pop();
        }
        entry
    }

    /// Gives back what entries that are gone took.
    pub(super) fn shrink(&mut self) {
        let entries = self.len();
        if self.index.is_sparse(entries) {
            self.rebuild_index(entries);
            self.chunks.shrink_to(2 * self.chunks.len());
            self.own.shrink_to(2 * self.own.len());
        }
    }

    fn rebuild_index(&mut self, entries: usize) {
        let identities = self.chunks.iter().flatten().map(|entry| entry.identity);
        self.index.rebuild(entries, identities.zip(0..));
    }

    /// A random number below a limit. An xorshift: good enough to choose whom to look at.
    pub(super) fn random(&mut self, below: usize) -> usize {
        let mut random = self.random;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random = random;
        usize::try_from(random >> 1).unwrap_or(0) % below.max(1)
    }
}
