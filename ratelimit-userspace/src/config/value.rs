//! The text of single values -> what it means.

pub(super) mod address;
pub(super) mod duration;
pub(super) mod header;
pub(super) mod listen;
pub(super) mod rate;
pub(super) mod request;

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use super::diagnostic::{Code, Mistake, Quoted, nearest};

/// Reads one of a few words.
pub(super) fn choice<T: Copy>(options: &[(&'static str, T)]) -> impl Fn(&str) -> Result<T, Mistake> {
    move |text| {
        let names = || options.iter().map(|(name, _)| *name);
        options.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            Mistake::new(Code::BadValue, format!("{} is not possible here", Quoted(text)))
                .nearest(nearest(text, names()))
        })
    }
}

/// Reads a whole decimal number within a range.
pub(super) fn number(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, Mistake> {
    let read = whole(u64::from(*range.start())..=u64::from(*range.end()));
    move |text| read(text).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

/// As [`number`], for large ones.
pub(super) fn whole(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, Mistake> {
    move |text| {
        let (low, high) = (*range.start(), *range.end());
        let mistake = |code, words| {
            Mistake::new(code, format!("{} {words}", Quoted(text)))
                .expected(format!("a whole number, {low} to {high}"))
        };
        if !is_digits(text) {
            let words = match text.strip_prefix('-') {
                Some(rest) if is_digits(rest) => return Err(mistake(Code::OutOfRange, "is negative")),
                _ => "is not a whole decimal number",
            };
            return Err(mistake(Code::BadValue, words));
        }
        if text.len() > 1 && text.starts_with('0') {
            // Other readers of YAML take these for octal numbers.
            let plain = text.trim_start_matches('0');
            return Err(mistake(Code::BadValue, "starts with a zero").nearest(Some(if plain.is_empty() {
                "0"
            } else {
                plain
            })));
        }
        match text.parse() {
            Ok(value) if value < low => Err(mistake(Code::OutOfRange, "is too small")),
            Ok(value) if value <= high => Ok(value),
            _ => Err(mistake(Code::OutOfRange, "is too large")),
        }
    }
}

/// Reads `true` or `false`.
pub(super) fn flag(text: &str) -> Result<bool, Mistake> {
    match text {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        _ => {
            let meant = match text.to_lowercase().as_str() {
                "yes" | "on" | "y" | "1" => Some("true"),
                "no" | "off" | "n" | "0" => Some("false"),
                _ => nearest(text, ["true", "false"]),
            };
            Err(Mistake::new(Code::BadValue, format!("{} is neither true nor false", Quoted(text)))
                .nearest(meant))
        }
    }
}

/// Reads a path, relative to a directory.
pub(super) fn path(directory: &Path) -> impl Fn(&str) -> Result<PathBuf, Mistake> {
    move |text| match text {
        "" => Err(Mistake::new(Code::BadValue, "a path is empty")),
        _ if text.contains('\0') => Err(Mistake::new(Code::BadValue, "a path holds a zero byte")),
        _ => Ok(directory.join(text)),
    }
}

/// Reads a path that stands for itself, whatever directory the rules file is in.
pub(super) fn absolute_path(text: &str) -> Result<PathBuf, Mistake> {
    let path = path(Path::new(""))(text)?;
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(Mistake::new(Code::BadValue, format!("{} is no absolute path", Quoted(text))))
    }
}

/// Reads a name that others choose: of a domain, a key, a tier, a rule in a rule file.
pub(super) fn label(text: &str) -> Result<String, Mistake> {
    const MAX_BYTES: usize = 255;
    let mistake = |words: &str| Mistake::new(Code::BadName, format!("{} {words}", Quoted(text)));
    if text.is_empty() {
        Err(mistake("is empty"))
    } else if text.len() > MAX_BYTES {
        Err(mistake("is longer than 255 bytes"))
    } else if text.chars().any(char::is_control) {
        Err(mistake("holds a control character"))
    } else {
        Ok(text.to_owned())
    }
}

/// Reads a number or an inclusive range of numbers, `low-high`.
pub(super) fn span(limits: RangeInclusive<u32>) -> impl Fn(&str) -> Result<RangeInclusive<u32>, Mistake> {
    let number = number(limits);
    move |text| match text.split_once('-') {
        Some((low, high)) if !low.is_empty() => {
            let (low, high) = (number(low)?, number(high)?);
            if low <= high {
                Ok(low..=high)
            } else {
                let message = format!("the range {} runs from high to low", Quoted(text));
                Err(Mistake::new(Code::ReversedRange, message).nearest(Some(format!("{high}-{low}"))))
            }
        }
        _ => number(text).map(|value| value..=value),
    }
}

/// Reads a port or a range of ports.
pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, Mistake> {
    let range = span(0..=u32::from(u16::MAX))(text)?;
    let port = |value| u16::try_from(value).unwrap_or(u16::MAX);
    Ok(port(*range.start())..=port(*range.end()))
}

/// The longest frame that is told apart from longer ones.
pub(super) const MAX_LENGTH: u32 = 65_535;

/// Reads a frame length, a range of lengths, or `low-`.
pub(super) fn lengths(text: &str) -> Result<RangeInclusive<u32>, Mistake> {
    match text.strip_suffix('-') {
        Some(low) => number(0..=MAX_LENGTH)(low).map(|low| low..=MAX_LENGTH),
        None => span(0..=MAX_LENGTH)(text).map_err(|mistake| match text.strip_prefix('-') {
            Some(high) if is_digits(high) => mistake.nearest(Some(format!("0-{high}"))),
            _ => mistake,
        }),
    }
}

/// Reads the name of a rule, which is also a label of metrics.
pub(super) fn rule_name(text: &str) -> Result<String, Mistake> {
    const MAX_BYTES: usize = 63;
    let mistake = |words: &str| Mistake::new(Code::BadName, format!("{} {words}", Quoted(text)));
    if text.is_empty() {
        Err(mistake("is empty"))
    } else if text.len() > MAX_BYTES {
        Err(mistake("is longer than 63 characters"))
    } else if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) {
        Err(mistake("holds a character that rule names do not have"))
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Err(mistake("does not start with a letter or a digit"))
    } else {
        Ok(text.to_owned())
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
