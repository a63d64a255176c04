//! The sliding log: every unit of the half-open window `(now - window, now]`, by the instant of its charge.

use super::{Algorithm, Nanos, Outcome, quota::Quota, state::Log};
use crate::http::ask::Standing;

/// A log.
#[derive(Clone, Debug)]
pub(super) struct SlidingLog {
    quota: Quota,
    window: Nanos,
}

// === impl SlidingLog ===

impl SlidingLog {
    pub(super) fn new(quota: Quota, window: Nanos) -> Self {
        Self { quota, window }
    }

    /// The newest instant that counts. One from the future does.
    pub(super) fn newest(&self, state: Option<&Log>, now: Nanos) -> Option<Nanos> {
        let newest = state?.entries.back()?.at;
        (self.expiry(newest) > now).then_some(newest)
    }

    fn expiry(&self, at: Nanos) -> Nanos {
        at.saturating_add(self.window)
    }

    /// The first entry that still counts.
    fn live(&self, log: &Log, now: Nanos) -> usize {
        log.entries.partition_point(|entry| self.expiry(entry.at) <= now)
    }

    /// How long until so many of the units that count do not. There are as many.
    fn wait(&self, log: &Log, now: Nanos, units: u64) -> Nanos {
        let expired = log.before(self.live(log, now)).wrapping_sub(log.base);
        let index = log
            .entries
            .partition_point(|entry| entry.through.wrapping_sub(log.base) < expired.saturating_add(units));
        log.entries.get(index).map_or(self.window, |entry| self.expiry(entry.at.min(now)) - now)
    }

    /// Drops what has expired, and counts what is from the future as of now.
    fn settle(&self, log: &mut Log, now: Nanos) {
        let live = self.live(log, now);
        log.base = log.before(live);
        log.entries.drain(..live);
        let through = log.through();
        let ahead = log.entries.partition_point(|entry| entry.at <= now);
        if ahead < log.entries.len() {
            log.entries.truncate(ahead);
            log.push(now, through.wrapping_sub(log.through()));
        }
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    fn decide(&self, state: Option<&Log>, now: Nanos, cost: u64) -> Outcome {
        let Some(allowed) = self.quota.capacity.checked_sub(cost) else {
            return Outcome::Refuse { wait: None };
        };
        let used = self.used(state, now);
        match state {
            Some(log) if used > allowed => {
                Outcome::Refuse { wait: Some(self.wait(log, now, used - allowed)) }
            }
            _ => Outcome::Admit { delay: 0, soft_over: used + cost > self.quota.limit },
        }
    }

    fn charge(&self, state: Option<Log>, now: Nanos, cost: i64) -> Option<Log> {
        let mut log = state.unwrap_or_default();
        self.settle(&mut log, now);
        if cost < 0 {
            log.take_newest(cost.unsigned_abs());
        } else {
            let units = cost.unsigned_abs().min(self.quota.capacity);
            log.keep_newest(self.quota.capacity - units);
            if units > 0 {
                log.push(now, units);
            }
        }
        log.shrink();
        (!log.entries.is_empty()).then_some(log)
    }

    fn standing(&self, state: Option<&Log>, now: Nanos) -> Standing {
        Standing {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(self.used(state, now)),
            reset: self.newest(state, now).map_or(0, |at| self.expiry(at.min(now)) - now),
        }
    }

    fn used(&self, state: Option<&Log>, now: Nanos) -> u64 {
        state.map_or(0, |log| log.through().wrapping_sub(log.before(self.live(log, now))))
    }

    fn whole_at(&self, state: &Log) -> Nanos {
        state.entries.back().map_or(0, |newest| self.expiry(newest.at))
    }
}
