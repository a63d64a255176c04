//! The daemon: a rules file in, a program on every interface and listeners for requests out, then
//! waiting for the end.
//!
//! Everything is read and checked before anything changes. The two halves know nothing of each other:
//! `network` sheds packets, `http` answers for requests.

mod blocks;
mod commands;
mod crowdsec;
mod escalation;
mod follow;
pub mod guard;
mod http;
mod network;
mod reload;
mod samples;
mod trial;
mod watch;

use std::{
    io,
    path::{Path, PathBuf},
    thread,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use tracing::warn;

use self::{
    follow::Following,
    http::HttpError,
    reload::{Daemon, Reason},
    watch::Watch,
};
use crate::{
    admin::{command, handle::Handle, server::ServerError},
    config::{self, policy::Config},
    escalate,
    network::{
        blocks::BlocksError,
        compile::CompileError,
        kernel::Lacking,
        links::LinksError,
        next::NextError,
        program::LoadError,
        state::{StateDir, StateError},
    },
};

/// Where what must outlive a reboot is kept, unless the command line says otherwise.
pub const STATE_DIR: &str = "/var/lib/ratelimit";
/// Clients that were denied too often and are dealt with at a time.
const CROSSINGS: usize = 64;
/// Where the admin API listens, unless the command line says otherwise.
pub const ADMIN_SOCKET: &str = "/run/ratelimit/admin.sock";

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rules file.
    pub rules_file: PathBuf,
    /// Where links and state are pinned.
    pub pin_dir: PathBuf,
    /// Where blocks are kept for the next boot.
    pub state_dir: Place,
    /// Where the admin API listens.
    pub admin_socket: Place,
    /// The program tells of single packets.
    pub trace: bool,
}

/// A place on disk, and whether somebody asked for it: then it must be usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where.
    pub path: PathBuf,
    /// Whether the command line names it.
    pub given: bool,
}

impl Place {
    /// The one that was given, else the default.
    pub fn new(given: Option<&Path>, default: &Path) -> Self {
        Self { path: given.unwrap_or(default).to_owned(), given: given.is_some() }
    }
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
    /// The policy would cut the operator off.
    #[error(
        "this policy would shed your own connection from {client}: {why}. Nothing was changed; put the \
         address into `management` or `allow`, or use --force"
    )]
    LockedOut {
        /// Where the operator sits.
        client: std::net::SocketAddr,
        /// Which list or rule.
        why: String,
    },
    /// The program that is to get what passes cannot be had.
    #[error(transparent)]
    Next(#[from] NextError),
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
    /// The admin API cannot be served.
    #[error(transparent)]
    Admin(#[from] ServerError),
    /// The state directory that was asked for cannot be used.
    #[error("failed to make the state directory {}", path.display())]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Blocks cannot be read or made.
    #[error(transparent)]
    Blocks(Box<BlocksError>),
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

impl From<BlocksError> for DaemonError {
    fn from(error: BlocksError) -> Self {
        Self::Blocks(Box::new(error))
    }
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
    let (commands, mut inbox) = mpsc::channel(command::QUEUE);
    let handle = Handle::new(StateDir::new(&settings.pin_dir), commands);
    // Before the first look at the interfaces, so that none comes unnoticed.
    let mut following = Following::new();
    let (escalation, mut crossings) = escalate::escalation();
    let mut crossed = Vec::new();
    let (updates, mut decisions) = crate::crowdsec::updates();
    let reading = crowdsec::Reading::new(updates);
    let mut daemon = Daemon::start(settings, config, handle, escalation, reading)?;
    let mut watch = Watch::new();
    watch.follow(daemon.files());
    // What changed between being read and being watched.
    let _ = daemon.reload(Reason::File, None);
    let outcome = loop {
        tokio::select! {
            event = signals.next() => match event {
                Event::Stop(signal) => break Ok(signal),
                // What went wrong is in the log.
                Event::Reload => drop(daemon.reload(Reason::Signal, None)),
            },
            Some(command) = inbox.recv() => daemon.obey(command),
            () = watch.changed() => drop(daemon.reload(Reason::File, None)),
            () = following.changed() => daemon.follow(&mut following),
            () = daemon.trial_ends() => daemon.give_up_trial(),
            1.. = crossings.recv_many(&mut crossed, CROSSINGS) => daemon.escalate(&mut crossed),
            Some(update) = decisions.recv() => daemon.take_decisions(update),
            () = daemon.blocks_due() => daemon.keep_blocks(),
            () = daemon.removal() => {
                break Err(DaemonError::Detached(StateDir::new(&settings.pin_dir).links()));
            }
        }
        while watch.follow(daemon.files()) {
            let _ = daemon.reload(Reason::File, None);
        }
    };
    daemon.stop(outcome).await
}

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
