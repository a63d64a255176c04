//! What one rule did.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use super::{
    denials::{Denial, Sampler},
    sketch::Recent,
    striped::Striped,
};
use crate::http::{algorithm::Nanos, ask::Status, rules::Rule};

/// What one rule did. Requests that only read (a peek, a descriptor of 0 hits) and refunds do not count.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    counts: Striped<Counts>,
    /// Absent until a request meets the rule, so that a rule that nothing meets costs no memory.
    clients: OnceLock<Box<Clients>>,
    log: Sampler,
}

#[derive(Debug, Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    shadow_denied: AtomicU64,
    soft_over: AtomicU64,
    near_limit: AtomicU64,
}

#[derive(Debug)]
struct Clients {
    seen: Recent,
    denied: Recent,
}

/// What one rule did until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleFigures {
    /// Requests that it let pass, whatever other rules said of them.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Requests that it would have denied, were it no shadow rule. They are not among `allowed`.
    pub shadow_denied: u64,
    /// Those of `allowed` that fitted only within the margin of a soft limit.
    pub soft_over: u64,
    /// Units admitted above 80% of the limit. Envoy's service counts so, and also the part that still fitted
    /// of a request that did not fit as a whole; here such a request is charged nothing, so it is not near
    /// the limit but over it.
    pub near_limit: u64,
    /// About how many clients (counters) met it in this hour or the one before.
    pub clients: u64,
    /// About how many of them it denied, or would have.
    pub denied_clients: u64,
}

// === impl RuleMetrics ===

impl RuleMetrics {
    /// What it did until now.
    pub fn figures(&self, now: Nanos) -> RuleFigures {
        let mut figures = RuleFigures::default();
        for counts in self.counts.iter() {
            let Counts { allowed, denied, shadow_denied, soft_over, near_limit } = counts;
            figures.allowed += allowed.load(Ordering::Relaxed);
            figures.denied += denied.load(Ordering::Relaxed);
            figures.shadow_denied += shadow_denied.load(Ordering::Relaxed);
            figures.soft_over += soft_over.load(Ordering::Relaxed);
            figures.near_limit += near_limit.load(Ordering::Relaxed);
        }
        if let Some(clients) = self.clients.get() {
            figures.clients = clients.seen.count(now);
            // Two estimates may contradict each other; a part is never larger than the whole.
            figures.denied_clients = clients.denied.count(now).min(figures.clients);
        }
        figures
    }

    /// Counts a request of `hits`, at least 1, that met `rule`, whose metrics these are. `denied`: the
    /// request was denied, by this rule or another.
    pub(super) fn observe(&self, rule: &Rule, status: &Status, hits: i64, denied: bool, now: Nanos) {
        let counts = self.counts.here();
        // What a quota rule alone would refuse passes where another quota is left.
        let denied = denied && !status.allowed;
        if status.shadow_denied {
            add(&counts.shadow_denied, 1);
        } else if denied {
            add(&counts.denied, 1);
        } else {
            add(&counts.allowed, 1);
            if status.soft_over {
                add(&counts.soft_over, 1);
            }
            add(&counts.near_limit, near_limit(rule.policy.cost, status, hits));
        }
        if let Some(identity) = status.identity {
            let clients = self.clients.get_or_init(Box::default);
            clients.seen.add(identity, now);
            if denied || status.shadow_denied {
                clients.denied.add(identity, now);
            }
        }
        if denied {
            let reason = if status.retry_after.is_some() { "over limit" } else { "can never pass" };
            let denial = Denial { rule: Some(&rule.id), identity: status.identity, reason };
            self.log.log(denial, now, || self.denied());
        }
    }

    /// Tells the log of denials that were left out of it and not followed by one that was not.
    pub(super) fn flush(&self, rule: &Rule, now: Nanos) {
        self.log.flush(Some(&rule.id), now, self.denied());
    }

    fn denied(&self) -> u64 {
        self.counts.iter().map(|counts| counts.denied.load(Ordering::Relaxed)).sum()
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self { seen: Recent::new(), denied: Recent::new() }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// How many of a request's units lie above 80% of the limit, rounded down, after it was admitted.
fn near_limit(cost: u64, status: &Status, hits: i64) -> u64 {
    let Some(standing) = status.standing else { return 0 };
    let threshold = standing.limit / 5 * 4 + standing.limit % 5 * 4 / 5;
    let used = standing.limit.saturating_sub(standing.remaining);
    let charged = u64::try_from(hits).unwrap_or(0).saturating_mul(cost);
    used.saturating_sub(threshold).min(charged)
}
