//! `ratelimit daemon`.

use std::{io, path::PathBuf};

use ratelimit::daemon;

use super::{Exit, PinDir};

/// Load the rules, attach to the interfaces, and stay until SIGTERM or SIGINT
///
/// Enforcement does not depend on the process: links and state are pinned, so with `on_stop: keep` (the
/// default), after a crash or kill -9, the last policy stays in force and the next start adopts it with all
/// buckets and counters. Needs root, or the capabilities `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`; a
/// rules file without `network:` needs no privilege.
///
/// The `http:` section and everything it names are read again when a file changes and on SIGHUP; what is
/// wrong then changes nothing. The `network:` section is read at the start.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ratelimit daemon --config /etc/ratelimit/rules.yaml
  ratelimit daemon --config rules.yaml --pin-dir /sys/fs/bpf/testing")]
pub(super) struct Args {
    /// The rules file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    pin_dir: PinDir,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    // Plain lines without times: the journal and container runtimes add their own.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        // By default a line that cannot be written is reported on standard error, where that panics if
        // standard error is what fails: a full disk must not end the daemon.
        .log_internal_errors(false)
        .init();
    daemon::run(&daemon::Settings { rules_file: args.config.clone(), pin_dir: args.pin_dir.path.clone() })?;
    Ok(Exit::Success)
}
