//! The test of faults for a long time.

use anyhow::{Result, ensure};

use super::{HOST_CRATES, count};
use crate::{build, setup, workspace::Workspace};

/// The test and its file.
const TEST: &str = "no_fault_opens_a_gap_costs_an_honest_client_or_fills_a_bucket";
const FILE: &str = "--test=namespace_faults";
/// Tells the test how long to go on.
const MINUTES: &str = "RATELIMIT_FAULT_MINUTES";

/// Runs the test of faults for this long.
pub(super) fn soak(workspace: &Workspace, minutes: u32) -> Result<()> {
    ensure!(setup::is_root(), "a soak test needs root: run it as root, e.g. by sudo");
    build::objects(workspace)?;
    setup::lab_tools()?;
    let mut cargo = workspace.cargo();
    cargo
        .arg("test")
        .args(HOST_CRATES)
        .arg(FILE)
        .args(["--", "--include-ignored", "--test-threads=1", "--nocapture", "--exact", TEST])
        .env(MINUTES, minutes.to_string());
    let tally = count(&mut cargo)?.or_failed("test");
    ensure!(tally.failed == 0, "the soak test failed; it told the seed to repeat it with");
    Ok(())
}
