//! How a limit is counted: five algorithms, pure. State, time and cost come in; a decision goes out.
//!
//! Everything is exact: integers only, and no rate is rounded to a whole number of nanoseconds.
//!
//! Time may run back. What a state has from the future counts as of now, but only a charge writes that
//! down. So whoever is refused on a state with [`Meter::is_ahead`] must charge nothing (a cost of 0), or
//! the refusal would last until the clock has caught up.

mod calendar;
mod fixed_window;
mod leaky_bucket;
mod level;
mod quota;
mod segments;
mod sliding_log;
mod sliding_window;
mod state;
mod token_bucket;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use self::state::Kind;
pub use self::state::{Count, Level, Log, Pair, Refill, State};
use self::{
    fixed_window::FixedWindow,
    leaky_bucket::LeakyBucket,
    quota::Quota,
    segments::Segments,
    sliding_log::SlidingLog,
    sliding_window::SlidingWindow,
    state::Held,
    token_bucket::{IntervalBucket, TokenBucket},
    window::Windows,
};
use super::{ask::Standing, clock::Now};
use crate::config::http::{self, Align, CalendarUnit, Limit, Window};

/// Nanoseconds.
pub type Nanos = u64;

/// A limit, ready to decide.
#[derive(Clone, Debug)]
pub struct Meter {
    limit: Limit,
    method: Method,
    /// It goes by the time of day.
    utc: bool,
}

/// What a limit says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It fits.
    Admit {
        /// How long to hold it; 0 unless the limit shapes.
        delay: Nanos,
        /// It fits only within the margin of a soft limit.
        soft_over: bool,
    },
    /// It does not fit.
    Refuse {
        /// After this long it does, if nobody else asks. `None`: never.
        wait: Option<Nanos>,
    },
}

/// A way to count. States are `None` when whole; what is said of none and of a whole one is the same.
trait Algorithm {
    /// What it remembers.
    type State: Held;

    /// Whether a cost fits.
    fn decide(&self, state: Option<&Self::State>, now: Nanos, cost: u64) -> Outcome;

    /// The state after a charge or refund, at most at the capacity and at least whole.
    fn charge(&self, state: Option<Self::State>, now: Nanos, cost: i64) -> Option<Self::State>;

    /// Where it stands.
    fn standing(&self, state: Option<&Self::State>, now: Nanos) -> Standing;

    /// Units that count, rounded up.
    fn used(&self, state: Option<&Self::State>, now: Nanos) -> u64;

    /// When it will be whole.
    fn whole_at(&self, state: &Self::State) -> Nanos;
}

/// The algorithm of a limit.
#[derive(Clone, Debug)]
enum Method {
    TokenBucket(TokenBucket),
    IntervalBucket(IntervalBucket),
    LeakyBucket(LeakyBucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    Segments(Segments),
    SlidingLog(SlidingLog),
}

/// Calls the algorithm, whichever it is.
macro_rules! with_algorithm {
    ($method:expr, $algorithm:ident => $call:expr) => {
        match $method {
            Method::TokenBucket($algorithm) => $call,
            Method::IntervalBucket($algorithm) => $call,
            Method::LeakyBucket($algorithm) => $call,
            Method::FixedWindow($algorithm) => $call,
            Method::SlidingWindow($algorithm) => $call,
            Method::Segments($algorithm) => $call,
            Method::SlidingLog($algorithm) => $call,
        }
    };
}

// === impl Meter ===

impl Meter {
    /// A meter for a limit.
    pub fn new(limit: Limit) -> Self {
        let method = Method::new(&limit);
        let utc = goes_by_utc(&limit);
        Self { limit, method, utc }
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Whether `cost` units fit now. A cost of 0 or less always fits, except that 0 does not where more
    /// than the limit is used. Changes nothing.
    pub fn decide(&self, state: Option<&State>, now: Now, cost: i64) -> Outcome {
        let Ok(cost) = u64::try_from(cost) else {
            return Outcome::Admit { delay: 0, soft_over: false };
        };
        let time = self.time(now);
        with_algorithm!(&self.method, algorithm => algorithm.decide(state.and_then(Held::of), time, cost))
    }

    /// Counts `cost` units, whether they fit or not: the count saturates at the limit (soft margin
    /// included, Envoy's windows excepted) and, for a negative cost, at nothing. `None` afterwards: the
    /// counter is whole.
    pub fn charge(&self, state: &mut Option<State>, now: Now, cost: i64) {
        let time = self.time(now);
        let before = state.take();
        *state = with_algorithm!(&self.method, algorithm => {
            algorithm.charge(before.and_then(Held::take), time, cost).map(Into::into)
        });
    }

    /// Where the counter stands.
    pub fn standing(&self, state: Option<&State>, now: Now) -> Standing {
        let time = self.time(now);
        with_algorithm!(&self.method, algorithm => algorithm.standing(state.and_then(Held::of), time))
    }

    /// Units that count at this moment, rounded up.
    pub fn used(&self, state: Option<&State>, now: Now) -> u64 {
        let time = self.time(now);
        with_algorithm!(&self.method, algorithm => algorithm.used(state.and_then(Held::of), time))
    }

    /// When the counter will be whole, on the clock that this limit goes by ([`Meter::time`]).
    pub fn whole_at(&self, state: &State) -> Nanos {
        with_algorithm!(&self.method, algorithm => {
            Held::of(state).map_or(0, |state| algorithm.whole_at(state))
        })
    }

    /// Whether a state was charged at a time that is yet to come.
    pub fn is_ahead(&self, state: &State, now: Now) -> bool {
        state.newest() > self.time(now)
    }

    /// The clock that this limit goes by.
    pub fn time(&self, now: Now) -> Nanos {
        if self.utc { now.utc } else { now.steady }
    }

    /// Whether that clock is the time of day.
    pub(crate) fn goes_by_utc(&self) -> bool {
        self.utc
    }

    /// The state that another limit left, under this one: debt is converted in units, so that a change
    /// gives no free burst and locks nobody out; after a change of window or algorithm the counter starts
    /// at what was used, at most the new limit.
    pub fn convert(&self, old: &Meter, state: State, now: Now) -> Option<State> {
        let mut state = Some(state);
        if self.counts_like(old) {
            // First what has drained under the old limit, then no more than the new one takes.
            old.charge(&mut state, now, 0);
            self.charge(&mut state, now, 0);
        } else {
            let limit = self.standing(None, now).limit;
            let used = old.used(state.as_ref(), now).min(limit);
            state = None;
            self.charge(&mut state, now, i64::try_from(used).unwrap_or(i64::MAX));
        }
        state
    }

    /// Whether states mean the same under both, apart from how much is admitted.
    fn counts_like(&self, old: &Meter) -> bool {
        use http::Algorithm::{Segments, TokenBucket};
        let same_algorithm = match (self.limit.algorithm, old.limit.algorithm) {
            (Segments { segments: new }, Segments { segments: old }) => new == old,
            (TokenBucket { interval: new, .. }, TokenBucket { interval: old, .. }) => new == old,
            (new, old) => std::mem::discriminant(&new) == std::mem::discriminant(&old),
        };
        same_algorithm && self.limit.window == old.limit.window && self.limit.align == old.limit.align
    }
}

impl PartialEq for Meter {
    fn eq(&self, other: &Self) -> bool {
        self.limit == other.limit
    }
}

// === impl Method ===

impl Method {
    fn new(limit: &Limit) -> Self {
        let &Limit { units, ref window, algorithm, align, soft_margin_permille: margin, .. } = limit;
        let to_epoch = align == Align::Epoch;
        let quota = Quota::new(units, margin);
        // A limit of 0 blocks, whatever the burst.
        let bucket = |burst| Quota::new(if units == 0 { 0 } else { burst }, margin);
        match algorithm {
            http::Algorithm::TokenBucket { burst, interval: false } => {
                Self::TokenBucket(TokenBucket::new(bucket(burst), units, nanos(window)))
            }
            http::Algorithm::TokenBucket { burst, interval: true } => {
                Self::IntervalBucket(IntervalBucket::new(bucket(burst), units, nanos(window), to_epoch))
            }
            http::Algorithm::LeakyBucket { burst, max_delay } => {
                Self::LeakyBucket(LeakyBucket::new(bucket(burst), units, nanos(window), max_delay))
            }
            http::Algorithm::FixedWindow => {
                Self::FixedWindow(FixedWindow::new(quota, Windows::new(window, align)))
            }
            http::Algorithm::EnvoyWindow => {
                Self::FixedWindow(FixedWindow::unbounded(quota, Windows::new(window, align)))
            }
            http::Algorithm::SlidingWindow { round_up } => {
                Self::SlidingWindow(SlidingWindow::new(quota, Windows::new(window, align), round_up))
            }
            http::Algorithm::Segments { segments } => {
                let window = nanos(window);
                let log = SlidingLog::new(quota, window);
                Self::Segments(Segments::new(log, window / u64::from(segments.max(1)), to_epoch))
            }
            http::Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::new(quota, nanos(window))),
        }
    }
}

fn goes_by_utc(limit: &Limit) -> bool {
    use http::Algorithm::{
        EnvoyWindow, FixedWindow, LeakyBucket, Segments, SlidingLog, SlidingWindow, TokenBucket,
    };
    match limit.algorithm {
        FixedWindow | SlidingWindow { .. } if matches!(limit.window, Window::Calendar(..)) => true,
        FixedWindow
        | EnvoyWindow
        | SlidingWindow { .. }
        | Segments { .. }
        | TokenBucket { interval: true, .. } => limit.align == Align::Epoch,
        SlidingLog | TokenBucket { interval: false, .. } | LeakyBucket { .. } => false,
    }
}

/// The length of a window. Only fixed and sliding windows know the calendar; the configuration admits it
/// for no other.
fn nanos(window: &Window) -> Nanos {
    const DAY: Nanos = 86_400 * 1_000_000_000;
    match window {
        Window::Fixed(nanos) => nanos.get(),
        Window::Calendar(CalendarUnit::Day, _) => DAY,
        Window::Calendar(CalendarUnit::Week, _) => 7 * DAY,
        Window::Calendar(CalendarUnit::Month, _) => 30 * DAY,
    }
}
