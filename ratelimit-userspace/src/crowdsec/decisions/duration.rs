//! Durations as Go writes them: `3h59m49.4s`.

use std::time::Duration;

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// More digits than a nanosecond has.
const DIGITS: usize = 18;

/// Reads a duration; one that is negative, of what has ended, is none at all.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if let Some(ended) = text.strip_prefix('-') {
        return parse(ended).map(|_| Duration::ZERO);
    }
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(nanos(number, *size)?)?;
        rest = tail;
    }
    (!text.is_empty()).then(|| Duration::from_nanos(total))
}

/// A decimal number of units, rounded down.
fn nanos(number: &str, size: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = fraction.get(..fraction.len().min(DIGITS))?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    whole.checked_mul(size)?.checked_add(u64::try_from(part * u128::from(size) / scale).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_writes_is_read() {
        for (text, millis) in [
            ("3h59m49.4s", 14_389_400),
            ("38m55.633568505s", 2_335_633),
            ("4h", 14_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            (".5s", 500),
            ("1h0m0s", 3_600_000),
            ("0s", 0),
            ("0", 0),
            ("-1h2m3s", 0),
        ] {
            assert_eq!(parse(text).map(|read| read.as_millis()), Some(millis), "{text}");
        }
        assert_eq!(parse("1µs"), Some(Duration::from_micros(1)));
    }

    #[test]
    fn everything_else_is_not() {
        for text in
            ["", "-", "5", "h", "1d", "1h30", "1..5s", ".s", "1 h", "99999999999h", "1h-3m", "é", "1é"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
