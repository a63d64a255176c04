//! What all benchmarks have in common: how runs are summed up, what is asked of a figure, and how the
//! findings are shown and kept.

use std::{
    fmt::{self, Display, Formatter},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;

/// How much is measured, and what becomes of it.
#[derive(Args, Debug)]
pub(super) struct Settings {
    /// Writes the figures to this file, as an array of JSON objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs of each contender; their median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// A rough answer in under a minute: less of everything, and three runs.
    #[arg(long, conflicts_with = "runs")]
    pub(super) quick: bool,
    /// Fails if a figure is missing or worse than asked for.
    #[arg(long)]
    check: bool,
}

/// What a benchmark found. Displayed, it is the table of what was measured.
pub(super) trait Findings: Display {
    /// One figure, or the reason why there is none: an element of the JSON array.
    type Row: Serialize;

    /// In the order of measurement.
    fn rows(&self) -> &[Self::Row];

    /// What could not be measured, and why.
    fn skipped(&self) -> Vec<(String, &str)>;

    /// What is asked of the figures. A goal whose figures are missing is not met.
    fn goals(&self) -> Vec<Goal>;
}

/// A measured value, or why it was not measured.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Outcome<T> {
    /// Measured.
    Measured(T),
    /// Not measured.
    Skipped {
        /// Why.
        skipped: String,
    },
}

/// Several runs, summed up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    /// The median.
    pub(super) median: f64,
    /// How many runs.
    pub(super) runs: u32,
    /// (slowest - fastest) / median.
    pub(super) spread: f64,
}

/// Something asked of the figures.
#[derive(Debug)]
pub(super) struct Goal {
    /// What the figure is.
    pub(super) what: String,
    /// The figure, if it was measured.
    pub(super) figure: Option<f64>,
    /// What is asked of it.
    pub(super) bound: Bound,
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

// === impl Settings ===

impl Settings {
    /// Runs of each contender.
    pub(super) fn runs(&self) -> u32 {
        const QUICK: u32 = 3;

        if self.quick { QUICK } else { self.runs }
    }

    /// Prints what was found and writes the JSON. Fails if something could not be measured, and where
    /// that was asked for, if a figure is worse than it should be.
    pub(super) fn conclude(&self, findings: &impl Findings) -> Result<()> {
        println!("{findings}Asked for, and found:");
        let goals = findings.goals();
        for goal in &goals {
            println!("  {goal}");
        }
        let skipped = findings.skipped();
        for (what, why) in &skipped {
            println!("SKIPPED {what}: {why}");
        }
        println!();
        if let Some(path) = &self.json {
            write_json(path, findings.rows())?;
            println!("The figures are in {}.", path.display());
        }
        let skipped = skipped.len();
        ensure!(skipped == 0, "{skipped} things could not be measured; the reasons are above");
        if self.check {
            let missed = goals.iter().filter(|goal| !goal.met()).count();
            ensure!(missed == 0, "{missed} figures are missing or worse than asked for");
        }
        Ok(())
    }
}

/// One object a line, so that two files can be compared.
fn write_json(path: &Path, rows: &[impl Serialize]) -> Result<()> {
    let lines: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    fs::write(path, format!("[\n  {}\n]\n", lines.join(",\n  ")))
        .with_context(|| format!("failed to write {}", path.display()))
}

// === impl Outcome ===

impl<T> Outcome<T> {
    /// The value, if it was measured.
    pub(super) fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            Self::Skipped { .. } => None,
        }
    }

    /// Why it was not measured, if it was not.
    pub(super) fn skipped(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::Skipped { skipped } => Some(skipped),
        }
    }
}

impl<T> From<Result<T>> for Outcome<T> {
    fn from(result: Result<T>) -> Self {
        match result {
            Ok(value) => Self::Measured(value),
            Err(err) => Self::Skipped { skipped: format!("{err:#}") },
        }
    }
}

// === impl Summary ===

impl Summary {
    /// Sums up the runs of one series. `None` when there was none.
    #[expect(clippy::cast_possible_truncation, reason = "a handful of runs")]
    pub(super) fn of(costs: &[f64]) -> Option<Self> {
        let mut sorted = costs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (fastest, slowest) = (sorted.first()?, sorted.last()?);
        let median = median(&sorted)?;
        Some(Self {
            median: rounded(median),
            runs: sorted.len() as u32,
            spread: rounded((slowest - fastest) / median),
        })
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { median, runs, spread } = self;
        write!(f, "{median:>8.1}  ({runs} runs, spread {:.1}%)", spread * 100.0)
    }
}

/// The middle of `sorted`; of the two middle values their mean.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// To a thousandth: more digits would pretend to a precision that no run has.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

// === impl Goal ===

impl Goal {
    /// Whether the figure is there and within its bound.
    pub(super) fn met(&self) -> bool {
        self.figure.is_some_and(|figure| match self.bound {
            Bound::AtMost(limit) => figure <= limit,
            Bound::AtLeast(limit) => figure >= limit,
        })
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { what, figure, bound } = self;
        match figure {
            Some(figure) => {
                let verdict = if self.met() { "PASS" } else { "FAIL" };
                write!(f, "{verdict}  {what:<58} {figure:>8.2} ({bound})")
            }
            None => write!(f, "----  {what:<58} not measured ({bound})"),
        }
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "at most {limit}"),
            Self::AtLeast(limit) => write!(f, "at least {limit}"),
        }
    }
}

#[cfg(test)]
mod tests;
