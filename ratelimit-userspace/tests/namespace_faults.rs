//! Faults under a flood: the daemon is restarted, killed, reloaded, given broken files, upgraded and rolled
//! back at random moments, and all the while no packet passes unlimited, no honest one is lost, and no
//! bucket that was emptied is full again. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_faults -- --include-ignored
//! ```
//!
//! It builds what it upgrades to, the same sources with the next `ABI_VERSION`. `cargo xtask test --soak MINUTES`
//! runs it for as long as that, each round with another seed. What the environment sets is in
//! `namespace_faults/settings.rs`.

#[path = "namespace_faults/arrivals.rs"]
mod arrivals;
#[path = "namespace_faults/audit.rs"]
mod audit;
#[path = "namespace_faults/fault.rs"]
mod fault;
#[path = "namespace_faults/honest.rs"]
mod honest;
#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_lifecycle/host.rs"]
mod host;
#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_traffic/ledger.rs"]
mod ledger;
#[path = "namespace_faults/party.rs"]
mod party;
#[path = "namespace_faults/settings.rs"]
mod settings;
#[path = "namespace_faults/site.rs"]
mod site;
#[path = "namespace_faults/traffic.rs"]
mod traffic;
#[path = "namespace_faults/usage.rs"]
mod usage;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use audit::Audit;
use fault::{Fault, Faults, TrialEnd};
use settings::Settings;
use site::Site;
use traffic::Traffic;
use usage::Usage;
use xtask::{build, workspace::Workspace};

/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Asks again until there is an answer.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Says how to see a failure again.
struct Repeat {
    seed: u64,
    step: u32,
    fault: Option<Fault>,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        let Self { seed, step, fault } = self;
        if thread::panicking() {
            eprintln!("in step {step}, {fault:?}; to repeat it: {}={seed}", settings::SEED);
        }
    }
}

/// A host with a daemon, those who will send to it, and what must hold from now on.
fn begin(upgrade: Option<&Path>) -> (Site, Traffic, Audit) {
    let mut site = Site::new(upgrade);
    let traffic = Traffic::prepare(&site.host);
    site.start();
    site.block();
    let audit = Audit::begin(&site, &traffic);
    (site, traffic, audit)
}

/// One host through `steps` faults.
fn survive(seed: u64, steps: u32, upgrade: &Path) {
    let mut repeat = Repeat { seed, step: 0, fault: None };
    let mut faults = Faults::new(seed);
    let (mut site, traffic, mut audit) = begin(Some(upgrade));
    for step in 1..=steps {
        let fault = faults.next();
        (repeat.step, repeat.fault) = (step, Some(fault.clone()));
        let listed = site.is_listed();
        let round = traffic.start(&site.host);
        site.suffer(&fault);
        round.stop();
        audit.check(&site, &traffic, listed && site.is_listed());
    }
    audit.conclude();
}

/// So many reloads of one daemon: what it holds after some of them and after all.
fn reload(times: u32) -> (Usage, Usage) {
    let (mut site, traffic, mut audit) = begin(None);
    let mut reload = |times| {
        let round = traffic.start(&site.host);
        for _ in 0..times {
            for fault in [Fault::ChangedList, Fault::Reload, Fault::BrokenFile] {
                site.suffer(&fault);
            }
            for end in [TrialEnd::RolledBack, TrialEnd::Confirmed] {
                site.suffer(&Fault::Trial(end));
            }
        }
        round.stop();
        audit.check(&site, &traffic, false);
        Usage::of(&site)
    };
    let first = times / 4;
    (reload(first), reload(times - first))
}

#[test]
#[ignore = "requires root: network namespaces"]
fn no_fault_opens_a_gap_costs_an_honest_client_or_fills_a_bucket() {
    let Settings { seed, steps, time } = Settings::read();
    let workspace = Workspace::load().expect("the workspace");
    let upgrade = build::next_abi(&workspace).expect("the build to upgrade to");
    let began = Instant::now();
    for round in 0.. {
        let seed = seed.wrapping_add(round);
        let turn = Instant::now();
        survive(seed, steps, &upgrade);
        let Some(time) = time else { return };
        let rate = f64::from(steps) * 60.0 / turn.elapsed().as_secs_f64();
        let (first, last) = reload(steps);
        println!(
            "seed {seed}: {steps} faults, {rate:.0} a minute; one daemon after {} and {steps} reloads: {first}, {last}",
            steps / 4
        );
        last.is_flat(&first);
        if began.elapsed() >= time {
            return;
        }
    }
}

#[test]
#[ignore = "requires root: network namespaces"]
fn reloads_leave_memory_descriptors_and_pins_as_they_were() {
    let (first, last) = reload(40);
    last.is_flat(&first);
}
