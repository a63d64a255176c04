//! What is in force, and how something else comes to be: all of it or nothing.

use std::{fmt, path::PathBuf, time::Instant};

use tracing::{error, info, warn};

use super::{
    DaemonError, Place, Settings,
    blocks::Keeper,
    crowdsec::Reading,
    escalation::OwnAddresses,
    http::{HttpError, Requests, Serving},
    network::{Enforcement, InForce, Occasion, Policy},
    samples::Telling,
    trial::Trial,
};
use crate::{
    admin::{
        command::{Reloaded, Session},
        handle::Handle,
        schema::What,
        server::{self, Server, ServerError},
    },
    config::{
        self,
        diagnostic::Diagnostic,
        http::Domain,
        policy::{Admin, Config, OnStop},
    },
    escalate::Escalation,
    network::{links::Links, state::StateDir, trial},
};

/// What the files said, and what enforces it.
pub(super) struct Daemon<'a> {
    pub(super) settings: &'a Settings,
    /// What is in force.
    pub(super) config: Config,
    /// The mode that a command set; the file's does not count until one of them says what the other does.
    pub(super) monitor: Option<bool>,
    /// What was wrong when the files were read last, so that it is told once.
    pub(super) failure: Option<String>,
    pub(super) enforcement: Option<Enforcement>,
    pub(super) requests: Option<Serving>,
    pub(super) trial: Option<Trial>,
    /// There while packets are limited.
    pub(super) keeper: Option<Keeper>,
    /// Whose requests have their packets shed.
    pub(super) escalation: Escalation,
    pub(super) own_addresses: OwnAddresses,
    /// Decisions that are blocks as well.
    pub(super) crowdsec: Reading,
    /// What the admin API sees of all this.
    pub(super) handle: Handle,
    admin: Server,
    telling: Option<Telling>,
}

/// Why the files are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// One of them may have changed.
    File,
    /// SIGHUP.
    Signal,
    /// The admin API.
    Command,
}

// === impl Daemon ===

impl<'a> Daemon<'a> {
    /// Puts a configuration in force for the first time.
    pub(super) fn start(
        settings: &'a Settings,
        config: Config,
        handle: Handle,
        escalation: Escalation,
        crowdsec: Reading,
    ) -> Result<Self, DaemonError> {
        // Bound before packets are shed: an address that is taken must leave no half of the work behind.
        let requests = match &config.http {
            Some(http) => Some(Requests::bind(http)?),
            None => None,
        };
        // The lock comes before the socket: a second daemon is told who the first is.
        let enforcement = Policy::of(&config).map(|_| Enforcement::take(settings)).transpose()?;
        let (admin, prepared) = match listen(&settings.admin_socket, &config.admin, handle.clone()) {
            Ok(listening) => listening,
            Err(error) => {
                if let Some(enforcement) = enforcement {
                    enforcement.abandon();
                }
                return Err(error.into());
            }
        };
        let mut daemon = Self {
            settings,
            config,
            monitor: None,
            failure: None,
            enforcement: None,
            requests: None,
            trial: None,
            keeper: None,
            escalation,
            own_addresses: OwnAddresses::default(),
            crowdsec,
            handle,
            admin,
            telling: None,
        };
        match enforcement {
            Some(enforcement) => daemon.begin(enforcement)?,
            None => tell_of_no_policy(settings),
        }
        daemon.escalation.follow(&daemon.config);
        daemon.crowdsec.follow(&daemon.config);
        if let Some(requests) = requests {
            let requests = requests.serve(daemon.escalation.witness());
            daemon.handle.serve_requests(requests.shared());
            daemon.requests = Some(requests);
        }
        daemon.admin.put(prepared);
        Ok(daemon)
    }

    /// Puts the first policy on packets in force, and opens the blocks.
    fn begin(&mut self, enforcement: Enforcement) -> Result<(), DaemonError> {
        let Some(policy) = Policy::of(&self.config) else { return Ok(()) };
        let fresh = match enforcement.begin(policy) {
            Ok(fresh) => fresh,
            Err(error) => {
                enforcement.abandon();
                return Err(error);
            }
        };
        forget_trial(enforcement.state());
        self.keeper = Some(Keeper::open(&self.settings.state_dir, &enforcement, policy, fresh)?);
        self.telling = Telling::begin(enforcement.state(), self.handle.clone());
        self.enforcement = Some(enforcement);
        Ok(())
    }

    /// The files that the configuration was read from.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.config.files(&self.settings.rules_file)
    }

    /// Returns when somebody removed what this daemon pinned.
    pub(super) async fn removal(&self) {
        match &self.enforcement {
            Some(enforcement) => enforcement.removal().await,
            None => std::future::pending().await,
        }
    }

    /// Reads the files again. What is wrong is told once and changes nothing.
    pub(super) fn reload(
        &mut self,
        reason: Reason,
        guarded: Option<Session>,
    ) -> Result<Reloaded, DaemonError> {
        let began = Instant::now();
        if self.trial.is_some() {
            info!("{reason}: looked at when the trial has ended");
            return Ok(self.reloaded(false, &[], began));
        }
        let outcome = config::load(&self.settings.rules_file).map_err(DaemonError::from).and_then(|loaded| {
            let config::Loaded { mut config, warnings } = loaded;
            self.set_mode(&mut config);
            let changed = config != self.config;
            if changed {
                for warning in &warnings {
                    warn!("{warning}");
                }
                self.put(config, &reason.to_string(), guarded)?;
            } else {
                self.refresh()?;
            }
            Ok(self.reloaded(changed, &warnings, began))
        });
        match &outcome {
            Ok(reloaded) => self.tell_success(reloaded, reason),
            Err(error) => self.tell_failure(error, reason),
        }
        outcome
    }

    /// What is in force now, for whoever asked for it.
    pub(super) fn reloaded(&self, changed: bool, warnings: &[Diagnostic], began: Instant) -> Reloaded {
        let Config { network, http, .. } = &self.config;
        let packets = network.as_ref().map_or(0, |network| network.rules.len());
        let requests: usize = http.iter().flat_map(|http| &http.domains).map(Domain::rule_count).sum();
        Reloaded {
            changed,
            rules: packets + requests,
            warnings: warnings.iter().map(ToString::to_string).collect(),
            milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Puts another configuration in force. After an error the one before still is.
    pub(super) fn put(
        &mut self,
        config: Config,
        reason: &str,
        guarded: Option<Session>,
    ) -> Result<Option<InForce>, DaemonError> {
        // What can fail without having changed anything comes first.
        let admin = self.admin.prepare(&config.admin)?;
        let prepared = match (&self.requests, &config.http) {
            (Some(requests), Some(http)) => Some(requests.prepare(http).map_err(HttpError::from)?),
            (None, None) => None,
            (None, Some(_)) | (Some(_), None) => {
                warn!(
                    "{reason}: an `http:` section that comes or goes takes effect when the daemon is started \
                     again"
                );
                None
            }
        };
        let in_force = match (&self.enforcement, Policy::of(&config)) {
            (Some(enforcement), Some(policy)) if Some(policy) != Policy::of(&self.config) => {
                Some(enforcement.apply(policy, Occasion::Reload { reason, guarded })?)
            }
            (Some(_), Some(_)) | (None, None) => None,
            (None, Some(_)) => {
                let before = std::mem::replace(&mut self.config, config.clone());
                let begun = Enforcement::take(self.settings).and_then(|enforcement| self.begin(enforcement));
                begun.inspect_err(|_| self.config = before)?;
                None
            }
            (Some(_), None) => {
                self.telling = None;
                if let Some(mut keeper) = self.keeper.take() {
                    keeper.write();
                }
                if let Some(enforcement) = self.enforcement.take() {
                    let names = enforcement.detach()?;
                    info!("{reason}: no `network:` section any more, detached from {}", names.join(", "));
                }
                None
            }
        };
        self.admin.put(admin);
        if let (Some(requests), Some(prepared)) = (&self.requests, prepared) {
            if self.config.http == config.http {
                requests.refresh(prepared);
            } else {
                requests.put(prepared, reason);
            }
        }
        self.config = config;
        self.escalation.follow(&self.config);
        self.crowdsec.follow(&self.config);
        if let (Some(keeper), Some(enforcement), Some(network)) =
            (&mut self.keeper, &self.enforcement, &self.config.network)
        {
            keeper.follow(enforcement.state(), network);
        }
        Ok(in_force)
    }

    /// Reads anew what an unchanged configuration only names: the token files.
    fn refresh(&mut self) -> Result<(), DaemonError> {
        let admin = self.admin.prepare(&self.config.admin)?;
        self.admin.put(admin);
        if let (Some(requests), Some(http)) = (&self.requests, &self.config.http) {
            requests.refresh(requests.prepare(http).map_err(HttpError::from)?);
        }
        Ok(())
    }

    /// Writes the mode that a command set over the file's, until both say the same.
    fn set_mode(&mut self, config: &mut Config) {
        let Some(network) = &mut config.network else { return };
        match self.monitor {
            Some(monitor) if monitor != network.monitor => network.monitor = monitor,
            _ => self.monitor = None,
        }
    }

    fn tell_success(&mut self, reloaded: &Reloaded, reason: Reason) {
        let recovered = self.failure.take().is_some();
        if !reloaded.changed {
            if recovered || reason != Reason::File {
                info!("{reason}: the configuration has not changed");
            }
            if let Some(requests) = self.requests.as_ref().filter(|_| recovered) {
                requests.reload_recovered();
            }
        }
        // Most changes beside the files are none to them, and nobody wants to hear of those.
        if reloaded.changed || recovered || reason != Reason::File {
            self.handle.reload_succeeded(&reason.to_string(), reloaded);
        }
    }

    fn tell_failure(&mut self, error: &DaemonError, reason: Reason) {
        let failure = text(error);
        if self.failure.as_ref() != Some(&failure) {
            warn!("{reason}: the files are not used, what was in force still is:\n{failure}");
            self.handle.reload_failed(&reason.to_string(), &failure);
            if let Some(requests) = &self.requests {
                requests.reload_failed();
            }
            self.failure = Some(failure);
        }
    }

    /// Ends: requests are finished, and the policy stays or goes as it says.
    pub(super) async fn stop(self, outcome: Result<&'static str, DaemonError>) -> Result<(), DaemonError> {
        self.handle.publish(What::Stopping);
        self.admin.stop().await;
        if let Some(requests) = self.requests {
            requests.stop().await;
        }
        if let Some(mut keeper) = self.keeper {
            keeper.write();
        }
        let signal = outcome?;
        let on_stop = self.config.network.as_ref().map_or_else(OnStop::default, |network| network.on_stop);
        if let Some(enforcement) = self.enforcement {
            return enforcement.stop(on_stop, signal);
        }
        info!("stopping on {signal}");
        Ok(())
    }
}

/// Listens for commands, and reads what is needed to do so over TCP.
fn listen(socket: &Place, config: &Admin, handle: Handle) -> Result<(Server, server::Prepared), ServerError> {
    let mut admin = Server::start(handle)?;
    match admin.listen(&socket.path) {
        Err(error) if socket.given => return Err(error),
        Err(error) => warn!("commands are not listened for: {}", text(&error)),
        Ok(()) => {}
    }
    let prepared = admin.prepare(config)?;
    Ok((admin, prepared))
}

/// Says that packets are not limited, or are still by an earlier start.
fn tell_of_no_policy(settings: &Settings) {
    info!("{}: no `network:` section, nothing to enforce at layers 3 and 4", settings.rules_file.display());
    let standing = Links::new(StateDir::new(&settings.pin_dir).links()).pins();
    if standing.is_ok_and(|pins| !pins.is_empty()) {
        warn!(
            "the policy of an earlier start is still in force, see `ratelimit status`; `ratelimit detach` ends it"
        );
    }
}

/// A trial that a daemon before left: what is in force now came from the files, which it never reached.
fn forget_trial(state: &StateDir) {
    if trial::is_on(state) {
        info!("a policy was on trial when the daemon ended: the rules file is in force again");
    }
    if let Err(error) = trial::end(state) {
        error!("failed to remove what is left of a trial in {}: {error}", state.state().display());
    }
}

/// An error with its causes.
pub(super) fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // Transparent errors repeat their source.
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a changed file",
            Self::Signal => "SIGHUP",
            Self::Command => "reload",
        })
    }
}
