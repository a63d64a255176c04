//! A request target, and the one form that all spellings of a path have.

use std::borrow::Cow;

/// A request target (RFC 9112, section 3.2), taken apart.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// The authority, if the target is a whole URI.
    pub(super) authority: Option<&'a str>,
    /// The normalised path.
    pub(super) path: Cow<'a, str>,
    /// The query.
    pub(super) query: Option<&'a str>,
}

// === impl Target ===

impl<'a> Target<'a> {
    pub(super) fn parse(target: &'a str) -> Self {
        let (target, _fragment) = cut(target, '#');
        let (target, query) = cut(target, '?');
        let (authority, path) = match whole_uri(target) {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", target),
        };
        let authority = Some(authority).filter(|authority| !authority.is_empty());
        Self { authority, path: normalise(path), query }
    }
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// What follows `scheme://`.
fn whole_uri(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    let scheme = scheme.as_bytes();
    let rest_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    (scheme.first()?.is_ascii_alphabetic() && scheme.iter().all(rest_of_scheme)).then_some(rest)
}

/// The path with unreserved characters decoded, other escapes in upper case, `//` collapsed, and `.` and
/// `..` resolved. Case and a trailing slash stay. An escaped slash stays escaped: it is part of a segment.
///
/// What cannot stand in a path (a `%` without digits, spaces, control characters, anything but ASCII) is
/// escaped, so that it is the same as its escape, and so that nothing changes the second time. `*`, the
/// target of a request to the server itself, stays; anything else starts with a slash.
pub(super) fn normalise(path: &str) -> Cow<'_, str> {
    if path == "*" || is_normal(path) {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len() + 1);
    let mut slashes = Vec::new();
    let mut ends_in_slash = true;
    for segment in path.split('/') {
        ends_in_slash = true;
        if segment.is_empty() {
            continue;
        }
        let slash = normal.len();
        normal.push('/');
        unescape(segment, &mut normal);
        match &normal[slash + 1..] {
            "." => normal.truncate(slash),
            ".." => normal.truncate(slashes.pop().unwrap_or(0)),
            _ => {
                slashes.push(slash);
                ends_in_slash = false;
            }
        }
    }
    if ends_in_slash {
        normal.push('/');
    }
    Cow::Owned(normal)
}

/// Whether nothing can be left to do, told at little cost.
fn is_normal(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.first() == Some(&b'/')
        && bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'%')
        && bytes.array_windows().all(|pair| !matches!(pair, b"//" | b"/."))
}

fn unescape(segment: &str, normal: &mut String) {
    let mut rest = segment.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match (byte, after) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    let byte = high << 4 | low;
                    if is_unreserved(byte) {
                        normal.push(char::from(byte));
                        continue;
                    }
                    byte
                }
                _ => b'%',
            },
            (byte, _) if byte.is_ascii_graphic() && *byte != b'%' => {
                normal.push(char::from(*byte));
                continue;
            }
            (byte, _) => *byte,
        };
        escape(byte, normal);
    }
}

fn escape(byte: u8, normal: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    normal.extend(['%', digit(byte >> 4), digit(byte)]);
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests;
