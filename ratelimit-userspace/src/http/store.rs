//! Where counters live.

use std::fmt;

pub mod memory;
pub(crate) mod snapshot;

/// Which counter: a keyed hash, so that nobody can choose descriptors whose counters meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity([u64; 2]);

// === impl Identity ===

impl Identity {
    /// Of a hash of 128 bits.
    pub const fn new(hash: [u64; 2]) -> Self {
        Self(hash)
    }

    /// The hash.
    pub const fn hash(self) -> [u64; 2] {
        self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Identity({self})")
    }
}
