//! The token bucket: room for a burst, filled evenly or at intervals.

use super::{
    Algorithm, Nanos, Outcome,
    level::Drain,
    quota::{Quota, divide_up, narrow},
    state::{Level, Refill},
};
use crate::http::ask::Standing;

/// A bucket that is filled evenly.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket(Drain);

/// A bucket that gets `units` at once whenever a window ends. A refill that is due at a time counts before
/// a request of that time.
#[derive(Clone, Debug)]
pub(super) struct IntervalBucket {
    quota: Quota,
    units: u64,
    window: Nanos,
    /// Refills are due at multiples of the window; else counted from the first charge.
    to_epoch: bool,
}

// === impl TokenBucket ===

impl TokenBucket {
    pub(super) fn new(quota: Quota, units: u64, window: Nanos) -> Self {
        Self(Drain::new(quota, units, window))
    }
}

impl Algorithm for TokenBucket {
    type State = Level;

    fn decide(&self, state: Option<&Level>, now: Nanos, cost: u64) -> Outcome {
        self.0.decide(self.0.debt(state, now), cost, u128::MAX)
    }

    fn charge(&self, state: Option<Level>, now: Nanos, cost: i64) -> Option<Level> {
        self.0.charge(state, now, cost)
    }

    fn standing(&self, state: Option<&Level>, now: Nanos) -> Standing {
        self.0.standing(state, now)
    }

    fn used(&self, state: Option<&Level>, now: Nanos) -> u64 {
        self.0.used(state, now)
    }

    fn whole_at(&self, state: &Level) -> Nanos {
        self.0.whole_at(state)
    }
}

// === impl IntervalBucket ===

impl IntervalBucket {
    pub(super) fn new(quota: Quota, units: u64, window: Nanos, to_epoch: bool) -> Self {
        Self { quota, units, window, to_epoch }
    }

    /// The bucket at a time, as of the last refill that was due.
    fn refill(&self, state: Option<&Refill>, now: Nanos) -> Refill {
        let fresh =
            || Refill { refilled: if self.to_epoch { now - now % self.window } else { now }, used: 0 };
        let Some(state) = state else { return fresh() };
        let used = state.used.min(self.quota.capacity);
        let Some(elapsed) = now.checked_sub(state.refilled) else { return Refill { used, ..fresh() } };
        if elapsed < self.window {
            return Refill { used, ..*state };
        }
        let times = elapsed / self.window;
        match used.saturating_sub(times.saturating_mul(self.units)) {
            0 => fresh(),
            used => Refill { refilled: state.refilled + times * self.window, used },
        }
    }

    /// How long after a refill so many units are back.
    fn time(&self, units: u64) -> Nanos {
        let times = divide_up(u128::from(units), self.units);
        narrow(u128::from(times) * u128::from(self.window))
    }
}

impl Algorithm for IntervalBucket {
    type State = Refill;

    fn decide(&self, state: Option<&Refill>, now: Nanos, cost: u64) -> Outcome {
        let Some(allowed) = self.quota.capacity.checked_sub(cost) else {
            return Outcome::Refuse { wait: None };
        };
        let Refill { refilled, used } = self.refill(state, now);
        if used > allowed {
            return Outcome::Refuse { wait: Some(self.time(used - allowed) - (now - refilled)) };
        }
        Outcome::Admit { delay: 0, soft_over: used + cost > self.quota.limit }
    }

    fn charge(&self, state: Option<Refill>, now: Nanos, cost: i64) -> Option<Refill> {
        let Refill { refilled, used } = self.refill(state.as_ref(), now);
        let used = self.quota.add(used, cost);
        (used > 0).then_some(Refill { refilled, used })
    }

    fn standing(&self, state: Option<&Refill>, now: Nanos) -> Standing {
        let Refill { refilled, used } = self.refill(state, now);
        Standing {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(used),
            reset: if used == 0 { 0 } else { self.time(used) - (now - refilled) },
        }
    }

    fn used(&self, state: Option<&Refill>, now: Nanos) -> u64 {
        self.refill(state, now).used
    }

    fn whole_at(&self, state: &Refill) -> Nanos {
        state.refilled.saturating_add(self.time(state.used.min(self.quota.capacity)))
    }
}
