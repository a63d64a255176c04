//! Where blocks are kept: in the kernel, and for the next boot in a file.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use crate::{
    admin::command::{Batch, Kind, Refusal},
    config::policy::Network,
    daemon::{
        DaemonError, Place,
        network::{Enforcement, Occasion, Policy},
        reload::text,
    },
    network::{
        blocks::{Block, Blocks, BlocksError, NewBlock, Outcome, Saved},
        compile::SourceBits,
        overrides::Overrides,
        state::StateDir,
    },
};

/// The file in the state directory that holds them.
const FILE: &str = "blocks.json";
/// Changes are written this long after the first of them: at most that much is forgotten after a crash of
/// the host. What a crash of the daemon leaves is in the kernel.
const SAVE: Duration = Duration::from_secs(1);
/// How often what has ended is swept out.
const SWEEP: Duration = Duration::from_secs(30);

/// The blocks, and where they are kept.
pub(in crate::daemon) struct Keeper {
    blocks: Blocks,
    /// Clients that are put under a rule instead.
    overrides: Overrides,
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
    pub(in crate::daemon) fn open(
        place: &Place,
        enforcement: &Enforcement,
        policy: Policy<'_>,
        fresh: bool,
    ) -> Result<Self, DaemonError> {
        let file = prepare(place)?;
        let mut keeper = Self {
            blocks: Blocks::open(enforcement.state())?,
            overrides: Overrides::open(enforcement.state())?,
            file,
            save: None,
            sweep: Instant::now() + SWEEP,
            failing: false,
        };
        // The files may have changed while nobody ran.
        keeper.follow(enforcement.state(), policy.network);
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
    pub(in crate::daemon) fn make_room<'a>(
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
    pub(in crate::daemon) async fn due(&self) {
        sleep_until(self.save.map_or(self.sweep, |save| save.min(self.sweep))).await;
    }

    /// Writes what changed, and sweeps what has ended.
    pub(in crate::daemon) fn work(&mut self) {
        let now = Instant::now();
        if self.save.is_some_and(|save| save <= now) {
            self.write();
        }
        if self.sweep <= now {
            self.sweep = now + SWEEP;
            if let Err(error) = self.blocks.sweep().and_then(|()| self.overrides.sweep()) {
                warn!("failed to sweep out blocks that have ended: {}", text(&error));
            }
        }
    }

    /// Writes the blocks now.
    pub(in crate::daemon) fn write(&mut self) {
        self.save = None;
        let Some(file) = &self.file else { return };
        let written = self.blocks.save(file);
        if let (Err(error), false) = (&written, self.failing) {
            warn!("blocks would not outlive a reboot: {}", text(error));
        }
        self.failing = written.is_err();
    }

    /// Whether exactly this prefix is blocked, by a command, or put under a rule.
    pub(in crate::daemon) fn holds(&self, prefix: IpNet) -> Result<bool, BlocksError> {
        Ok(self.blocks.exactly(prefix)?.is_some() || self.overrides.find(prefix.addr())?.is_some())
    }

    /// The block of exactly this prefix that a command made.
    pub(in crate::daemon) fn exactly(&self, prefix: IpNet) -> Result<Option<Block>, BlocksError> {
        self.blocks.exactly(prefix)
    }

    /// All blocks.
    pub(in crate::daemon) fn for_each(&self, visit: impl FnMut(Block)) -> Result<(), BlocksError> {
        self.blocks.for_each(visit)
    }

    /// Ends the block of exactly this prefix; whether there was one.
    pub(in crate::daemon) fn end(&mut self, prefix: IpNet) -> Result<bool, BlocksError> {
        self.touch();
        self.blocks.unblock(prefix)
    }

    /// Blocks many, for whom there is room.
    pub(in crate::daemon) fn block_all(&mut self, entries: impl IntoIterator<Item = NewBlock>) -> Outcome {
        self.touch();
        self.blocks.block_all(entries)
    }

    /// Puts a client under a rule.
    pub(in crate::daemon) fn put_under(
        &mut self,
        client: IpNet,
        rule: &str,
        time: Duration,
    ) -> Result<(), Refusal> {
        if self.overrides.put(client, rule, time)? {
            return Ok(());
        }
        Err(Refusal::new(Kind::Conflict, format!("the policy in force has no rule `{rule}`")))
    }

    /// Another policy is in force.
    pub(in crate::daemon) fn follow(&mut self, state: &StateDir, network: &Network) {
        self.blocks.retain_rule_blocks(SourceBits::of(network));
        if let Err(error) = self.overrides.follow(state) {
            warn!("clients may be under rules that stand elsewhere now: {}", text(&error));
        }
    }

    /// Ends whatever holds for exactly this prefix; whether anything did.
    pub(in crate::daemon) fn release(&mut self, prefix: IpNet) -> Result<bool, BlocksError> {
        self.touch();
        let unblocked = self.blocks.unblock(prefix)?;
        Ok(self.overrides.release(prefix)? || unblocked)
    }

    pub(in crate::daemon) fn needs_room(
        &self,
        batch: &Batch,
        network: &Network,
    ) -> Result<bool, BlocksError> {
        let prefixes = batch.entries.iter().map(|entry| &entry.prefix);
        Ok(self.blocks.need(prefixes, network.blocks.capacity)?.is_some())
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
