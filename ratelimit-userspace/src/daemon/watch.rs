//! Watching the files that a configuration was read from.
//!
//! Editors and Kubernetes do not write files in place: they rename another over them, swap a symbolic link
//! beside them, or delete and create them again. So it is the directories that are watched, and whatever
//! happens there is only a reason to look: a configuration that reads the same as the one in force is
//! no change. A directory may be replaced in the same ways, so what is watched is compared by inode, and
//! for one that is gone, the nearest that is left above it is watched until it comes back.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tracing::warn;

/// A change is acted upon once nothing has happened for this long, so that one swap of many files is one
/// reload…
const QUIET: Duration = Duration::from_millis(250);
/// …but no later than this after its first event.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells when something happens beside one of the files.
#[derive(Debug)]
pub(super) struct Watch {
    /// Ends the watching when it goes.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<Directory>,
    events: mpsc::Receiver<()>,
    sender: mpsc::Sender<()>,
    /// Something has happened that was not told yet. Kept here, so that whoever gives up waiting loses nothing.
    pending: Option<Pending>,
}

/// When something began to happen, and when it did last.
#[derive(Clone, Copy, Debug)]
struct Pending {
    first: Instant,
    last: Instant,
}

/// A directory and which one it is: a watch stays with the directory, whatever becomes of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Directory {
    path: PathBuf,
    device: u64,
    inode: u64,
}

// === impl Watch ===

impl Watch {
    /// Watches nothing yet.
    pub(super) fn new() -> Self {
        // One waiting event says all there is to say.
        let (sender, events) = mpsc::channel(1);
        Self { watcher: None, watched: BTreeSet::new(), events, sender, pending: None }
    }

    /// Watches these files and directories from now on, and no others. `true`: something is watched that was
    /// not before, so what happened there until now went unnoticed.
    pub(super) fn follow(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> bool {
        let directories: BTreeSet<Directory> =
            paths.into_iter().flat_map(|path| directories(&path)).collect();
        if directories == self.watched {
            return false;
        }
        let sender = self.sender.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the files is an event of its own kind, and no reason to read them again.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = sender.try_send(());
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => {
                warn!("changed files are not noticed, SIGHUP makes the daemon read them: {error}");
                return false;
            }
        };
        for Directory { path, .. } in &directories {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
                warn!(
                    "changes in {} are not noticed, SIGHUP makes the daemon read its files: {error}",
                    path.display()
                );
            }
        }
        self.watcher = Some(watcher);
        self.watched = directories;
        true
    }

    /// Returns when something has happened and it is quiet again. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) {
        let mut pending = if let Some(pending) = self.pending {
            pending
        } else {
            // The sender is held here, so there is always an end that could still send.
            if self.events.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            let now = Instant::now();
            Pending { first: now, last: now }
        };
        loop {
            self.pending = Some(pending);
            let quiet = (pending.last + QUIET).min(pending.first + PATIENCE);
            if timeout_at(quiet, self.events.recv()).await.is_err() {
                self.pending = None;
                return;
            }
            pending.last = Instant::now();
        }
    }
}

/// The directories to watch for a path: where its name lies, and where the file itself does if the name is
/// a symbolic link.
fn directories(path: &Path) -> impl Iterator<Item = Directory> + use<> {
    let target = fs::canonicalize(path).ok();
    [Some(path.to_owned()), target].into_iter().flatten().filter_map(|path| Directory::of(&path))
}

// === impl Directory ===

impl Directory {
    /// The path itself if it is a directory, else the nearest above it that exists.
    fn of(path: &Path) -> Option<Self> {
        path.ancestors().find_map(|path| {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
            Some(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
        })
    }
}

#[cfg(test)]
mod tests;
