//! What the benchmark found: one row a figure, the table for people, and what is asked of the figures.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bench::report::{Bound, Findings, Goal, Outcome, Summary};

/// One figure, or the reason why there is none.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "bench", rename_all = "snake_case")]
pub(super) enum Row {
    /// From the request that is one too many to the first packet that is shed.
    EscalationLatency {
        #[serde(flatten)]
        outcome: Outcome<Milliseconds>,
    },
    /// CPU time of the server for a request.
    EscalationCost {
        request: Request,
        #[serde(flatten)]
        outcome: Outcome<PerRequest>,
    },
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// It gets a 429.
    Denied,
    /// It gets nothing.
    Shed,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Milliseconds {
    ms: f64,
    /// The slowest of all runs.
    slowest_ms: f64,
    runs: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(super) struct PerRequest {
    cpu_ns_per_request: f64,
    runs: u32,
    spread: f64,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
}

// === impl Report ===

impl Report {
    /// Takes what each run took, in milliseconds.
    pub(super) fn latency(&mut self, runs: Result<Vec<f64>>) {
        let outcome = runs.and_then(|all| {
            let Summary { median, runs, .. } = Summary::of(&all).context("no run was made")?;
            let slowest = all.iter().copied().fold(0.0, f64::max);
            Ok(Milliseconds { ms: median, slowest_ms: (slowest * 1000.0).round() / 1000.0, runs })
        });
        self.rows.push(Row::EscalationLatency { outcome: outcome.into() });
    }

    /// Takes what a request cost in each run, in nanoseconds.
    pub(super) fn cost(&mut self, request: Request, runs: Result<Vec<f64>>) {
        let outcome = runs.and_then(|all| {
            let Summary { median, runs, spread } = Summary::of(&all).context("no run was made")?;
            Ok(PerRequest { cpu_ns_per_request: median, runs, spread })
        });
        self.rows.push(Row::EscalationCost { request, outcome: outcome.into() });
    }

    fn cost_of(&self, wanted: Request) -> Option<f64> {
        self.rows.iter().find_map(|row| match row {
            Row::EscalationCost { request, outcome } if *request == wanted => {
                Some(outcome.measured()?.cpu_ns_per_request)
            }
            _ => None,
        })
    }

    fn slowest(&self) -> Option<f64> {
        self.rows.iter().find_map(|row| match row {
            Row::EscalationLatency { outcome } => Some(outcome.measured()?.slowest_ms),
            Row::EscalationCost { .. } => None,
        })
    }
}

impl Findings for Report {
    type Row = Row;

    fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn skipped(&self) -> Vec<(String, &str)> {
        let skipped = self.rows.iter().filter_map(|row| match row {
            Row::EscalationLatency { outcome } => Some(("the latency".to_owned(), outcome.skipped()?)),
            Row::EscalationCost { request, outcome } => Some((request.to_string(), outcome.skipped()?)),
        });
        skipped.collect()
    }

    fn goals(&self) -> Vec<Goal> {
        let ratio = self.cost_of(Request::Denied).zip(self.cost_of(Request::Shed));
        vec![
            Goal {
                what: "ms from one request too many to the first packet shed".to_owned(),
                figure: self.slowest(),
                bound: Bound::AtMost(50.0),
            },
            Goal {
                what: "times the CPU of a shed request that a 429 takes".to_owned(),
                figure: ratio.map(|(denied, shed)| denied / shed),
                bound: Bound::AtLeast(20.0),
            },
        ]
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for row in &self.rows {
            match row {
                Row::EscalationLatency {
                    outcome: Outcome::Measured(Milliseconds { ms, slowest_ms, runs }),
                } => {
                    writeln!(
                        f,
                        "from one request too many to the first packet shed, ms    {ms:>8.2}  ({runs} runs, slowest {slowest_ms:.2})"
                    )?;
                }
                Row::EscalationCost {
                    request,
                    outcome: Outcome::Measured(PerRequest { cpu_ns_per_request, runs, spread }),
                } => {
                    let summary = Summary { median: *cpu_ns_per_request, runs: *runs, spread: *spread };
                    writeln!(f, "{:<57} {summary}", format!("{request}, CPU ns of the server"))?;
                }
                Row::EscalationLatency { .. } | Row::EscalationCost { .. } => {}
            }
        }
        writeln!(f)
    }
}

// === impl Request ===

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "a request that gets a 429",
            Self::Shed => "a request that is shed",
        })
    }
}
