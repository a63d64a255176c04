//! Parts of requests: names of headers and cookies, patterns for paths and hosts, methods, path templates.

use std::{collections::HashSet, net::Ipv6Addr};

use http::{HeaderName, Method};

use crate::config::diagnostic::{Code, Mistake, Quoted, nearest};

/// Names of headers, cookies and hosts may be this long.
const MAX_NAME: usize = 255;

/// Reads the name of a header, in lower case.
pub(in crate::config) fn header_name(text: &str) -> Result<String, Mistake> {
    let mistake = |words: &str| Mistake::new(Code::BadName, format!("{} {words}", Quoted(text)));
    if text.len() > MAX_NAME {
        return Err(mistake("is longer than 255 bytes"));
    }
    HeaderName::from_bytes(text.as_bytes()).map(|name| name.as_str().to_owned()).map_err(|_| {
        let bare = text.trim().trim_end_matches(':');
        let meant = Some(bare).filter(|bare| HeaderName::from_bytes(bare.as_bytes()).is_ok());
        mistake("is no name of a header")
            .expected("letters, digits, `-` and `_`, such as x-api-key")
            .nearest(meant)
    })
}

/// Reads the name of a cookie.
pub(in crate::config) fn cookie_name(text: &str) -> Result<String, Mistake> {
    if is_token(text) && text.len() <= MAX_NAME {
        return Ok(text.to_owned());
    }
    Err(Mistake::new(Code::BadName, format!("{} is no name of a cookie", Quoted(text)))
        .expected("1 to 255 letters, digits, `-`, `_` and `.`, such as session"))
}

/// Reads a method, as it stands in requests.
pub(in crate::config) fn method(text: &str) -> Result<String, Mistake> {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::CONNECT,
        Method::OPTIONS,
        Method::TRACE,
        Method::PATCH,
    ];
    let known = || KNOWN.iter().map(Method::as_str);
    // Case matters in methods, so `get` would never be met.
    let lower = known().any(|known| known != text && known.eq_ignore_ascii_case(text));
    if is_token(text) && !lower {
        return Ok(text.to_owned());
    }
    Err(Mistake::new(Code::BadValue, format!("{} is no method", Quoted(text)))
        .nearest(nearest(text, known())))
}

/// Reads a pattern for normalised paths: `*` within a segment, a segment `**` for any number of them.
pub(in crate::config) fn path_pattern(text: &str) -> Result<String, Mistake> {
    plain_path(text)?;
    match text.split('/').find(|segment| segment.contains("**") && *segment != "**") {
        Some(segment) => Err(Mistake::new(
            Code::BadValue,
            format!("`**` stands for whole segments, and {} holds more than that", Quoted(segment)),
        )
        .expected("`*` within a segment, or `/**/` between slashes")),
        None => Ok(text.to_owned()),
    }
}

/// Reads a path template. Its placeholders are whole segments, each of its own name.
pub(in crate::config) fn path_template(text: &str) -> Result<String, Mistake> {
    plain_path(text)?;
    let mut names = HashSet::new();
    for segment in text.split('/').filter(|segment| segment.contains(['{', '}'])) {
        let mistake = |message: String| {
            Mistake::new(Code::BadValue, message)
                .expected("whole segments such as {id}: letters, digits and `_` in braces, each name once")
        };
        let Some(name) = placeholder(segment) else {
            return Err(mistake(format!("{} is no segment of a template", Quoted(segment))));
        };
        if !names.insert(name) {
            return Err(mistake(format!("the name {} stands twice in this template", Quoted(name))));
        }
    }
    Ok(text.to_owned())
}

/// The names of a template's placeholders.
pub(in crate::config) fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    template.split('/').filter_map(placeholder)
}

fn placeholder(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then_some(name)
}

/// A path without query and fragment, which the path of a request never holds.
fn plain_path(text: &str) -> Result<(), Mistake> {
    let mistake = |words: &str| Mistake::new(Code::BadValue, format!("{} {words}", Quoted(text)));
    if !text.starts_with('/') {
        let meant = Some(format!("/{text}")).filter(|_| !text.is_empty() && !text.contains(':'));
        return Err(mistake("does not start with a slash").nearest(meant));
    }
    match text.find(['?', '#']) {
        Some(end) => {
            Err(mistake("holds a query or a fragment, which are no part of a path")
                .nearest(Some(&text[..end])))
        }
        None if text.chars().any(char::is_control) => Err(mistake("holds a control character")),
        None => Ok(()),
    }
}

/// Reads a host without port, or `*.` and a host, in lower case.
pub(in crate::config) fn host_pattern(text: &str) -> Result<String, Mistake> {
    let mistake = |words: &str| Mistake::new(Code::BadValue, format!("{} {words}", Quoted(text)));
    let lower = text.to_ascii_lowercase();
    if let Some(literal) = lower.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match literal.parse::<Ipv6Addr>() {
            Ok(_) => Ok(lower),
            Err(_) => Err(mistake("is no host: no IPv6 address stands in the brackets")),
        };
    }
    let host = lower.strip_prefix("*.").unwrap_or(&lower);
    if is_host(host) {
        return Ok(lower);
    }
    let bare = lower.split_once("://").map_or(lower.as_str(), |(_, rest)| rest);
    let bare = bare.split(['/', ':']).next().unwrap_or_default().trim_end_matches('.');
    let meant = Some(bare).filter(|bare| *bare != lower && is_host(bare.strip_prefix("*.").unwrap_or(bare)));
    Err(mistake(if host.contains('*') { "holds a `*` that is no first label" } else { "is no host name" })
        .nearest(meant))
}

fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    host.len() <= MAX_NAME && host.split('.').all(label)
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let sign = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || sign(byte))
}
