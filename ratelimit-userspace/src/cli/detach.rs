//! `ratelimit detach`.

use std::io::{self, Write as _};

use ratelimit::network::{
    links::Links,
    state::{StateDir, StateError},
};

use super::{Exit, PinDir};

/// Stop enforcement and remove everything that ratelimit pinned, with or without a daemon
///
/// Links go first, so that nothing is shed any more, then buckets, counters and the policy. Programs of
/// others are never touched. A daemon that still runs is not stopped, but it notices within seconds that its
/// links are gone and ends with an error. Nothing to detach is a success.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ratelimit detach
  ratelimit detach --pin-dir /sys/fs/bpf/testing")]
pub(super) struct Args {
    #[command(flatten)]
    pin_dir: PinDir,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let state = StateDir::new(&args.pin_dir.path);
    let mut out = io::stdout().lock();
    if !state.exists()? {
        writeln!(out, "nothing to detach: nothing is pinned in {}", state.root().display())?;
        return Ok(Exit::Success);
    }
    let (lock, holder) = match state.open() {
        Ok(lock) => (Some(lock), None),
        Err(StateError::Locked { holder, .. }) => (None, Some(holder)),
        Err(error) => return Err(error.into()),
    };
    // First, so that a daemon that runs attaches to no interface that comes meanwhile.
    state.forget_program()?;
    let names = Links::new(state.links()).remove_all()?;
    let removed = state.remove(lock.as_ref())?;
    match names.as_slice() {
        [] => writeln!(out, "no interface was attached")?,
        names => writeln!(out, "detached from {}", names.join(", "))?,
    }
    writeln!(out, "removed {} pins from {}", removed.pins, state.root().display())?;
    if let Some(holder) = holder {
        writeln!(out, "a daemon still runs, {holder}: it enforces nothing now and will end by itself")?;
    }
    Ok(Exit::Success)
}
