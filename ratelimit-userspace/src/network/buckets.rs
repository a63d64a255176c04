//! Buckets as they are now, looked at from outside: what is left in them, and until when they refuse.

use std::time::Duration;

use ratelimit_common::{
    address::Address,
    bucket_table::{self, Cell, Set},
    charge,
    gcra::{Decision, TICK_SHIFT},
    policy::{self, scope},
};

use super::{
    mapping::{Entry, Mapping, MappingError, Seen},
    state::{self, StateDir, StateError, Table},
};

/// The buckets of a table at one moment.
#[derive(Debug)]
pub struct Buckets<B> {
    cells: B,
    hash_key: [u64; 2],
    set_mask: u64,
    now: u64,
}

/// The pinned maps.
#[derive(Debug)]
pub struct Pinned {
    sets: Mapping<Set<Seen>>,
    rules: Mapping<[Seen; 8]>,
}

/// What a bucket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Whole units that are left.
    pub left: u64,
    /// What becomes of the packet in question.
    pub outcome: Outcome,
    /// When the bucket is full again, if nobody takes from it.
    pub full_in: Duration,
}

/// What a bucket answers to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It fits.
    Admits,
    /// It fits after this time, if nobody else asks.
    Refuses(Duration),
    /// It is larger than the bucket.
    Never,
}

/// Why the pinned buckets cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BucketsError {
    /// The state directory is of no use.
    #[error(transparent)]
    State(#[from] StateError),
    /// A map cannot be mapped.
    #[error("failed to map the pinned map {} into memory", path.display())]
    Mapping {
        /// The pin.
        path: std::path::PathBuf,
        /// Why.
        source: MappingError,
    },
}

// === impl Buckets ===

impl Buckets<Pinned> {
    /// The pinned ones, now. `None`: nothing is pinned.
    pub fn pinned(state: &StateDir) -> Result<Option<Self>, BucketsError> {
        let (Some(table), Some(sets), Some(rules)) =
            (state.table()?, map(state, "buckets")?, map(state, "rule_buckets")?)
        else {
            return Ok(None);
        };
        let cells = Pinned { sets, rules };
        let set_mask = (cells.sets.len() as u64).wrapping_sub(1);
        Ok(Some(Self::new(cells, table.hash_key, set_mask, now(&table))))
    }
}

impl<B: charge::Buckets> Buckets<B> {
    /// The buckets in these cells at `now` ticks. `set_mask` is the number of sets minus one.
    pub fn new(cells: B, hash_key: [u64; 2], set_mask: u64, now: u64) -> Self {
        Self { cells, hash_key, set_mask, now }
    }

    /// What the bucket that `limit` keeps for `source` says to a packet of so many units. `burst` is what a
    /// full one holds.
    pub fn level(&self, limit: &policy::Limit, burst: u64, source: &Address, units: u64) -> Level {
        level(limit, burst, self.state(limit, source), self.now, units)
    }

    /// The theoretical arrival time. Where there is no bucket it is that of a full one.
    fn state(&self, limit: &policy::Limit, source: &Address) -> u64 {
        let Self { cells, hash_key, set_mask, .. } = self;
        if limit.scope == scope::RULE {
            return cells.rule_bucket(limit.bucket).map_or(0, Cell::read);
        }
        let hash = bucket_table::hash(*hash_key, limit, source);
        let tag = bucket_table::tag(hash, limit.scale);
        let candidates =
            [bucket_table::first_set(hash, *set_mask), bucket_table::second_set(hash, *set_mask)];
        let found = candidates.into_iter().find_map(|index| {
            let set = cells.set(index)?;
            set.tat(set.find(tag)?)
        });
        found.map_or(0, Cell::read)
    }
}

impl charge::Buckets for Pinned {
    type Cell = Seen;

    fn set(&self, index: u64) -> Option<&Set<Seen>> {
        self.sets.get(usize::try_from(index).ok()?)
    }

    fn rule_bucket(&self, index: u32) -> Option<&Seen> {
        self.rules.get(index as usize)?.first()
    }
}

fn map<T: Entry>(state: &StateDir, name: &str) -> Result<Option<Mapping<T>>, BucketsError> {
    let path = state.state().join(name);
    let Some(data) = state::open(&path)? else { return Ok(None) };
    Mapping::of(&data).map(Some).map_err(|source| BucketsError::Mapping { path, source })
}

/// Now on the clock of a table, in ticks.
fn now(table: &Table) -> u64 {
    state::monotonic_nanos().saturating_sub(table.epoch) << TICK_SHIFT
}

/// What a bucket that is full says.
pub fn full(limit: &policy::Limit, burst: u64, units: u64) -> Level {
    level(limit, burst, 0, 0, units)
}

fn level(limit: &policy::Limit, burst: u64, tat: u64, now: u64, units: u64) -> Level {
    let gcra = limit.gcra();
    let ceiling = now.saturating_add(gcra.capacity);
    let base = tat.clamp(now, ceiling);
    // The capacity of a limit in bytes has a slack for rounding: more than the burst is never left.
    let room = (u128::from(ceiling - base) << gcra.shift) / u128::from(gcra.multiplier.max(1));
    Level {
        left: u64::try_from(room).unwrap_or(u64::MAX).min(burst),
        outcome: match gcra.decide(tat, now, units) {
            Decision::Admit { .. } => Outcome::Admits,
            Decision::Refuse { wait: u64::MAX } => Outcome::Never,
            Decision::Refuse { wait } => Outcome::Refuses(time(wait)),
        },
        full_in: time(base - now),
    }
}

/// Ticks as time, rounded up: who waits that long has waited long enough.
fn time(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.div_ceil(1 << TICK_SHIFT))
}

#[cfg(test)]
pub(super) mod tests;
