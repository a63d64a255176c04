//! What the test of faults needs beside itself: a second build to upgrade to, and perhaps a long time.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::{HOST_CRATES, count};
use crate::{build, exec, setup, workspace::Workspace};

/// The test and its file.
const TEST: &str = "no_fault_opens_a_gap_costs_an_honest_client_or_fills_a_bucket";
const FILE: &str = "--test=namespace_faults";
/// The feature of a build with the `ABI_VERSION` after this one.
const NEXT_ABI: &str = "ratelimit-userspace/next-abi";

/// Tells the test where the second build is.
pub(super) const UPGRADE: &str = "RATELIMIT_NEXT_ABI";
/// Tells the test how long to go on.
const MINUTES: &str = "RATELIMIT_FAULT_MINUTES";

/// Runs the test of faults for this long.
pub(super) fn soak(workspace: &Workspace, minutes: u32) -> Result<()> {
    ensure!(setup::is_root(), "a soak test needs root: run it as root, e.g. by sudo");
    build::objects(workspace)?;
    setup::lab_tools()?;
    let mut cargo = test(workspace);
    cargo
        .args(["--", "--include-ignored", "--test-threads=1", "--nocapture", "--exact", TEST])
        .env(UPGRADE, next_abi(workspace)?)
        .env(MINUTES, minutes.to_string());
    let tally = count(&mut cargo)?.or_failed("test");
    ensure!(tally.failed == 0, "the soak test failed; it told the seed to repeat it with");
    Ok(())
}

/// Whether the test is among those that a filter leaves.
pub(super) fn are_tested(filter: &[String]) -> bool {
    filter.is_empty() || filter.iter().any(|part| TEST.contains(part))
}

/// Builds the binary of the next `ABI_VERSION`, `<target>/next-abi/ratelimit`.
///
/// Cargo builds it where the usual one is, and that one comes back with the next test: asked for in the same
/// way as the tests are, it shares all their dependencies, and only our own crates are compiled twice.
pub(super) fn next_abi(workspace: &Workspace) -> Result<PathBuf> {
    exec(test(workspace).args(["--no-run", "--features", NEXT_ABI]))?;
    let built = workspace.target.join("debug/ratelimit");
    let folder = workspace.target.join("next-abi");
    let binary = folder.join("ratelimit");
    // Renamed into place: the one there may be running.
    let partial = folder.join("ratelimit.partial");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::copy(&built, &partial))
        .and_then(|_| fs::rename(&partial, &binary))
        .with_context(|| format!("failed to copy {} to {}", built.display(), binary.display()))?;
    Ok(binary)
}

fn test(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.arg("test").args(HOST_CRATES).arg(FILE);
    cargo
}
