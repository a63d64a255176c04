//! The key of the table of buckets and the zero of its clock, in a pinned array of their own.

use std::{io, path::Path};

use aya::maps::{Array, MapData};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{StateError, monotonic_nanos, open_array, pin};

/// The pin's name.
pub(super) const TABLE: &str = "table";

/// What reading the buckets takes, drawn once with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Keys the hash of addresses.
    pub hash_key: [u64; 2],
    /// `CLOCK_MONOTONIC` in nanoseconds at which the table was made: the zero of its ticks.
    pub epoch: u64,
}

// === impl Table ===

impl Table {
    /// Draws a new key, now.
    pub fn draw() -> Result<Self, io::Error> {
        let mut key = [0; 16];
        getrandom(&mut key, GetRandomFlags::empty())?;
        let key = u128::from_ne_bytes(key);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the key")]
        let hash_key = [key as u64, (key >> 64) as u64];
        Ok(Self { hash_key, epoch: monotonic_nanos() })
    }

    /// Draws a new key and pins it at `path`.
    pub(super) fn make(path: &Path) -> Result<Self, StateError> {
        let table = Self::draw().map_err(|source| StateError::File {
            verb: "draw a key for",
            path: path.to_owned(),
            source,
        })?;
        let [first, second] = table.hash_key;
        let failed = |source| StateError::Map { verb: "make", path: path.to_owned(), source };
        let mut array = Array::<_, [u64; 3]>::create(1, 0).map_err(failed)?;
        array.set(0, [first, second, table.epoch], 0).map_err(failed)?;
        pin(array, path)?;
        Ok(table)
    }

    /// The one pinned at `path`, if there is one.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, StateError> {
        let Some(array): Option<Array<MapData, [u64; 3]>> = open_array(path)? else { return Ok(None) };
        let [first, second, epoch] = array.get(&0, 0).map_err(|source| StateError::Map {
            verb: "read",
            path: path.to_owned(),
            source,
        })?;
        Ok(Some(Self { hash_key: [first, second], epoch }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_the_clock_runs() {
        let (one, other) = (Table::draw().expect("a key"), Table::draw().expect("a key"));
        assert_ne!(one.hash_key, other.hash_key);
        assert!(one.epoch <= other.epoch && one.epoch > 0);
    }
}
