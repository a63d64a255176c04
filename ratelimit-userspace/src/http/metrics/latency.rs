//! How long decisions take.

use std::sync::atomic::{AtomicU64, Ordering};

use super::striped::Striped;
use crate::http::algorithm::Nanos;

/// Upper bounds of the buckets, inclusive; a last bucket holds what is above.
pub(super) const BOUNDS: [Nanos; 15] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// A histogram with fixed buckets.
#[derive(Debug, Default)]
pub(super) struct Latency {
    places: Striped<Place>,
}

#[derive(Debug, Default)]
struct Place {
    sum: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len() + 1],
}

/// What was recorded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) sum: Nanos,
    /// Not cumulative.
    pub(super) buckets: [u64; BOUNDS.len() + 1],
}

// === impl Latency ===

impl Latency {
    pub(super) fn record(&self, nanos: Nanos) {
        let place = self.places.here();
        place.sum.fetch_add(nanos, Ordering::Relaxed);
        place.buckets[BOUNDS.partition_point(|bound| *bound < nanos)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn recorded(&self) -> Recorded {
        let mut recorded = Recorded::default();
        for place in self.places.iter() {
            recorded.sum = recorded.sum.wrapping_add(place.sum.load(Ordering::Relaxed));
            for (total, count) in recorded.buckets.iter_mut().zip(&place.buckets) {
                *total += count.load(Ordering::Relaxed);
            }
        }
        recorded
    }
}
