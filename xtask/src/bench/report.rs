//! What the benchmark found: one row a figure, the table for people, and what is asked of the figures.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::policy::{CAPACITY, Policy};

/// One figure, or the reason why there is none. Serialised, these are the elements of the JSON array.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "bench", rename_all = "snake_case")]
pub(super) enum Row {
    /// What shedding one packet costs the receiving side.
    Shed {
        /// Who sheds, under which policy, how many sources.
        #[serde(flatten)]
        case: Shed,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<Runs>,
    },
    /// What the program alone costs, by `BPF_PROG_TEST_RUN`.
    TestRun {
        /// Which frame meets which policy.
        case: &'static str,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<PerPacket>,
    },
    /// How long a large policy takes, from the start of the daemon to traffic being limited.
    Load {
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<Milliseconds>,
    },
    /// The memory of all maps of the program that enforces that policy.
    Memory {
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<Bytes>,
    },
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

/// What tells one series of shedding from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Shed {
    /// Who sheds.
    pub(super) contender: Contender,
    /// Source addresses that take turns.
    pub(super) sources: u32,
    /// Rules in the policy; the last one matches.
    pub(super) rules: u32,
    /// Deny prefixes, none of which matches.
    pub(super) deny: u32,
}

/// Who sheds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contender {
    /// The daemon of this workspace.
    Ratelimit,
    /// An XDP program that drops everything: the floor.
    XdpDrop,
    /// A dynamic set with a limit per element.
    Nft,
    /// The iptables match.
    Hashlimit,
}

/// The median of several runs.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(super) struct Runs {
    /// CPU nanoseconds of the receiving side a packet.
    pub(super) ns_per_packet: f64,
    /// How many runs.
    pub(super) runs: u32,
    /// (slowest - fastest) / median.
    pub(super) spread: f64,
}

/// Nanoseconds a packet.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PerPacket {
    /// Mean over the repetitions of one test run, the median of several test runs.
    pub(super) ns_per_packet: f64,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Milliseconds {
    /// The median of several starts.
    pub(super) ms: f64,
}

/// Bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Bytes {
    /// As the kernel accounts for them.
    pub(super) bytes: u64,
}

/// All rows, and beside them what is no row.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// In the order of measurement.
    pub(super) rows: Vec<Row>,
    /// What the elements of the map of the buckets take.
    pub(super) bucket_bytes: Option<u64>,
}

/// Something asked of the figures.
#[derive(Debug)]
pub(super) struct Goal {
    what: String,
    figure: Option<f64>,
    limit: f64,
}

// === impl Shed ===

impl Shed {
    /// A contender with a policy against a number of sources.
    pub(super) fn new(contender: Contender, Policy { rules, deny }: Policy, sources: u32) -> Self {
        Self { contender, sources, rules, deny }
    }
}

// === impl Runs ===

impl Runs {
    /// Sums up the runs of one series. `None` when there was none.
    #[expect(clippy::cast_possible_truncation, reason = "a handful of runs")]
    pub(super) fn of(costs: &[f64]) -> Option<Self> {
        let mut sorted = costs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (fastest, slowest) = (sorted.first()?, sorted.last()?);
        let median = median(&sorted)?;
        Some(Self {
            ns_per_packet: rounded(median),
            runs: sorted.len() as u32,
            spread: rounded((slowest - fastest) / median),
        })
    }
}

/// The middle of `sorted`; of the two middle values their mean.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// To a thousandth: more digits would pretend to a precision that no run has.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
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
}

impl<T> From<anyhow::Result<T>> for Outcome<T> {
    fn from(result: anyhow::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Measured(value),
            Err(err) => Self::Skipped { skipped: format!("{err:#}") },
        }
    }
}

// === impl Report ===

impl Report {
    /// What could not be measured, and why.
    pub(super) fn skipped(&self) -> impl Iterator<Item = (String, &str)> {
        fn reason<T>(outcome: &Outcome<T>) -> Option<&str> {
            match outcome {
                Outcome::Measured(_) => None,
                Outcome::Skipped { skipped } => Some(skipped),
            }
        }
        self.rows.iter().filter_map(|row| match row {
            Row::Shed { case, outcome } => Some((case.to_string(), reason(outcome)?)),
            Row::TestRun { case, outcome } => Some((format!("test run {case}"), reason(outcome)?)),
            Row::Load { outcome } => Some(("load".to_owned(), reason(outcome)?)),
            Row::Memory { outcome } => Some(("memory".to_owned(), reason(outcome)?)),
        })
    }

    /// What is asked of the figures. A goal whose figures are missing is not met.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let shed = |contender, sources, rules, deny| {
            let wanted = Shed { contender, sources, rules, deny };
            self.rows.iter().find_map(|row| match row {
                Row::Shed { case, outcome } if *case == wanted => Some(outcome.measured()?.ns_per_packet),
                _ => None,
            })
        };
        let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
        let plain = |sources| shed(Contender::Ratelimit, sources, 1, 0);

        let mut goals = Vec::new();
        for (sources, rival, limit) in [
            (1_000, Contender::XdpDrop, 1.8),
            (1_000, Contender::Nft, 0.3),
            (1_000, Contender::Hashlimit, 0.3),
            (1_000_000, Contender::Nft, 0.65),
            (1_000_000, Contender::Hashlimit, 0.65),
        ] {
            let figure = ratio(plain(sources), shed(rival, sources, 1, 0));
            goals.push(Goal { what: format!("shed at {sources} sources / {rival}"), figure, limit });
        }
        for sources in [1_000, 100_000] {
            for (what, rules, deny, limit) in
                [("64 rules / one", 64, 0, 1.15), ("100000 deny prefixes / none", 1, 100_000, 1.2)]
            {
                let figure = ratio(shed(Contender::Ratelimit, sources, rules, deny), plain(sources));
                goals.push(Goal { what: format!("shed at {sources} sources, {what}"), figure, limit });
            }
        }
        let load = self.rows.iter().find_map(|row| match row {
            Row::Load { outcome } => Some(outcome.measured()?.ms),
            _ => None,
        });
        let memory = self.rows.iter().find_map(|row| match row {
            Row::Memory { outcome } => Some(outcome.measured()?.bytes),
            _ => None,
        });
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let per = |bytes: Option<u64>, divisor: u32| Some(bytes? as f64 / f64::from(divisor));
        goals.push(Goal { what: "load, ms".to_owned(), figure: load, limit: 1_500.0 });
        goals.push(Goal { what: "all maps, MiB".to_owned(), figure: per(memory, 1 << 20), limit: 48.0 });
        goals.push(Goal {
            what: "a source of the configured capacity, bytes".to_owned(),
            figure: per(self.bucket_bytes, CAPACITY),
            limit: 32.0,
        });
        goals
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "CPU of the receiving side, ns a shed packet:")?;
        for row in &self.rows {
            match row {
                Row::Shed { case, outcome: Outcome::Measured(runs) } => {
                    let Runs { ns_per_packet, runs, spread } = runs;
                    writeln!(
                        f,
                        "  {:<58} {ns_per_packet:>8.1}  ({runs} runs, spread {:.1}%)",
                        case.to_string(),
                        spread * 100.0
                    )?;
                }
                Row::TestRun { case, outcome: Outcome::Measured(PerPacket { ns_per_packet }) } => {
                    writeln!(f, "  {:<58} {ns_per_packet:>8.1}", format!("test run, {case}"))?;
                }
                _ => {}
            }
        }
        writeln!(f, "Asked for, and found:")?;
        for goal in self.goals() {
            writeln!(f, "  {goal}")?;
        }
        for (what, why) in self.skipped() {
            writeln!(f, "SKIPPED {what}: {why}")?;
        }
        Ok(())
    }
}

impl Display for Shed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { contender, sources, rules, deny } = *self;
        write!(f, "{contender} with {}, {sources} sources", Policy { rules, deny })
    }
}

impl Display for Contender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ratelimit => "ratelimit",
            Self::XdpDrop => "bare XDP_DROP",
            Self::Nft => "nft dynamic set",
            Self::Hashlimit => "iptables hashlimit",
        })
    }
}

// === impl Goal ===

impl Goal {
    /// Whether the figure is there and within the limit.
    pub(super) fn met(&self) -> bool {
        self.figure.is_some_and(|figure| figure <= self.limit)
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { what, figure, limit } = self;
        match figure {
            Some(figure) => {
                let verdict = if self.met() { "PASS" } else { "FAIL" };
                write!(f, "{verdict}  {what:<58} {figure:>8.2} (at most {limit})")
            }
            None => write!(f, "----  {what:<58} not measured (at most {limit})"),
        }
    }
}

#[cfg(test)]
mod tests;
