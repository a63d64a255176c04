//! The command line: one file a verb. Everything that decides lives in the library; here arguments come
//! in, text goes out, and an error becomes one line and an exit code.

mod apply;
mod block;
mod blocks;
mod check;
mod completions;
mod counters;
mod daemon;
mod detach;
mod doctor;
mod events;
mod explain;
mod guard;
mod mode;
mod output;
mod question;
mod reload;
mod replay;
mod reset;
mod rules;
mod show;
mod sources;
mod status;
mod target;
mod unblock;

use std::{
    error::Error,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use ratelimit::{
    config,
    daemon::DaemonError,
    network::{
        kernel::Lacking,
        state::{self, StateError},
    },
    replay::capture::CaptureError,
};

/// What a command says to its caller, the same for every verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// What was asked for failed, or the rules file is invalid.
    Failure,
    /// Bad usage, or a file that cannot be read.
    Usage,
    /// A privilege or a kernel feature is missing.
    Unsupported,
}

/// A rate limiter for Linux hosts: an XDP program keeps a token bucket for every source and sheds the
/// abusive ones before the kernel allocates a buffer for their packets; requests are limited for the
/// servers and proxies that ask.
#[derive(Debug, Parser)]
#[command(name = "ratelimit", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Daemon(daemon::Args),
    Check(check::Args),
    Status(status::Args),
    Rules(rules::Args),
    Counters(counters::Args),
    Sources(sources::Args),
    Show(show::Args),
    Block(block::Args),
    Unblock(unblock::Args),
    Blocks(blocks::Args),
    Events(events::Args),
    Reload(reload::Args),
    Apply(apply::Args),
    Mode(mode::Args),
    Detach(detach::Args),
    Replay(replay::Args),
    Explain(explain::Args),
    Reset(reset::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

/// A file that was given cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read {}", path.display())]
pub(crate) struct Unreadable {
    path: PathBuf,
    source: io::Error,
}

/// What was given does not go together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadUsage(pub(crate) String);

/// Where pinned state lives; shared by the verbs that touch it.
#[derive(Debug, clap::Args)]
pub(crate) struct PinDir {
    /// Directory on a BPF file system that holds the pinned links and state
    #[arg(long = "pin-dir", value_name = "DIR", default_value = state::DEFAULT_PIN_DIR)]
    pub(crate) path: PathBuf,
}

/// Where the daemon is asked; shared by the verbs that do so.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminSocket {
    /// The daemon's admin socket
    #[arg(id = "admin_socket", long = "admin-socket", value_name = "PATH", default_value = ratelimit::daemon::ADMIN_SOCKET)]
    pub(crate) path: PathBuf,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  what was asked for failed, or the rules file is invalid
  2  bad usage, or a file that cannot be read
  3  a privilege or a kernel feature is missing

Examples:
  ratelimit doctor
  ratelimit check rules.yaml && ratelimit daemon --config rules.yaml
  ratelimit status
  ratelimit show 192.0.2.7
  ratelimit block 192.0.2.7 --for 10m --reason 'port scan'
  ratelimit sources --watch
  ratelimit apply new.yaml --confirm 60s
  ratelimit explain --source 192.0.2.7 --protocol tcp --destination-port 443 --syn
  ratelimit replay capture.pcap --config rules.yaml
  ratelimit reset --config rules.yaml --domain api --descriptor client_ip=192.0.2.1
  ratelimit detach";

/// Runs the command line and prints its error, if any, once.
pub(crate) fn main() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A reader that has gone away has seen enough of the help.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success };
        }
    };
    let outcome = match cli.verb {
        Verb::Daemon(args) => daemon::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Status(args) => status::run(&args),
        Verb::Rules(args) => rules::run(&args),
        Verb::Counters(args) => counters::run(&args),
        Verb::Sources(args) => sources::run(&args),
        Verb::Show(args) => show::run(&args),
        Verb::Block(args) => block::run(&args),
        Verb::Unblock(args) => unblock::run(&args),
        Verb::Blocks(args) => blocks::run(&args),
        Verb::Events(args) => events::run(&args),
        Verb::Reload(args) => reload::run(&args),
        Verb::Apply(args) => apply::run(&args),
        Verb::Mode(args) => mode::run(&args),
        Verb::Detach(args) => detach::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Reset(args) => reset::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Guard(args) => guard::run(&args),
    };
    match outcome {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Success,
        Err(error) => {
            // Standard error may be gone or full: then the exit code has to do.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            classify(&error)
        }
    }
}

/// A pipe whose reader has gone away (`ratelimit counters | head -1`) is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn Error + 'static)| {
        let json = || cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or_else(json)
    };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

/// The exit code that an error's root asks for.
fn classify(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if lacks(cause) {
            return Exit::Unsupported;
        }
        if unreadable(cause) {
            return Exit::Usage;
        }
    }
    Exit::Failure
}

/// Whether an error says that a file cannot be read, or that what was given makes no sense.
fn unreadable(cause: &(dyn Error + 'static)) -> bool {
    if cause.is::<Unreadable>() || cause.is::<BadUsage>() {
        return true;
    }
    let failure = match cause.downcast_ref() {
        Some(DaemonError::Config(failure)) => Some(failure),
        _ => cause.downcast_ref(),
    };
    matches!(failure, Some(config::Failure::Unreadable(_)))
        || matches!(cause.downcast_ref(), Some(CaptureError::Open { .. }))
}

/// Whether an error says that a privilege or a kernel feature is missing. Transparent errors show their
/// own text and only the causes below, so they are opened here.
fn lacks(cause: &(dyn Error + 'static)) -> bool {
    let state = match cause.downcast_ref() {
        Some(DaemonError::Lacking(_)) => return true,
        Some(DaemonError::Load(error)) if error.is_permission() => return true,
        Some(DaemonError::State(error)) => Some(error),
        _ => cause.downcast_ref(),
    };
    matches!(state, Some(StateError::Lacking(_)))
        || cause.is::<Lacking>()
        || cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

// === impl Unreadable ===

impl Unreadable {
    fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Unsupported => 3,
        })
    }
}

#[cfg(test)]
mod tests;
