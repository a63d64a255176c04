//! Blocks that commands make: they live in the kernel; here they are kept for the next boot, given room when
//! they become many, and swept when they have ended.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use ipnet::IpNet;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use super::{
    DaemonError, Place,
    network::{Enforcement, Occasion, Policy},
    reload::{Daemon, text},
    trial::ApplyError,
};
use crate::{
    admin::{
        command::{Batch, Blocked, Kind, Refusal, Session, Unblocked},
        schema::{Origin, What},
    },
    config::policy::Network,
    network::{
        blocks::{Blocks, BlocksError, NewBlock, Saved},
        lockout,
    },
};

/// The file in the state directory that holds them.
const FILE: &str = "blocks.json";
/// Changes are written this long after the first of them: at most that much is forgotten after a crash of
/// the host. What a crash of the daemon leaves is in the kernel.
const SAVE: Duration = Duration::from_secs(1);
/// How often what has ended is swept out.
const SWEEP: Duration = Duration::from_secs(30);
/// A batch of no more than this is told of block by block.
const FEW: usize = 16;

/// The blocks, and where they are kept.
pub(super) struct Keeper {
    blocks: Blocks,
    /// `None`: nowhere, for the state directory is of no use.
    file: Option<PathBuf>,
    /// When there is something to write.
    save: Option<Instant>,
    sweep: Instant,
    /// A full disk is told of once.
    failing: bool,
}

// === impl Keeper ===

impl Keeper {
    /// Opens the pinned blocks. When they are new, those that the state directory holds are made again.
    pub(super) fn open(
        place: &Place,
        enforcement: &Enforcement,
        policy: Policy<'_>,
        fresh: bool,
    ) -> Result<Self, DaemonError> {
        let file = prepare(place)?;
        let mut keeper = Self {
            blocks: Blocks::open(enforcement.state())?,
            file,
            save: None,
            sweep: Instant::now() + SWEEP,
            failing: false,
        };
        if fresh
            && let Some(file) = keeper.file.clone()
            && let Err(error) = keeper.restore(&file, enforcement, policy)
        {
            error!("the blocks kept in {} are not in force: {}", file.display(), text(&error));
        }
        Ok(keeper)
    }

    fn restore(
        &mut self,
        file: &Path,
        enforcement: &Enforcement,
        policy: Policy<'_>,
    ) -> Result<(), DaemonError> {
        let Some(saved) = Saved::read(file)? else { return Ok(()) };
        self.make_room(saved.prefixes(), enforcement, policy)?;
        let restored = self.blocks.restore(saved);
        info!(
            "{} blocks of the last boot are in force again, {} have ended",
            restored.blocks, restored.ended
        );
        for bad in &restored.errors {
            warn!("{}:{}: not blocked: {}", file.display(), bad.line, bad.message);
        }
        Ok(())
    }

    /// Loads the program with a larger table, if these do not fit into the one there is.
    fn make_room<'a>(
        &mut self,
        prefixes: impl IntoIterator<Item = &'a IpNet>,
        enforcement: &Enforcement,
        policy: Policy<'_>,
    ) -> Result<(), DaemonError> {
        let Some(capacity) = self.blocks.need(prefixes, policy.network.blocks.capacity)? else {
            return Ok(());
        };
        let growth = self.blocks.grow(capacity)?;
        enforcement.apply(policy, Occasion::Reload { reason: "more blocks", guarded: None })?;
        growth.commit();
        self.blocks = Blocks::open(enforcement.state())?;
        Ok(())
    }

    /// There is something to write.
    fn touch(&mut self) {
        self.save.get_or_insert_with(|| Instant::now() + SAVE);
    }

    /// Returns when [`Self::work`] has something to do.
    pub(super) async fn due(&self) {
        sleep_until(self.save.map_or(self.sweep, |save| save.min(self.sweep))).await;
    }

    /// Writes what changed, and sweeps what has ended.
    pub(super) fn work(&mut self) {
        let now = Instant::now();
        if self.save.is_some_and(|save| save <= now) {
            self.write();
        }
        if self.sweep <= now {
            self.sweep = now + SWEEP;
            if let Err(error) = self.blocks.sweep() {
                warn!("failed to sweep out blocks that have ended: {}", text(&error));
            }
        }
    }

    /// Writes the blocks now.
    pub(super) fn write(&mut self) {
        self.save = None;
        let Some(file) = &self.file else { return };
        let written = self.blocks.save(file);
        if let (Err(error), false) = (&written, self.failing) {
            warn!("blocks would not outlive a reboot: {}", text(error));
        }
        self.failing = written.is_err();
    }
}

/// The file in a state directory that can be used.
fn prepare(place: &Place) -> Result<Option<PathBuf>, DaemonError> {
    match fs::create_dir_all(&place.path) {
        Ok(()) => Ok(Some(place.path.join(FILE))),
        Err(source) if place.given => Err(DaemonError::StateDir { path: place.path.clone(), source }),
        Err(error) => {
            warn!("{} cannot be made, so blocks do not outlive a reboot: {error}", place.path.display());
            Ok(None)
        }
    }
}

// === impl Daemon ===

impl Daemon<'_> {
    /// Blocks all of a batch for which there is room, or nobody.
    pub(super) fn block(&mut self, batch: Batch, guarded: Option<Session>) -> Result<Blocked, Refusal> {
        let policy = Policy::of(&self.config);
        let (Some(keeper), Some(enforcement), Some(policy)) = (&mut self.keeper, &self.enforcement, policy)
        else {
            let message = "the rules file has no `network:` section, so nobody can be blocked";
            return Err(Refusal::new(Kind::Conflict, message));
        };
        if let Some(session) = guarded {
            admit(&batch, policy.network, &session)?;
        }
        if let Some(trial) = &self.trial
            && keeper.needs_room(&batch, policy.network)?
        {
            // The table is part of the generation that a rollback brings back.
            return Err(ApplyError::OnTrial { id: trial.id.clone() }.into());
        }
        let prefixes = batch.entries.iter().map(|entry| &entry.prefix);
        keeper.make_room(prefixes, enforcement, policy).map_err(|error| Refusal::from(&error))?;

        let few = (batch.entries.len() <= FEW).then(|| batch.entries.clone());
        let default_reason = batch.reason.clone();
        let outcome = keeper.blocks.block_all(batch.into_entries());
        keeper.touch();
        let errors: Vec<_> = outcome.errors.into_iter().map(|(index, error)| (index, text(&error))).collect();
        let blocked = Blocked { added: outcome.added, replaced: outcome.replaced, errors };
        if let Some(entries) = few {
            for (index, entry) in entries.into_iter().enumerate() {
                if blocked.errors.iter().all(|(failed, _)| *failed != index) {
                    self.tell_of_block(entry, &default_reason);
                }
            }
        } else {
            let Blocked { added, replaced, errors } = &blocked;
            info!("blocked: {added} more, {replaced} anew, {} failed", errors.len());
            self.handle.publish(What::BlockedMany {
                added: *added,
                replaced: *replaced,
                failed: errors.len(),
            });
        }
        Ok(blocked)
    }

    fn tell_of_block(&self, block: NewBlock, default_reason: &str) {
        let NewBlock { prefix, duration, reason } = block;
        let reason = if reason.is_empty() { default_reason.to_owned() } else { reason };
        let until = duration.map(|duration| SystemTime::now() + duration);
        let time = duration.map_or_else(
            || "until it is unblocked".to_owned(),
            |duration| format!("for {}", humantime::format_duration(duration)),
        );
        info!(
            "{prefix}: blocked {time}{}",
            if reason.is_empty() { String::new() } else { format!(": {reason}") }
        );
        self.handle.publish(What::Blocked { prefix, until, reason, origin: Origin::Command });
    }

    /// Ends blocks.
    pub(super) fn unblock(&mut self, prefixes: Vec<IpNet>) -> Result<Unblocked, Refusal> {
        let Some(keeper) = &mut self.keeper else {
            let message = "the rules file has no `network:` section, so nobody is blocked";
            return Err(Refusal::new(Kind::Conflict, message));
        };
        let mut removed = Vec::new();
        for prefix in prefixes {
            if keeper.blocks.unblock(prefix)? {
                removed.push(prefix);
            }
        }
        keeper.touch();
        for prefix in &removed {
            info!("{prefix}: unblocked");
            self.handle.publish(What::Unblocked { prefix: *prefix });
        }
        Ok(Unblocked { removed })
    }

    /// Returns when [`Self::keep_blocks`] has something to do.
    pub(super) async fn blocks_due(&self) {
        match &self.keeper {
            Some(keeper) => keeper.due().await,
            None => std::future::pending().await,
        }
    }

    /// Writes and sweeps.
    pub(super) fn keep_blocks(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.work();
        }
    }
}

impl Keeper {
    fn needs_room(&self, batch: &Batch, network: &Network) -> Result<bool, BlocksError> {
        let prefixes = batch.entries.iter().map(|entry| &entry.prefix);
        Ok(self.blocks.need(prefixes, network.blocks.capacity)?.is_some())
    }
}

/// Refuses blocks that would cut the operator off.
fn admit(batch: &Batch, network: &Network, session: &Session) -> Result<(), Refusal> {
    let mut prefixes = batch.entries.iter().map(|entry| &entry.prefix);
    match prefixes.find(|prefix| lockout::block_sheds(prefix, network, session)) {
        None => Ok(()),
        Some(prefix) => Err(Refusal::new(
            Kind::LockedOut,
            format!(
                "blocking {prefix} would cut off your own connection from {}; nobody was blocked. Put the \
                 address into `management` or `allow`, or use --force",
                session.client
            ),
        )),
    }
}

impl From<BlocksError> for Refusal {
    fn from(error: BlocksError) -> Self {
        Self::from_error(kind(&error), &error)
    }
}

/// What kind of refusal an error is.
pub(super) fn kind(error: &BlocksError) -> Kind {
    match error {
        BlocksError::Full { .. } => Kind::Full,
        BlocksError::HostBits { .. }
        | BlocksError::Mapped { .. }
        | BlocksError::NoTime
        | BlocksError::TooLong { .. }
        | BlocksError::LongReason { .. }
        | BlocksError::ControlCharacters => Kind::Invalid,
        _ => Kind::Failed,
    }
}
