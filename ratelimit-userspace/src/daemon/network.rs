//! The layer 3/4 half of the daemon: a policy in force, and the lock that says whose it is.
//!
//! Everything is compiled and loaded before the first interface changes; a failure at any step leaves what
//! was enforced before as it was. What runs afterwards needs no process: if this one is killed,
//! enforcement goes on with the same policy, and the next start adopts it.

use std::{
    collections::BTreeSet,
    io,
    time::{Duration, Instant},
};

use aya::programs::Xdp;
use aya_obj::programs::XdpAttachType;
use ratelimit_common::bucket_table::sets_for;
use tracing::{info, warn};

use super::{DaemonError, Settings};
use crate::{
    config::policy::{Config, Network, OnStop},
    network::{
        compile::{self, Slots},
        description::Description,
        interfaces::Mode,
        kernel,
        links::{Attached, Change, Links, Standing},
        program::{Clock, OBJECT, Program, StateMaps},
        state::{Adoption, Lock, StateDir},
    },
};

/// How often the daemon looks whether its links are still pinned.
const WATCH: Duration = Duration::from_secs(5);

/// A policy in force, and the lock that says whose it is.
pub(super) struct Enforcement {
    state: StateDir,
    lock: Lock,
}

impl Enforcement {
    /// Puts the policy in force.
    pub(super) fn start(
        settings: &Settings,
        config: &Config,
        network: &Network,
    ) -> Result<Self, DaemonError> {
        if config.interfaces.is_empty() {
            return Err(DaemonError::NoInterfaces(settings.rules_file.clone()));
        }
        kernel::check()?;
        let state = StateDir::new(&settings.pin_dir);
        let lock = state.open()?;
        match enforce(&state, settings, config, network) {
            Ok(()) => Ok(Self { state, lock }),
            Err(error) => {
                // Only directories that are still empty go: what an earlier start left stays.
                state.tidy();
                Err(error)
            }
        }
    }

    /// Returns when no link is pinned any more. Until then it tells of interfaces that go.
    pub(super) async fn removal(&self) {
        let links = Links::new(self.state.links());
        let mut watch = tokio::time::interval(WATCH);
        let mut gone = BTreeSet::new();
        loop {
            watch.tick().await;
            let Ok(standing) = links.standing() else { continue };
            if standing.is_empty() {
                return;
            }
            for Standing { index, name, .. } in standing.iter().filter(|link| link.mode.is_none()) {
                if gone.insert(*index) {
                    warn!(
                        "{name} is gone, or something else runs on it: nothing is limited there until the \
                         daemon is started again"
                    );
                }
            }
        }
    }

    pub(super) fn stop(self, on_stop: OnStop, signal: &str) -> Result<(), DaemonError> {
        let Self { state, lock } = self;
        match on_stop {
            OnStop::Keep => {
                info!(
                    "stopping on {signal}: enforcement goes on without a daemon; `ratelimit detach` ends it"
                );
            }
            OnStop::Detach => {
                let names = Links::new(state.links()).remove_all()?;
                state.remove(Some(&lock))?;
                info!("stopping on {signal}: detached from {}", names.join(", "));
            }
        }
        Ok(())
    }
}

/// Compiles, loads and attaches; what it did before a failure is undone.
fn enforce(
    state: &StateDir,
    settings: &Settings,
    config: &Config,
    network: &Network,
) -> Result<(), DaemonError> {
    let began = Instant::now();
    let links = Links::new(state.links());
    let plan = links.plan(&config.interfaces)?;

    let previous = Description::read(&state.state()).unwrap_or_else(|error| {
        warn!("the description of the last policy is of no use, so its counters begin anew: {error}");
        None
    });
    let previous_slots = previous.map(|description| description.slots).unwrap_or_default();
    let names = network.rules.iter().map(|rule| rule.name.as_str());
    let (slots, fresh) = Slots::assign(&previous_slots, names);
    let compiled = compile::compile(network, &slots)?;

    let sets = u32::try_from(sets_for(network.sources.capacity)).unwrap_or(u32::MAX);
    let mut adoption = state.adopt(OBJECT, sets)?;
    log_adoption(&adoption);
    state.zero_slots(&fresh)?;
    let maps = StateMaps {
        pins: Some(state.state()),
        capacity: network.sources.capacity,
        hash_key: adoption.table.hash_key,
        epoch: adoption.table.epoch,
    };
    let mut program = Program::load(&compiled, &maps, Clock::Kernel)?;
    let xdp = program.xdp();

    let mut staged_program = state.stage_program(xdp)?;
    let program_id = xdp
        .info()
        .map_err(|error| DaemonError::Program {
            verb: "look at the loaded program",
            source: io::Error::other(error),
        })?
        .id();
    let description = Description::new(
        &settings.rules_file,
        &config.interfaces,
        network,
        compiled.descriptions,
        slots,
        program_id,
    );
    let mut staged_description = description.stage(&state.state())?;

    let applied = plan.apply(xdp, running(state), || {
        staged_program.commit()?;
        staged_description.commit()
    })?;
    adoption.commit();

    log_policy(&description);
    for attached in &applied.attached {
        log_interface(attached);
    }
    for name in &applied.detached {
        info!("{name}: detached, the rules file no longer names it");
    }
    let verb = if network.monitor { "monitoring" } else { "enforcing" };
    info!("{verb}, {} ms after reading {}", began.elapsed().as_millis(), description.rules_file.display());
    Ok(())
}

/// The program that runs now, to go back to.
fn running(state: &StateDir) -> Option<Xdp> {
    Xdp::from_pin(state.program(), XdpAttachType::Interface).ok()
}

fn log_adoption(adoption: &Adoption) {
    match adoption.resized {
        Some((old, new)) => info!(
            "the capacity for sources changed ({old} sets of buckets before, {new} now): buckets begin anew, \
             counters are kept"
        ),
        None if adoption.kept => info!("buckets and counters of the last start are kept"),
        None => {}
    }
}

fn log_policy(description: &Description) {
    let Description { mode, allow, deny, rules, matches, malformed, .. } = description;
    if mode == "monitor" {
        warn!("mode monitor: nothing is shed, what would be is counted");
    }
    info!("lists: {allow} allowed, {deny} denied; malformed frames: {malformed}");
    for (rule, matches) in rules.iter().zip(matches) {
        let counted = if rule.count_only { " (counted, not shed)" } else { "" };
        info!("rule {}{counted}: {matches}: {}", rule.name, rule.limits.join("; "));
    }
}

fn log_interface(attached: &Attached) {
    let Attached { name, mode, fallback, change, .. } = attached;
    let change = match change {
        Change::New => "attached",
        Change::Swapped => "swapped without a gap",
        Change::Reattached => "attached anew in another mode, with a moment without enforcement",
    };
    if let Some(refusal) = fallback {
        warn!("{name}: {mode}, {change}; native was refused: {refusal}");
    } else {
        info!("{name}: {mode}, {change}");
    }
    if *mode == Mode::Generic {
        warn!(
            "{name}: in generic mode a frame may be several that the kernel merged (GRO), so packets are \
             undercounted, and shedding costs more; `ethtool -K {name} gro off` makes counts exact"
        );
    }
}
