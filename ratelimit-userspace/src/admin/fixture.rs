//! A daemon that does as it is told, for tests.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::{
    command::{Applied, Blocked, Command, Configuration, Kind, ModeSet, QUEUE, Refusal, Reloaded, Unblocked},
    handle::Handle,
};
use crate::network::state::StateDir;

/// A handle whose commands a fake daemon obeys, and what it was told, in words.
pub(super) struct Fake {
    pub(super) handle: Handle,
    pub(super) told: Arc<Mutex<Vec<String>>>,
    _pins: TempDir,
}

/// An address that the daemon cannot block, and one that it blocks already.
pub(super) const UNBLOCKABLE: &str = "192.0.2.66/32";
pub(super) const BLOCKED: &str = "192.0.2.1/32";

/// It has room for so many blocks at once.
pub(super) const ROOM: usize = 100;

impl Fake {
    /// Must be called within a runtime.
    pub(super) fn new() -> Self {
        let pins = tempfile::tempdir().unwrap();
        let (commands, mut inbox) = mpsc::channel(QUEUE);
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&told);
        tokio::spawn(async move {
            while let Some(command) = inbox.recv().await {
                heard.lock().push(words(&command));
                obey(command);
            }
        });
        Self { handle: Handle::new(StateDir::new(pins.path().join("pins")), commands), told, _pins: pins }
    }

    /// What the daemon was told since this was asked last.
    pub(super) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock())
    }
}

fn words(command: &Command) -> String {
    match command {
        Command::Reload { force, .. } => format!("reload force={force}"),
        Command::Apply { text, confirm, force, .. } => {
            format!("apply {} bytes confirm={confirm:?} force={force}", text.len())
        }
        Command::Confirm { id, .. } => format!("confirm {id}"),
        Command::Rollback { id, .. } => format!("rollback {id}"),
        Command::Mode { monitor, force, .. } => format!("monitor={monitor} force={force}"),
        Command::Block { batch, force, .. } => match batch.clone().into_entries().next() {
            Some(entry) if batch.entries.len() == 1 => {
                format!("block {} {:?} {:?} force={force}", entry.prefix, entry.duration, entry.reason)
            }
            _ => format!("block {} force={force}", batch.entries.len()),
        },
        Command::Unblock { prefixes, .. } => format!("unblock {prefixes:?}"),
        Command::Config { .. } => "config".to_owned(),
    }
}

/// Nobody waits for an answer where sending it fails.
fn obey(command: Command) {
    let reloaded =
        Reloaded { changed: true, rules: 3, warnings: vec!["a warning".to_owned()], milliseconds: 12 };
    let locked_out = || Refusal::new(Kind::LockedOut, "that would shed your own connection; use `force`");
    match command {
        Command::Reload { reply, .. } => drop(reply.send(Ok(reloaded))),
        Command::Apply { text, confirm, force, reply, .. } => drop(reply.send(if text.contains("bad") {
            Err(Refusal::new(Kind::Invalid, "rules.yaml:1:1: error: unknown key `bad`"))
        } else if text.contains("everything") && !force {
            Err(locked_out())
        } else {
            let deadline = confirm.map(|time| UNIX_EPOCH + Duration::from_hours(500_000) + time);
            Ok(Applied { id: "trial-1".to_owned(), deadline, reloaded })
        })),
        Command::Confirm { id, reply } | Command::Rollback { id, reply } => {
            let known = id == "trial-1";
            let unknown = || Refusal::new(Kind::NotFound, format!("there is no trial {id}"));
            drop(reply.send(known.then_some(()).ok_or_else(unknown)));
        }
        Command::Mode { monitor, reply, .. } => drop(reply.send(Ok(ModeSet { changed: monitor }))),
        Command::Block { batch, force, reply, .. } => {
            let count = batch.entries.len();
            let mut blocked = Blocked::default();
            for (index, entry) in batch.into_entries().enumerate() {
                match entry.prefix.to_string().as_str() {
                    UNBLOCKABLE => blocked.errors.push((index, "it cannot be blocked".to_owned())),
                    BLOCKED => blocked.replaced += 1,
                    "0.0.0.0/0" if !force => return drop(reply.send(Err(locked_out()))),
                    _ => blocked.added += 1,
                }
            }
            let full = Refusal::new(Kind::Full, "no room for so many blocks");
            drop(reply.send(if count > ROOM { Err(full) } else { Ok(blocked) }));
        }
        Command::Unblock { prefixes, reply } => {
            let removed = prefixes.into_iter().filter(|prefix| prefix.to_string() == BLOCKED).collect();
            drop(reply.send(Ok(Unblocked { removed })));
        }
        Command::Config { reply } => drop(reply.send(Ok(Configuration {
            path: "/etc/ratelimit/rules.yaml".into(),
            applied: false,
            text: "network: {}\n".to_owned(),
        }))),
    }
}
