//! The leaky bucket: a queue that drains evenly. As a meter it admits what finds room; as a shaper it also
//! says how long to wait for those before, so that what leaves it leaves at a constant rate.

use super::{Algorithm, Nanos, Outcome, level::Drain, quota::Quota, state::Level};
use crate::http::ask::Standing;

/// A queue.
#[derive(Clone, Debug)]
pub(super) struct LeakyBucket {
    drain: Drain,
    /// `Some`: it shapes, and nobody waits longer.
    max_delay: Option<Nanos>,
}

// === impl LeakyBucket ===

impl LeakyBucket {
    pub(super) fn new(quota: Quota, units: u64, window: Nanos, max_delay: Option<Nanos>) -> Self {
        Self { drain: Drain::new(quota, units, window), max_delay }
    }
}

impl Algorithm for LeakyBucket {
    type State = Level;

    fn decide(&self, state: Option<&Level>, now: Nanos, cost: u64) -> Outcome {
        let debt = self.drain.debt(state, now);
        // What reads does not queue, so nothing delays it.
        let Some(max_delay) = self.max_delay.filter(|_| cost > 0) else {
            return self.drain.decide(debt, cost, u128::MAX);
        };
        match self.drain.decide(debt, cost, self.drain.drains_in(max_delay)) {
            Outcome::Admit { soft_over, .. } => Outcome::Admit { delay: self.drain.time(debt), soft_over },
            refuse @ Outcome::Refuse { .. } => refuse,
        }
    }

    fn charge(&self, state: Option<Level>, now: Nanos, cost: i64) -> Option<Level> {
        self.drain.charge(state, now, cost)
    }

    fn standing(&self, state: Option<&Level>, now: Nanos) -> Standing {
        self.drain.standing(state, now)
    }

    fn used(&self, state: Option<&Level>, now: Nanos) -> u64 {
        self.drain.used(state, now)
    }

    fn whole_at(&self, state: &Level) -> Nanos {
        self.drain.whole_at(state)
    }
}
