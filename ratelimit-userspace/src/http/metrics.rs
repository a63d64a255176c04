//! What the limiter did, in numbers.
//!
//! Everything is kept where it arises: a rule owns the counters of what it did
//! ([`RuleMetrics`]), so counting needs no look-up, and how many series there are depends on the rules alone,
//! never on the clients. Labels are rule ids and domains. Counting costs a few relaxed additions in memory
//! that no other thread writes to. `exposition` lists the names.

mod denials;
mod exposition;
mod latency;
mod rule;
mod sketch;
mod striped;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use self::{
    denials::TARGET,
    exposition::Format,
    rule::{RuleFigures, RuleMetrics},
};
use self::{
    denials::{Denial, Sampler},
    latency::Latency,
    striped::Striped,
};
use super::{
    algorithm::Nanos,
    ask::{Answer, Ask, Decision, Refusal},
    clock::Now,
    rules::RuleBook,
};

/// What the limiter as a whole did. What each rule did stands with the rule.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Striped<Requests>,
    latency: Latency,
    store_full: Refused,
    missing_entry: Refused,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
    last_reload_failed: AtomicBool,
}

/// Requests that no rule judged.
#[derive(Debug, Default)]
struct Requests {
    unmatched: AtomicU64,
    undescribed: AtomicU64,
    unruled: AtomicU64,
}

/// Denials for a reason that is no rule's.
#[derive(Debug, Default)]
struct Refused {
    count: AtomicU64,
    log: Sampler,
}

// === impl Metrics ===

impl Metrics {
    /// Counts a decision, which took `latency`.
    pub fn observe(&self, ask: &Ask<'_>, answer: &Answer, latency: Nanos, now: Now) {
        self.latency.record(latency);
        let denied = answer.decision == Decision::Deny;
        let mut ruled = false;
        for (descriptor, status) in ask.descriptors.iter().zip(&answer.statuses) {
            let Some(rule) = &status.rule else { continue };
            ruled = true;
            if descriptor.hits > 0 && !ask.peek {
                rule.metrics.observe(rule, status, descriptor.hits, denied, now.steady);
            }
        }
        if let Some(refusal) = answer.refusal {
            self.refused(refusal, now);
        }
        if ask.descriptors.is_empty() {
            self.requests.here().undescribed.fetch_add(1, Ordering::Relaxed);
        } else if !ruled {
            self.requests.here().unruled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that no `identify` item matched.
    pub fn unmatched(&self) {
        self.requests.here().unmatched.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused, but not by a rule.
    pub fn refused(&self, refusal: Refusal, now: Now) {
        let (refused, reason) = match refusal {
            Refusal::StoreFull => (&self.store_full, "memory is full"),
            Refusal::MissingEntry => (&self.missing_entry, "an entry is missing"),
        };
        let count = refused.count.fetch_add(1, Ordering::Relaxed) + 1;
        refused.log.log(Denial { rule: None, identity: None, reason }, now.steady, || count);
    }

    /// Counts an attempt to put other rules in force.
    pub fn reloaded(&self, succeeded: bool) {
        let count = if succeeded { &self.reloads } else { &self.reload_failures };
        count.fetch_add(1, Ordering::Relaxed);
        self.last_reload_failed.store(!succeeded, Ordering::Relaxed);
    }

    /// Tells the log how many denials were left out of it, where no later one did. Called now and then.
    pub fn flush(&self, rules: &RuleBook, now: Now) {
        for rule in rules.rules() {
            rule.metrics.flush(rule, now.steady);
        }
        for Refused { count, log } in [&self.store_full, &self.missing_entry] {
            log.flush(None, now.steady, count.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests;
