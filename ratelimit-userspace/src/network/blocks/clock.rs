//! What time it is: blocks end by the monotonic clock, while people, and files that outlive a boot, have the
//! other one.

use std::time::{Duration, SystemTime};

use ratelimit_common::block_table::{FOREVER, LATEST, seconds};

use super::BlocksError;
use crate::network::state::monotonic_nanos;

const NANOS: u64 = 1_000_000_000;

/// A moment, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic: u64,
    /// The wall clock.
    pub wall: SystemTime,
}

impl Now {
    /// Now.
    pub fn read() -> Self {
        Self { monotonic: monotonic_nanos(), wall: SystemTime::now() }
    }

    /// As the table of blocks has it.
    pub fn seconds(&self) -> u32 {
        seconds(self.monotonic)
    }

    /// The end of a block that begins now: not before the time is over, and less than a second after.
    pub(in crate::network) fn end(&self, duration: Option<Duration>) -> Result<u32, BlocksError> {
        let Some(duration) = duration else { return Ok(FOREVER) };
        if duration.is_zero() {
            return Err(BlocksError::NoTime);
        }
        let too_long = || BlocksError::TooLong { duration };
        let nanos = u64::try_from(duration.as_nanos()).map_err(|_| too_long())?;
        let end = self.monotonic.checked_add(nanos).ok_or_else(too_long)?.div_ceil(NANOS);
        u32::try_from(end).ok().filter(|end| *end <= LATEST).ok_or_else(too_long)
    }

    /// When a time of the table is, by the wall clock.
    pub(in crate::network) fn wall(&self, seconds: u32) -> SystemTime {
        self.wall_of(u64::from(seconds) * NANOS)
    }

    /// When a moment of the monotonic clock, in nanoseconds, is by the wall clock.
    pub fn wall_of(&self, nanos: u64) -> SystemTime {
        let moment = if nanos >= self.monotonic {
            self.wall.checked_add(Duration::from_nanos(nanos - self.monotonic))
        } else {
            self.wall.checked_sub(Duration::from_nanos(self.monotonic - nanos))
        };
        moment.unwrap_or(self.wall)
    }
}
