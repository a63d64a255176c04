//! Rates, bandwidths and bursts: `50/s`, `200Mbit/s`, `100`, `10MB`.
//!
//! k, M and G are decimal. A fraction is taken where it comes to a whole number of packets, bits or
//! bytes (`1.5Gbit/s`), and never rounded.

use ratelimit_common::gcra::{self, FULL_FRAME, LimitError, MAX_FILL_NANOS, Rate};

use crate::config::{
    diagnostic::{Code, Mistake, Quoted},
    policy::{Bucket, Unit},
};

/// The fastest rate, in packets a second.
const MAX_PACKETS: u64 = 100_000_000;
/// The fastest bandwidth, in bits a second.
const MAX_BITS: u64 = 400_000_000_000;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

const TIMES: &[(&str, u64)] = &[
    ("s", SECOND),
    ("second", SECOND),
    ("m", 60 * SECOND),
    ("minute", 60 * SECOND),
    ("h", 3600 * SECOND),
    ("hour", 3600 * SECOND),
    ("d", DAY),
    ("day", DAY),
];

const NOTHING_PASSES: &str = "a burst of 0 lets nothing pass";

/// Why a number with a suffix cannot be read.
enum Misread {
    Negative,
    NoNumber,
    LeadingZero,
    Fraction,
    TooLarge,
}

/// Reads a rate in packets; `None` is a rate of zero.
pub(in crate::config) fn packets(text: &str) -> Result<Option<Rate>, Mistake> {
    corrected(text, read_packets)
}

/// Reads a bandwidth, as a rate in bytes; `None` is a bandwidth of zero.
pub(in crate::config) fn bandwidth(text: &str) -> Result<Option<Rate>, Mistake> {
    corrected(text, read_bandwidth)
}

/// Reads a burst in packets.
pub(in crate::config) fn packet_burst(text: &str) -> Result<u64, Mistake> {
    corrected(text, |text| match quantity(text) {
        Ok((0, "")) => Err(Mistake::new(Code::BadBurst, NOTHING_PASSES)
            .expected("at least 1, or a rate of 0/s, which blocks, and no burst")),
        Ok((burst, "")) => Ok(burst),
        Ok((_, "B" | "kB" | "MB" | "GB")) => {
            let message = format!("{} is in bytes, but the limit is a rate in packets", Quoted(text));
            Err(Mistake::new(Code::BadBurst, message).expected("packets, such as 100"))
        }
        Ok((_, rest)) => Err(no_unit(Code::BadBurst, text, rest).expected("packets, such as 100")),
        Err(misread) => Err(misread.mistake(Code::BadBurst, text).expected("packets, such as 100")),
    })
}

/// Reads a burst in bytes.
pub(in crate::config) fn byte_burst(text: &str) -> Result<u64, Mistake> {
    const EXPECTED: &str = "bytes: NB, NkB, NMB or NGB, such as 10MB";
    corrected(text, |text| match quantity(text) {
        Ok((0, "B")) => Err(Mistake::new(Code::BadBurst, NOTHING_PASSES)
            .expected("at least 1514B, or a bandwidth of 0bit/s, which blocks, and no burst")),
        Ok((burst, "B")) if burst < FULL_FRAME => {
            let message = format!("{} is less than one full frame, which could never pass", Quoted(text));
            let least = format!("{FULL_FRAME}B");
            Err(Mistake::new(Code::BadBurst, message)
                .expected(format!("at least {least}"))
                .nearest(Some(least)))
        }
        Ok((burst, "B")) => Ok(burst),
        Ok((_, "")) => {
            let message = format!("{} has no unit, and the limit is a bandwidth", Quoted(text));
            Err(Mistake::new(Code::BadBurst, message).expected(EXPECTED).nearest(Some(format!("{text}B"))))
        }
        Ok((_, rest)) => Err(no_unit(Code::BadBurst, text, rest).expected(EXPECTED)),
        Err(misread) => Err(misread.mistake(Code::BadBurst, text).expected(EXPECTED)),
    })
}

/// The bucket of a rate, with the burst that was written or else one second's rate.
pub(in crate::config) fn bucket(unit: Unit, rate: Rate, burst: Option<u64>) -> Result<Bucket, Mistake> {
    let least = match unit {
        Unit::Packets => 1,
        Unit::Bytes => FULL_FRAME,
    };
    let second = u128::from(rate.units) * u128::from(SECOND) / u128::from(rate.nanos);
    let burst = burst.unwrap_or_else(|| u64::try_from(second).unwrap_or(u64::MAX).max(least));
    let mistake = |message: String| Mistake::new(Code::BadBurst, message);
    let shown = |amount: u64| match unit {
        Unit::Packets => format!("{amount}"),
        Unit::Bytes => format!("{amount}B"),
    };
    // burst / rate < a thousandth of a second, in whole numbers.
    let product = u128::from(burst) * u128::from(rate.nanos);
    let thousandth = u128::from(rate.units) * u128::from(SECOND / 1000);
    if product < thousandth {
        let least = u64::try_from(thousandth.div_ceil(u128::from(rate.nanos))).unwrap_or(u64::MAX);
        let message = format!("a burst of {} is less than a thousandth of a second's rate", shown(burst));
        return Err(mistake(message)
            .expected(format!("at least {}", shown(least)))
            .nearest(Some(shown(least))));
    }
    let too_long = || {
        let most = u128::from(MAX_FILL_NANOS) * u128::from(rate.units) / u128::from(rate.nanos);
        let message = format!("a burst of {} takes more than 90 days to fill at this rate", shown(burst));
        mistake(message).expected(format!("at most {}", shown(u64::try_from(most).unwrap_or(u64::MAX))))
    };
    if product > u128::from(rate.units) * u128::from(MAX_FILL_NANOS) {
        return Err(too_long());
    }
    let limit = match unit {
        Unit::Packets => gcra::Limit::packets(rate, burst),
        Unit::Bytes => gcra::Limit::bytes(rate, burst),
    };
    match limit {
        Ok(_) => Ok(Bucket { rate, burst }),
        Err(LimitError::FillTooLong | LimitError::ZeroBurst) => Err(too_long()),
        Err(LimitError::TooFast) => {
            Err(Mistake::new(Code::BadRate, "this rate is too fast to be held to 0.1%"))
        }
        Err(LimitError::TooSlow | LimitError::ZeroRate) => {
            Err(Mistake::new(Code::BadRate, "this rate is too slow to be held to 0.1%"))
        }
    }
}

fn read_packets(text: &str) -> Result<Option<Rate>, Mistake> {
    let mistake = |message: String| Mistake::new(Code::BadRate, message);
    let Some((amount, time)) = text.split_once('/') else {
        return Err(mistake(format!("{} is not a rate: it says no time", Quoted(text))));
    };
    let units = match quantity(amount) {
        Ok((units, "")) => units,
        Ok((_, rest)) if rest.ends_with("bit") || rest.ends_with('B') => {
            return Err(mistake(format!(
                "{} is not in packets; the key for bits is `bandwidth`",
                Quoted(text)
            )));
        }
        Ok((_, rest)) => return Err(no_unit(Code::BadRate, text, rest)),
        Err(misread) => return Err(misread.mistake(Code::BadRate, text)),
    };
    let Some((_, nanos)) = TIMES.iter().find(|(name, _)| *name == time) else {
        return Err(mistake(format!("{} is not a rate: {} is no time", Quoted(text), Quoted(time))));
    };
    if u128::from(units) * u128::from(SECOND) > u128::from(MAX_PACKETS) * u128::from(*nanos) {
        return Err(mistake(format!("{} is more than 100M/s", Quoted(text))));
    }
    Ok((units > 0).then_some(Rate { units, nanos: *nanos }))
}

fn read_bandwidth(text: &str) -> Result<Option<Rate>, Mistake> {
    let mistake = |message: String| Mistake::new(Code::BadRate, message);
    let Some(amount) = text.strip_suffix("bit/s") else {
        return Err(mistake(format!("{} is not a bandwidth: it does not end in bit/s", Quoted(text))));
    };
    let bits = match quantity(amount) {
        Ok((bits, "")) => bits,
        Ok((_, "T")) => return Err(mistake(format!("{} is more than 400Gbit/s", Quoted(text)))),
        Ok((_, rest)) => return Err(no_unit(Code::BadRate, text, rest)),
        Err(misread) => return Err(misread.mistake(Code::BadRate, text)),
    };
    if bits > MAX_BITS {
        return Err(mistake(format!("{} is more than 400Gbit/s", Quoted(text))));
    }
    Ok(match bits {
        0 => None,
        _ if bits % 8 == 0 => Some(Rate { units: bits / 8, nanos: SECOND }),
        _ => Some(Rate { units: bits, nanos: 8 * SECOND }),
    })
}

/// Reads `N`, `Nk`, `NM` or `NG` and gives what follows.
fn quantity(text: &str) -> Result<(u64, &str), Misread> {
    if text.starts_with('-') {
        return Err(Misread::Negative);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (factor, digits, rest) = match rest.split_at_checked(1) {
        Some(("k", rest)) => (1000, 3, rest),
        Some(("M", rest)) => (1_000_000, 6, rest),
        Some(("G", rest)) => (1_000_000_000, 9, rest),
        _ => (1, 0, rest),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    if !super::is_digits(whole) || fraction.is_some_and(|fraction| !super::is_digits(fraction)) {
        return Err(Misread::NoNumber);
    }
    if whole.len() > 1 && whole.starts_with('0') {
        return Err(Misread::LeadingZero);
    }
    let fraction = fraction.unwrap_or("").trim_end_matches('0');
    if fraction.len() > digits {
        return Err(Misread::Fraction);
    }
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(factor));
    // At most 9 digits, padded to the factor's.
    let fraction: u64 = format!("{fraction:0<digits$}").parse().unwrap_or(0);
    let value = whole.and_then(|whole| whole.checked_add(fraction)).ok_or(Misread::TooLarge)?;
    Ok((value, rest))
}

fn no_unit(code: Code, text: &str, rest: &str) -> Mistake {
    let message = if rest.starts_with("Ki") || rest.starts_with("ki") || rest.starts_with('i') {
        format!("{} uses a binary unit; k, M and G are decimal", Quoted(text))
    } else {
        format!("{} has the unknown unit {}", Quoted(text), Quoted(rest))
    };
    Mistake::new(code, message)
}

/// Adds the nearest valid text to a mistake: the same with the usual slips undone.
fn corrected<T>(text: &str, read: impl Fn(&str) -> Result<T, Mistake>) -> Result<T, Mistake> {
    read(text).map_err(|mistake| {
        let meant = meant(text).into_iter().find(|meant| meant != text && read(meant).is_ok());
        if meant.is_some() { mistake.nearest(meant) } else { mistake }
    })
}

/// What a rate, bandwidth or burst was probably meant to be: without blanks, with decimal units, in the
/// right case, a time by its first letter.
fn meant(text: &str) -> Vec<String> {
    let text: String = text.chars().filter(|c| !matches!(c, ' ' | '_')).take(40).collect();
    let (amount, time) = match (text.split_once('/'), text.strip_suffix("pps"), text.strip_suffix("bps")) {
        (Some((amount, time)), ..) => (amount.to_owned(), Some(time.to_lowercase())),
        (None, Some(amount), _) => (amount.to_owned(), Some("s".to_owned())),
        (None, None, Some(amount)) => (format!("{amount}bit"), Some("s".to_owned())),
        (None, None, None) => (text, None),
    };
    let time = match time.as_deref().and_then(|time| time.chars().next()) {
        Some(first @ ('s' | 'm' | 'h' | 'd')) => format!("/{first}"),
        _ => String::new(),
    };
    let (number, unit) =
        amount.split_at(amount.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(amount.len()));
    let (scale, unit) = match unit.split_at_checked(1) {
        Some(("k" | "K", unit)) => ("k", unit),
        Some(("m" | "M", unit)) => ("M", unit),
        Some(("g" | "G", unit)) => ("G", unit),
        _ => ("", unit),
    };
    let unit = unit.strip_prefix(['i', 'I']).unwrap_or(unit);
    let units: &[&str] = match unit.to_lowercase().as_str() {
        "" => &[""],
        "b" if unit == "b" => &["bit", "B"],
        "b" | "byte" | "bytes" => &["B"],
        "bit" | "bits" => &["bit"],
        _ => &[],
    };
    units.iter().map(|unit| format!("{number}{scale}{unit}{time}")).collect()
}

// === impl Misread ===

impl Misread {
    fn mistake(self, code: Code, text: &str) -> Mistake {
        let words = match self {
            Self::Negative => "is negative",
            Self::NoNumber => "does not start with a decimal number",
            Self::LeadingZero => "starts with a zero",
            Self::Fraction => "is not a whole number of packets, bits or bytes",
            Self::TooLarge => "is too large",
        };
        Mistake::new(code, format!("{} {words}", Quoted(text)))
    }
}
