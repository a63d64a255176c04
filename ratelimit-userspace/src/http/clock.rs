//! Time, as an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Now, on the two clocks that limits go by. Nanoseconds since the Unix epoch, both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never steps: the monotonic clock, set to the time of day when the process started. Buckets, logs
    /// and windows with `align: first` go by it.
    pub steady: u64,
    /// Follows the time of day, but never goes back. Windows that align to the epoch or the calendar go
    /// by it.
    pub utc: u64,
}

/// Where [`Now`] comes from. One for the process, shared by every thread.
#[derive(Debug)]
pub struct Clock {
    offsets: Offsets,
    /// When the wall clock was last looked at, on the monotonic clock.
    looked: AtomicU64,
}

/// How long a step of the wall clock may go unnoticed: looking at a second clock for every request costs as
/// much as looking at the first.
const LOOK_EVERY: u64 = 1_000_000;

/// What is added to the monotonic clock.
#[derive(Debug)]
struct Offsets {
    steady: u64,
    /// Only ever grows. While the wall clock is behind (it was set back), UTC goes on at the monotonic
    /// clock's pace: standing still instead would hold every window open until the wall clock is back.
    utc: AtomicU64,
}

// === impl Now ===

impl Now {
    /// One time on both clocks, as in a replay.
    pub const fn at(nanos: u64) -> Self {
        Self { steady: nanos, utc: nanos }
    }
}

// === impl Clock ===

impl Clock {
    /// A clock that starts now.
    #[expect(clippy::new_without_default, reason = "reads the clocks of the system")]
    pub fn new() -> Self {
        let (wall, monotonic) = read();
        Self { offsets: Offsets::new(monotonic, wall), looked: AtomicU64::new(monotonic) }
    }

    /// The present time.
    pub fn now(&self) -> Now {
        let monotonic = nanos(ClockId::Monotonic);
        if monotonic.saturating_sub(self.looked.load(Ordering::Relaxed)) < LOOK_EVERY {
            return self.offsets.at(monotonic);
        }
        self.looked.store(monotonic, Ordering::Relaxed);
        let (wall, monotonic) = read();
        self.offsets.now(monotonic, wall)
    }
}

/// Wall clock, then monotonic clock. In this order a delay between the two makes the wall clock seem
/// behind, never ahead: an offset that only grows must not learn from such an error.
fn read() -> (u64, u64) {
    let wall = nanos(ClockId::Realtime);
    (wall, nanos(ClockId::Monotonic))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // A wall clock before 1970 counts as 1970.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos)
}

// === impl Offsets ===

impl Offsets {
    fn new(monotonic: u64, wall: u64) -> Self {
        let offset = wall.saturating_sub(monotonic);
        Self { steady: offset, utc: AtomicU64::new(offset) }
    }

    fn now(&self, monotonic: u64, wall: u64) -> Now {
        let ahead = wall.saturating_sub(monotonic);
        // Written only when it grows, so that threads do not pass the cache line around.
        if ahead > self.utc.load(Ordering::Relaxed) {
            self.utc.fetch_max(ahead, Ordering::Relaxed);
        }
        self.at(monotonic)
    }

    fn at(&self, monotonic: u64) -> Now {
        let utc = self.utc.load(Ordering::Relaxed);
        Now { steady: monotonic.saturating_add(self.steady), utc: monotonic.saturating_add(utc) }
    }
}

#[cfg(test)]
mod tests;
