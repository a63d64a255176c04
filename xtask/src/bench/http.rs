//! `cargo xtask bench http`: the cost of a decision in process and over the endpoints, and the memory of
//! keys and of idle connections.
//!
//! In process, the limiter and its rivals take turns on one thread of the benchmark `http` of the userspace
//! crate, so that nothing of a rival is built into this program. Over the endpoints, the daemon takes turns
//! with a reference that reads the same request by the same libraries and has its answer ready. Servers are
//! bound to one CPU and h2load to the other; what the server's process ran, over the requests it answered,
//! is the cost. The median of several runs counts.

mod contenders;
mod load;
mod report;
mod row;
mod served;
mod server;

use std::{fmt::Display, path::PathBuf, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::{
    contenders::{Contenders, Series},
    report::Report,
    row::{DECISIONS, KEYS, Keyed, PerDecision, PerKey, RULES, Row, Ruled},
};
use super::report::{Outcome, Settings};
use crate::{
    build,
    lab::{Directory, pin_thread},
    workspace::Workspace,
};

/// The cost of a decision, beside governor, limitador and servers that decide nothing. Needs two CPUs and
/// h2load.
///
/// Fails if something could not be measured; with --check also if a figure is worse than asked for.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    settings: Settings,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    runs: u32,
    /// What a run among rules takes at least.
    window: Duration,
    /// Requests a run of an endpoint.
    requests: u32,
}

/// What is measured with.
#[derive(Debug)]
struct Tools {
    daemon: PathBuf,
    contenders: Contenders,
    files: Directory,
}

/// The CPU of servers and of what runs in process, and the one of their clients.
const SERVER_CPU: usize = 1;
const CLIENT_CPU: usize = 0;

/// Builds everything, measures, prints the table and writes the JSON.
pub(super) fn run(workspace: &Workspace, Options { settings }: &Options) -> Result<()> {
    let cpus = thread::available_parallelism().context("failed to count the CPUs")?;
    ensure!(cpus.get() > SERVER_CPU, "the benchmark needs two CPUs, one for servers and one for clients");
    let plan = Plan::new(settings);
    build::run(workspace, &build::Options { release: true })?;
    let tools = Tools {
        daemon: workspace.target.join("release/ratelimit"),
        contenders: Contenders::build(workspace)?,
        files: Directory::new("bench-http")?,
    };

    let mut report = Report::default();
    decisions(&tools, plan, &mut report);
    rules(&tools, plan, &mut report);
    served::endpoints(&tools, plan, &mut report);
    served::idle_connections(&tools, &mut report);
    settings.conclude(&report)
}

// === impl Plan ===

impl Plan {
    fn new(settings: &Settings) -> Self {
        let runs = settings.runs();
        if settings.quick {
            Self { runs, window: Duration::from_millis(50), requests: 10_000 }
        } else {
            Self { runs, window: Duration::from_millis(500), requests: 100_000 }
        }
    }
}

/// The rows of decisions over many keys, and of what a key takes.
fn decisions(Tools { contenders, .. }: &Tools, plan: Plan, report: &mut Report) {
    let [keys, runs] = [KEYS, plan.runs].map(|number| number.to_string());
    let cases = DECISIONS.map(|(contender, algorithm)| Keyed { contender, algorithm, keys: KEYS });

    eprintln!("deciding over {keys} keys, {runs} runs");
    let series = contenders.measure(&["decision", "--keys", &keys, "--runs", &runs]);
    for (case, outcome) in outcomes(cases, series, PerDecision::of) {
        report.rows.push(Row::Decision { case, outcome });
    }
    eprintln!("counting the bytes of {keys} keys");
    let series = contenders.measure(&["memory", "--keys", &keys]);
    for (case, outcome) in outcomes(cases, series, PerKey::of) {
        report.rows.push(Row::KeyMemory { case, outcome });
    }
}

/// The rows of decisions among rules.
fn rules(Tools { contenders, .. }: &Tools, plan: Plan, report: &mut Report) {
    let [runs, window] = [u128::from(plan.runs), plan.window.as_millis()].map(|number| number.to_string());
    let rules = RULES.map(|rules| rules.to_string()).join(",");

    eprintln!("deciding among {rules} rules, {runs} runs");
    let series = contenders.measure(&["rules", "--rules", &rules, "--runs", &runs, "--window", &window]);
    for (case, outcome) in outcomes(Ruled::all(), series, PerDecision::of) {
        report.rows.push(Row::Rules { case, outcome });
    }
}

/// For each of the cases what its series says.
fn outcomes<C: Copy + PartialEq + Display, T>(
    cases: impl IntoIterator<Item = C>,
    series: Result<Vec<Series<C>>>,
    sum_up: impl Fn(&[f64]) -> Option<T>,
) -> Vec<(C, Outcome<T>)> {
    let series = series.map_err(|err| format!("{err:#}"));
    let outcome = |case| match &series {
        Ok(series) => {
            let costs = series.iter().find(|series| series.case == case).map(|series| &series.costs);
            let figure = costs.and_then(|costs| sum_up(costs));
            figure.with_context(|| format!("the benchmark has no figures of {case}")).into()
        }
        Err(skipped) => Outcome::Skipped { skipped: skipped.clone() },
    };
    cases.into_iter().map(|case| (case, outcome(case))).collect()
}

/// Runs `work`, and what it starts, on one CPU.
fn on_cpu<T: Send>(cpu: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pinned = || {
        pin_thread(cpu)?;
        work()
    };
    thread::scope(|scope| scope.spawn(pinned).join().expect("a measurement returns its errors"))
}
