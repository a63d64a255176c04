//! Blocking without a daemon: the pins are changed here, under the lock that a daemon would hold.

use std::{
    io::{ErrorKind, Read},
    process,
};

use anyhow::{Context as _, bail};
use ipnet::IpNet;
use ratelimit::{
    admin::{
        command,
        intake::Intake,
        schema::{BlockRequest, BulkBlocked},
    },
    network::{
        blocks::{Blocks, Outcome},
        in_force::{self, Policy},
        lockout::{self, Session},
        state::StateDir,
    },
};

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

pub(super) fn block(
    state: &StateDir,
    mut list: impl Read,
    request: &BlockRequest,
) -> anyhow::Result<BulkBlocked> {
    let BlockRequest { duration, reason, force } = request;
    let mut intake = Intake::new(*duration, reason.clone()).map_err(anyhow::Error::msg)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        match list.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => intake.push(&chunk[..length])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("failed to read the list of sources"),
        }
    }
    let batch = intake.finish()?;
    let prefixes: Vec<_> = batch.entries.iter().map(|entry| entry.prefix).collect();

    // Taking the lock makes the directories: without a policy there is nothing to block in.
    drop(Blocks::open(state)?);
    let _lock = state.open()?;
    let mut blocks = Blocks::open(state)?;
    let policy = Policy::pinned(state)?.context("no policy is in force")?;
    if !force && let Some(session) = lockout::session_of(process::id()) {
        guard(&policy, &prefixes, &session)?;
    }
    let capacity = policy.network.blocks.capacity;
    if let Some(needed) = blocks.need(&prefixes, capacity)? {
        bail!(
            "the table of blocked addresses must grow for so many (to {needed}), which takes a new program, and no \
             daemon runs to load one. Nothing was changed; start the daemon, or block fewer"
        );
    }
    let Outcome { added, replaced, errors } = blocks.block_all(batch.into_entries());
    let errors = errors.into_iter().map(|(index, error)| (index, error.to_string())).collect();
    Ok(intake.answer(&prefixes, command::Blocked { added, replaced, errors }))
}

/// Refuses what would cut the operator off.
fn guard(policy: &Policy, prefixes: &[IpNet], session: &Session) -> anyhow::Result<()> {
    let sheds = |prefix: &&IpNet| lockout::block_sheds(prefix, &policy.network, session);
    let Some(prefix) = prefixes.iter().find(sheds) else { return Ok(()) };
    let client = in_force::address(session.client.ip());
    // The allow list is in the kernel only, and beats every block.
    if policy.listed(&client)?.is_allowed() {
        return Ok(());
    }
    bail!(
        "a block of {prefix} would cut your own connection from {}. Nothing was changed; put the address into \
         `management` or `allow`, or use --force",
        session.client
    )
}
