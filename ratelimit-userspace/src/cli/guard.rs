//! `ratelimit guard`, which the daemon starts for itself.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use ratelimit::daemon::guard;

use super::{Exit, daemon};

/// Wait until a trial's time is over, and go back to the policy before if the daemon does not
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory on a BPF file system that holds the pinned links and state
    #[arg(long, value_name = "DIR")]
    pin_dir: PathBuf,
    /// The program on trial, by its id in the kernel
    #[arg(long, value_name = "ID")]
    program: u32,
    /// How long the trial lasts
    #[arg(long, value_name = "N")]
    seconds: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    daemon::log_to_stderr(tracing::Level::INFO);
    guard::run(&args.pin_dir, args.program, Duration::from_secs(args.seconds))
        .context("the policy on trial is still in force")?;
    Ok(Exit::Success)
}
