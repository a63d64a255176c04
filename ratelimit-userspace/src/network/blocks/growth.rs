//! A larger table for single addresses.
//!
//! The size of a map cannot change, and the program holds on to the one that it was loaded with. So the
//! blocks are copied into a larger one, which takes the place of the old one among the pins; then a new
//! generation of the program is loaded, and only when that runs, the old one goes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aya::maps::{MapData, MapError};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use ratelimit_common::block_table::{Detail, Set, WAYS, sets_for};

use super::{
    Blocks, BlocksError,
    table::{Singles, Ways},
};
use crate::network::{
    mapping::{MMAPABLE, MappingError, Word},
    state::{StateDir, StateError},
};

/// The pins of the table. The old one of the first is the mark of a growth that is not over.
const PINS: [&str; 2] = ["blocks", "block_details"];

/// A larger table that is pinned, but not used yet. Dropping it before [`Growth::commit`] puts the old one
/// back; until then nothing may be blocked or unblocked.
#[derive(Debug)]
pub struct Growth {
    directory: PathBuf,
    sets: u32,
    committed: bool,
}

/// Undoes a growth that a killed process left behind: to be called when the lock is taken. Nothing is lost,
/// since the old table was the last that was written.
pub fn recover(state: &StateDir) -> Result<(), StateError> {
    put_back(&state.state())
}

impl Blocks {
    /// Copies the blocks into a table for `capacity` addresses, and pins that in the place of this one.
    ///
    /// After [`Growth::commit`], open the blocks again.
    pub fn grow(&self, capacity: u32) -> Result<Growth, BlocksError> {
        let directory = &self.directory;
        let sets = sets_for(capacity);
        let made = [
            make(directory, PINS[0], size_of::<Set<Word>>(), sets)?,
            make(directory, PINS[1], size_of::<Detail<Word>>(), sets.saturating_mul(WAYS))?,
        ];
        let failed = |source: MappingError| BlocksError::Mapping {
            path: directory.join(PINS[0]),
            source: source.into(),
        };
        let ways = Ways::of(&made[0], &made[1]).map_err(failed)?;
        let ways = ways.ok_or_else(|| BlocksError::Torn { path: directory.join(PINS[0]) })?;
        let larger = Singles::new(ways, self.singles.hash_key());
        let now = self.now().seconds();
        for occupant in self.singles.occupants(now) {
            larger.insert(&occupant.address, &occupant.entry, now)?;
        }
        // From here on, what fails is undone.
        let growth = Growth { directory: directory.clone(), sets, committed: false };
        for name in PINS {
            rename(&directory.join(name), &old(directory, name))?;
        }
        for (name, map) in PINS.iter().zip(&made) {
            let path = directory.join(name);
            map.pin(&path).map_err(|error| BlocksError::Map {
                verb: "pin",
                path,
                source: MapError::PinError { name: None, error },
            })?;
        }
        Ok(growth)
    }
}

// === impl Growth ===

impl Growth {
    /// How many sets the larger table has: what a program has to be loaded with.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// Lets the old table go: called when a program runs that uses the larger one.
    pub fn commit(mut self) {
        self.committed = true;
        // The mark goes first.
        for name in PINS {
            let _ = fs::remove_file(old(&self.directory, name));
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if !self.committed {
            let _ = put_back(&self.directory);
        }
    }
}

fn old(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}-old"))
}

/// Moves the old table back to its place, unless the growth was over.
fn put_back(directory: &Path) -> Result<(), StateError> {
    let [mark, details] = PINS.map(|name| (old(directory, name), directory.join(name)));
    if !mark.0.exists() {
        let _ = fs::remove_file(details.0);
        return Ok(());
    }
    if details.0.exists() {
        rename(&details.0, &details.1)?;
    }
    rename(&mark.0, &mark.1)
}

fn rename(from: &Path, to: &Path) -> Result<(), StateError> {
    fs::rename(from, to).map_err(|source| StateError::File { verb: "rename", path: from.to_owned(), source })
}

fn make(
    directory: &Path,
    name: &'static str,
    value_size: usize,
    entries: u32,
) -> Result<MapData, BlocksError> {
    let value_size = u32::try_from(value_size).unwrap_or(u32::MAX);
    let map = aya_obj::Map::new_from_params(BPF_MAP_TYPE_ARRAY as u32, 4, value_size, entries, MMAPABLE);
    MapData::create(map, name, None).map_err(|source| BlocksError::Map {
        verb: "make",
        path: directory.join(name),
        source,
    })
}
