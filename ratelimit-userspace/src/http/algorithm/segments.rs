//! The sliding window in segments: the sum over this segment and the ones before it that make a window.
//!
//! That is a log whose instants are the beginnings of segments, and as much is shared.

use super::{Algorithm, Nanos, Outcome, sliding_log::SlidingLog, state::Log};
use crate::http::ask::Standing;

/// A count a segment.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    log: SlidingLog,
    segment: Nanos,
    /// Segments begin at multiples of their length; else from the first charge on.
    to_epoch: bool,
}

// === impl Segments ===

impl Segments {
    pub(super) fn new(log: SlidingLog, segment: Nanos, to_epoch: bool) -> Self {
        Self { log, segment: segment.max(1), to_epoch }
    }

    /// When the current segment began, if any has.
    fn begun(&self, state: Option<&Log>, now: Nanos) -> Option<Nanos> {
        if self.to_epoch {
            return Some(now - now % self.segment);
        }
        let newest = self.log.newest(state, now)?;
        Some(match now.checked_sub(newest) {
            Some(elapsed) => now - elapsed % self.segment,
            None => newest.saturating_sub((newest - now).div_ceil(self.segment).saturating_mul(self.segment)),
        })
    }
}

impl Algorithm for Segments {
    type State = Log;

    fn decide(&self, state: Option<&Log>, now: Nanos, cost: u64) -> Outcome {
        let begun = self.begun(state, now).unwrap_or(now);
        match self.log.decide(state, begun, cost) {
            Outcome::Refuse { wait: Some(wait) } => {
                Outcome::Refuse { wait: Some(wait.saturating_sub(now - begun)) }
            }
            outcome => outcome,
        }
    }

    fn charge(&self, state: Option<Log>, now: Nanos, cost: i64) -> Option<Log> {
        let begun = self.begun(state.as_ref(), now).unwrap_or(now);
        self.log.charge(state, begun, cost)
    }

    fn standing(&self, state: Option<&Log>, now: Nanos) -> Standing {
        let begun = self.begun(state, now);
        Standing {
            reset: begun.map_or(0, |begun| self.segment - (now - begun).min(self.segment)),
            ..self.log.standing(state, begun.unwrap_or(now))
        }
    }

    fn used(&self, state: Option<&Log>, now: Nanos) -> u64 {
        self.log.used(state, self.begun(state, now).unwrap_or(now))
    }

    fn whole_at(&self, state: &Log) -> Nanos {
        self.log.whole_at(state)
    }
}
