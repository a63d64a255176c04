//! The layer 3/4 half of the daemon: a policy in force, and the lock that says whose it is.
//!
//! Everything is compiled and loaded before the first interface changes; a failure at any step leaves what
//! was enforced before as it was. What runs afterwards needs no process: if this one is killed,
//! enforcement goes on with the same policy, and the next start adopts it.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt, io,
    path::PathBuf,
    time::{Duration, Instant},
};

use aya::programs::Xdp;
use aya_obj::programs::XdpAttachType;
use ratelimit_common::bucket_table::sets_for;
use tracing::{info, warn};

use super::{DaemonError, Settings};
use crate::{
    admin::command::Session,
    config::policy::{Config, Interface, Network, OnStop},
    network::{
        blocks,
        compile::{self, Slots},
        description::Description,
        interfaces::{self, Mode},
        kernel,
        links::{Applied, Attached, Change, Followed, Links, LinksError, Skipped},
        lockout,
        next::{self, Next},
        program::{Clock, OBJECT, Options, Program},
        state::{Adoption, Lock, StateDir},
        trace::Trace,
    },
};

/// How often the daemon looks whether its links are still pinned.
const WATCH: Duration = Duration::from_secs(5);

/// A policy in force, and the lock that says whose it is.
pub(super) struct Enforcement {
    state: StateDir,
    lock: Lock,
    rules_file: PathBuf,
    /// Whether a link was pinned when this one looked last.
    pinned: Cell<bool>,
    /// Interfaces that stay without the program. Why is told already.
    skipped: RefCell<Vec<Skipped>>,
    /// Whether the program is to tell its verdicts one by one.
    trace: bool,
    /// The generations that do: the one that runs, and the one before, which a trial may go back to.
    traces: RefCell<VecDeque<Trace>>,
}

/// A policy to be put in force.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Policy<'a> {
    pub(super) interfaces: &'a [Interface],
    pub(super) network: &'a Network,
}

/// What putting a policy in force did.
#[derive(Clone, Copy, Debug)]
pub(super) struct InForce {
    /// The program's id in the kernel.
    pub(super) program_id: u32,
    /// No state of an earlier start was there to go on with.
    pub(super) fresh: bool,
}

impl<'a> Policy<'a> {
    /// The layer 3/4 half of a configuration.
    pub(super) fn of(config: &'a Config) -> Option<Self> {
        config.network.as_ref().map(|network| Self { interfaces: &config.interfaces, network })
    }
}

impl Enforcement {
    /// Takes the lock. Nothing is enforced yet, or what an earlier start left still is.
    pub(super) fn take(settings: &Settings) -> Result<Self, DaemonError> {
        kernel::check()?;
        let state = StateDir::new(&settings.pin_dir);
        let lock = state.open()?;
        blocks::recover(&state)?;
        Ok(Self {
            state,
            lock,
            rules_file: settings.rules_file.clone(),
            pinned: Cell::new(false),
            skipped: RefCell::default(),
            trace: settings.trace,
            traces: RefCell::default(),
        })
    }

    /// Puts the first policy in force; whether nothing of an earlier start was there to go on with.
    pub(super) fn begin(&self, policy: Policy<'_>) -> Result<bool, DaemonError> {
        Ok(self.apply(policy, Occasion::Start)?.fresh)
    }

    /// Lets go of what nothing was done with: directories that are still empty go, what an earlier start left
    /// stays.
    pub(super) fn abandon(self) {
        self.state.tidy();
    }

    /// The directory of its pins.
    pub(super) fn state(&self) -> &StateDir {
        &self.state
    }

    /// Puts a policy in force in place of the one before: compiles, loads, and swaps it into every link.
    /// What it did before a failure is undone.
    pub(super) fn apply(&self, policy: Policy<'_>, occasion: Occasion<'_>) -> Result<InForce, DaemonError> {
        let began = Instant::now();
        let Self { state, rules_file, .. } = self;
        let Policy { interfaces, network } = policy;
        if interfaces.is_empty() {
            return Err(DaemonError::NoInterfaces(rules_file.clone()));
        }
        let links = Links::new(state.links());
        let plan = links.plan(interfaces)?;
        let next = network.next.as_deref().map(Next::open).transpose()?;

        let sets = u32::try_from(sets_for(network.sources.capacity)).unwrap_or(u32::MAX);
        let mut adoption = state.adopt(OBJECT, sets, &links.programs()?)?;
        let names = network.rules.iter().map(|rule| rule.name.as_str());
        let (slots, fresh) = Slots::assign(&adoption.previous_slots(), names);
        let compiled = compile::compile(network, &slots)?;
        if let Occasion::Reload { guarded: Some(session), .. } = occasion
            && let Some(why) = lockout::policy_sheds(&compiled, &session)
        {
            return Err(DaemonError::LockedOut { client: session.client, why });
        }
        log_adoption(&adoption, occasion);
        adoption.zero_slots(&fresh)?;
        let maps = adoption.maps(network.sources.capacity);
        let options = Options { trace: self.trace, ..Clock::Kernel.into() };
        let mut program = Program::load(&compiled, &maps, options)?;
        let trace = if self.trace { begin_trace(&mut program) } else { None };
        if let Some(next) = &next {
            next.follow(&mut program)?;
            next::stage(&state.state(), &program)?;
        }
        let xdp = program.xdp();

        let program_id = xdp
            .info()
            .map_err(|error| DaemonError::Program {
                verb: "look at the loaded program",
                source: io::Error::other(error),
            })?
            .id();
        let description =
            Description::new(rules_file, interfaces, network, compiled.descriptions, slots, program_id);
        adoption.stage(xdp, &description)?;
        let applied = plan.apply(xdp, adoption.running(), || adoption.commit())?;
        adoption.retire();
        self.keep_trace(trace);

        self.pinned.set(!applied.attached.is_empty());
        log_policy(&description);
        log_applied(&applied);
        self.skipped.replace(applied.skipped);
        let verb = if network.monitor { "monitoring" } else { "enforcing" };
        info!("{occasion}{verb}, {} ms after reading {}", began.elapsed().as_millis(), rules_file.display());
        Ok(InForce { program_id, fresh: adoption.blocks_are_new })
    }

    fn keep_trace(&self, trace: Option<Trace>) {
        let mut traces = self.traces.borrow_mut();
        traces.extend(trace);
        while traces.len() > 2 {
            traces.pop_front();
        }
    }

    /// Puts the program that runs on the interfaces of the policy that came since. Only what is new about those
    /// that stay without it is in the answer.
    pub(super) fn follow(
        &self,
        wanted: &[Interface],
        existing: &[interfaces::Interface],
    ) -> Result<Followed, LinksError> {
        // Somebody may have detached everything a moment ago: then nothing is attached again.
        let program = running(&self.state).filter(|_| !self.is_detached());
        let Some(mut program) = program else { return Ok(Followed::default()) };
        let links = Links::new(self.state.links());
        let mut followed = links.follow(wanted, existing, &mut program, &self.skipped.borrow())?;
        self.pinned.set(!links.pins()?.is_empty());
        let known = self.skipped.replace(followed.skipped.clone());
        followed.skipped.retain(|skipped| !known.contains(skipped));
        Ok(followed)
    }

    /// Returns when somebody removed what is pinned.
    pub(super) async fn removal(&self) {
        let mut watch = tokio::time::interval(WATCH);
        loop {
            watch.tick().await;
            if self.is_detached() {
                return;
            }
        }
    }

    /// Whether somebody removed the program, or all links. The last link of a pattern goes with its interface.
    fn is_detached(&self) -> bool {
        let without_links = || Links::new(self.state.links()).pins().is_ok_and(|pins| pins.is_empty());
        !self.state.program().exists() || (self.pinned.get() && without_links())
    }

    /// Takes the program off every interface and removes all that is pinned.
    pub(super) fn detach(self) -> Result<Vec<String>, DaemonError> {
        let names = Links::new(self.state.links()).remove_all()?;
        self.state.remove(Some(&self.lock))?;
        Ok(names)
    }

    /// Ends as the policy says.
    pub(super) fn stop(self, on_stop: OnStop, signal: &str) -> Result<(), DaemonError> {
        match on_stop {
            OnStop::Keep => {
                info!(
                    "stopping on {signal}: enforcement goes on without a daemon; `ratelimit detach` ends it"
                );
            }
            OnStop::Detach => {
                let names = self.detach()?;
                info!("stopping on {signal}: detached from {}", names.join(", "));
            }
        }
        Ok(())
    }
}

/// Why a policy is put in force.
#[derive(Clone, Copy, Debug)]
pub(super) enum Occasion<'a> {
    /// The daemon starts.
    Start,
    /// Something changed, or somebody asked.
    Reload {
        /// What, in words.
        reason: &'a str,
        /// Whose connection the policy must not shed.
        guarded: Option<Session>,
    },
}

impl fmt::Display for Occasion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => Ok(()),
            Self::Reload { reason, .. } => write!(f, "{reason}: "),
        }
    }
}

/// Logs what a program tells; without that it does its work all the same.
fn begin_trace(program: &mut Program) -> Option<Trace> {
    Trace::begin(program).inspect_err(|error| warn!("verdicts are not told one by one: {error}")).ok()
}

/// The program that runs now.
fn running(state: &StateDir) -> Option<Xdp> {
    Xdp::from_pin(state.program(), XdpAttachType::Interface).ok()
}

fn log_adoption(adoption: &Adoption, occasion: Occasion<'_>) {
    if let Some(story) = adoption.story() {
        if adoption.begins_anew() {
            warn!("{occasion}{story}");
        } else if matches!(occasion, Occasion::Start) {
            info!("{story}");
        }
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

/// Tells what became of the interfaces.
pub(super) fn log_applied(applied: &Applied) {
    for attached in &applied.attached {
        log_interface(attached);
    }
    for name in &applied.detached {
        info!("{name}: detached, the rules file no longer names it");
    }
    for Skipped { reason, .. } in &applied.skipped {
        warn!("passed over: {reason}");
    }
    for name in &applied.unmatched {
        warn!("there is no interface {name} now");
    }
    if applied.attached.is_empty() {
        warn!("nothing is limited until an interface of the rules file comes");
    }
}

/// Tells how a program came to an interface.
pub(super) fn log_interface(attached: &Attached) {
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
