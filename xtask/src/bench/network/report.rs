//! What the benchmark found: one row a figure, the table for people, and what is asked of the figures.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::policy::{CAPACITY, Policy};
use crate::bench::report::{Bound, Findings, Goal, Outcome, Summary};

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
    pub(super) fn of(costs: &[f64]) -> Option<Self> {
        let Summary { median, runs, spread } = Summary::of(costs)?;
        Some(Self { ns_per_packet: median, runs, spread })
    }
}

// === impl Report ===

impl Findings for Report {
    type Row = Row;

    fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn skipped(&self) -> Vec<(String, &str)> {
        let skipped = self.rows.iter().filter_map(|row| match row {
            Row::Shed { case, outcome } => Some((case.to_string(), outcome.skipped()?)),
            Row::TestRun { case, outcome } => Some((format!("test run {case}"), outcome.skipped()?)),
            Row::Load { outcome } => Some(("load".to_owned(), outcome.skipped()?)),
            Row::Memory { outcome } => Some(("memory".to_owned(), outcome.skipped()?)),
        });
        skipped.collect()
    }

    fn goals(&self) -> Vec<Goal> {
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
        let mut at_most =
            |limit, what, figure| goals.push(Goal { what, figure, bound: Bound::AtMost(limit) });
        for (sources, rival, limit) in [
            (1_000, Contender::XdpDrop, 1.8),
            (1_000, Contender::Nft, 0.3),
            (1_000, Contender::Hashlimit, 0.3),
            (1_000_000, Contender::Nft, 0.65),
            (1_000_000, Contender::Hashlimit, 0.65),
        ] {
            let figure = ratio(plain(sources), shed(rival, sources, 1, 0));
            at_most(limit, format!("shed at {sources} sources / {rival}"), figure);
        }
        for sources in [1_000, 100_000] {
            for (what, rules, deny, limit) in
                [("64 rules / one", 64, 0, 1.15), ("100000 deny prefixes / none", 1, 100_000, 1.2)]
            {
                let figure = ratio(shed(Contender::Ratelimit, sources, rules, deny), plain(sources));
                at_most(limit, format!("shed at {sources} sources, {what}"), figure);
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
        at_most(1_500.0, "load, ms".to_owned(), load);
        at_most(48.0, "all maps, MiB".to_owned(), per(memory, 1 << 20));
        let source = per(self.bucket_bytes, CAPACITY);
        at_most(32.0, "a source of the configured capacity, bytes".to_owned(), source);
        goals
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "CPU of the receiving side, ns a shed packet:")?;
        for row in &self.rows {
            match row {
                Row::Shed { case, outcome: Outcome::Measured(runs) } => {
                    let Runs { ns_per_packet: median, runs, spread } = *runs;
                    writeln!(f, "  {:<58} {}", case.to_string(), Summary { median, runs, spread })?;
                }
                Row::TestRun { case, outcome: Outcome::Measured(PerPacket { ns_per_packet }) } => {
                    writeln!(f, "  {:<58} {ns_per_packet:>8.1}", format!("test run, {case}"))?;
                }
                _ => {}
            }
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

#[cfg(test)]
mod tests;
