//! `apply`: another rules file in force, given as its text, on trial or for good.
//!
//! The text is read as if it stood in the rules file, and is written there only when it stays; until then a
//! restart of the daemon goes back. So does the deadline, and if this process does not live to see it, a
//! [`guard`](super::guard) does.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use super::{DaemonError, guard, reload::Daemon};
use crate::{
    admin::{
        command::{Applied, Session},
        schema::{self, What},
    },
    config::{self, policy::Config},
    network::trial,
};

/// The longest and the shortest trial.
pub(super) const TRIAL: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_hours(1);

/// A policy in force that goes again unless it is confirmed.
pub(super) struct Trial {
    pub(super) id: String,
    pub(super) ends: Instant,
    /// What was in force before.
    before: Config,
    monitor_before: Option<bool>,
    file: NewFile,
}

/// Why a text is not applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// Another one is on trial.
    #[error("another policy is on trial (id {id}): confirm it or roll it back first")]
    OnTrial { id: String },
    /// There is no such trial.
    #[error("no policy with the id {id} is on trial: it was confirmed or rolled back already")]
    NoTrial { id: String },
    /// The trial could not be undone.
    #[error(
        "on trial, `sources.capacity` must stay as it is, and so must whether there is a `network:` section: \
         a rollback could not bring back the buckets that such a change empties; apply it without --confirm"
    )]
    Irreversible,
    /// The time is out of range.
    #[error("a trial lasts from 5 s to 1 h")]
    Time,
    /// The rules file cannot be replaced.
    #[error("failed to write the rules file {}, so nothing was changed", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The policy is in force, but will not outlive the daemon.
    #[error(
        "the policy is in force, but the rules file {} could not be replaced: the next reload or start goes \
         back to what it says", path.display()
    )]
    Unwritten { path: PathBuf, source: io::Error },
    /// The text is not a policy, or cannot be enforced.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The generation before cannot be put back.
    #[error("failed to go back to the policy before: {0}")]
    Restore(#[from] trial::RestoreError),
}

/// A rules file that was written beside the one in use. Dropping it removes it.
struct NewFile {
    temporary: tempfile::NamedTempFile,
    target: PathBuf,
}

// === impl Daemon ===

impl Daemon<'_> {
    /// Puts the text of a rules file in force. With `confirm`, what was in force comes back unless
    /// [`Self::confirm`] is called in time.
    pub(super) fn apply(
        &mut self,
        text: &str,
        confirm: Option<Duration>,
        guarded: Option<Session>,
    ) -> Result<Applied, ApplyError> {
        let began = std::time::Instant::now();
        if let Some(trial) = &self.trial {
            return Err(ApplyError::OnTrial { id: trial.id.clone() });
        }
        if confirm.is_some_and(|time| !TRIAL.contains(&time)) {
            return Err(ApplyError::Time);
        }
        let path = &self.settings.rules_file;
        let config::Loaded { config, warnings } =
            config::parse(text.as_bytes(), path).map_err(DaemonError::from)?;
        let capacity = |config: &Config| config.network.as_ref().map(|network| network.sources.capacity);
        if confirm.is_some() && capacity(&config) != capacity(&self.config) {
            return Err(ApplyError::Irreversible);
        }
        // Whether it can be written is known before anything changes.
        let file =
            NewFile::stage(path, text).map_err(|source| ApplyError::Write { path: path.clone(), source })?;

        let before = self.config.clone();
        // The text says the mode, whatever a command said before.
        let monitor_before = self.monitor.take();
        let restore_mode = |daemon: &mut Self| daemon.monitor = monitor_before;
        let changed = config != before;
        let kept = match (&self.enforcement, confirm) {
            (Some(enforcement), Some(_)) => trial::keep(enforcement.state()).map_err(|source| {
                DaemonError::Program { verb: "keep the program that runs, to go back to it", source }
            }),
            _ => Ok(false),
        };
        let in_force = kept.and_then(|_| self.put(config, "apply", guarded));
        let in_force = match in_force {
            Ok(in_force) => in_force,
            Err(error) => {
                self.end_trial_pins();
                restore_mode(self);
                return Err(error.into());
            }
        };
        let reloaded = self.reloaded(changed, &warnings, began);
        let Some(time) = confirm else {
            self.install(file)?;
            self.handle.publish(What::Applied { trial: String::new(), deadline: None });
            return Ok(Applied { id: String::new(), deadline: None, reloaded });
        };
        // A program's id is never used again while the host is up; without a new program there is nothing
        // in the kernel to undo.
        let id = in_force.map_or_else(|| "requests".to_owned(), |in_force| in_force.program_id.to_string());
        if let Some(in_force) = in_force {
            guard::spawn(self.settings, in_force.program_id, time);
        } else {
            self.end_trial_pins();
        }
        let (ends, deadline) = (Instant::now() + time, SystemTime::now() + time);
        warn!(
            "a policy is on trial (id {id}): what was in force comes back in {time:?} unless it is confirmed"
        );
        self.trial = Some(Trial { id: id.clone(), ends, before, monitor_before, file });
        self.handle.set_trial(Some(schema::Trial { id: id.clone(), deadline }));
        self.handle.publish(What::Applied { trial: id.clone(), deadline: Some(deadline) });
        Ok(Applied { id, deadline: Some(deadline), reloaded })
    }

    /// Keeps what is on trial, and writes it to the rules file.
    pub(super) fn confirm(&mut self, id: &str) -> Result<(), ApplyError> {
        let trial = self.take_trial(id)?;
        self.end_trial_pins();
        self.install(trial.file)?;
        info!("the policy on trial (id {id}) is confirmed");
        self.handle.publish(What::Confirmed { trial: id.to_owned() });
        Ok(())
    }

    /// Goes back to what was in force before the trial.
    pub(super) fn roll_back(&mut self, id: &str, cause: &str) -> Result<(), ApplyError> {
        let trial = self.take_trial(id)?;
        self.monitor = trial.monitor_before;
        let before = trial.before;
        if let Some(enforcement) = self.enforcement.as_ref().filter(|it| trial::is_on(it.state())) {
            trial::restore(enforcement.state())?;
            // Its packets are limited as before already.
            self.config.network.clone_from(&before.network);
            self.config.interfaces.clone_from(&before.interfaces);
        }
        self.put(before, "rollback", None)?;
        info!("the policy on trial (id {id}) is rolled back: {cause}");
        self.handle.publish(What::RolledBack { trial: id.to_owned(), cause: cause.to_owned() });
        Ok(())
    }

    /// Returns when the trial's time is over; never without one.
    pub(super) async fn trial_ends(&self) {
        match &self.trial {
            Some(trial) => sleep_until(trial.ends).await,
            None => std::future::pending().await,
        }
    }

    /// Goes back because nobody confirmed.
    pub(super) fn give_up_trial(&mut self) {
        let Some(trial) = &self.trial else { return };
        let id = trial.id.clone();
        if let Err(error) = self.roll_back(&id, "nobody confirmed it in time") {
            error!("{}", super::reload::text(&error));
        }
    }

    fn install(&self, file: NewFile) -> Result<(), ApplyError> {
        let path = self.settings.rules_file.clone();
        file.install().map_err(|source| ApplyError::Unwritten { path, source })
    }

    fn take_trial(&mut self, id: &str) -> Result<Trial, ApplyError> {
        let trial = self.trial.take_if(|trial| trial.id == id);
        let trial = trial.ok_or_else(|| ApplyError::NoTrial { id: id.to_owned() })?;
        self.handle.set_trial(None);
        Ok(trial)
    }

    fn end_trial_pins(&self) {
        let Some(enforcement) = &self.enforcement else { return };
        if let Err(error) = trial::end(enforcement.state()) {
            let directory = enforcement.state().state();
            error!("failed to remove what is left of a trial in {}: {error}", directory.display());
        }
    }
}

// === impl Trial ===

impl Trial {
    /// The file that holds the text on trial.
    pub(super) fn text_file(&self) -> &Path {
        self.file.temporary.path()
    }
}

// === impl NewFile ===

impl NewFile {
    /// Writes the text beside the rules file, with the permissions that one has.
    fn stage(rules_file: &Path, text: &str) -> io::Result<Self> {
        // A symbolic link stays one.
        let target = fs::canonicalize(rules_file)?;
        let directory = target.parent().unwrap_or_else(|| Path::new("/"));
        // The name is one that nobody reads rules from.
        let mut temporary = tempfile::Builder::new().prefix(".ratelimit-").tempfile_in(directory)?;
        temporary.write_all(text.as_bytes())?;
        let metadata = fs::metadata(&target)?;
        temporary.as_file().set_permissions(metadata.permissions())?;
        std::os::unix::fs::fchown(
            temporary.as_file(),
            Some(std::os::unix::fs::MetadataExt::uid(&metadata)),
            Some(std::os::unix::fs::MetadataExt::gid(&metadata)),
        )?;
        temporary.as_file().sync_all()?;
        Ok(Self { temporary, target })
    }

    /// Puts it in the place of the rules file, atomically.
    fn install(self) -> io::Result<()> {
        let Self { temporary, target } = self;
        temporary.persist(&target).map_err(|error| error.error)?;
        // The rename itself must outlive a power cut.
        let directory = target.parent().unwrap_or_else(|| Path::new("/"));
        fs::File::open(directory)?.sync_all()
    }
}
