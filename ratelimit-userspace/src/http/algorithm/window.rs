//! Where windows begin and end.

use super::{Nanos, calendar::Calendar};
use crate::config::http::{Align, Window};

/// From `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
}

/// How time is cut into windows.
#[derive(Clone, Debug)]
pub(super) enum Windows {
    /// At multiples of a length since the epoch.
    Epoch(Nanos),
    /// From the first charge of a counter that was whole, one after the other.
    First(Nanos),
    /// As the calendar has it.
    Calendar(Calendar),
}

// === impl Span ===

impl Span {
    fn new(start: Nanos, length: Nanos) -> Self {
        Self { start, end: start.saturating_add(length) }
    }

    pub(super) fn holds(&self, now: Nanos) -> bool {
        self.start <= now && now < self.end
    }

    pub(super) fn length(&self) -> Nanos {
        (self.end - self.start).max(1)
    }

    /// What is left of it.
    pub(super) fn left(&self, now: Nanos) -> Nanos {
        self.end.saturating_sub(now)
    }
}

// === impl Windows ===

impl Windows {
    pub(super) fn new(window: &Window, align: Align) -> Self {
        match (window, align) {
            (Window::Calendar(unit, zone), _) => Self::Calendar(Calendar::new(*unit, zone.clone())),
            (Window::Fixed(length), Align::Epoch) => Self::Epoch(length.get()),
            (Window::Fixed(length), Align::First) => Self::First(length.get()),
        }
    }

    /// The window of a counter that is whole, if it is charged now.
    pub(super) fn opened_at(&self, now: Nanos) -> Span {
        match self {
            Self::Epoch(length) => Span::new(now - now % length, *length),
            Self::First(length) => Span::new(now, *length),
            Self::Calendar(calendar) => calendar.current(now),
        }
    }

    /// The window that began at a time.
    pub(super) fn started_at(&self, start: Nanos) -> Span {
        match self {
            Self::Epoch(length) | Self::First(length) => Span::new(start, *length),
            Self::Calendar(calendar) => calendar.around(start),
        }
    }

    /// The window right after another, if it is the current one.
    pub(super) fn current_after(&self, span: Span, now: Nanos) -> Option<Span> {
        let next = match self {
            Self::First(length) => Span::new(span.end, *length),
            Self::Epoch(_) | Self::Calendar(_) => self.opened_at(now),
        };
        (next.start == span.end && next.holds(now)).then_some(next)
    }

    /// When the current window of a counter that is whole ends: it has none if its first charge begins it.
    pub(super) fn reset_when_whole(&self, now: Nanos) -> Nanos {
        match self {
            Self::First(_) => 0,
            Self::Epoch(_) | Self::Calendar(_) => self.opened_at(now).left(now),
        }
    }
}
