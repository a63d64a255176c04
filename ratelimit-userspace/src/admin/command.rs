//! What the API asks of the daemon: one task receives [`Command`]s and carries out one after the other, so
//! that no two changes meet. Whoever waits for an answer may go away before it comes.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use ipnet::IpNet;
use tokio::sync::oneshot;

pub use super::handle::Handle;
pub use crate::network::{blocks::NewBlock, lockout::Session};

/// Where the answer to a command goes.
pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Commands that wait for the daemon. More askers wait for room.
pub const QUEUE: usize = 64;

/// Something that the daemon is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Read the files again and put them in force.
    Reload {
        /// Also where the policy would shed `session`.
        force: bool,
        /// The operator's own connection.
        session: Option<Session>,
        /// The answer.
        reply: Reply<Reloaded>,
    },
    /// Put another rules file in force, given as its text; the file on disk stays as it is.
    Apply {
        /// The YAML text.
        text: String,
        /// Go back to what was in force unless this is confirmed in time.
        confirm: Option<Duration>,
        /// Also where the policy would shed `session`.
        force: bool,
        /// The operator's own connection.
        session: Option<Session>,
        /// The answer.
        reply: Reply<Applied>,
    },
    /// Keep what was applied on trial.
    Confirm {
        /// As [`Applied::id`] had it.
        id: String,
        /// The answer.
        reply: Reply<()>,
    },
    /// Go back to what was in force before the trial, now.
    Rollback {
        /// As [`Applied::id`] had it.
        id: String,
        /// The answer.
        reply: Reply<()>,
    },
    /// Shed, or only count what would be shed.
    Mode {
        /// Only count.
        monitor: bool,
        /// Also where the policy would shed `session` as soon as it sheds.
        force: bool,
        /// The operator's own connection.
        session: Option<Session>,
        /// The answer.
        reply: Reply<ModeSet>,
    },
    /// Block sources.
    Block {
        /// Whom, how long and why.
        batch: Batch,
        /// Also where that sheds `session`.
        force: bool,
        /// The operator's own connection.
        session: Option<Session>,
        /// The answer.
        reply: Reply<Blocked>,
    },
    /// End blocks before their time.
    Unblock {
        /// Exactly the prefixes that were blocked.
        prefixes: Vec<IpNet>,
        /// The answer.
        reply: Reply<Unblocked>,
    },
    /// Tell the configuration in force.
    Config {
        /// The answer.
        reply: Reply<Configuration>,
    },
}

/// Sources to block, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// An empty reason stands for [`Self::reason`], so that a million of them need no memory.
    pub entries: Vec<NewBlock>,
    /// The reason of entries that have none of their own.
    pub reason: String,
}

/// The files were read, and what they say is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Whether they say anything else than before.
    pub changed: bool,
    /// Rules in force, those on packets and those on requests.
    pub rules: usize,
    /// What is allowed but probably not meant, each as its file, place and words.
    pub warnings: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

/// Another policy is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What to confirm or to roll back; never used again.
    pub id: String,
    /// When it ends unless it is confirmed; `None`: it stays.
    pub deadline: Option<SystemTime>,
    /// As a reload tells it.
    pub reloaded: Reloaded,
}

/// The mode is as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSet {
    /// Whether it was another one before.
    pub changed: bool,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// Sources that were not blocked before.
    pub added: usize,
    /// Blocks that hold for another time or reason now.
    pub replaced: usize,
    /// What could not be blocked: the place in [`Batch::entries`], and why.
    pub errors: Vec<(usize, String)>,
}

/// What became of blocks to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unblocked {
    /// Those that were there.
    pub removed: Vec<IpNet>,
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The rules file that was read, or where the text would stand if it had not been applied by hand.
    pub path: PathBuf,
    /// Whether the text came through `apply` and not from that file.
    pub applied: bool,
    /// Its text.
    pub text: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was sent is wrong: a rules file with mistakes, an entry that cannot be blocked.
    Invalid,
    /// It does not go together with what is there: a trial that runs, no policy to switch.
    Conflict,
    /// It would shed the operator's own connection; `force` does it all the same.
    LockedOut,
    /// There is no room for so many blocks.
    Full,
    /// There is no such trial.
    NotFound,
    /// The kernel or the disk did not let it happen.
    Failed,
}

/// The daemon did not do it. Nothing has changed, unless the message says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind it is.
    pub kind: Kind,
    /// What failed, where, why, and what to do next.
    pub message: String,
}

// === impl Batch ===

impl Batch {
    /// How many entries are single addresses, and how many are prefixes.
    pub fn sizes(&self) -> (usize, usize) {
        let single = |entry: &&NewBlock| entry.prefix.prefix_len() == entry.prefix.max_prefix_len();
        let singles = self.entries.iter().filter(single).count();
        (singles, self.entries.len() - singles)
    }
    /// The entries, each with its reason.
    pub fn into_entries(self) -> impl Iterator<Item = NewBlock> {
        let Self { entries, reason } = self;
        entries.into_iter().map(move |mut entry| {
            if entry.reason.is_empty() {
                entry.reason.clone_from(&reason);
            }
            entry
        })
    }
}

// === impl Refusal ===

impl Refusal {
    /// In words for a person.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What an error and its causes say.
    pub fn from_error(kind: Kind, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Transparent errors repeat their source.
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self { kind, message }
    }

    pub(super) fn stopping() -> Self {
        Self::new(Kind::Failed, "the daemon is stopping and gave no answer; ask again when it runs")
    }
}
