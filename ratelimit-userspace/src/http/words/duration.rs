//! Lengths of time.

use super::decimal;
use crate::{
    config::http::{CalendarUnit, Window},
    http::algorithm::Nanos,
};

const SECOND: Nanos = 1_000_000_000;
const MINUTE: Nanos = 60 * SECOND;
const HOUR: Nanos = 60 * MINUTE;
const DAY: Nanos = 24 * HOUR;

/// A length of time, exactly: `30 s`, `250 ms`, `1 min 30 s`, `3 hours`.
pub fn duration(nanos: Nanos) -> String {
    for (length, one, many) in
        [(DAY, "1 day", "days"), (HOUR, "1 hour", "hours"), (MINUTE, "1 minute", "minutes")]
    {
        match nanos / length {
            1 if nanos == length => return one.to_owned(),
            times if times > 1 && nanos.is_multiple_of(length) => return format!("{times} {many}"),
            _ => {}
        }
    }
    if nanos < MINUTE {
        return short(nanos);
    }
    let mut rest = nanos;
    let mut parts = Vec::new();
    for (length, name) in [(DAY, "d"), (HOUR, "h"), (MINUTE, "min")] {
        if rest >= length {
            parts.push(format!("{} {name}", rest / length));
            rest %= length;
        }
    }
    if rest > 0 {
        parts.push(short(rest));
    }
    parts.join(" ")
}

/// Less than a minute.
fn short(nanos: Nanos) -> String {
    match nanos {
        SECOND.. => format!("{} s", decimal(nanos, SECOND)),
        1_000_000.. => format!("{} ms", decimal(nanos, 1_000_000)),
        1_000.. => format!("{} µs", decimal(nanos, 1_000)),
        0 => "0 s".to_owned(),
        _ => format!("{nanos} ns"),
    }
}

/// What follows "any": `minute`, `30 s`, `calendar day`.
pub(super) fn window_name(window: &Window) -> String {
    let name = match window {
        Window::Calendar(CalendarUnit::Day, _) => "calendar day",
        Window::Calendar(CalendarUnit::Week, _) => "calendar week",
        Window::Calendar(CalendarUnit::Month, _) => "calendar month",
        Window::Fixed(nanos) => match nanos.get() {
            SECOND => "second",
            MINUTE => "minute",
            HOUR => "hour",
            DAY => "day",
            nanos if nanos == 7 * DAY => "week",
            nanos => return duration(nanos),
        },
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
