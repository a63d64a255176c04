//! `ratelimit daemon`.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use ratelimit::daemon::{self, Place};
use tracing::Level;

use super::{Exit, PinDir};

/// Load the rules, attach to the interfaces, and stay until SIGTERM or SIGINT
///
/// Enforcement does not depend on the process: links and state are pinned, so with `on_stop: keep` (the
/// default), after a crash or kill -9, the last policy stays in force and the next start adopts it with all
/// buckets, blocks and counters. Needs root, or the capabilities `CAP_BPF`, `CAP_NET_ADMIN` and
/// `CAP_PERFMON`; a rules file without `network:` needs no privilege.
///
/// The rules file and everything it names are read again when a file changes, on SIGHUP and on `ratelimit
/// reload`; what is wrong then changes nothing, what is right takes effect without a gap.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ratelimit daemon --config /etc/ratelimit/rules.yaml
  ratelimit daemon --config rules.yaml --pin-dir /sys/fs/bpf/testing --admin-socket /run/testing.sock")]
pub(super) struct Args {
    /// The rules file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    pin_dir: PinDir,
    /// Directory for what must outlive a reboot, the blocks [default: /var/lib/ratelimit]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Where the admin API listens [default: /run/ratelimit/admin.sock]
    #[arg(long, value_name = "PATH")]
    admin_socket: Option<PathBuf>,
    /// What the log holds; debug: also the verdict on every packet, at microseconds each (rule, limit or port
    /// 0: none)
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    log_to_stderr(args.log_level.into());
    daemon::run(&daemon::Settings {
        rules_file: args.config.clone(),
        pin_dir: args.pin_dir.path.clone(),
        state_dir: Place::new(args.state_dir.as_deref(), Path::new(daemon::STATE_DIR)),
        admin_socket: Place::new(args.admin_socket.as_deref(), Path::new(daemon::ADMIN_SOCKET)),
        trace: args.log_level == LogLevel::Debug,
    })?;
    Ok(Exit::Success)
}

/// Plain lines without times: the journal and container runtimes add their own.
pub(super) fn log_to_stderr(level: Level) {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        // By default a line that cannot be written is reported on standard error, where that panics if
        // standard error is what fails: a full disk must not end the daemon.
        .log_internal_errors(false)
        .init();
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}
