//! Seconds, exact to the nanosecond.

use std::fmt::{self, Write as _};

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use crate::http::algorithm::Nanos;

/// A time in nanoseconds that shows as decimal seconds with as many digits as it needs, in JSON as a number:
/// `12.5`, `0.000000001`, `30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Nanos);

// === impl Seconds ===

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{whole}");
        }
        let (mut digits, mut places) = (nanos, 9);
        while digits.is_multiple_of(10) {
            digits /= 10;
            places -= 1;
        }
        write!(f, "{whole}.{digits:0places$}")
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The longest is 2^64 ns, with 20 digits and a point.
        let mut text = String::with_capacity(21);
        let _ = write!(text, "{self}");
        RawValue::from_string(text).map_err(S::Error::custom)?.serialize(serializer)
    }
}
