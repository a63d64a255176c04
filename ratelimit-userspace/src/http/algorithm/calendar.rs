//! Windows by the calendar: days, weeks and months of a time zone, as long as they really are.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

use super::{Nanos, window::Span};
use crate::config::http::CalendarUnit;

/// A unit of the calendar in a time zone.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    /// The current span, as last asked for: nearly every request asks for the same again, and the time
    /// zone takes long to answer.
    recent: Arc<ArcSwap<Span>>,
}

// === impl Calendar ===

impl Calendar {
    pub(super) fn new(unit: CalendarUnit, zone: TimeZone) -> Self {
        Self { unit, zone, recent: Arc::new(ArcSwap::from_pointee(Span { start: 0, end: 0 })) }
    }

    /// The span that holds the time that it is.
    pub(super) fn current(&self, now: Nanos) -> Span {
        let recent = **self.recent.load();
        if recent.holds(now) {
            return recent;
        }
        let span = self.compute(now);
        self.recent.store(Arc::new(span));
        span
    }

    /// The span that holds some other time, which will not be asked for again soon.
    pub(super) fn around(&self, time: Nanos) -> Span {
        let recent = **self.recent.load();
        if recent.holds(time) { recent } else { self.compute(time) }
    }

    fn compute(&self, now: Nanos) -> Span {
        let today = self.zone.to_datetime(timestamp(now)).date();
        let mut date = match self.unit {
            CalendarUnit::Day => today,
            CalendarUnit::Week => back(today, i64::from(today.weekday().to_monday_zero_offset())),
            CalendarUnit::Month => today.first_of_month(),
        };
        let mut start = self.midnight(date);
        // More than once only where clocks went back over midnight, and a date came twice.
        loop {
            date = self.next(date);
            let end = self.midnight(date);
            if now < end || end <= start {
                return Span { start, end };
            }
            start = end;
        }
    }

    /// The first date of the next span.
    fn next(&self, first: Date) -> Date {
        match self.unit {
            CalendarUnit::Day => back(first, -1),
            CalendarUnit::Week => back(first, -7),
            CalendarUnit::Month => back(first.last_of_month(), -1),
        }
    }

    /// When a date begins: later than midnight where clocks skip it, and the first of two.
    fn midnight(&self, date: Date) -> Nanos {
        let instant = self.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible();
        instant.map_or(Nanos::MAX, |instant| {
            Nanos::try_from(instant.as_nanosecond().max(0)).unwrap_or(Nanos::MAX)
        })
    }
}

fn timestamp(nanos: Nanos) -> Timestamp {
    // Every u64 of nanoseconds is before the year 2555.
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::MAX)
}

fn back(date: Date, days: i64) -> Date {
    date.saturating_sub(SignedDuration::from_hours(24 * days))
}
