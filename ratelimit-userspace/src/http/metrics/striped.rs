//! Counters that threads do not fight over: each thread adds in a place of its own, a reader sums them up.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Places beyond this many would cost more memory than they save time.
const MOST: usize = 16;

/// As many places as the machine runs threads at once, a power of two.
static PLACES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from).next_power_of_two().min(MOST));

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// One `T` for each place. Two lines apart, since processors fetch lines in pairs.
#[derive(Debug)]
pub(super) struct Striped<T> {
    places: Box<[Apart<T>]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

// === impl Striped ===

impl<T> Striped<T> {
    /// The one that this thread adds to.
    pub(super) fn here(&self) -> &T {
        let place = PLACE.with(|place| *place);
        // The number of places is a power of two.
        &self.places[place & (self.places.len() - 1)].0
    }

    /// All of them, to be summed up.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().map(|Apart(place)| place)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self { places: (0..*PLACES).map(|_| Apart::default()).collect() }
    }
}
