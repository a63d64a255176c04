//! The daemon: a rules file in, a program on every interface and listeners for requests out, then
//! waiting for the end.
//!
//! Everything is read and checked before anything changes. The two halves know nothing of each other:
//! `network` sheds packets, `http` answers for requests.

mod http;
mod network;
mod watch;

use std::{io, path::PathBuf, pin::pin, thread};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use self::{
    http::{HttpError, Requests},
    network::Enforcement,
    watch::Watch,
};
use crate::{
    config::{self, policy::Config},
    network::{
        compile::CompileError,
        kernel::Lacking,
        links::{Links, LinksError},
        program::LoadError,
        state::{StateDir, StateError},
    },
};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rules file.
    pub rules_file: PathBuf,
    /// Where links and state are pinned.
    pub pin_dir: PathBuf,
}

/// Why the daemon ends other than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The rules file cannot be read or is invalid.
    #[error(transparent)]
    Config(#[from] config::Failure),
    /// There is a policy but nothing to put it on.
    #[error(
        "{} has a `network:` section but no `interfaces:`; name at least one, as in `interfaces: [{{ name: \
         eth0 }}]`", .0.display()
    )]
    NoInterfaces(PathBuf),
    /// The host lacks something.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// Pinned state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The policy has no compiled form.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The kernel does not take the program.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An interface does not take the program.
    #[error(transparent)]
    Links(#[from] LinksError),
    /// The program cannot be pinned or asked for its id.
    #[error("failed to {verb}")]
    Program {
        /// What was tried.
        verb: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The limits on requests cannot be put in force.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The process cannot wait for signals.
    #[error("failed to wait for signals")]
    Signals(#[source] io::Error),
    /// Somebody else removed what this daemon pinned.
    #[error(
        "the links in {} are gone: somebody detached ratelimit, so nothing is enforced any more; start the \
         daemon again to enforce", .0.display()
    )]
    Detached(PathBuf),
}

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: &Settings) -> Result<(), DaemonError> {
    let config::Loaded { config, warnings } = config::load(&settings.rules_file)?;
    for warning in &warnings {
        warn!("{warning}");
    }
    // Packets need no thread of this process; requests may have as many as there are processors.
    let several = thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    let mut runtime = if config.http.is_some() && several {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build().map_err(DaemonError::Signals)?;
    runtime.block_on(serve(settings, config))
}

async fn serve(settings: &Settings, config: Config) -> Result<(), DaemonError> {
    // Caught before anything changes, so that a signal during the start ends in a clean stop.
    let mut signals = Signals::new().map_err(DaemonError::Signals)?;
    // Bound before packets are shed: an address that is taken must leave no half of the work behind.
    let requests = match &config.http {
        Some(http) => Some(Requests::bind(http)?),
        None => None,
    };
    let enforcement = if let Some(network) = &config.network {
        Some(Enforcement::start(settings, &config, network)?)
    } else {
        tell_of_no_policy(settings);
        None
    };
    let requests = requests.map(Requests::serve);

    let on_stop = config.network.as_ref().map(|network| network.on_stop);
    let mut daemon = Daemon { settings, config, failure: None, requests };
    let mut watch = Watch::new();
    watch.follow(daemon.files());
    // What changed between being read and being watched.
    daemon.reload("a changed file");
    let outcome = {
        let mut removal = pin!(async {
            match &enforcement {
                Some(enforcement) => enforcement.removal().await,
                None => std::future::pending().await,
            }
        });
        loop {
            tokio::select! {
                event = signals.next() => match event {
                    Event::Stop(signal) => break Ok(signal),
                    Event::Reload => daemon.reload(SIGHUP),
                },
                () = watch.changed() => daemon.reload("a changed file"),
                () = &mut removal => break Err(DaemonError::Detached(StateDir::new(&settings.pin_dir).links())),
            }
            watch.follow(daemon.files());
        }
    };
    if let Some(requests) = daemon.requests {
        requests.stop().await;
    }
    let signal = outcome?;
    if let Some((enforcement, on_stop)) = enforcement.zip(on_stop) {
        return enforcement.stop(on_stop, signal);
    }
    info!("stopping on {signal}");
    Ok(())
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

/// What the files said, and what serves it.
struct Daemon<'a> {
    settings: &'a Settings,
    /// As last read without mistakes.
    config: Config,
    /// What was wrong with the files when they were read last, so that it is told once.
    failure: Option<String>,
    requests: Option<http::Serving>,
}

impl Daemon<'_> {
    /// The files that the configuration was read from.
    fn files(&self) -> Vec<PathBuf> {
        self.config.files(&self.settings.rules_file)
    }

    /// Reads the files again. What is wrong changes nothing.
    fn reload(&mut self, reason: &str) {
        let config::Loaded { config, warnings } = match config::load(&self.settings.rules_file) {
            Ok(loaded) => loaded,
            Err(failure) => {
                let failure = failure.to_string();
                if self.failure.as_ref() != Some(&failure) {
                    warn!("{reason}: the files are not used, what was in force still is:\n{failure}");
                    self.failure = Some(failure);
                }
                if let Some(requests) = &self.requests {
                    requests.reload_failed();
                }
                return;
            }
        };
        let recovered = self.failure.take().is_some();
        if config == self.config && !recovered {
            if let (Some(requests), Some(http)) = (&self.requests, &config.http) {
                requests.refresh(http, reason);
            }
            if reason == SIGHUP {
                info!("{reason}: the configuration has not changed");
            }
            return;
        }
        for warning in &warnings {
            warn!("{warning}");
        }
        if config.network != self.config.network || config.interfaces != self.config.interfaces {
            warn!(
                "{reason}: the layer 3/4 policy has changed; that takes effect when the daemon is started again, \
                 without a gap and with all buckets and counters"
            );
        }
        match (&self.requests, &config.http) {
            (Some(requests), Some(http)) => requests.reload(http, reason),
            (None, None) => {}
            (None, Some(_)) | (Some(_), None) => warn!(
                "{reason}: an `http:` section that comes or goes takes effect when the daemon is started again"
            ),
        }
        self.config = config;
    }
}

/// The reason for a reload that somebody asked for.
const SIGHUP: &str = "SIGHUP";

/// What a signal asks for.
enum Event {
    /// The end, and which signal it was.
    Stop(&'static str),
    /// Another look at the files.
    Reload,
}

/// The signals that the daemon acts upon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
            _ = self.hang_up.recv() => Event::Reload,
        }
    }
}
