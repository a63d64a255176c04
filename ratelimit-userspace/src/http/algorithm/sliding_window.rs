//! The sliding window: the count of this window, and of the one before it the share that a window ending
//! now would still hold.
//!
//! The share is the part of the current window that is still to come, so windows of the calendar weigh by
//! their real length. Deciding compares products and divides nothing.

use super::{
    Algorithm, Nanos, Outcome,
    quota::{Quota, divide, divide_up},
    state::Pair,
    window::{Span, Windows},
};
use crate::http::ask::Standing;

/// Two counts a window.
#[derive(Clone, Debug)]
pub(super) struct SlidingWindow {
    quota: Quota,
    windows: Windows,
    round_up: bool,
}

/// The current window and what counts in it.
#[derive(Clone, Copy, Debug)]
struct Frame {
    span: Span,
    previous: u64,
    current: u64,
}

// === impl SlidingWindow ===

impl SlidingWindow {
    pub(super) fn new(quota: Quota, windows: Windows, round_up: bool) -> Self {
        Self { quota, windows, round_up }
    }

    /// The current window. Counts from the future count as in this one.
    fn frame(&self, state: Option<&Pair>, now: Nanos) -> Frame {
        let whole = || Frame { span: self.windows.opened_at(now), previous: 0, current: 0 };
        let Some(&Pair { start, previous, current }) = state else { return whole() };
        let span = self.windows.started_at(start);
        if span.holds(now) {
            return Frame { span, previous, current };
        }
        if now < span.start {
            return Frame { previous, current, ..whole() };
        }
        match self.windows.current_after(span, now) {
            Some(next) if current > 0 => Frame { span: next, previous: current, current: 0 },
            _ => whole(),
        }
    }

    /// Whether a cost fits below a ceiling.
    fn fits(&self, frame: &Frame, now: Nanos, cost: u64, ceiling: u64) -> bool {
        let room = ceiling.checked_sub(frame.current).and_then(|room| room.checked_sub(cost));
        room.is_some_and(|room| {
            let weight = u128::from(frame.previous) * u128::from(frame.span.left(now));
            weight <= self.allowance(room, frame.span)
        })
    }

    /// The largest product of a previous count and the time left that rounds to at most `room`.
    fn allowance(&self, room: u64, span: Span) -> u128 {
        let length = u128::from(span.length());
        let whole = u128::from(room) * length;
        if self.round_up { whole } else { whole + (length - 1) }
    }

    /// When a previous count weighs no more than `room`, in the window after it.
    fn weighs(&self, previous: u64, span: Span, room: u64) -> Nanos {
        span.end - divide(self.allowance(room, span), previous).min(span.length())
    }

    /// What the previous count weighs, as decisions round it.
    fn weight(&self, frame: &Frame, now: Nanos) -> u64 {
        let product = u128::from(frame.previous) * u128::from(frame.span.left(now));
        if self.round_up {
            divide_up(product, frame.span.length())
        } else {
            divide(product, frame.span.length())
        }
    }

    fn wait(&self, frame: &Frame, now: Nanos, cost: u64) -> Nanos {
        let capacity = self.quota.capacity;
        let room = capacity.checked_sub(frame.current).and_then(|room| room.checked_sub(cost));
        let at = if let Some(room) = room {
            self.weighs(frame.previous, frame.span, room)
        } else {
            // Not before what counts now has become the previous count.
            let next = self.windows.started_at(frame.span.end);
            self.weighs(frame.current, next, capacity - cost)
        };
        at.saturating_sub(now)
    }
}

impl Algorithm for SlidingWindow {
    type State = Pair;

    fn decide(&self, state: Option<&Pair>, now: Nanos, cost: u64) -> Outcome {
        if cost > self.quota.capacity {
            return Outcome::Refuse { wait: None };
        }
        let frame = self.frame(state, now);
        if !self.fits(&frame, now, cost, self.quota.capacity) {
            return Outcome::Refuse { wait: Some(self.wait(&frame, now, cost)) };
        }
        Outcome::Admit { delay: 0, soft_over: !self.fits(&frame, now, cost, self.quota.limit) }
    }

    fn charge(&self, state: Option<Pair>, now: Nanos, cost: i64) -> Option<Pair> {
        let capacity = self.quota.capacity;
        let mut frame = self.frame(state.as_ref(), now);
        frame.previous = frame.previous.min(capacity);
        let units = cost.unsigned_abs();
        if cost < 0 {
            // What was charged last is given back first.
            frame.previous = frame.previous.saturating_sub(units.saturating_sub(frame.current));
            frame.current = frame.current.saturating_sub(units);
        } else if self.fits(&frame, now, units, capacity) {
            frame.current += units;
        } else {
            // The newest displaces the oldest, as in a log: else a refusal that is charged changed nothing.
            frame.current = frame.current.saturating_add(units).min(capacity);
            let allowed = self.allowance(capacity - frame.current, frame.span);
            frame.previous = frame.previous.min(divide(allowed, frame.span.left(now)));
        }
        let Frame { span, previous, current } = frame;
        (previous > 0 || current > 0).then_some(Pair { start: span.start, previous, current })
    }

    fn standing(&self, state: Option<&Pair>, now: Nanos) -> Standing {
        let frame = self.frame(state, now);
        let used = self.weight(&frame, now).saturating_add(frame.current);
        let whole = frame.previous == 0 && frame.current == 0;
        Standing {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(used),
            reset: if whole { self.windows.reset_when_whole(now) } else { frame.span.left(now) },
        }
    }

    fn used(&self, state: Option<&Pair>, now: Nanos) -> u64 {
        let frame = self.frame(state, now);
        let product = u128::from(frame.previous) * u128::from(frame.span.left(now));
        divide_up(product, frame.span.length()).saturating_add(frame.current)
    }

    fn whole_at(&self, state: &Pair) -> Nanos {
        let end = self.windows.started_at(state.start).end;
        if state.current == 0 { end } else { self.windows.started_at(end).end }
    }
}
