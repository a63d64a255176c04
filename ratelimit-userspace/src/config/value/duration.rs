//! Times and percentages: `30s`, `10%`.

use std::{num::NonZeroU64, ops::RangeInclusive, time::Duration};

use super::{is_digits, whole};
use crate::config::{
    diagnostic::{Code, Mistake, Quoted},
    http::MAX_WINDOW_NANOS,
};

const SECOND: u64 = 1_000_000_000;

/// The units of times, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
    ("d", 86_400 * SECOND),
    ("w", 7 * 86_400 * SECOND),
];

/// Reads a time above zero, in nanoseconds.
pub(in crate::config) fn duration(text: &str) -> Result<NonZeroU64, Mistake> {
    read(text).map_err(|mistake| {
        let meant = meant(text).filter(|meant| meant != text && read(meant).is_ok());
        if meant.is_some() { mistake.nearest(meant) } else { mistake }
    })
}

/// As [`duration`], within bounds.
pub(in crate::config) fn between(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, Mistake> {
    move |text| {
        let time = Duration::from_nanos(duration(text)?.get());
        let mistake = |words| Mistake::new(Code::OutOfRange, format!("{} is too {words}", Quoted(text)));
        if time < *bounds.start() {
            Err(mistake("short"))
        } else if time > *bounds.end() {
            Err(mistake("long"))
        } else {
            Ok(time)
        }
    }
}

fn read(text: &str) -> Result<NonZeroU64, Mistake> {
    let mistake = |code, words: &str| Mistake::new(code, format!("{} {words}", Quoted(text)));
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if text.starts_with('-') {
        return Err(mistake(Code::OutOfRange, "is negative"));
    }
    if number.is_empty() {
        return Err(mistake(Code::BadValue, "does not start with a whole number"));
    }
    if unit.is_empty() {
        return Err(mistake(Code::BadValue, "has no unit"));
    }
    if unit.starts_with('.') {
        return Err(mistake(Code::BadValue, "is no whole number of its unit"));
    }
    let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(mistake(Code::BadValue, &format!("has the unknown unit {}", Quoted(unit))));
    };
    if number.len() > 1 && number.starts_with('0') {
        return Err(mistake(Code::BadValue, "starts with a zero"));
    }
    let nanos = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*nanos));
    match nanos.filter(|nanos| *nanos <= MAX_WINDOW_NANOS) {
        Some(nanos) => NonZeroU64::new(nanos).ok_or_else(|| mistake(Code::OutOfRange, "is no time at all")),
        None => Err(mistake(Code::OutOfRange, "is longer than 10 years")),
    }
}

/// What a time was probably meant to be: without blanks, with a unit of the next smaller size where it is
/// a fraction, seconds where there is none.
fn meant(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !matches!(c, ' ' | '_')).take(40).collect();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = match unit.to_lowercase().as_str() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 3,
        "ms" | "msec" | "millis" | "milliseconds" => 2,
        // Months are written as a unit.
        "m" if unit == "M" => return None,
        "m" | "min" | "mins" | "minute" | "minutes" => 4,
        "h" | "hr" | "hour" | "hours" => 5,
        "d" | "day" | "days" => 6,
        "w" | "week" | "weeks" => 7,
        _ => return None,
    };
    let Some((whole, fraction)) = number.split_once('.') else {
        return Some(format!("{number}{}", UNITS[unit].0));
    };
    // Whole numbers of a smaller unit, the largest that there is.
    let fraction = fraction.trim_end_matches('0');
    if !is_digits(whole) || fraction.len() > 9 || !(fraction.is_empty() || is_digits(fraction)) {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let nanos = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(u128::from(UNITS[unit].1))?;
    let exact = (nanos % scale == 0).then_some(nanos / scale)?;
    let (name, size) = UNITS[..=unit].iter().rev().find(|(_, size)| exact % u128::from(*size) == 0)?;
    Some(format!("{}{name}", exact / u128::from(*size)))
}

/// Reads a percentage from 0.1% to 100%, in thousandths.
pub(in crate::config) fn permille(text: &str) -> Result<u32, Mistake> {
    let mistake = |code, words: &str| Mistake::new(code, format!("{} {words}", Quoted(text)));
    let Some(number) = text.strip_suffix('%') else {
        let meant = whole(1..=100)(text).ok().map(|percent| format!("{percent}%"));
        return Err(mistake(Code::BadValue, "does not end in %").nearest(meant));
    };
    let (percent, tenths) = number.split_once('.').unwrap_or((number, "0"));
    if !is_digits(percent) || !is_digits(tenths) || tenths.len() > 1 {
        return Err(mistake(Code::BadValue, "is no percentage with at most one decimal place"));
    }
    let permille = format!("{percent}{tenths}").parse().ok().filter(|permille| (1..=1000).contains(permille));
    permille.ok_or_else(|| mistake(Code::OutOfRange, "is not between 0.1% and 100%"))
}
