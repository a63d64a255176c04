//! Sources that are blocked: put into the pinned maps and read from them, with a daemon or without one.
//!
//! The kernel's state is all there is to know; a block ends there by itself. At most one process at a time
//! may change it: the one that holds the lock on the pins. Anybody may look.
//!
//! | pin | what |
//! |---|---|
//! | `blocks`, `block_details` | single addresses: see [`ratelimit_common::block_table`] |
//! | `block_prefixes_v4`, `…_v6`, `block_filter_v4`, `…_v6` | prefixes, and the bitmaps before them |
//! | `block_reasons` | the texts of the reasons |
//! | `rule_blocks`, `rule_block_details` | what rules blocked; here it is only looked at and removed |
//! | `runtime` | which of these hold anything |

mod clock;
mod error;
mod growth;
mod list;
mod prefixes;
mod reasons;
mod saved;
mod source;
mod sweep;
mod table;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aya::maps::{MapData, MapError};
use ipnet::IpNet;
use ratelimit_common::{
    address::Family,
    block_table::Entry,
    blocks::{Kind, Prefix, Runtime, held},
    bucket_table::Cell as _,
};

pub(super) use self::source::{address_of, net_of};
pub use self::{
    clock::Now,
    error::BlocksError,
    growth::{Growth, recover},
    list::{Block, Origin},
    reasons::MAX_REASON,
    saved::{BadLine, Restored, Saved},
};
use self::{
    prefixes::Prefixes,
    reasons::Reasons,
    source::{canonical, kind, single},
    table::{Singles, Ways},
};
use super::{
    mapping::{Entry as MapEntry, Mapping, Word},
    state::StateDir,
};

/// The blocks of a host.
pub struct Blocks {
    directory: PathBuf,
    singles: Singles,
    by_rules: Ways,
    prefixes: Prefixes,
    reasons: Reasons,
    runtime: Mapping<Runtime<Word>>,
    clock: Box<dyn Fn() -> Now + Send + Sync>,
    /// What a process that was killed left behind has been looked for.
    repaired: bool,
}

/// Whom to block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// The source: a single address with its whole length as prefix length.
    pub prefix: IpNet,
    /// For how long; `None`: until somebody ends it.
    pub duration: Option<Duration>,
    /// Why, in the operator's words; may be empty.
    pub reason: String,
}

/// What blocking changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not blocked before.
    Added,
    /// It was blocked already, and has another end and reason now.
    Replaced,
}

/// What became of many blocks.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many were not blocked before.
    pub added: usize,
    /// How many were, and have another end and reason now.
    pub replaced: usize,
    /// Those that failed, by their place in the order given.
    pub errors: Vec<(usize, BlocksError)>,
}

/// How many blocks there are.
///
/// Those of the operator may count some that have ended since the last [`Blocks::sweep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Single IPv4 addresses.
    pub v4: u64,
    /// Single IPv6 addresses.
    pub v6: u64,
    /// IPv4 prefixes.
    pub prefixes_v4: u64,
    /// IPv6 prefixes.
    pub prefixes_v6: u64,
    /// Sources that rules blocked.
    pub by_rules: u64,
}

// === impl Blocks ===

impl Blocks {
    /// Opens the pinned maps.
    pub fn open(state: &StateDir) -> Result<Self, BlocksError> {
        Self::open_with(state, Now::read)
    }

    /// Opens the pinned maps of programs on another clock.
    pub fn open_with(
        state: &StateDir,
        clock: impl Fn() -> Now + Send + Sync + 'static,
    ) -> Result<Self, BlocksError> {
        let directory = state.state();
        let table = state.table()?.ok_or_else(|| not_loaded(&directory, "table"))?;
        let singles = ways(&directory, "blocks", "block_details")?;
        Ok(Self {
            singles: Singles::new(singles, table.hash_key),
            by_rules: ways(&directory, "rule_blocks", "rule_block_details")?,
            prefixes: Prefixes {
                v4: trie(&directory, "block_prefixes_v4")?,
                v6: trie(&directory, "block_prefixes_v6")?,
                filter_v4: mapping(&directory, "block_filter_v4")?,
                filter_v6: mapping(&directory, "block_filter_v6")?,
            },
            reasons: Reasons::open(directory.join("block_reasons"))?,
            runtime: mapping(&directory, "runtime")?,
            directory,
            clock: Box::new(clock),
            repaired: false,
        })
    }

    /// Blocks a source, or replaces the end and the reason of its block.
    pub fn block(&mut self, new: &NewBlock) -> Result<Change, BlocksError> {
        let now = self.now();
        self.block_at(new, &now)
    }

    /// Blocks many. Ask [`Blocks::need`] first whether there is room.
    pub fn block_all(&mut self, entries: impl IntoIterator<Item = NewBlock>) -> Outcome {
        let now = self.now();
        let mut outcome = Outcome::default();
        for (index, new) in entries.into_iter().enumerate() {
            match self.block_at(&new, &now) {
                Ok(Change::Added) => outcome.added += 1,
                Ok(Change::Replaced) => outcome.replaced += 1,
                Err(error) => outcome.errors.push((index, error)),
            }
        }
        outcome
    }

    /// Ends the block of exactly this prefix; whether there was one. Blocks that rules made end as well: of
    /// this prefix, or of the client that this single address belongs to.
    pub fn unblock(&mut self, prefix: IpNet) -> Result<bool, BlocksError> {
        let prefix = canonical(prefix)?;
        let now = self.now().seconds();
        let by_rule = self.unblock_by_rules(&prefix, now);
        let kind = kind(&prefix);
        let was_live = if let Some(address) = single(&prefix) {
            self.singles.remove(&address, now)
        } else if let Some(known) = self.prefixes.get(&prefix).map_err(|source| self.failed(kind, source))? {
            self.prefixes.remove(&prefix).map_err(|source| self.failed(kind, source))?;
            known.until > now
        } else {
            false
        };
        if was_live {
            self.count_down(kind);
        }
        Ok(was_live || by_rule)
    }

    /// How many blocks there are, without looking at each.
    pub fn count(&self) -> BlockCounts {
        let now = self.now().seconds();
        let by_rules = if self.rules_block(now) { self.by_rules.occupants(now).count() } else { 0 };
        BlockCounts::of(self.runtime(), by_rules)
    }

    /// How many blocks are pinned, without opening the tables of commands: mapping a million entries into
    /// memory takes longer than everything else that `status` tells.
    pub fn count_pinned(state: &StateDir) -> Result<BlockCounts, BlocksError> {
        let directory = state.state();
        let runtime = mapping::<Runtime<Word>>(&directory, "runtime")?;
        let now = Now::read().seconds();
        let by_rules = if rules_block(runtime.first(), now) {
            ways(&directory, "rule_blocks", "rule_block_details")?.occupants(now).count()
        } else {
            0
        };
        Ok(BlockCounts::of(runtime.first(), by_rules))
    }

    fn block_at(&mut self, new: &NewBlock, now: &Now) -> Result<Change, BlocksError> {
        let prefix = canonical(new.prefix)?;
        let until = now.end(new.duration)?;
        self.put(&prefix, until, now.wall, &new.reason, now.seconds())
    }

    fn put(
        &mut self,
        prefix: &IpNet,
        until: u32,
        since: SystemTime,
        reason: &str,
        now: u32,
    ) -> Result<Change, BlocksError> {
        let reason = self.reasons.number(reason)?;
        let since = since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let kind = kind(prefix);
        let (is_new, was_live) = if let Some(address) = single(prefix) {
            // The bit first: where there is nothing, it only costs time.
            self.hold(if address.family == Family::V4 { held::V4 } else { held::V6 });
            let entry = Entry { until, about: reason.into(), since };
            let is_new = self.singles.insert(&address, &entry, now)?;
            (is_new, !is_new)
        } else {
            let failed = |source| self.failed(kind, source);
            let known = self.prefixes.get(prefix).map_err(failed)?;
            let live = known.filter(|known| known.until > now);
            let since = live.map_or_else(|| u32::try_from(since).unwrap_or(u32::MAX), |live| live.since);
            let block = Prefix { until, length: prefix.prefix_len().into(), reason, since };
            let bit = self.prefixes.insert(prefix, block).map_err(|source| self.failed(kind, source))?;
            self.hold(bit);
            (known.is_none(), live.is_some())
        };
        if is_new && let Some(runtime) = self.runtime() {
            runtime.counts[kind as usize].add(1);
        }
        Ok(if was_live { Change::Replaced } else { Change::Added })
    }

    fn count_down(&self, kind: Kind) {
        if let Some(runtime) = self.runtime() {
            let count = &runtime.counts[kind as usize];
            // Only one process writes it.
            count.write(count.read().saturating_sub(1));
        }
    }

    fn hold(&self, bits: u64) {
        if let Some(runtime) = self.runtime() {
            runtime.held.set_bits(bits);
        }
    }

    fn runtime(&self) -> Option<&Runtime<Word>> {
        self.runtime.first()
    }

    /// Whether any block of a rule may be live.
    fn rules_block(&self, now: u32) -> bool {
        rules_block(self.runtime(), now)
    }

    fn now(&self) -> Now {
        (self.clock)()
    }

    fn failed(&self, kind: Kind, source: MapError) -> BlocksError {
        let name = if kind == Kind::PrefixV4 { "block_prefixes_v4" } else { "block_prefixes_v6" };
        BlocksError::Map { verb: "read or write", path: self.directory.join(name), source }
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("directory", &self.directory).finish_non_exhaustive()
    }
}

// === impl BlockCounts ===

impl BlockCounts {
    fn of(runtime: Option<&Runtime<Word>>, by_rules: usize) -> Self {
        let count = |kind: Kind| runtime.map_or(0, |runtime| runtime.counts[kind as usize].read());
        Self {
            v4: count(Kind::V4),
            v6: count(Kind::V6),
            prefixes_v4: count(Kind::PrefixV4),
            prefixes_v6: count(Kind::PrefixV6),
            by_rules: by_rules as u64,
        }
    }
}

fn rules_block(runtime: Option<&Runtime<Word>>, now: u32) -> bool {
    runtime.is_some_and(|runtime| runtime.rule_blocks_until.read() > now.into())
}

// === pins ===

fn not_loaded(directory: &Path, map: &'static str) -> BlocksError {
    BlocksError::NotLoaded { directory: directory.to_owned(), map }
}

pub(super) fn open(directory: &Path, name: &'static str) -> Result<MapData, BlocksError> {
    super::state::open(&directory.join(name))?.ok_or_else(|| not_loaded(directory, name))
}

pub(super) fn mapping<T: MapEntry>(directory: &Path, name: &'static str) -> Result<Mapping<T>, BlocksError> {
    let data = open(directory, name)?;
    Mapping::of(&data)
        .map_err(|source| BlocksError::Mapping { path: directory.join(name), source: source.into() })
}

fn ways(directory: &Path, sets: &'static str, details: &'static str) -> Result<Ways, BlocksError> {
    let ways = Ways::of(&open(directory, sets)?, &open(directory, details)?);
    let path = || directory.join(sets);
    ways.map_err(|source| BlocksError::Mapping { path: path(), source: source.into() })?
        .ok_or_else(|| BlocksError::Torn { path: path() })
}

fn trie<K: aya::Pod>(
    directory: &Path,
    name: &'static str,
) -> Result<aya::maps::lpm_trie::LpmTrie<MapData, K, Prefix>, BlocksError> {
    prefixes::trie(open(directory, name)?).map_err(|source| BlocksError::Map {
        verb: "use",
        path: directory.join(name),
        source,
    })
}
