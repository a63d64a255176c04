//! The fixed window: everything since the window began.

use super::{
    Algorithm, Nanos, Outcome,
    quota::Quota,
    state::Count,
    window::{Span, Windows},
};
use crate::http::ask::Standing;

/// A count a window.
#[derive(Clone, Debug)]
pub(super) struct FixedWindow {
    quota: Quota,
    windows: Windows,
    /// The count goes on above the capacity.
    unbounded: bool,
}

// === impl FixedWindow ===

impl FixedWindow {
    pub(super) fn new(quota: Quota, windows: Windows) -> Self {
        Self { quota, windows, unbounded: false }
    }

    /// As Envoy counts: more than the limit can be used, which denies those who only read.
    pub(super) fn unbounded(quota: Quota, windows: Windows) -> Self {
        Self { unbounded: true, ..Self::new(quota, windows) }
    }

    /// The current window and what was counted in it. A count from the future counts in this one.
    fn current(&self, state: Option<&Count>, now: Nanos) -> (Span, u64) {
        let Some(state) = state else { return (self.windows.opened_at(now), 0) };
        let span = self.windows.started_at(state.start);
        if span.holds(now) {
            (span, state.count)
        } else if now < span.start {
            (self.windows.opened_at(now), state.count)
        } else {
            (self.windows.opened_at(now), 0)
        }
    }
}

impl Algorithm for FixedWindow {
    type State = Count;

    fn decide(&self, state: Option<&Count>, now: Nanos, cost: u64) -> Outcome {
        let Some(allowed) = self.quota.capacity.checked_sub(cost) else {
            return Outcome::Refuse { wait: None };
        };
        let (span, count) = self.current(state, now);
        if count > allowed {
            return Outcome::Refuse { wait: Some(span.left(now)) };
        }
        Outcome::Admit { delay: 0, soft_over: count + cost > self.quota.limit }
    }

    fn charge(&self, state: Option<Count>, now: Nanos, cost: i64) -> Option<Count> {
        let (span, count) = self.current(state.as_ref(), now);
        let count =
            if self.unbounded { count.saturating_add_signed(cost) } else { self.quota.add(count, cost) };
        (count > 0).then_some(Count { start: span.start, count })
    }

    fn standing(&self, state: Option<&Count>, now: Nanos) -> Standing {
        let (span, count) = self.current(state, now);
        Standing {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(count),
            reset: if count == 0 { self.windows.reset_when_whole(now) } else { span.left(now) },
        }
    }

    fn used(&self, state: Option<&Count>, now: Nanos) -> u64 {
        self.current(state, now).1
    }

    fn whole_at(&self, state: &Count) -> Nanos {
        self.windows.started_at(state.start).end
    }
}
