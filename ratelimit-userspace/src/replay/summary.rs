//! What became of a whole capture.

use std::{collections::BTreeMap, net::IpAddr};

use ratelimit_common::record::Reason;
use serde::Serialize;

use super::{Judgement, sources::Sources};

/// Sources that a summary names.
const TOP_SOURCES: usize = 20;

/// Packets and bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// What became of some packets; each is in one of the counts, as in the counters of a running policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Passed, and would pass if nothing monitored.
    pub passed: Count,
    /// Dropped.
    pub dropped: Count,
    /// Passed only because something monitors.
    pub would_drop: Count,
}

/// One rule of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleOutcome {
    /// Its name.
    pub name: String,
    /// What became of the packets that met it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Packets refused (dropped or would have been), by limit in file order.
    pub refused_by_limit: Vec<u64>,
}

/// One of the sources with the most refused packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceOutcome {
    /// Its address.
    pub address: IpAddr,
    /// Packets.
    pub packets: u64,
    /// Packets that were or would be dropped.
    pub refused: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// What became of a whole capture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// All packets.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Packets in all.
    pub packets: u64,
    /// Bytes on the wire in all.
    pub bytes: u64,
    /// Seconds from the first packet to the latest.
    pub seconds: f64,
    /// By reason; reasons that no packet had are absent.
    pub reasons: BTreeMap<&'static str, Outcome>,
    /// By rule, in file order.
    pub rules: Vec<RuleOutcome>,
    /// The sources with the most refused packets, then the most packets.
    pub sources: Vec<SourceOutcome>,
    /// Packets by which the counts of a source may be too low: 0 up to 8,192 sources.
    pub sources_error: u64,
    /// Packets whose time stepped back and was clamped.
    pub clamped: u64,
    /// Packets that the capture cut short.
    pub truncated: u64,
    /// Those of them that lost a header which the parser wanted.
    pub headers_cut: u64,
}

/// Adds up a capture while it is replayed.
#[derive(Debug)]
pub struct Tally {
    summary: Summary,
    sources: Sources,
}

// === impl Tally ===

impl Tally {
    /// An empty tally for rules of these names, each with its number of limits.
    pub fn new(rules: impl IntoIterator<Item = (String, usize)>) -> Self {
        let rules = rules
            .into_iter()
            .map(|(name, limits)| RuleOutcome {
                name,
                outcome: Outcome::default(),
                refused_by_limit: vec![0; limits],
            })
            .collect();
        let summary = Summary {
            outcome: Outcome::default(),
            packets: 0,
            bytes: 0,
            seconds: 0.0,
            reasons: BTreeMap::new(),
            rules,
            sources: Vec::new(),
            sources_error: 0,
            clamped: 0,
            truncated: 0,
            headers_cut: 0,
        };
        Self { summary, sources: Sources::default() }
    }

    /// Counts one packet.
    pub fn count(&mut self, judgement: &Judgement) {
        let Self { summary, sources } = self;
        let bytes = judgement.length;
        summary.packets += 1;
        summary.bytes += u64::from(bytes);
        summary.seconds = judgement.seconds;
        summary.clamped += u64::from(judgement.clamped);
        summary.truncated += u64::from(judgement.truncated);
        summary.headers_cut += u64::from(judgement.headers_cut);
        summary.outcome.count(judgement);
        summary.reasons.entry(Reason::name(judgement.reason)).or_default().count(judgement);
        if let Some(rule) = judgement.rule.and_then(|rule| summary.rules.get_mut(rule)) {
            rule.outcome.count(judgement);
            if let Some(refused) = judgement.limit.and_then(|limit| rule.refused_by_limit.get_mut(limit)) {
                *refused += 1;
            }
        }
        if let Some(source) = judgement.source {
            sources.count(source, bytes, judgement.dropped || judgement.would_drop);
        }
    }

    /// The summary of all that was counted.
    pub fn finish(self) -> Summary {
        let Self { mut summary, sources } = self;
        summary.sources = sources
            .top(TOP_SOURCES)
            .into_iter()
            .map(|(address, sent)| SourceOutcome {
                address,
                packets: sent.packets,
                refused: sent.dropped,
                bytes: sent.bytes,
            })
            .collect();
        summary.sources_error = sources.error();
        summary
    }
}

impl Outcome {
    fn count(&mut self, judgement: &Judgement) {
        let Self { passed, dropped, would_drop } = self;
        let counts = if judgement.dropped {
            dropped
        } else if judgement.would_drop {
            would_drop
        } else {
            passed
        };
        counts.add(judgement.length);
    }
}

impl Count {
    fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}
