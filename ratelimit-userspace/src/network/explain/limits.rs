//! What the limits of a rule say to a packet of one source now.

use std::time::Duration;

use ratelimit_common::{address::Address, charge};
use serde::Serialize;

use crate::{
    admin::schema::text,
    config::policy::Unit,
    network::{
        buckets::{self, Buckets, Outcome},
        in_force::Policy,
    },
};

/// What one limit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitState {
    /// It, in words.
    pub limit: String,
    /// What is counted: `packets` or `bytes`.
    pub unit: &'static str,
    /// What is left in its bucket.
    pub left: u64,
    /// What a full one holds; 0: the rate is zero.
    pub of: u64,
    /// What the packet costs.
    pub cost: u64,
    /// It lets the packet pass.
    pub admits: bool,
    /// After which time it lets it pass, such as `1s 250ms`; null: now, or never.
    pub wait: Option<String>,
    /// The same as a time, to compare; [`Duration::MAX`]: never.
    #[serde(skip)]
    pub wait_for: Duration,
    /// When the bucket is full again if nobody takes from it; null: it is full.
    pub full_in: Option<String>,
}

/// What the limits of a rule say to a packet of `length` bytes. Without buckets: as if nobody had sent yet.
pub fn limit_states<B: charge::Buckets>(
    policy: &Policy,
    rule: usize,
    source: &Address,
    length: u32,
    buckets: Option<&Buckets<B>>,
) -> Vec<LimitState> {
    let live = buckets.filter(|_| !policy.is_fresh(rule));
    let limits = policy.network.rules[rule].limits.iter();
    let compiled = &policy.compiled.rules[rule].limits;
    let words = &policy.compiled.descriptions[rule].limits;
    let states = limits.zip(compiled).zip(words).map(|((limit, compiled), words)| {
        let cost = compiled.units(length.into());
        let unit = match limit.unit {
            Unit::Packets => "packets",
            Unit::Bytes => "bytes",
        };
        let never = LimitState {
            limit: words.clone(),
            unit,
            left: 0,
            of: 0,
            cost,
            admits: false,
            wait: None,
            wait_for: Duration::MAX,
            full_in: None,
        };
        let Some(bucket) = limit.bucket else { return never };
        let level = match live {
            Some(buckets) => buckets.level(compiled, bucket.burst, source, cost),
            None => buckets::full(compiled, bucket.burst, cost),
        };
        LimitState {
            left: level.left,
            of: bucket.burst,
            admits: level.outcome == Outcome::Admits,
            wait: match level.outcome {
                Outcome::Refuses(wait) => Some(text::duration_up(wait)),
                Outcome::Admits | Outcome::Never => None,
            },
            wait_for: match level.outcome {
                Outcome::Admits => Duration::ZERO,
                Outcome::Refuses(wait) => wait,
                Outcome::Never => Duration::MAX,
            },
            full_in: (!level.full_in.is_zero()).then(|| text::duration_up(level.full_in)),
            ..never
        }
    });
    states.collect()
}
