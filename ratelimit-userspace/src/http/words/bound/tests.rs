use std::collections::HashMap;

use super::*;
use crate::http::{
    algorithm::{Meter, Outcome, State},
    clock::Now,
};

/// Everything that can happen under a limit: at every nanosecond any number of requests, of one unit each
/// or several at once. The most that passes in any stretch as long as the window.
struct Search {
    meter: Meter,
    window: u64,
    largest_cost: i64,
}

/// The most that passed so far, by the state that it led to.
type Reached = HashMap<String, (Option<State>, u64)>;

// === impl Search ===

impl Search {
    fn new(limit: &Limit, largest_cost: i64) -> Self {
        let Window::Fixed(window) = limit.window else { panic!("{limit:?}") };
        Self { meter: Meter::new(limit.clone()), window: window.get(), largest_cost }
    }

    fn most(&self) -> u64 {
        // Enough for a window before the two that matter.
        let mut before = Reached::from([(String::new(), (None, 0))]);
        let mut most = 0;
        for start in 0..=3 * self.window {
            let mut within = before.clone();
            for now in start..start + self.window {
                within = self.step(&within, now);
            }
            most = most.max(within.values().map(|(_, passed)| *passed).max().unwrap());
            before = self.step(&before, start);
            for (_, passed) in before.values_mut() {
                *passed = 0;
            }
        }
        most
    }

    /// All that can happen at one instant.
    fn step(&self, reached: &Reached, now: u64) -> Reached {
        let mut after = reached.clone();
        let mut open: Vec<_> = reached.values().cloned().collect();
        while let Some((state, passed)) = open.pop() {
            for cost in 1..=self.largest_cost {
                if !matches!(self.meter.decide(state.as_ref(), Now::at(now), cost), Outcome::Admit { .. }) {
                    continue;
                }
                let mut charged = state.clone();
                self.meter.charge(&mut charged, Now::at(now), cost);
                let passed = passed + cost.unsigned_abs();
                let best = after.entry(format!("{charged:?}")).or_insert_with(|| (charged.clone(), 0));
                if best.1 < passed {
                    best.1 = passed;
                    open.push((charged, passed));
                }
            }
        }
        after
    }
}

fn limit(units: u64, window: u64, algorithm: Algorithm, align: Align) -> Limit {
    Limit {
        units,
        window: Window::Fixed(window.try_into().unwrap()),
        algorithm,
        align,
        count_denied: false,
        soft_margin_permille: 0,
    }
}

/// The derived bound is what the algorithm lets pass, no more and no less.
fn exact(limit: &Limit) {
    let bound = most_in_a_window(limit);
    assert_eq!(u128::from(Search::new(limit, 1).most()), bound, "{limit:?}");
    assert!(u128::from(Search::new(limit, 3).most()) <= bound, "{limit:?}");
}

#[test]
fn windows_are_bounded() {
    for units in 0..=3 {
        for window in 1..=6 {
            for align in [Align::Epoch, Align::First] {
                exact(&limit(units, window, Algorithm::FixedWindow, align));
            }
        }
    }
}

#[test]
fn sliding_windows_are_bounded() {
    for units in 0..=3 {
        for window in 1..=7 {
            for align in [Align::Epoch, Align::First] {
                for round_up in [false, true] {
                    exact(&limit(units, window, Algorithm::SlidingWindow { round_up }, align));
                }
            }
        }
    }
}

#[test]
fn segments_are_bounded() {
    for units in 0..=3 {
        for (window, segments) in [(2, 2), (4, 2), (4, 4), (6, 2), (6, 3)] {
            for align in [Align::Epoch, Align::First] {
                exact(&limit(units, window, Algorithm::Segments { segments }, align));
            }
        }
    }
}

#[test]
fn logs_are_bounded() {
    for units in 0..=3 {
        for window in 1..=5 {
            exact(&limit(units, window, Algorithm::SlidingLog, Align::Epoch));
        }
    }
}

#[test]
fn buckets_are_bounded() {
    for units in 0..=4 {
        for window in 1..=5 {
            for burst in 1..=3 {
                let bucket = |algorithm, align| limit(units, window, algorithm, align);
                for align in [Align::Epoch, Align::First] {
                    exact(&bucket(Algorithm::TokenBucket { burst, interval: true }, align));
                }
                for algorithm in [
                    Algorithm::TokenBucket { burst, interval: false },
                    Algorithm::LeakyBucket { burst, max_delay: None },
                ] {
                    let limit = bucket(algorithm, Align::Epoch);
                    if units <= window || burst == 1 || units >= burst * window {
                        exact(&limit);
                    } else {
                        // More than one unit a nanosecond, and no room for it all.
                        assert!(
                            u128::from(Search::new(&limit, 3).most()) <= most_in_a_window(&limit),
                            "{limit:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn soft_margins_count() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { round_up: false },
        Algorithm::Segments { segments: 2 },
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: 2, interval: false },
        Algorithm::TokenBucket { burst: 2, interval: true },
        Algorithm::LeakyBucket { burst: 2, max_delay: None },
    ] {
        exact(&Limit { soft_margin_permille: 500, ..limit(2, 4, algorithm, Align::Epoch) });
    }
}

#[test]
fn a_queue_lets_pass_evenly() {
    for (units, window, burst, max_delay) in [
        (1, 3, 3, 9),
        (2, 3, 4, 100),
        (3, 2, 4, 2),
        (2, 5, 9, 4),
        (1, 1, 2, 5),
        (3, 4, 1, 9),
        (3, 4, 3, 0),
        (3, 4, 3, 1),
    ] {
        let algorithm = Algorithm::LeakyBucket { burst, max_delay: Some(max_delay) };
        let limit = limit(units, window, algorithm, Align::Epoch);
        let meter = Meter::new(limit.clone());
        let mut state = None;
        let mut passed = Vec::new();
        let mut longest = 0;
        for now in 0..40 {
            let mut taken = 0;
            while let Outcome::Admit { delay, .. } = meter.decide(state.as_ref(), Now::at(now), 1) {
                meter.charge(&mut state, Now::at(now), 1);
                passed.push(now + delay);
                longest = longest.max(delay);
                taken += 1;
            }
            if now == 0 {
                assert_eq!(taken, queue(&limit, window, max_delay), "{limit:?}");
                assert_eq!(longest, longest_wait(&limit, window, taken), "{limit:?}");
            }
        }
        let within =
            |start: u64| passed.iter().filter(|at| (start..start + window).contains(at)).count() as u128;
        assert_eq!((0..40).map(within).max().unwrap(), most_in_a_window(&limit), "{limit:?}");
    }
}

#[test]
fn the_largest_limits_overflow_nothing() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { round_up: true },
        Algorithm::Segments { segments: u32::MAX },
        Algorithm::SlidingLog,
        Algorithm::TokenBucket { burst: u64::MAX, interval: false },
        Algorithm::TokenBucket { burst: u64::MAX, interval: true },
        Algorithm::LeakyBucket { burst: u64::MAX, max_delay: Some(u64::MAX) },
    ] {
        for align in [Align::Epoch, Align::First] {
            let limit = Limit {
                soft_margin_permille: u32::MAX,
                ..limit(u64::MAX, crate::config::http::MAX_WINDOW_NANOS, algorithm, align)
            };
            assert!(most_in_a_window(&limit) >= u128::from(u64::MAX));
            assert!(!super::super::limit(&limit).is_empty());
        }
    }
}
