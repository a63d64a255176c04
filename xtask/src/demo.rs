//! `cargo xtask demo`: a flood, with and without the limiter, seen by one honest client; then an API that is
//! hammered, in [`escalation`].
//!
//! One namespace holds a web server, another the honest client and the attacker; a veth pair joins them.
//! The first CPU sends (attacker and client), the second one receives (the queue of the wire, the network
//! stack and the server), so the two sides neither slow each other down nor hide each other's cost.

mod client;
mod escalation;
mod report;
mod scene;
mod server;
mod shield;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use self::{report::View, scene::Scene, shield::Shield};
use crate::{build, lab::Directory, workspace::Workspace};

/// Where frames are received and servers run.
const RECEIVING_CPU: usize = 1;
/// Share of the honest client's requests that the limiter must keep alive.
const MIN_SUCCESS_PERCENT: usize = 95;

/// Shows what a flood and a hammered API are to an honest client, without and with the limiter (needs root).
#[derive(Args, Debug)]
pub struct Options {
    /// Length of the three measured phases together.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(6..=600))]
    pub seconds: u32,
}

/// Builds the release binary and shows it at work; fails if it did not protect.
pub fn run(workspace: &Workspace, Options { seconds }: &Options) -> Result<()> {
    build::run(workspace, &build::Options { release: true })?;
    let binary = workspace.target.join("release/ratelimit");
    ensure!(binary.exists(), "{} is not there after a build", binary.display());

    let view = View::new();
    let scene = Scene::new().context("failed to set the scene")?;
    let directory = Directory::new("demo")?;
    println!("{}\n\nThe rules file:\n\n{}", scene::STORY, shield::RULES);

    // The idle figures need the least time: nothing varies.
    let (idle_time, flood_time) =
        (Duration::from_secs(1) * *seconds / 5, Duration::from_secs(2) * *seconds / 5);
    let idle = scene.measure("idle", idle_time, false, None, &view)?;
    let bare = scene.measure("flood, no limiter", flood_time, true, None, &view)?;
    let shield = Shield::raise(&binary, &scene, directory.path())?;
    let shielded = scene.measure("flood, limiter", flood_time, true, Some(&shield), &view)?;
    let rules = shield.counters()?;
    shield.lower()?;
    view.clear();

    println!("{}", report::table(&[&idle, &bare, &shielded]));
    println!("{}", report::rules(&shielded, &rules));
    let shed: u64 = rules.iter().map(|rule| rule.shed).sum();
    println!("{}", report::cost(&bare, &shielded, shed));
    verdict(shielded.honest.success_percent(), shed)?;
    drop(scene);
    escalation::play(workspace)
}

fn verdict(success_percent: usize, shed: u64) -> Result<()> {
    if shed == 0 {
        bail!("the limiter shed no packet: it is not where the flood passes");
    }
    if success_percent < MIN_SUCCESS_PERCENT {
        bail!(
            "under the limiter only {success_percent}% of the honest requests were answered; \
             {MIN_SUCCESS_PERCENT}% were expected (is this machine busy with something else?)"
        );
    }
    Ok(())
}
