//! The most that a limit lets pass in any stretch as long as its window.
//!
//! A stretch `[t, t + W)` holds whole nanoseconds. Nobody gets anything back, and time does not run back.
//! What costs several units changes nothing, except where a bucket spaces requests.

use crate::{
    config::http::{Algorithm, Align, Limit, Window},
    http::algorithm::Nanos,
};

/// The most units that can pass in any half-open stretch of time as long as the window; for windows of the
/// calendar, in two of them in a row. A leaky bucket that shapes is judged by when it lets pass.
pub fn most_in_a_window(limit: &Limit) -> u128 {
    if limit.units == 0 {
        return 0;
    }
    let capacity = u128::from(capacity(limit));
    match &limit.window {
        Window::Fixed(window) => in_a_stretch(limit, capacity, u128::from(window.get())),
        Window::Calendar(..) => 2 * capacity,
    }
}

/// Units that pass at one instant at most.
pub(super) fn capacity(limit: &Limit) -> u64 {
    let quota = match limit.algorithm {
        Algorithm::TokenBucket { burst, .. } | Algorithm::LeakyBucket { burst, .. } => burst,
        _ => limit.units,
    };
    let margin = u128::from(quota) * u128::from(limit.soft_margin_permille) / 1000;
    quota.saturating_add(u64::try_from(margin).unwrap_or(u64::MAX))
}

fn in_a_stretch(limit: &Limit, capacity: u128, window: u128) -> u128 {
    let units = u128::from(limit.units);
    let from_first = u128::from(limit.align == Align::First);
    // One unit after the other, each when the one before has drained to the nanosecond.
    let spaced = 1 + (window - 1) / window.div_ceil(units);
    match limit.algorithm {
        Algorithm::LeakyBucket { max_delay: Some(0), .. } => spaced,
        Algorithm::TokenBucket { interval: false, .. } | Algorithm::LeakyBucket { .. } if capacity == 1 => {
            spaced
        }
        // The queue lets a unit pass every `window / units`.
        Algorithm::LeakyBucket { max_delay: Some(_), .. } => units,
        // Full at first; until the last instant, `window - 1` later, it gets `units` a window, unless it
        // cannot hold what it gets in a nanosecond.
        Algorithm::TokenBucket { interval: false, .. } | Algorithm::LeakyBucket { .. } => {
            (capacity + units * (window - 1) / window).min(capacity * window)
        }
        // A stretch of one instant does not lie across two windows.
        _ if window == 1 => capacity,
        // Full right before a refill, which is the only one in a window. If refills count from the first
        // request, that one was before.
        Algorithm::TokenBucket { interval: true, .. } => capacity + units.min(capacity) - from_first,
        // All of one window at its end, all of the next at its beginning. If windows count from the first
        // request, that one was before.
        Algorithm::FixedWindow | Algorithm::EnvoyWindow => 2 * capacity - from_first,
        Algorithm::SlidingWindow { round_up } => {
            sliding(capacity, window, round_up && from_first == 1, round_up)
        }
        // All of one segment at its end, and all again when that one has left the window, which is at the
        // beginning of a segment; in any `segments - 1` of them no more than the capacity. If segments
        // count from the first request, that one was before.
        Algorithm::Segments { segments } if u128::from(segments) < window => 2 * capacity - from_first,
        // Segments of one nanosecond are a log, and a log is exact.
        Algorithm::Segments { .. } | Algorithm::SlidingLog => capacity,
    }
}

/// All of one window in its last instant. The latest instant of the next one that a stretch from there
/// reaches is the second from the end, when 2 parts in `window` of the previous count still weigh. They are
/// rounded down to nothing unless the window is hardly longer than the limit, so the limit passes again.
///
/// If windows count from the first request, the window in question is the second, so that this request is
/// not in it; but rounded up, it weighs 1 to the end.
fn sliding(capacity: u128, window: u128, after_first: bool, round_up: bool) -> u128 {
    let last = if after_first { capacity - 1 } else { capacity };
    let weight = if round_up { (2 * last).div_ceil(window) } else { 2 * last / window };
    last + capacity - weight
}

/// Units that a leaky bucket which shapes takes at one instant: those before the last must drain within
/// the longest delay.
pub(super) fn queue(limit: &Limit, window: Nanos, max_delay: Nanos) -> u64 {
    let drained = u128::from(limit.units) * u128::from(max_delay) / u128::from(window.max(1));
    capacity(limit).min(u64::try_from(drained + 1).unwrap_or(u64::MAX))
}

/// How long the last of a full queue waits.
pub(super) fn longest_wait(limit: &Limit, window: Nanos, queue: u64) -> Nanos {
    let before = u128::from(queue.saturating_sub(1)) * u128::from(window);
    u64::try_from(before.div_ceil(u128::from(limit.units.max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
