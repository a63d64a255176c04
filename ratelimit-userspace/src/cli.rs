//! The command line: one file a verb. Everything that decides lives in the library; here arguments come
//! in, text goes out, and an error becomes one line and an exit code.

mod check;
mod counters;
mod daemon;
mod detach;
mod explain;
mod output;
mod question;
mod replay;
mod reset;
mod status;

use std::{
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
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
    Counters(counters::Args),
    Detach(detach::Args),
    Replay(replay::Args),
    Explain(explain::Args),
    Reset(reset::Args),
}

/// Where pinned state lives; shared by the verbs that touch it.
#[derive(Debug, clap::Args)]
pub(crate) struct PinDir {
    /// Directory on a BPF file system that holds the pinned links and state
    #[arg(long = "pin-dir", value_name = "DIR", default_value = state::DEFAULT_PIN_DIR)]
    pub(crate) path: PathBuf,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  what was asked for failed, or the rules file is invalid
  2  bad usage, or a file that cannot be read
  3  a privilege or a kernel feature is missing

Examples:
  ratelimit check rules.yaml
  ratelimit daemon --config rules.yaml
  ratelimit status
  ratelimit counters --json
  ratelimit replay capture.pcap --config rules.yaml
  ratelimit explain --config rules.yaml --request 'GET /api/users/7' --peer 192.0.2.1
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
        Verb::Counters(args) => counters::run(&args),
        Verb::Detach(args) => detach::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Reset(args) => reset::run(&args),
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

/// Whether an error says that the rules file or the capture cannot be read.
fn unreadable(cause: &(dyn Error + 'static)) -> bool {
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
