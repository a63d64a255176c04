//! The log of denials: which rule, whose counter, why; a sample of them, so that a flood of refusals does not
//! become a flood of lines. What is logged of a client is the keyed hash that its counter stands under.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::info;

use crate::http::{algorithm::Nanos, store::Identity};

/// The target of the log's events.
pub const TARGET: &str = "denials";

/// A line a second, after the burst.
const INTERVAL: Nanos = 1_000_000_000;

/// Lines at once.
const BURST: u64 = 10;

/// Lets the log have some denials of one kind.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// When all of the burst is there again.
    full_at: AtomicU64,
    /// Denials that the log has told of, as lines or as left out.
    told: AtomicU64,
}

/// What a line says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial<'a> {
    /// The id of the rule, where one says so.
    pub(super) rule: Option<&'a str>,
    pub(super) identity: Option<Identity>,
    pub(super) reason: &'static str,
}

// === impl Sampler ===

impl Sampler {
    /// Logs a denial if it is its turn. `denied` tells how many there were, this one included; it is asked
    /// only then.
    pub(super) fn log(&self, denial: Denial<'_>, now: Nanos, denied: impl FnOnce() -> u64) {
        if let Some(left_out) = self.sample(now, denied) {
            let Denial { rule, identity, reason } = denial;
            let identity = identity.map(|identity| identity.to_string());
            info!(target: TARGET, rule, identity, reason, left_out, "denied");
        }
    }

    /// How many were left out since the last line, if there may be a line now.
    fn sample(&self, now: Nanos, denied: impl FnOnce() -> u64) -> Option<u64> {
        // While lines are left out this is all that happens, and nothing is written.
        let full_at = self.full_at.load(Ordering::Relaxed);
        let next = admit(full_at, now)?;
        self.full_at.compare_exchange(full_at, next, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let denied = denied();
        let told = self.told.swap(denied, Ordering::Relaxed);
        Some(denied.saturating_sub(told).saturating_sub(1))
    }

    /// Tells of what was left out and not followed by a line. `denied`: how many there were.
    pub(super) fn flush(&self, rule: Option<&str>, now: Nanos, denied: u64) {
        if self.told.load(Ordering::Relaxed) < denied
            && let Some(left_out) = self.sample(now, || denied)
        {
            info!(target: TARGET, rule, left_out = left_out + 1, "denied more");
        }
    }
}

/// The token bucket: when it will be full after one more line, if there is room for one.
fn admit(full_at: Nanos, now: Nanos) -> Option<Nanos> {
    let next = full_at.max(now).saturating_add(INTERVAL);
    (next - now <= BURST * INTERVAL).then_some(next)
}

#[cfg(test)]
mod tests;
