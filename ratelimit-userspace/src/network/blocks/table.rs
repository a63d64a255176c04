//! A table of blocked addresses, as mapped memory.

use aya::maps::MapData;
use ratelimit_common::{
    address::Address,
    block_table::{
        self, Detail, Entry, Insertion, Memory, Occupant, Set, Table, WAYS, disclaim, is_found, make_room,
        occupant,
    },
    blocks::OPERATOR,
};

use super::BlocksError;
use crate::network::mapping::{Mapping, MappingError, Word};

/// The ways of a table.
#[derive(Debug)]
pub(super) struct Ways {
    sets: Mapping<Set<Word>>,
    details: Mapping<Detail<Word>>,
}

/// The table of the operator's blocks. Only one process at a time may write it.
#[derive(Debug)]
pub(super) struct Singles {
    ways: Ways,
    table: Table,
}

// === impl Ways ===

impl Ways {
    /// Maps a table; `None` if its two maps do not belong together.
    pub(super) fn of(sets: &MapData, details: &MapData) -> Result<Option<Self>, MappingError> {
        let ways = Self { sets: Mapping::of(sets)?, details: Mapping::of(details)? };
        let fit = ways.sets.len() >= 2 && ways.details.len() == ways.sets.len() * WAYS as usize;
        Ok(fit.then_some(ways))
    }

    pub(super) fn sets(&self) -> u32 {
        u32::try_from(self.sets.len()).unwrap_or(u32::MAX)
    }

    /// All ways that are live.
    pub(super) fn occupants(&self, now: u32) -> impl Iterator<Item = Occupant> {
        (0..self.sets() * WAYS).filter_map(move |index| occupant(self, index, now))
    }
}

impl Memory for Ways {
    type Cell = Word;

    fn set(&self, index: u32) -> Option<&Set<Word>> {
        self.sets.get(index as usize)
    }

    fn detail(&self, index: u32) -> Option<&Detail<Word>> {
        self.details.get(index as usize)
    }
}

// === impl Singles ===

impl Singles {
    pub(super) fn new(ways: Ways, hash_key: [u64; 2]) -> Self {
        let table = Table { hash_key, id: OPERATOR, sets: ways.sets() };
        Self { ways, table }
    }

    pub(super) fn hash_key(&self) -> [u64; 2] {
        self.table.hash_key
    }

    /// For how many addresses it is made.
    pub(super) fn capacity(&self) -> u32 {
        block_table::capacity_of(self.table.sets)
    }

    pub(super) fn find(&self, address: &Address, now: u32) -> Option<Entry> {
        block_table::find(&self.ways, &self.table, address, now)
    }

    pub(super) fn occupants(&self, now: u32) -> impl Iterator<Item = Occupant> {
        self.ways.occupants(now)
    }

    /// Whether the address is new.
    pub(super) fn insert(&self, address: &Address, entry: &Entry, now: u32) -> Result<bool, BlocksError> {
        // Room is made once, and what is left of a broken insertion removed; then it must go.
        for _ in 0..3 {
            match block_table::insert(&self.ways, &self.table, address, entry, now) {
                Insertion::Added => return Ok(true),
                Insertion::Replaced => return Ok(false),
                Insertion::Busy => {
                    self.remove(address, now);
                }
                Insertion::Full => {
                    if !make_room(&self.ways, &self.table, address, now) {
                        break;
                    }
                }
            }
        }
        Err(BlocksError::NoWay)
    }

    pub(super) fn remove(&self, address: &Address, now: u32) -> bool {
        block_table::remove(&self.ways, &self.table, address, now)
    }

    /// Frees what a process that was killed left half done.
    pub(super) fn repair(&self, now: u32) {
        for index in 0..self.table.sets * WAYS {
            disclaim(&self.ways, index);
        }
        // An address that was being moved is in two ways: look-ups find the first.
        let is_twin = |occupant: &Occupant| !is_found(&self.ways, &self.table, occupant);
        for twin in self.ways.occupants(now).filter(is_twin) {
            block_table::vacate(&self.ways, &twin);
        }
    }
}
