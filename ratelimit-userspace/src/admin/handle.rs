//! What the API and the daemon share.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    command::{Command, Refusal, Reloaded, Reply},
    events::Log,
    schema::{Reloads, Trial, What},
};
use crate::{
    http::{clock::Clock, limiter::Limiter, metrics::Metrics},
    network::state::StateDir,
};

/// What the API needs of the daemon. All clones are one.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: StateDir,
    commands: mpsc::Sender<Command>,
    events: Log,
    reloads: Mutex<Reloads>,
    trial: Mutex<Option<Trial>>,
    escalations: Mutex<Escalations>,
    feed: Mutex<Option<Feed>>,
    requests: OnceLock<Requests>,
    /// Whether the daemon ends and answers nobody any more.
    closed: watch::Sender<bool>,
}

/// What limits requests, for its metrics.
#[derive(Debug)]
pub struct Requests {
    /// Decides.
    pub limiter: Arc<Limiter>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Tells the time.
    pub clock: Arc<Clock>,
}

/// What became of clients that were denied too often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Escalations {
    /// How often which outcome came of a rule on requests, by its id.
    pub rules: BTreeMap<Arc<str>, BTreeMap<Escalated, u64>>,
    /// Clients that there was no time to deal with.
    pub lost: u64,
}

/// What came of decisions that another program makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feed {
    /// Addresses and networks that something stands about.
    pub standing: u64,
    /// Decisions that nothing was done about, by what they lacked.
    pub ignored: BTreeMap<&'static str, u64>,
    /// How often none could be had.
    pub failures: u64,
}

/// What became of a client that was denied too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Escalated {
    /// It is blocked.
    Blocked,
    /// It is put under a rule on packets.
    PutUnder,
    /// It must be left alone.
    Spared,
    /// It was to be blocked, and could not be.
    Failed,
}

// === impl Escalated ===

impl Escalated {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Blocked, Self::PutUnder, Self::Spared, Self::Failed];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::PutUnder => "put_under",
            Self::Spared => "spared",
            Self::Failed => "failed",
        }
    }
}

// === impl Handle ===

impl Handle {
    /// Reads what is pinned in `state`; commands go to `commands`.
    pub fn new(state: StateDir, commands: mpsc::Sender<Command>) -> Self {
        let now = SystemTime::now();
        let reloads = Reloads {
            succeeded: 0,
            failed: 0,
            last_ok: true,
            last_success: now,
            last_failure: None,
            error: None,
        };
        let shared = Shared {
            state,
            commands,
            events: Log::new(now),
            reloads: Mutex::new(reloads),
            trial: Mutex::default(),
            escalations: Mutex::default(),
            feed: Mutex::default(),
            requests: OnceLock::new(),
            closed: watch::Sender::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Where the state is pinned.
    pub fn state(&self) -> &StateDir {
        &self.shared.state
    }

    /// Asks the daemon and waits for the answer: `handle.ask(|reply| Command::Config { reply })`.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.shared.commands.send(command(reply)).await.map_err(|_| Refusal::stopping())?;
            answer.await.map_err(|_| Refusal::stopping())?
        };
        let mut closed = self.shared.closed.subscribe();
        tokio::select! {
            biased;
            answer = asked => answer,
            _ = closed.wait_for(|closed| *closed) => Err(Refusal::stopping()),
        }
    }

    /// Nobody is answered any more, and whoever listens to events has heard the last one.
    pub fn close(&self) {
        self.shared.closed.send_replace(true);
        self.shared.events.close();
    }

    /// What happens.
    pub fn events(&self) -> &Log {
        &self.shared.events
    }

    /// Tells whoever listens.
    pub fn publish(&self, what: What) {
        self.shared.events.publish(SystemTime::now(), what);
    }

    /// What was read because of `cause` is in force.
    pub fn reload_succeeded(&self, cause: &str, reloaded: &Reloaded) {
        let now = SystemTime::now();
        {
            let mut reloads = self.shared.reloads.lock();
            reloads.succeeded += 1;
            reloads.last_ok = true;
            reloads.last_success = now;
            reloads.error = None;
        }
        let Reloaded { changed, rules, warnings, milliseconds } = reloaded.clone();
        let cause = cause.to_owned();
        self.shared.events.publish(now, What::Reloaded { cause, changed, rules, warnings, milliseconds });
    }

    /// What was read because of `cause` is not used.
    pub fn reload_failed(&self, cause: &str, message: &str) {
        let now = SystemTime::now();
        {
            let mut reloads = self.shared.reloads.lock();
            reloads.failed += 1;
            reloads.last_ok = false;
            reloads.last_failure = Some(now);
            reloads.error = Some(message.to_owned());
        }
        let (cause, message) = (cause.to_owned(), message.to_owned());
        self.shared.events.publish(now, What::ReloadFailed { cause, message });
    }

    /// What became of reloads.
    pub fn reloads(&self) -> Reloads {
        self.shared.reloads.lock().clone()
    }

    /// Counts what became of a client that `rule` denied too often.
    pub fn count_escalation(&self, rule: &Arc<str>, outcome: Escalated) {
        let mut escalations = self.shared.escalations.lock();
        *escalations.rules.entry(Arc::clone(rule)).or_default().entry(outcome).or_default() += 1;
    }

    /// Counts clients that there was no time to deal with, so far.
    pub fn set_lost_escalations(&self, lost: u64) {
        self.shared.escalations.lock().lost = lost;
    }

    /// Counts what came of decisions that another program makes.
    pub fn change_feed(&self, change: impl FnOnce(&mut Feed)) {
        change(self.shared.feed.lock().get_or_insert_default());
    }

    /// What came of decisions that another program makes; `None`: none are read.
    pub fn feed(&self) -> Option<Feed> {
        self.shared.feed.lock().clone()
    }

    /// What became of clients that were denied too often.
    pub fn escalations(&self) -> Escalations {
        self.shared.escalations.lock().clone()
    }

    /// A policy is on trial from now on, or none is any more.
    pub fn set_trial(&self, trial: Option<Trial>) {
        *self.shared.trial.lock() = trial;
    }

    /// The trial that runs.
    pub fn trial(&self) -> Option<Trial> {
        self.shared.trial.lock().clone()
    }

    /// Requests are limited, too. Said once, before anybody asks.
    pub fn serve_requests(&self, requests: Requests) {
        // A second one would be of the same daemon.
        let _ = self.shared.requests.set(requests);
    }

    /// What limits requests, if anything does.
    pub fn requests(&self) -> Option<&Requests> {
        self.shared.requests.get()
    }
}
