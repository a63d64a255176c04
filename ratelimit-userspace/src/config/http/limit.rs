//! The limit that the keys of a `rate_limit` or an override come to.
//!
//! An override inherits what it leaves out. An inherited key that does not fit what the override says is
//! dropped; a written one that does not fit is a mistake.

mod keys;

use std::num::NonZeroU64;

use jiff::tz::TimeZone;

pub(super) use self::keys::Keys;
use self::keys::{Alignment, Kind, Slot, Span, only, says, value};
use super::{Algorithm, Align, Limit, MAX_WINDOW_NANOS, Window};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    section::Section,
};

/// Admitted above a soft limit when the file does not say how much, in thousandths.
const SOFT_MARGIN: u32 = 100;

// Every product of units and nanoseconds fits what the algorithms calculate with.
const _: () = assert!((u64::MAX as u128) * (MAX_WINDOW_NANOS as u128) < 1 << 123);

/// The limit of these keys, of which all that are needed must be there.
pub(super) fn resolve(
    mut keys: Keys,
    section: &Section<'_>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Limit, Reported> {
    let units = section.required("requests_per_unit", diagnostics, value(&keys.units));
    let span = keys.span(section, diagnostics);
    let kind = value(&keys.kind).map(Option::unwrap_or_default);
    if let Ok(kind) = kind {
        fit_algorithm(&mut keys, kind, units.ok(), diagnostics);
        fit_windows(&mut keys, kind, span.ok(), diagnostics);
    }
    let soft = says(&keys.soft, &true);
    only(&mut keys.soft_margin, soft, diagnostics, || {
        conflict("`soft_margin` belongs to a soft limit", "enforcement: soft")
    });
    let (units, span, kind) = (units?, span?, kind?);
    let algorithm = algorithm(&keys, kind, units, span.nanos(), diagnostics)?;
    let (align, timezone) = (value(&keys.align)?, value(&keys.timezone)?);
    Ok(Limit {
        units,
        window: match (align, span.calendar()) {
            (Some(Alignment::Calendar), Some(unit)) => {
                Window::Calendar(unit, timezone.unwrap_or(TimeZone::UTC))
            }
            _ => Window::Fixed(span.nanos()),
        },
        algorithm,
        align: if align == Some(Alignment::First) { Align::First } else { Align::Epoch },
        count_denied: value(&keys.count_denied)?.unwrap_or(false),
        soft_margin_permille: soft_margin(&keys)?,
    })
}

/// Keys of one algorithm do not fit the others. `units` is `None` where they have a mistake.
fn fit_algorithm(keys: &mut Keys, kind: Kind, units: Option<u64>, diagnostics: &mut Diagnostics<'_>) {
    only(&mut keys.burst, matches!(kind, Kind::TokenBucket | Kind::LeakyBucket), diagnostics, || {
        conflict("`burst` is the capacity of a bucket", "algorithm: token_bucket or leaky_bucket")
    });
    only(&mut keys.burst, units != Some(0), diagnostics, || {
        Mistake::new(Code::BadBurst, "a limit of 0 blocks every request and takes no burst")
            .expected("no `burst`, or requests_per_unit above 0")
    });
    only(&mut keys.interval, kind == Kind::TokenBucket, diagnostics, || {
        conflict("only a token bucket is refilled", "algorithm: token_bucket")
    });
    only(&mut keys.segments, kind == Kind::SlidingWindow, diagnostics, || {
        conflict("only a sliding window has segments", "algorithm: sliding_window")
    });
    let weighted = kind == Kind::SlidingWindow && matches!(keys.segments, Ok(None));
    only(&mut keys.round_up, weighted || keys.segments.is_err(), diagnostics, || {
        conflict(
            "only the share of the previous window is rounded, which a sliding window without segments counts",
            "algorithm: sliding_window and no `segments`",
        )
    });
    only(&mut keys.delay, kind == Kind::LeakyBucket, diagnostics, || {
        conflict("only a leaky bucket delays requests", "algorithm: leaky_bucket")
    });
    let delays = kind == Kind::LeakyBucket && says(&keys.delay, &true);
    only(&mut keys.max_delay, delays, diagnostics, || {
        conflict("`max_delay` belongs to a limit that delays", "on_limit: delay")
    });
}

/// Buckets that fill continuously and logs have no windows that could begin somewhere.
fn fit_windows(keys: &mut Keys, kind: Kind, span: Option<Span>, diagnostics: &mut Diagnostics<'_>) {
    let windows = matches!(kind, Kind::FixedWindow | Kind::SlidingWindow);
    let refills = kind == Kind::TokenBucket && says(&keys.interval, &true);
    only(&mut keys.align, windows || refills, diagnostics, || {
        conflict(
            "nothing begins at a certain time here that could be aligned",
            "algorithm: fixed_window or sliding_window, or a token_bucket with refill: interval",
        )
    });
    if let Ok(Some(align)) = &keys.align
        && align.value == Alignment::Calendar
    {
        let segmented = !matches!(keys.segments, Ok(None));
        only(&mut keys.align, windows && !segmented, diagnostics, || {
            conflict(
                "windows of the calendar differ in length, which refills and segments do not",
                "algorithm: fixed_window, or sliding_window without `segments`",
            )
        });
        let unit = span.is_none_or(|span| span.calendar().is_some());
        only(&mut keys.align, unit, diagnostics, || {
            conflict("the calendar has no windows of this length", "unit: day, week or month")
        });
    }
    let calendar = says(&keys.align, &Alignment::Calendar);
    only(&mut keys.timezone, calendar, diagnostics, || {
        conflict("only windows of the calendar have a time zone", "align: calendar")
    });
}

fn conflict(message: &str, expected: &str) -> Mistake {
    Mistake::new(Code::Conflict, message).expected(expected)
}

fn algorithm(
    keys: &Keys,
    kind: Kind,
    units: u64,
    window: NonZeroU64,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Algorithm, Reported> {
    let burst = value(&keys.burst).map(|burst| burst.unwrap_or(units));
    let interval = value(&keys.interval).map(|interval| interval.unwrap_or(false));
    let segments = segments(&keys.segments, window, diagnostics);
    let round_up = value(&keys.round_up).map(|up| up.unwrap_or(false));
    let (delay, max_delay) = (value(&keys.delay), value(&keys.max_delay));
    let margin = soft_margin(keys);
    let (burst, interval, segments, round_up) = (burst?, interval?, segments?, round_up?);
    let (delay, max_delay, margin) = (delay?.unwrap_or(false), max_delay?, margin?);
    Ok(match (kind, segments) {
        (Kind::SlidingWindow, Some(segments)) => Algorithm::Segments { segments },
        (Kind::SlidingWindow, None) => Algorithm::SlidingWindow { round_up },
        (Kind::SlidingLog, _) => Algorithm::SlidingLog,
        (Kind::FixedWindow, _) => Algorithm::FixedWindow,
        (Kind::EnvoyWindow, _) => Algorithm::EnvoyWindow,
        (Kind::TokenBucket, _) => Algorithm::TokenBucket { burst, interval },
        (Kind::LeakyBucket, _) => {
            let full = u128::from(burst) + u128::from(burst) * u128::from(margin) / 1000;
            let longest = || max_delay.map_or_else(|| drained(full, units, window), NonZeroU64::get);
            Algorithm::LeakyBucket { burst, max_delay: (delay && units > 0).then(longest) }
        }
    })
}

/// The time that a full bucket takes to drain: no request of a bucket waits longer.
fn drained(full: u128, units: u64, window: NonZeroU64) -> u64 {
    let nanos = full * u128::from(window.get());
    u64::try_from(nanos.div_ceil(u128::from(units.max(1)))).unwrap_or(u64::MAX)
}

/// What is admitted above the limit, in thousandths.
fn soft_margin(keys: &Keys) -> Result<u32, Reported> {
    let (soft, margin) = (value(&keys.soft)?, value(&keys.soft_margin)?);
    Ok(if soft == Some(true) { margin.unwrap_or(SOFT_MARGIN) } else { 0 })
}

fn segments(
    segments: &Slot<u32>,
    window: NonZeroU64,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Option<u32>, Reported> {
    let Some(written) = (*segments)? else { return Ok(None) };
    if window.get().is_multiple_of(u64::from(written.value)) {
        return Ok(Some(written.value));
    }
    let message = format!("{} segments of this window are no whole nanoseconds long", written.value);
    let expected = "a number that divides the window, such as 10 or 60";
    Err(diagnostics.error(written.place, Mistake::new(Code::BadValue, message).expected(expected)))
}
