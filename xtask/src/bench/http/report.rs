//! All that the benchmark found: the table for people, and what is asked of the figures.

use std::fmt::{self, Display, Formatter};

use super::row::{Algorithm, CONNECTIONS, Contender, Endpoint, KEYS, Keyed, Row, Ruled, Served};
use crate::bench::report::{Bound, Findings, Goal, Outcome};

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// In the order of measurement.
    pub(super) rows: Vec<Row>,
}

// === impl Report ===

impl Report {
    fn decision(&self, contender: Contender, algorithm: Algorithm) -> Option<f64> {
        let wanted = Keyed { contender, algorithm, keys: KEYS };
        self.rows.iter().find_map(|row| match row {
            Row::Decision { case, outcome } if *case == wanted => Some(outcome.measured()?.ns_per_decision),
            _ => None,
        })
    }

    fn bytes_per_key(&self, algorithm: Algorithm) -> Option<f64> {
        let wanted = Keyed { contender: Contender::Ratelimit, algorithm, keys: KEYS };
        self.rows.iter().find_map(|row| match row {
            Row::KeyMemory { case, outcome } if *case == wanted => Some(outcome.measured()?.bytes_per_key),
            _ => None,
        })
    }

    fn among_rules(&self, rules: u32) -> Option<f64> {
        let wanted = Ruled { contender: Contender::Ratelimit, rules };
        self.rows.iter().find_map(|row| match row {
            Row::Rules { case, outcome } if *case == wanted => Some(outcome.measured()?.ns_per_decision),
            _ => None,
        })
    }

    fn request(&self, endpoint: Endpoint, contender: Contender) -> Option<f64> {
        let wanted = Served { endpoint, contender };
        self.rows.iter().find_map(|row| match row {
            Row::Request { case, outcome } if *case == wanted => Some(outcome.measured()?.cpu_ns_per_request),
            _ => None,
        })
    }

    fn idle_mebibytes(&self) -> Option<f64> {
        self.rows.iter().find_map(|row| match row {
            Row::IdleConnections { connections: CONNECTIONS, outcome } => {
                Some(outcome.measured()?.mebibytes())
            }
            _ => None,
        })
    }
}

impl Findings for Report {
    type Row = Row;

    fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn skipped(&self) -> Vec<(String, &str)> {
        let skipped = self.rows.iter().filter_map(|row| {
            let why = match row {
                Row::Decision { outcome, .. } | Row::Rules { outcome, .. } => outcome.skipped(),
                Row::KeyMemory { outcome, .. } => outcome.skipped(),
                Row::Request { outcome, .. } => outcome.skipped(),
                Row::IdleConnections { outcome, .. } => outcome.skipped(),
            };
            Some((row.what(), why?))
        });
        skipped.collect()
    }

    fn goals(&self) -> Vec<Goal> {
        use Algorithm::{SlidingWindow, TokenBucket};
        use Contender::{Governor, Ratelimit, Reference};

        let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
        let at_most =
            |limit, what: &str, figure| Goal { what: what.to_owned(), figure, bound: Bound::AtMost(limit) };
        let at_least =
            |limit, what: &str, figure| Goal { what: what.to_owned(), figure, bound: Bound::AtLeast(limit) };
        let bucket = self.decision(Ratelimit, TokenBucket);
        let window = self.decision(Ratelimit, SlidingWindow);
        let governor = self.decision(Governor, TokenBucket);
        let served = |endpoint| ratio(self.request(endpoint, Reference), self.request(endpoint, Ratelimit));
        vec![
            at_most(1.0, "decision, token bucket / governor", ratio(bucket, governor)),
            at_most(1.3, "decision, sliding window / token bucket", ratio(window, bucket)),
            at_most(64.0, "bytes a key, token bucket", self.bytes_per_key(TokenBucket)),
            at_most(64.0, "bytes a key, sliding window", self.bytes_per_key(SlidingWindow)),
            at_most(1.5, "decision, 1000 rules / one", ratio(self.among_rules(1_000), self.among_rules(1))),
            at_least(0.85, "CPU of a check, reference / ratelimit", served(Endpoint::Check)),
            at_least(0.85, "CPU of a gRPC call, reference / ratelimit", served(Endpoint::Grpc)),
            at_most(200.0, "resident with 10000 idle connections, MiB", self.idle_mebibytes()),
        ]
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fn line<T: Display>(f: &mut Formatter<'_>, row: &Row, outcome: &Outcome<T>) -> fmt::Result {
            match outcome.measured() {
                Some(figure) => writeln!(f, "  {:<58} {figure}", row.what()),
                None => Ok(()),
            }
        }

        writeln!(f, "Decisions in ns, keys in bytes, requests in CPU ns of the server, connections in MiB:")?;
        for row in &self.rows {
            match row {
                Row::Decision { outcome, .. } | Row::Rules { outcome, .. } => line(f, row, outcome)?,
                Row::KeyMemory { outcome, .. } => line(f, row, outcome)?,
                Row::Request { outcome, .. } => line(f, row, outcome)?,
                Row::IdleConnections { outcome, .. } => line(f, row, outcome)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
