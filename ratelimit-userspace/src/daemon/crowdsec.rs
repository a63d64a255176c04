//! Decisions of `CrowdSec` as blocks. The reason tells them from all others: only those that carry it are ever
//! replaced or ended, and where somebody else's block stands, a decision waits.

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime},
};

use ipnet::IpNet;
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::{info, warn};

use super::reload::{Daemon, text};
use crate::{
    admin::{
        command::{Batch, NewBlock, Refusal},
        handle::Feed,
        schema::{Origin, What},
    },
    config::policy::{Config, CrowdSec},
    crowdsec::{
        self, Update,
        decisions::{Changes, Decisions, Ignored, REASON},
    },
    network::blocks::Block,
};

/// Changes of no more than this are told of one by one.
const FEW: usize = 16;

/// What is read, and what was.
#[derive(Debug)]
pub(super) struct Reading {
    updates: mpsc::Sender<Update>,
    reader: Option<(CrowdSec, JoinHandle<()>)>,
    begun: Instant,
    decisions: Decisions,
    /// About whom somebody else's block stands, or for whom there was no room.
    waiting: HashSet<IpNet>,
    /// An error is told of once.
    failing: bool,
}

// === impl Reading ===

impl Reading {
    /// Nothing yet; the reader will send its updates to `updates`.
    pub(super) fn new(updates: mpsc::Sender<Update>) -> Self {
        Self {
            updates,
            reader: None,
            begun: Instant::now(),
            decisions: Decisions::default(),
            waiting: HashSet::new(),
            failing: false,
        }
    }

    /// Reads what a configuration names.
    pub(super) fn follow(&mut self, config: &Config) {
        let wanted = config.network.as_ref().and_then(|network| network.blocks.crowdsec.as_ref());
        if self.reader.as_ref().map(|(settings, _)| settings) == wanted {
            return;
        }
        if let Some((_, reader)) = self.reader.take() {
            reader.abort();
        }
        self.decisions = Decisions::default();
        self.waiting.clear();
        self.failing = false;
        self.reader = wanted.map(|settings| {
            let reader = tokio::spawn(crowdsec::read(settings.clone(), self.updates.clone()));
            (settings.clone(), reader)
        });
    }

    /// Notes that somebody unblocked an address by hand.
    pub(super) fn lift(&mut self, prefix: IpNet) {
        self.decisions.lift(prefix);
        self.waiting.remove(&prefix);
    }

    /// What an answer changes, those included that could not be done before.
    fn take(&mut self, all: bool, stream: crowdsec::decisions::Stream) -> Changes {
        let now = self.begun.elapsed();
        let mut changes = self.decisions.take(all, stream, now);
        self.decisions.sweep(now);
        let asked: HashSet<_> = changes.block.iter().map(|(prefix, ..)| *prefix).collect();
        for prefix in self.waiting.drain().filter(|prefix| !asked.contains(prefix)) {
            let found = self.decisions.find(&prefix, now);
            changes.block.extend(found.map(|(left, reason)| (prefix, left, reason)));
        }
        changes
    }
}

// === impl Daemon ===

impl Daemon<'_> {
    /// Takes what the reader tells.
    pub(super) fn take_decisions(&mut self, update: Update) {
        // What was read before the configuration changed is nobody's.
        if self.crowdsec.reader.is_none() {
            return;
        }
        let (all, stream) = match update {
            Update::Decisions { all, stream } => (all, stream),
            Update::Failed(error) => {
                if !std::mem::replace(&mut self.crowdsec.failing, true) {
                    warn!("{}; what was decided before still holds for its time", text(&error));
                }
                self.handle.change_feed(|feed| feed.failures += 1);
                return;
            }
        };
        if std::mem::take(&mut self.crowdsec.failing) {
            info!("CrowdSec's local API answers again");
        }
        let Changes { block, release, ignored } = self.crowdsec.take(all, stream);
        if let Err(refusal) = self.carry_out(all, block, release) {
            warn!("decisions of CrowdSec are not in force: {refusal}");
        }
        let standing = self.crowdsec.decisions.len() as u64;
        self.handle.change_feed(|feed| count(feed, standing, ignored));
    }

    fn carry_out(
        &mut self,
        all: bool,
        block: Vec<(IpNet, Duration, String)>,
        mut release: Vec<IpNet>,
    ) -> Result<(), Refusal> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        if all {
            // Of what another daemon read some may have been taken back meanwhile.
            let known = &self.crowdsec;
            keeper.for_each(|block| {
                let is_known = || known.decisions.find(&block.prefix, known.begun.elapsed()).is_some();
                if is_ours(&block) && !is_known() {
                    release.push(block.prefix);
                }
            })?;
        }
        let mut released = Vec::new();
        for prefix in release {
            if keeper.exactly(prefix)?.is_some_and(|block| is_ours(&block)) && keeper.end(prefix)? {
                released.push(prefix);
            }
        }
        let mut entries = Vec::new();
        for (prefix, left, reason) in block {
            if keeper.exactly(prefix)?.is_some_and(|block| !is_ours(&block)) {
                self.crowdsec.waiting.insert(prefix);
            } else {
                entries.push(NewBlock { prefix, duration: Some(left), reason });
            }
        }
        let blocked = self.block_decided(entries);
        self.tell_of_decisions(blocked.as_deref().unwrap_or_default(), &released);
        blocked.map(|_| ())
    }

    /// Blocks, or lets wait what there is no room for.
    fn block_decided(&mut self, entries: Vec<NewBlock>) -> Result<Vec<NewBlock>, Refusal> {
        if entries.is_empty() {
            return Ok(entries);
        }
        let batch = Batch { entries: entries.clone(), reason: String::new() };
        match self.put_blocks(batch, None) {
            Ok(_) => Ok(entries),
            Err(refusal) => {
                self.crowdsec.waiting.extend(entries.into_iter().map(|entry| entry.prefix));
                Err(refusal)
            }
        }
    }

    fn tell_of_decisions(&self, blocked: &[NewBlock], released: &[IpNet]) {
        if blocked.is_empty() && released.is_empty() {
            return;
        }
        info!("CrowdSec: {} blocked, {} released", blocked.len(), released.len());
        if blocked.len() > FEW {
            self.handle.publish(What::BlockedMany { added: blocked.len(), replaced: 0, failed: 0 });
        } else {
            for NewBlock { prefix, duration, reason } in blocked {
                let until = duration.map(|duration| SystemTime::now() + duration);
                let (prefix, reason) = (*prefix, reason.clone());
                self.handle.publish(What::Blocked { prefix, until, reason, origin: Origin::Command });
            }
        }
        for prefix in released.iter().take(FEW) {
            self.handle.publish(What::Unblocked { prefix: *prefix });
        }
    }
}

/// Whether a decision made a block.
fn is_ours(block: &Block) -> bool {
    block.reason.starts_with(REASON)
}

fn count(feed: &mut Feed, standing: u64, Ignored { scopes, kinds, malformed }: Ignored) {
    feed.standing = standing;
    for (why, count) in [("scope", scopes), ("type", kinds), ("malformed", malformed)] {
        *feed.ignored.entry(why).or_default() += count;
    }
}
