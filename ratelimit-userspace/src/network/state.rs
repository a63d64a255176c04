//! What outlives the process, in a directory of a BPF file system:
//!
//! ```text
//! <pin_dir>/links/<ifindex>-<name>   what keeps the program attached; the directory is also the lock
//! <pin_dir>/v1/buckets …             the state maps, shared by all generations of the program
//! <pin_dir>/v1/table                 the hash key of `buckets` and the zero of its clock
//! <pin_dir>/v1/program               the program that runs, so that a failed change can go back to it
//! <pin_dir>/v1/policy                what runs, in words: see [`super::description`]
//! ```
//!
//! `v1` is [`ABI_VERSION`]. Opening a pinned map checks nothing, so every one is compared with what the
//! object in this build expects before the program is loaded. What one start changes here is undone when
//! it fails: see [`Adoption`].

mod layout;
mod lock;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Pod,
    maps::{Array, Map, MapData, MapError, PerCpuArray, PerCpuValues},
    pin::PinError,
    programs::Xdp,
    util::nr_cpus,
};
use ratelimit_common::{
    policy::MAX_LIMITS,
    record::{ABI_VERSION, RuleCounters},
};
use rustix::{
    rand::{GetRandomFlags, getrandom},
    time::{ClockId, clock_gettime},
};

pub use self::{
    layout::{Difference, Layout},
    lock::{Holder, Lock},
};
use super::kernel;

/// Where pins live unless the command line says otherwise.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/ratelimit";

/// The state maps, as the object and their pins name them.
pub const STATE_MAPS: [&str; 5] = ["buckets", "rule_buckets", "rule_counters", "reason_counters", "events"];

const BUCKETS: &str = "buckets";
const OLD_BUCKETS: &str = "buckets-old";
const TABLE: &str = "table";
const PROGRAM: &str = "program";
/// A program that does not run yet. The BPF file system reserves names with dots.
const NEXT_PROGRAM: &str = "program-next";

/// What can go wrong with pinned state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Something is missing on this host.
    #[error(transparent)]
    Lacking(#[from] kernel::Lacking),
    /// A file or directory cannot be used.
    #[error("failed to {verb} {}{}", path.display(), read_only(source))]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A pinned map cannot be made, read or written.
    #[error("failed to {verb} the pinned map {}", path.display())]
    Map {
        /// What was tried.
        verb: &'static str,
        /// The pin.
        path: PathBuf,
        /// Why it failed.
        source: MapError,
    },
    /// The program cannot be pinned.
    #[error("failed to pin the program at {}", path.display())]
    Pin {
        /// The pin.
        path: PathBuf,
        /// Why it failed.
        source: PinError,
    },
    /// Another daemon works with this directory.
    #[error("another ratelimit daemon works with {}: {holder}; stop it first, or use another --pin-dir", directory.display())]
    Locked {
        /// The pin directory.
        directory: PathBuf,
        /// The other daemon.
        holder: Holder,
    },
    /// A pinned map is not what this build expects.
    #[error(
        "the pinned map {} is not the one that this build of ratelimit uses: {difference}. Nothing was \
         changed; `ratelimit detach` removes what is pinned, and the next start makes it anew", path.display()
    )]
    Layout {
        /// The pin.
        path: PathBuf,
        /// In what it differs.
        difference: Difference,
    },
    /// The embedded object lacks a map.
    #[error("the embedded BPF object cannot be used: {0}")]
    Object(String),
    /// Buckets are pinned without the key to read them.
    #[error(
        "{} is incomplete: it holds buckets but not their hash key. Nothing was changed; `ratelimit detach` \
         removes what is pinned, and the next start makes it anew", .0.display()
    )]
    Incomplete(PathBuf),
}

fn read_only(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        " (under systemd, ProtectKernelTunables makes /sys/fs/bpf read-only: add ReadWritePaths=/sys/fs/bpf)"
    } else {
        ""
    }
}

/// The pin directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

/// What reading the buckets takes, drawn once with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Keys the hash of addresses.
    pub hash_key: [u64; 2],
    /// `CLOCK_MONOTONIC` in nanoseconds at which the table was made: the zero of its ticks.
    pub epoch: u64,
}

/// One start's changes to the pinned state. Dropping it before [`Adoption::commit`] undoes them.
#[derive(Debug)]
pub struct Adoption {
    /// The table that the program will use.
    pub table: Table,
    /// Sets that the bucket table had and will have, when its size changes.
    pub resized: Option<(u32, u32)>,
    /// Whether state of an earlier start is kept.
    pub kept: bool,
    directory: PathBuf,
    /// Pins that were not there before.
    made: Vec<&'static str>,
    committed: bool,
}

/// A program that is pinned but does not run everywhere yet. Dropping it before
/// [`StagedProgram::commit`] removes the pin.
#[derive(Debug)]
pub struct StagedProgram {
    directory: PathBuf,
    committed: bool,
}

/// What [`StateDir::remove`] took away.
#[derive(Debug, Default)]
pub struct Removed {
    /// Pins of state, of whatever version.
    pub pins: usize,
}

// === impl StateDir ===

impl StateDir {
    /// The pin directory `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where links are pinned.
    pub fn links(&self) -> PathBuf {
        self.root.join("links")
    }

    /// Where state of this build's layout is pinned.
    pub fn state(&self) -> PathBuf {
        self.root.join(format!("v{ABI_VERSION}"))
    }

    /// Makes the directories and takes the lock.
    pub fn open(&self) -> Result<Lock, StateError> {
        kernel::check_file_system(&self.root)?;
        for directory in [self.links(), self.state()] {
            fs::create_dir_all(&directory).map_err(|source| StateError::File {
                verb: "make the directory",
                path: directory,
                source,
            })?;
        }
        let links = self.links();
        match Lock::take(&links) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => Err(StateError::Locked {
                directory: self.root.clone(),
                holder: lock::holder(&links).unwrap_or_default(),
            }),
            Err(source) => Err(StateError::File { verb: "lock", path: links, source }),
        }
    }

    /// The daemon that works with this directory, if one runs. It is only looked for: trying the lock
    /// could refuse a daemon that starts at this moment.
    pub fn holder(&self) -> Option<Holder> {
        lock::holder(&self.links())
    }

    /// Whether anything is pinned here.
    pub fn exists(&self) -> Result<bool, StateError> {
        let links = self.links();
        match links.try_exists() {
            Ok(true) => Ok(true),
            Ok(false) => Ok(!self.versions()?.is_empty()),
            Err(source) => Err(StateError::File { verb: "look at", path: links, source }),
        }
    }

    /// Where the program that runs is pinned.
    pub fn program(&self) -> PathBuf {
        self.state().join(PROGRAM)
    }

    /// Pins a loaded program beside the one that runs, ready to take its place.
    pub fn stage_program(&self, program: &mut Xdp) -> Result<StagedProgram, StateError> {
        let directory = self.state();
        let path = directory.join(NEXT_PROGRAM);
        // One that an interrupted start left behind.
        let _ = fs::remove_file(&path);
        program.pin(&path).map_err(|source| StateError::Pin { path, source })?;
        Ok(StagedProgram { directory, committed: false })
    }

    /// Removes the directories if nothing is pinned in them.
    pub fn tidy(&self) {
        // Each only if the one before was empty: the lock stays as long as there is state.
        let _ = [self.state(), self.links(), self.root.clone()].iter().try_for_each(fs::remove_dir);
    }

    /// Prepares the state maps for a program from `object` with `sets` sets of buckets: compares what is
    /// pinned, makes the table's key if there is none, and moves a bucket table of another size aside.
    pub fn adopt(&self, object: &[u8], sets: u32) -> Result<Adoption, StateError> {
        let directory = self.state();
        // A start that was killed between moving the buckets aside and its commit: they come back.
        let old = directory.join(OLD_BUCKETS);
        if old.exists() {
            rename(&old, &directory.join(BUCKETS))?;
        }

        let mut made = Vec::new();
        let mut resized = None;
        for (name, expected) in layout::expected(object, &STATE_MAPS)? {
            let expected = if name == BUCKETS { expected.with_entries(sets) } else { expected };
            let path = directory.join(name);
            let Some(pinned) = open(&path)? else {
                made.push(name);
                continue;
            };
            let pinned = Layout::of(&pinned).map_err(|source| StateError::Map {
                verb: "inspect",
                path: path.clone(),
                source,
            })?;
            match pinned.difference(&expected) {
                None => {}
                Some(Difference::Entries { found, .. }) if name == BUCKETS => resized = Some((found, sets)),
                Some(difference) => return Err(StateError::Layout { path, difference }),
            }
        }

        let kept = made.len() < STATE_MAPS.len();
        let table_path = directory.join(TABLE);
        let existing = open_array::<[u64; 3]>(&table_path)?;
        if existing.is_none() {
            if kept {
                return Err(StateError::Incomplete(directory));
            }
            made.push(TABLE);
        }
        // From here on every return undoes what was done.
        let mut adoption = Adoption {
            table: Table { hash_key: [0; 2], epoch: 0 },
            resized,
            kept,
            directory,
            made,
            committed: false,
        };
        adoption.table = match existing {
            Some(table) => Table::read(&table, &table_path)?,
            None => Table::make(&table_path)?,
        };
        if resized.is_some() {
            rename(&adoption.directory.join(BUCKETS), &adoption.directory.join(OLD_BUCKETS))?;
        }
        Ok(adoption)
    }

    /// Sets the counters and `per: rule` buckets of these counter slots to zero. Maps that do not exist
    /// yet begin with zeroes.
    pub fn zero_slots(&self, slots: &[u32]) -> Result<(), StateError> {
        let directory = self.state();
        let path = directory.join("rule_counters");
        let write = |path: &Path, source| StateError::Map { verb: "write", path: path.to_owned(), source };
        if let Some(data) = open(&path)? {
            let mut counters = PerCpuArray::<_, RuleCounters>::try_from(Map::PerCpuArray(data))
                .map_err(|source| write(&path, source))?;
            let cpus = nr_cpus().map_err(|(_, source)| write(&path, MapError::IoError(source)))?;
            for &slot in slots {
                let zeroes = PerCpuValues::try_from(vec![RuleCounters::default(); cpus])
                    .map_err(|source| write(&path, MapError::IoError(source)))?;
                counters.set(slot, zeroes, 0).map_err(|source| write(&path, source))?;
            }
        }
        let path = directory.join("rule_buckets");
        if let Some(mut buckets) = open_array::<[u64; 8]>(&path)? {
            let limits = u32::try_from(MAX_LIMITS).unwrap_or(u32::MAX);
            for bucket in slots.iter().flat_map(|slot| slot * limits..(slot + 1) * limits) {
                buckets.set(bucket, [0; 8], 0).map_err(|source| write(&path, source))?;
            }
        }
        Ok(())
    }

    /// Removes all pinned state, whatever its version, but no links. The directories go too when
    /// `lock` shows that no daemon uses them.
    pub fn remove(&self, lock: Option<&Lock>) -> Result<Removed, StateError> {
        let mut removed = Removed::default();
        for directory in self.versions()? {
            for path in entries(&directory)? {
                fs::remove_file(&path).map_err(|source| StateError::File { verb: "remove", path, source })?;
                removed.pins += 1;
            }
            if lock.is_some() {
                remove_directory(&directory)?;
            }
        }
        if lock.is_some() {
            remove_directory(&self.links())?;
            remove_directory(&self.root)?;
        }
        Ok(removed)
    }

    /// The directories `v1`, `v2` … that exist.
    fn versions(&self) -> Result<Vec<PathBuf>, StateError> {
        let is_version = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()?.strip_prefix('v')?.parse::<u32>().ok()).is_some()
        };
        Ok(entries(&self.root)?.into_iter().filter(is_version).collect())
    }
}

// === impl Adoption ===

impl Adoption {
    /// Keeps the changes: called when the program runs everywhere.
    pub fn commit(&mut self) {
        self.committed = true;
        // Left behind, it would be taken for an interrupted start; it only costs memory until then.
        let _ = fs::remove_file(self.directory.join(OLD_BUCKETS));
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        for name in &self.made {
            let _ = fs::remove_file(self.directory.join(name));
        }
        if self.resized.is_some() {
            // Fails when the old table was not moved yet, and then there is nothing to bring back.
            let _ = fs::rename(self.directory.join(OLD_BUCKETS), self.directory.join(BUCKETS));
        }
    }
}

// === impl StagedProgram ===

impl StagedProgram {
    /// Records it as the program that runs, atomically.
    pub fn commit(&mut self) -> io::Result<()> {
        fs::rename(self.directory.join(NEXT_PROGRAM), self.directory.join(PROGRAM))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for StagedProgram {
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_file(self.directory.join(NEXT_PROGRAM));
        }
    }
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

    fn make(path: &Path) -> Result<Self, StateError> {
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

    fn read(array: &Array<MapData, [u64; 3]>, path: &Path) -> Result<Self, StateError> {
        let [first, second, epoch] = array.get(&0, 0).map_err(|source| StateError::Map {
            verb: "read",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { hash_key: [first, second], epoch })
    }
}

/// `CLOCK_MONOTONIC`, as `bpf_ktime_get_ns` has it.
pub fn monotonic_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

/// `CLOCK_BOOTTIME`: it also runs while the host sleeps.
pub(super) fn boottime_nanos() -> u64 {
    nanos(ClockId::Boottime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both are positive for clocks that count from boot.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The map pinned at `path`, if there is one.
pub(super) fn open(path: &Path) -> Result<Option<MapData>, StateError> {
    if !path.exists() {
        return Ok(None);
    }
    MapData::from_pin(path).map(Some).map_err(|source| StateError::Map {
        verb: "open",
        path: path.to_owned(),
        source,
    })
}

/// The array pinned at `path`, if there is one; its sizes are checked.
pub(super) fn open_array<V: Pod>(path: &Path) -> Result<Option<Array<MapData, V>>, StateError> {
    open(path)?
        .map(|data| {
            Array::try_from(Map::Array(data)).map_err(|source| StateError::Map {
                verb: "use",
                path: path.to_owned(),
                source,
            })
        })
        .transpose()
}

/// Pins an array.
pub(super) fn pin<V: Pod>(array: Array<MapData, V>, path: &Path) -> Result<(), StateError> {
    array.pin(path).map_err(|error| StateError::Map {
        verb: "pin",
        path: path.to_owned(),
        source: MapError::PinError { name: None, error },
    })
}

fn rename(from: &Path, to: &Path) -> Result<(), StateError> {
    fs::rename(from, to).map_err(|source| StateError::File { verb: "rename", path: from.to_owned(), source })
}

/// The paths in a directory; none when it does not exist.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, StateError> {
    let failed = |source| StateError::File { verb: "read", path: directory.to_owned(), source };
    match fs::read_dir(directory) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>().map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(failed(source)),
    }
}

/// Removes a directory if it is there and empty: what others put there is theirs.
fn remove_directory(path: &Path) -> Result<(), StateError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        // Busy: it is where the file system is mounted.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy
            ) =>
        {
            Ok(())
        }
        Err(source) => Err(StateError::File { verb: "remove", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_are_those_of_this_layout() {
        let state = StateDir::new("/sys/fs/bpf/x");
        assert_eq!(state.links(), Path::new("/sys/fs/bpf/x/links"));
        assert_eq!(state.state(), Path::new("/sys/fs/bpf/x").join(format!("v{ABI_VERSION}")));
    }

    #[test]
    fn keys_differ_and_the_clock_runs() {
        let (one, other) = (Table::draw().expect("a key"), Table::draw().expect("a key"));
        assert_ne!(one.hash_key, other.hash_key);
        assert!(one.epoch <= other.epoch && one.epoch > 0);
    }

    #[test]
    fn a_directory_that_does_not_exist_holds_nothing() {
        let state = StateDir::new("/nonexistent/ratelimit");
        assert!(!state.exists().expect("a look"));
        assert!(state.holder().is_none());
        assert_eq!(state.versions().expect("none").len(), 0);
    }
}
