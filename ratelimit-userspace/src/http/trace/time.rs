//! Decimal seconds, read exactly.

use serde_json::value::RawValue;

use crate::http::algorithm::Nanos;

/// A time in seconds since some epoch, as it was written and in nanoseconds.
#[derive(Clone, Debug)]
pub struct Time {
    written: Box<RawValue>,
    nanos: Nanos,
}

/// Why a time cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Of another type.
    #[error("`t` is not a number: it is the time in seconds, such as 12.5")]
    NotANumber,
    /// Before the epoch.
    #[error("`t` is negative: times count from any epoch before the first of them")]
    Negative,
    /// More than 64 bits of nanoseconds.
    #[error("`t` is too large: it is a time in seconds, at most 18446744073 (584 years)")]
    TooLarge,
}

// === impl Time ===

impl Time {
    /// Reads a JSON number, to the nearest nanosecond; halves are rounded up.
    pub(super) fn parse(written: &RawValue) -> Result<Self, TimeError> {
        Ok(Self { written: written.to_owned(), nanos: nanos(written.get())? })
    }

    /// Nanoseconds since the epoch.
    pub fn nanos(&self) -> Nanos {
        self.nanos
    }

    /// The number as it was written.
    pub fn as_written(&self) -> &RawValue {
        &self.written
    }
}

/// The nanoseconds in a number of JSON's form.
fn nanos(number: &str) -> Result<Nanos, TimeError> {
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |number| (true, number));
    if !number.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(TimeError::NotANumber);
    }
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(TimeError::Negative);
    }
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let shift = saturating(exponent).saturating_add(9).saturating_sub(length(fraction));
    // Of the digits, so many are before the point of the nanoseconds; there may be more, which are zeros.
    let before = length(digits).saturating_add(shift);
    if before > 20 {
        return Err(TimeError::TooLarge);
    }
    let Ok(before) = usize::try_from(before) else { return Ok(0) };
    let kept = digits.bytes().chain(std::iter::repeat(b'0')).take(before);
    let whole = kept.fold(0_u128, |value, digit| value * 10 + u128::from(digit - b'0'));
    let round_up = digits.as_bytes().get(before).is_some_and(|digit| *digit >= b'5');
    Nanos::try_from(whole + u128::from(round_up)).map_err(|_| TimeError::TooLarge)
}

/// An exponent; where it is beyond all measure, the least or largest.
fn saturating(exponent: &str) -> i64 {
    exponent.parse().unwrap_or_else(|_| if exponent.starts_with('-') { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
