//! The algorithms on a virtual clock.

mod bounds;
mod calendar;
mod changes;
mod examples;
mod laws;
mod model;

use super::*;
use crate::config::http::Algorithm as Kinds;

const MILLI: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MILLI;
const MINUTE: Nanos = 60 * SECOND;
const HOUR: Nanos = 60 * MINUTE;
const DAY: Nanos = 24 * HOUR;

const SLIDING: Kinds = Kinds::SlidingWindow { round_up: false };

/// A counter under its limit, charged as the limiter charges it.
#[derive(Clone, Debug)]
struct Counter {
    meter: Meter,
    state: Option<State>,
}

fn limit(units: u64, window: Nanos, algorithm: Kinds) -> Limit {
    Limit {
        units,
        window: Window::Fixed(window.try_into().unwrap()),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    }
}

fn token_bucket(burst: u64) -> Kinds {
    Kinds::TokenBucket { burst, interval: false }
}

fn leaky_bucket(burst: u64) -> Kinds {
    Kinds::LeakyBucket { burst, max_delay: None }
}

/// One of each algorithm and form that counts `units` a window.
fn all(units: u64) -> Vec<Kinds> {
    vec![
        token_bucket(units),
        Kinds::TokenBucket { burst: units, interval: true },
        leaky_bucket(units),
        Kinds::LeakyBucket { burst: units, max_delay: Some(Nanos::MAX) },
        Kinds::FixedWindow,
        SLIDING,
        Kinds::SlidingWindow { round_up: true },
        Kinds::Segments { segments: 5 },
        Kinds::SlidingLog,
    ]
}

// === impl Counter ===

impl Counter {
    fn new(limit: Limit) -> Self {
        Self { meter: Meter::new(limit), state: None }
    }

    fn decide(&self, now: Nanos, cost: i64) -> Outcome {
        self.meter.decide(self.state.as_ref(), Now::at(now), cost)
    }

    fn charge(&mut self, now: Nanos, cost: i64) {
        self.meter.charge(&mut self.state, Now::at(now), cost);
    }

    fn ask(&mut self, now: Nanos, cost: i64) -> Outcome {
        let outcome = self.decide(now, cost);
        let admitted = matches!(outcome, Outcome::Admit { .. });
        if admitted || self.meter.limit().count_denied {
            self.charge(now, cost);
        } else if self.state.as_ref().is_some_and(|state| self.meter.is_ahead(state, Now::at(now))) {
            self.charge(now, 0);
        }
        outcome
    }

    fn passes(&mut self, now: Nanos, cost: i64) -> bool {
        matches!(self.ask(now, cost), Outcome::Admit { .. })
    }

    /// Offers `count` requests at once; how many pass.
    fn offer(&mut self, now: Nanos, count: u64) -> u64 {
        (0..count).map(|_| u64::from(self.passes(now, 1))).sum()
    }

    fn wait(&self, now: Nanos, cost: i64) -> Option<Nanos> {
        match self.decide(now, cost) {
            Outcome::Refuse { wait } => wait,
            outcome @ Outcome::Admit { .. } => panic!("{outcome:?}"),
        }
    }

    fn standing(&self, now: Nanos) -> Standing {
        self.meter.standing(self.state.as_ref(), Now::at(now))
    }

    fn remaining(&self, now: Nanos) -> u64 {
        self.standing(now).remaining
    }

    fn used(&self, now: Nanos) -> u64 {
        self.meter.used(self.state.as_ref(), Now::at(now))
    }

    /// The counter under another limit.
    fn changed(self, now: Nanos, limit: Limit) -> Self {
        let meter = Meter::new(limit);
        let state = self.state.and_then(|state| meter.convert(&self.meter, state, Now::at(now)));
        Self { meter, state }
    }
}
