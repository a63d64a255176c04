//! Times and durations as text, for `#[serde(with = …)]`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that RFC 3339 has a form for: 9999-12-31T23:59:59Z.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// A time in RFC 3339, with thousandths where there are any.
pub fn time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST);
    let time = UNIX_EPOCH + since;
    if since.subsec_millis() == 0 {
        humantime::format_rfc3339_seconds(time).to_string()
    } else {
        humantime::format_rfc3339_millis(time).to_string()
    }
}

/// A duration such as `10m`, in whole milliseconds.
pub fn duration(duration: Duration) -> String {
    let whole = Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000);
    humantime::format_duration(whole).to_string()
}

/// The same, rounded up: who waits that long has waited long enough. Of a minute and more, in whole seconds.
pub fn duration_up(duration: Duration) -> String {
    let unit = if duration < Duration::from_mins(1) { 1_000_000 } else { 1_000_000_000 };
    let nanos = duration.as_nanos().div_ceil(unit) * unit;
    humantime::format_duration(Duration::from_nanos_u128(nanos)).to_string()
}

/// A [`SystemTime`].
pub mod rfc3339 {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::SystemTime;

    /// Writes it.
    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::time(*time))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map_err(D::Error::custom)
    }
}

/// A [`SystemTime`] that may be absent.
pub mod optional_rfc3339 {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::SystemTime;

    /// Writes it.
    pub fn serialize<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_some(&super::time(*time)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| humantime::parse_rfc3339(&text)).transpose().map_err(D::Error::custom)
    }
}

/// A [`Duration`] that may be absent.
pub mod optional_duration {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::Duration;

    /// Writes it.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&super::duration(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let read = |text: String| {
            humantime::parse_duration(&text).map_err(|error| {
                D::Error::custom(format!("{text:?} is no duration such as 90s, 10m or 1h 30m: {error}"))
            })
        };
        text.map(read).transpose()
    }
}
