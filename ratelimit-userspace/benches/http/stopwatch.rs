//! What work costs the thread that does it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that `work` takes on this thread, and what it returns. Other processes do not count.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = thread_time();
    let returned = work();
    (thread_time().saturating_sub(start), returned)
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
