//! From identity to slot: linear probing over cells of 4 bytes.
//!
//! It is full to between two thirds and three quarters, whatever the number of entries: it grows by an
//! eighth at a time, so a key costs about 6 bytes at any size. A removed cell leaves no mark (those after
//! it move up), so an index that is full for ever under churn does not degrade.

use crate::http::store::Identity;

/// Where an entry is within its shard.
pub(super) type Slot = u32;

/// Slots that a cell can name.
pub(super) const MAX_SLOTS: usize = (1 << SLOT_BITS) - 1;

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const EMPTY: Cell = Cell(0);

/// Slot + 1 in the low bits, and above it a tag out of the identity: nearly every probe that meets
/// another's cell ends without a look at the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(u32);

/// The cells.
#[derive(Debug, Default)]
pub(super) struct Index {
    cells: Box<[Cell]>,
}

// === impl Cell ===

impl Cell {
    fn new(identity: Identity, slot: Slot) -> Self {
        debug_assert!((slot as usize) < MAX_SLOTS);
        Self(tag(identity) | (slot + 1))
    }

    fn slot(self) -> Option<Slot> {
        (self.0 & SLOT_MASK).checked_sub(1)
    }
}

fn tag(identity: Identity) -> u32 {
    // Neither the bits that choose the shard nor those that choose the cell.
    let [low, _] = identity.hash();
    (low >> 32) as u32 & !SLOT_MASK
}

// === impl Index ===

impl Index {
    /// The slot of an identity. `is` tells whether the entry in a slot has it.
    pub(super) fn find(&self, identity: Identity, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        let tag = tag(identity);
        for (_, cell) in self.probe(identity) {
            let slot = cell.slot()?;
            if cell.0 & !SLOT_MASK == tag && is(slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Adds an identity that is not there. The caller has seen to it that there is [room](Self::is_full).
    pub(super) fn insert(&mut self, identity: Identity, slot: Slot) {
        let free = self.probe(identity).find(|(_, cell)| *cell == EMPTY);
        if let Some((at, _)) = free {
            self.cells[at] = Cell::new(identity, slot);
        }
    }

    /// The entry of an identity is in another slot now.
    pub(super) fn relocate(&mut self, identity: Identity, from: Slot, to: Slot) {
        if let Some(at) = self.position(identity, from) {
            self.cells[at] = Cell::new(identity, to);
        }
    }

    /// Removes an identity. `identity_of` names the one in a slot.
    pub(super) fn remove(&mut self, identity: Identity, slot: Slot, identity_of: impl Fn(Slot) -> Identity) {
        let Some(mut hole) = self.position(identity, slot) else { return };
        let length = self.cells.len();
        let mut at = hole;
        loop {
            at = if at + 1 == length { 0 } else { at + 1 };
            let Some(slot) = self.cells[at].slot() else { break };
            // It may move into the hole unless its search begins after the hole.
            let begins = self.home(identity_of(slot));
            if distance(begins, at, length) >= distance(hole, at, length) {
                self.cells[hole] = self.cells[at];
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
    }

    /// Whether it must be [rebuilt](Self::rebuild) before it holds so many entries.
    pub(super) fn is_full(&self, entries: usize) -> bool {
        entries > self.cells.len() / 4 * 3
    }

    /// Whether so many entries need much less than it has.
    pub(super) fn is_sparse(&self, entries: usize) -> bool {
        self.cells.len() > 2 * cells_for(entries)
    }

    /// All anew, with cells for so many entries and a few more.
    pub(super) fn rebuild(&mut self, entries: usize, all: impl Iterator<Item = (Identity, Slot)>) {
        self.cells = vec![EMPTY; cells_for(entries)].into_boxed_slice();
        for (identity, slot) in all {
            self.insert(identity, slot);
        }
    }

    fn position(&self, identity: Identity, slot: Slot) -> Option<usize> {
        let wanted = Cell::new(identity, slot);
        self.probe(identity)
            .find(|(_, cell)| *cell == wanted || *cell == EMPTY)
            .and_then(|(at, cell)| (cell == wanted).then_some(at))
    }

    /// The cells where an identity can be, nearest first.
    fn probe(&self, identity: Identity) -> impl Iterator<Item = (usize, Cell)> {
        let length = self.cells.len();
        let mut next = self.home(identity);
        (0..length).map(move |_| {
            let at = next;
            next = if at + 1 == length { 0 } else { at + 1 };
            (at, self.cells[at])
        })
    }

    /// The first cell where an identity can be.
    fn home(&self, identity: Identity) -> usize {
        let [_, high] = identity.hash();
        let scaled = u128::from(high) * self.cells.len() as u128;
        #[expect(clippy::cast_possible_truncation, reason = "below the number of cells")]
        let home = (scaled >> 64) as usize;
        home
    }
}

fn cells_for(entries: usize) -> usize {
    (entries + entries / 2).next_multiple_of(16)
}

/// Steps from one cell to another.
fn distance(from: usize, to: usize, length: usize) -> usize {
    if to >= from { to - from } else { to + length - from }
}

#[cfg(test)]
mod tests;
