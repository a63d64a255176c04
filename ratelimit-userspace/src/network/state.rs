//! What outlives the process, in a directory of a BPF file system:
//!
//! ```text
//! <pin_dir>/links/<ifindex>-<name>   what keeps the program attached; the directory is also the lock
//! <pin_dir>/v3/buckets …             the state maps, shared by all generations of the program
//! <pin_dir>/v3/table                 the hash key of `buckets` and the zero of its clock
//! <pin_dir>/v3/program               the program that runs, so that a failed change can go back to it
//! <pin_dir>/v3/policy                what runs, in words: see [`super::description`]
//! <pin_dir>/v3/list-…                large policy maps, named by what is in them: see [`lists`]
//! <pin_dir>/v3/…-next                the same of a generation that does not run yet
//! <pin_dir>/v3/next                  whom it hands packets on to, if anybody: see [`super::next`]
//! ```
//!
//! `v3` is [`ABI_VERSION`]. Opening a pinned map checks nothing, so every one is compared with what the
//! object in this build expects before the program is loaded. A start takes over the pins of the version
//! that runs, which may be another one. What it changes is undone when it fails: see [`Adoption`].

mod adoption;
mod generation;
mod layout;
pub(super) mod lists;
mod lock;
mod maps;
mod table;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Pod,
    maps::{Array, Map, MapData, MapError},
    pin::PinError,
};
use ratelimit_common::record::ABI_VERSION;
use rustix::time::{ClockId, clock_gettime};

pub use self::{
    adoption::Adoption,
    layout::{Difference, Layout},
    lock::{Holder, Lock},
    maps::{INITIAL_BLOCKS, STATE_MAPS},
    table::Table,
};
pub(super) use self::{
    generation::{staged, staged_names},
    layout::expected,
};
use super::kernel;

/// Where pins live unless the command line says otherwise.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/ratelimit";

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

    /// What reading the buckets and blocks takes; `None` if nothing is pinned.
    pub fn table(&self) -> Result<Option<Table>, StateError> {
        Table::read(&self.state().join(table::TABLE))
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
        self.state().join(generation::PROGRAM)
    }

    /// Removes the pin of the program that runs, and nothing else: from now on nobody attaches it to an
    /// interface that comes.
    pub fn forget_program(&self) -> Result<(), StateError> {
        remove_file(&self.program())
    }

    /// Removes the directories if nothing is pinned in them.
    pub fn tidy(&self) {
        // Each only if the one before was empty: the lock stays as long as there is state.
        let _ = [self.state(), self.links(), self.root.clone()].iter().try_for_each(fs::remove_dir);
    }

    /// Removes all pinned state, whatever its version, but no links. The directories go too when
    /// `lock` shows that no daemon uses them.
    pub fn remove(&self, lock: Option<&Lock>) -> Result<Removed, StateError> {
        let mut removed = Removed::default();
        for directory in self.versions()? {
            for path in entries(&directory)? {
                remove_file(&path)?;
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
    pub(super) fn versions(&self) -> Result<Vec<PathBuf>, StateError> {
        Ok(entries(&self.root)?.into_iter().filter(|path| version(path).is_some()).collect())
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
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(source) => return Err(StateError::File { verb: "look at", path: path.to_owned(), source }),
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

/// Pins a map, also one that is pinned elsewhere.
fn pin_map(map: &MapData, path: &Path) -> Result<(), StateError> {
    map.pin(path).map_err(|error| StateError::Map {
        verb: "pin",
        path: path.to_owned(),
        source: MapError::PinError { name: None, error },
    })
}

/// Removes a file if it is there.
fn remove_file(path: &Path) -> Result<(), StateError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StateError::File { verb: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
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

/// The version whose directory this is.
fn version(directory: &Path) -> Option<u32> {
    directory.file_name()?.to_str()?.strip_prefix('v')?.parse().ok()
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
    fn a_directory_that_does_not_exist_holds_nothing() {
        let state = StateDir::new("/nonexistent/ratelimit");
        assert!(!state.exists().expect("a look"));
        assert!(state.holder().is_none());
        assert_eq!(state.versions().expect("none").len(), 0);
    }
}
