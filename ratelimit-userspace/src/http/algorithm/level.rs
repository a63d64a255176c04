//! The level of a bucket that drains evenly, for token and leaky buckets alike.
//!
//! Debt is kept in units times nanoseconds: every nanosecond takes `units` from it, and a unit adds
//! `window` to it. So nothing is rounded, whatever the rate, and deciding needs no division.

use super::{
    Nanos, Outcome,
    quota::{Quota, divide, divide_up},
    state::Level,
};
use crate::http::ask::Standing;

/// How a level rises and sinks.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    quota: Quota,
    units: u64,
    window: Nanos,
    /// The debt of a bucket at its limit.
    limit: u128,
    /// The debt of a bucket that admits no more.
    full: u128,
}

// === impl Drain ===

impl Drain {
    /// `units` a window.
    pub(super) fn new(quota: Quota, units: u64, window: Nanos) -> Self {
        let debt = |units: u64| u128::from(units) * u128::from(window);
        Self { quota, units, window, limit: debt(quota.limit), full: debt(quota.capacity) }
    }

    /// The debt that is left at a time. A level from the future counts as of now.
    pub(super) fn debt(&self, state: Option<&Level>, now: Nanos) -> u128 {
        let Some(level) = state else { return 0 };
        let drained = u128::from(now.saturating_sub(level.updated)) * u128::from(self.units);
        level.debt().saturating_sub(drained).min(self.full)
    }

    /// Whether a cost fits on a debt that is itself at most `allowed`.
    pub(super) fn decide(&self, debt: u128, cost: u64, allowed: u128) -> Outcome {
        if cost > self.quota.capacity {
            return Outcome::Refuse { wait: None };
        }
        let cost = self.cost(cost);
        let allowed = allowed.min(self.full - cost);
        if debt > allowed {
            return Outcome::Refuse { wait: Some(self.time(debt - allowed)) };
        }
        Outcome::Admit { delay: 0, soft_over: debt + cost > self.limit }
    }

    pub(super) fn charge(&self, state: Option<Level>, now: Nanos, cost: i64) -> Option<Level> {
        let debt = self.debt(state.as_ref(), now);
        let units = self.cost(cost.unsigned_abs());
        let debt =
            if cost < 0 { debt.saturating_sub(units) } else { debt.saturating_add(units).min(self.full) };
        (debt > 0).then(|| Level::new(now, debt))
    }

    pub(super) fn standing(&self, state: Option<&Level>, now: Nanos) -> Standing {
        let debt = self.debt(state, now);
        Standing {
            limit: self.quota.limit,
            remaining: divide(self.limit.saturating_sub(debt), self.window),
            reset: self.time(debt),
        }
    }

    pub(super) fn used(&self, state: Option<&Level>, now: Nanos) -> u64 {
        divide_up(self.debt(state, now), self.window)
    }

    pub(super) fn whole_at(&self, state: &Level) -> Nanos {
        state.updated.saturating_add(self.time(state.debt().min(self.full)))
    }

    /// How long a debt takes to drain.
    pub(super) fn time(&self, debt: u128) -> Nanos {
        divide_up(debt, self.units)
    }

    /// The debt that drains in a time.
    pub(super) fn drains_in(&self, time: Nanos) -> u128 {
        u128::from(self.units) * u128::from(time)
    }

    fn cost(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.window)
    }
}

// === impl Level ===

impl Level {
    fn new(updated: Nanos, debt: u128) -> Self {
        let [high, low] = [debt >> 64, debt & u128::from(u64::MAX)];
        #[expect(clippy::cast_possible_truncation, reason = "both are halves")]
        Self { updated, debt_high: high as u64, debt_low: low as u64 }
    }

    fn debt(&self) -> u128 {
        u128::from(self.debt_high) << 64 | u128::from(self.debt_low)
    }
}
