//! `cargo xtask bench network`: the cost of shedding a packet, of the program alone, of loading a large
//! policy, and the memory of the maps.
//!
//! How a shed packet is measured: a sender on the first CPU redirects frames, by turns from each of a
//! number of sources, to a veth whose other end has threaded NAPI on the second CPU. What that thread
//! ran, from /proc/PID/schedstat, over what it took from its ring, from the device's own statistics, is
//! the cost; the figures of all contenders come from the same two counters. Runs of the contenders take
//! turns, and the median counts.

mod frame;
mod lane;
mod policy;
mod program;
mod report;
mod sender;
mod shield;

use std::{path::PathBuf, thread, time::Duration};

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use clap::Args;

use self::{
    lane::Lane,
    policy::Policy,
    program::Memory,
    report::{Bytes, Contender, Milliseconds, Report, Row, Runs, Shed},
    sender::{FIRST_SOURCE, Sender},
    shield::{Daemon, Shield},
};
use super::report::{Outcome, Settings, Summary};
use crate::{
    build,
    lab::{Link, Namespace},
    workspace::Workspace,
};

/// The cost of shedding, beside a bare XDP program, nftables and iptables. Needs root and two CPUs.
///
/// Fails if something could not be measured; with --check also if a figure is worse than asked for.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    settings: Settings,
    /// Numbers of sources to measure with.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1_000, 100_000, 1_000_000],
          value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with = "quick")]
    sources: Vec<u32>,
}

/// How much is measured.
#[derive(Debug)]
struct Plan {
    sources: Vec<u32>,
    runs: u32,
    window: Duration,
}

/// What is measured with.
#[derive(Debug)]
struct Tools {
    binary: PathBuf,
    objects: PathBuf,
    client: Namespace,
}

/// The CPU that sends and the one that receives.
const SENDING_CPU: usize = 0;
const RECEIVING_CPU: usize = 1;

/// The policies of the limiter that are measured beside the plain one, at these numbers of sources.
const PLAIN: Policy = Policy { rules: 1, deny: 0 };
const MANY_RULES: Policy = Policy { rules: 64, deny: 0 };
const MANY_PREFIXES: Policy = Policy { rules: 1, deny: 100_000 };
const LARGE: Policy = Policy { rules: 64, deny: 100_000 };
const VARIANT_SOURCES: [u32; 2] = [1_000, 100_000];

/// The number of the link behind which the large policy is loaded; the lanes have those from 1 on.
const LOAD_LINK: u8 = 100;

/// Builds everything, measures, prints the table and writes the JSON.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let cpus = thread::available_parallelism().context("failed to count the CPUs")?;
    ensure!(cpus.get() > RECEIVING_CPU, "the benchmark needs two CPUs, one to send and one to receive");
    let plan = Plan::new(options);
    build::run(workspace, &build::Options { release: true })?;
    let tools = Tools {
        binary: workspace.target.join("release/ratelimit"),
        objects: workspace.objects(),
        client: Namespace::new("bench-sender")?,
    };

    let mut report = Report::default();
    shed(&tools, &plan, &mut report);
    large(&tools, &plan, &mut report);

    options.settings.conclude(&report)
}

// === impl Plan ===

impl Plan {
    fn new(options: &Options) -> Self {
        let Options { settings, sources } = options;
        let runs = settings.runs();
        if settings.quick {
            return Self { sources: vec![1, 1_000], runs, window: Duration::from_millis(400) };
        }
        let mut sources = sources.clone();
        // Ascending: the tables only ever grow.
        sources.sort_unstable();
        sources.dedup();
        Self { sources, runs, window: Duration::from_millis(1_200) }
    }
}

/// All contenders, the limiter once for each of its policies.
const LANES: [(Contender, Policy); 6] = [
    (Contender::XdpDrop, PLAIN),
    (Contender::Ratelimit, PLAIN),
    (Contender::Ratelimit, MANY_RULES),
    (Contender::Ratelimit, MANY_PREFIXES),
    (Contender::Nft, PLAIN),
    (Contender::Hashlimit, PLAIN),
];

/// Whether a policy is measured at this number of sources.
fn is_measured(policy: Policy, sources: u32) -> bool {
    policy == PLAIN || VARIANT_SOURCES.contains(&sources)
}

/// The rows of shed packets, and those of test runs, which need the same programs attached.
fn shed(tools: &Tools, plan: &Plan, report: &mut Report) {
    let lanes = (1_u8..).zip(LANES).map(|(number, (contender, policy))| {
        eprintln!("setting up {contender} with {policy}");
        (contender, policy, lane(tools, number, contender, policy))
    });
    let lanes: Vec<_> = lanes.collect();

    for &sources in &plan.sources {
        let mut series = Vec::new();
        for (contender, policy, lane) in &lanes {
            if !is_measured(*policy, sources) {
                continue;
            }
            let case = Shed::new(*contender, *policy, sources);
            eprintln!("warming up {case}");
            series.push(Series::warm_up(tools, lane.as_ref(), case));
        }
        for run in 1..=plan.runs {
            eprintln!("{sources} sources, run {run} of {}", plan.runs);
            for series in &mut series {
                series.run(plan.window);
            }
        }
        report.rows.extend(series.into_iter().map(Series::into_row));
    }

    let find = |contender, policy| {
        let lane = lanes.iter().find(|(c, p, _)| (*c, *p) == (contender, policy));
        lane.and_then(|(_, _, lane)| lane.as_ref().ok()).context("the contender could not be set up")
    };
    for (case, contender, policy) in [
        ("empty", Contender::XdpDrop, PLAIN),
        ("one_source", Contender::Ratelimit, PLAIN),
        ("rules_64", Contender::Ratelimit, MANY_RULES),
        ("ipv6_ext", Contender::Ratelimit, PLAIN),
    ] {
        let outcome = find(contender, policy).and_then(|lane| {
            let Link { client, .. } = &lane.link;
            let frame = match case {
                "ipv6_ext" => frame::udp_v6_extended(&lane.link, client.ipv6),
                _ => frame::udp_v4(&lane.link, FIRST_SOURCE.into()),
            };
            let program = lane.shield.program()?.context("the contender has no program")?;
            program::test_run(&program::open(program)?, &frame)
        });
        report.rows.push(Row::TestRun { case, outcome: outcome.into() });
    }
}

/// Sets a contender up behind link `number`.
fn lane(tools: &Tools, number: u8, contender: Contender, policy: Policy) -> Result<Lane> {
    let Tools { binary, objects, client } = tools;
    Lane::new(client, number, RECEIVING_CPU, |namespace, interface| match contender {
        Contender::XdpDrop => Shield::drop_all(&objects.join("bench-drop.bpf.o"), namespace, interface),
        Contender::Nft => Shield::nft(namespace, interface),
        Contender::Hashlimit => Shield::hashlimit(namespace, interface),
        Contender::Ratelimit => Daemon::start(binary, namespace, interface, policy).map(Shield::Daemon),
    })
}

/// The runs of one contender at one number of sources.
struct Series<'a> {
    case: Shed,
    /// What the runs are made with and what they cost, until something fails.
    state: Result<(&'a Lane, Sender<'a>, Vec<f64>)>,
}

// === impl Series ===

impl<'a> Series<'a> {
    /// Prepares a sender and lets the contender meet every source.
    fn warm_up(tools: &'a Tools, lane: Result<&'a Lane, &Error>, case: Shed) -> Self {
        let state = lane.map_err(|err| anyhow!("{err:#}")).and_then(|lane| {
            let object = tools.objects.join("bench-sender.bpf.o");
            let sender = Sender::load(&object, &tools.client, &lane.link, case.sources, SENDING_CPU)?;
            lane.warm_up(&sender)?;
            Ok((lane, sender, Vec::new()))
        });
        Self { case, state }
    }

    fn run(&mut self, window: Duration) {
        let Ok((lane, sender, costs)) = &mut self.state else { return };
        match lane.cost(sender, window) {
            Ok(cost) => costs.push(cost),
            Err(err) => self.state = Err(err),
        }
    }

    fn into_row(self) -> Row {
        let Self { case, state } = self;
        let outcome = state.and_then(|(_, _, costs)| Runs::of(&costs).context("no run was made"));
        Row::Shed { case, outcome: outcome.into() }
    }
}

/// The rows of the large policy.
fn large(tools: &Tools, plan: &Plan, report: &mut Report) {
    match load(tools, plan.runs) {
        Ok((load, memory)) => {
            report.rows.push(Row::Load { outcome: Outcome::Measured(load) });
            report.rows.push(Row::Memory { outcome: Outcome::Measured(Bytes { bytes: memory.total }) });
            report.bucket_bytes = Some(memory.buckets);
        }
        Err(err) => {
            let skipped = format!("{err:#}");
            report.rows.push(Row::Load { outcome: Outcome::Skipped { skipped: skipped.clone() } });
            report.rows.push(Row::Memory { outcome: Outcome::Skipped { skipped } });
        }
    }
}

/// How long the daemon takes from the start of its process to a limited interface, with everything that
/// it does on the way: the median of `runs` starts. And what the maps of its program take.
fn load(tools: &Tools, runs: u32) -> Result<(Milliseconds, Memory)> {
    let mut loads = Vec::new();
    let mut memory = Memory::default();
    for run in 1..=runs {
        eprintln!("loading {} rules and {} deny prefixes, run {run} of {runs}", LARGE.rules, LARGE.deny);
        // A namespace each time: the last program is not gone the moment its daemon is.
        let namespace = Namespace::new("bench-load")?;
        let link = Link::new(&tools.client, &namespace, LOAD_LINK)?;
        namespace.ethtool(&["-K", &link.server.device, "gro", "on"])?;
        let daemon = Daemon::start(&tools.binary, &namespace, &link.server, LARGE)?;
        loads.push(daemon.load.as_secs_f64() * 1e3);
        memory = program::memory(daemon.program)?;
    }
    let Summary { median: ms, .. } = Summary::of(&loads).context("no run was made")?;
    Ok((Milliseconds { ms }, memory))
}
