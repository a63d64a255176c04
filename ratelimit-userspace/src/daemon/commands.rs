//! What the admin API asks for, done one after the other.

use std::fs;

use super::{
    DaemonError, blocks,
    reload::{Daemon, Reason},
    trial::ApplyError,
};
use crate::admin::{
    command::{Command, Configuration, Kind, ModeSet, Refusal, Reloaded, Session},
    schema::{Mode, What},
};

impl Daemon<'_> {
    /// Does what a command says and answers. Whoever asked may be gone by then.
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Reload { force, session, reply } => {
                let _ = reply.send(self.reload_on_command(session.filter(|_| !force)));
            }
            Command::Apply { text, confirm, force, session, reply } => {
                let outcome = self.apply(&text, confirm, session.filter(|_| !force));
                let _ = reply.send(outcome.map_err(Refusal::from));
            }
            Command::Confirm { id, reply } => {
                let _ = reply.send(self.confirm(&id).map_err(Refusal::from));
            }
            Command::Rollback { id, reply } => {
                let _ = reply.send(self.roll_back(&id, "somebody asked for it").map_err(Refusal::from));
            }
            Command::Mode { monitor, force, session, reply } => {
                let _ = reply.send(self.switch_mode(monitor, session.filter(|_| !force)));
            }
            Command::Config { reply } => {
                let _ = reply.send(self.configuration());
            }
            Command::Block { batch, force, session, reply } => {
                let _ = reply.send(self.block(batch, session.filter(|_| !force)));
            }
            Command::Unblock { prefixes, reply } => {
                let _ = reply.send(self.unblock(prefixes));
            }
        }
    }

    fn reload_on_command(&mut self, guarded: Option<Session>) -> Result<Reloaded, Refusal> {
        if let Some(trial) = &self.trial {
            return Err(ApplyError::OnTrial { id: trial.id.clone() }.into());
        }
        self.reload(Reason::Command, guarded).map_err(|error| Refusal::from(&error))
    }

    /// Sheds or only counts, whatever the rules file says.
    fn switch_mode(&mut self, monitor: bool, guarded: Option<Session>) -> Result<ModeSet, Refusal> {
        if let Some(trial) = &self.trial {
            return Err(ApplyError::OnTrial { id: trial.id.clone() }.into());
        }
        let mut config = self.config.clone();
        let Some(network) = &mut config.network else {
            let message = "the rules file has no `network:` section, so there is no mode to set";
            return Err(Refusal::new(Kind::Conflict, message));
        };
        if network.monitor == monitor {
            return Ok(ModeSet { changed: false });
        }
        network.monitor = monitor;
        self.put(config, "mode", guarded).map_err(|error| Refusal::from(&error))?;
        self.monitor = Some(monitor);
        self.handle.publish(What::ModeChanged { mode: if monitor { Mode::Monitor } else { Mode::Enforce } });
        Ok(ModeSet { changed: true })
    }

    /// The rules file as it is in force: on trial, as its text came.
    fn configuration(&self) -> Result<Configuration, Refusal> {
        let path = self.settings.rules_file.clone();
        let applied = self.trial.is_some();
        let source = self.trial.as_ref().map_or(path.as_path(), |trial| trial.text_file());
        let text = fs::read_to_string(source).map_err(|error| {
            Refusal::new(Kind::Failed, format!("failed to read {}: {error}", source.display()))
        })?;
        Ok(Configuration { path, applied, text })
    }
}

// === conversions ===

impl From<&DaemonError> for Refusal {
    fn from(error: &DaemonError) -> Self {
        let kind = match error {
            DaemonError::Config(_) | DaemonError::NoInterfaces(_) | DaemonError::Compile(_) => Kind::Invalid,
            DaemonError::LockedOut { .. } => Kind::LockedOut,
            DaemonError::Blocks(error) => blocks::kind(error),
            _ => Kind::Failed,
        };
        Self::from_error(kind, error)
    }
}

impl From<ApplyError> for Refusal {
    fn from(error: ApplyError) -> Self {
        let kind = match &error {
            ApplyError::OnTrial { .. } => Kind::Conflict,
            ApplyError::NoTrial { .. } => Kind::NotFound,
            ApplyError::Irreversible | ApplyError::Time => Kind::Invalid,
            ApplyError::Daemon(error) => return Self::from(error),
            ApplyError::Write { .. } | ApplyError::Unwritten { .. } | ApplyError::Restore(_) => Kind::Failed,
        };
        Self::from_error(kind, &error)
    }
}
