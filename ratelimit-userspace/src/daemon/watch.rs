//! Watching the files that a configuration was read from.
//!
//! Editors and Kubernetes do not write files in place: they rename another over them, swap a symbolic link
//! beside them, or delete and create them again. So it is the directories that are watched, and whatever
//! happens there is only a reason to look: a configuration that reads the same as the one in force is
//! no change.

use std::{
    collections::BTreeSet,
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
    watched: BTreeSet<PathBuf>,
    events: mpsc::Receiver<()>,
    sender: mpsc::Sender<()>,
}

// === impl Watch ===

impl Watch {
    /// Watches nothing yet.
    pub(super) fn new() -> Self {
        // One waiting event says all there is to say.
        let (sender, events) = mpsc::channel(1);
        Self { watcher: None, watched: BTreeSet::new(), events, sender }
    }

    /// Watches these files and directories from now on, and no others.
    pub(super) fn follow(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        let directories: BTreeSet<PathBuf> = paths.into_iter().filter_map(|path| directory(&path)).collect();
        if directories == self.watched {
            return;
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
                return;
            }
        };
        for directory in &directories {
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                warn!(
                    "changes in {} are not noticed, SIGHUP makes the daemon read its files: {error}",
                    directory.display()
                );
            }
        }
        self.watcher = Some(watcher);
        self.watched = directories;
    }

    /// Returns when something has happened and it is quiet again.
    pub(super) async fn changed(&mut self) {
        // The sender is held here, so there is always an end that could still send.
        if self.events.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        let patience = Instant::now() + PATIENCE;
        loop {
            let quiet = Instant::now() + QUIET;
            if timeout_at(quiet.min(patience), self.events.recv()).await.is_err() {
                return;
            }
        }
    }
}

/// The directory to watch for a path: itself, or the one that it lies in.
fn directory(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
        parent => parent.map(Path::to_owned),
    }
}

#[cfg(test)]
mod tests;
