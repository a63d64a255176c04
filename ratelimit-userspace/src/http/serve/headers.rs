//! What clients are told of their quota, in header fields.
//!
//! `RateLimit` and `RateLimit-Policy` are those of draft-ietf-httpapi-ratelimit-headers-11; nothing outside
//! this module knows their form.

use std::{borrow::Cow, fmt::Write as _, iter, sync::Arc};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use crate::{
    config::http::{Answer as Fields, CalendarUnit, Limit, Window},
    http::{
        algorithm::{Meter, Nanos},
        ask::{Answer, Decision, Standing},
        rules::Rule,
    },
};

pub(super) const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The problem type of a quota that is used up, from the same draft.
pub(super) const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The greatest Integer of a structured field (RFC 9651).
const MAX_INTEGER: u64 = 999_999_999_999_999;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Room for the values of one answer. More is allocated where names are long.
const VALUES: usize = 192;

/// Policies that are named, and bytes that naming them may take in each field: proxies give the headers of an
/// answer a few KiB. What does not fit stays untold.
const MAX_POLICIES: usize = 16;
const MAX_FIELD: usize = 1024;

/// A rule that shows to clients, and where it stands.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    rule: &'a Arc<Rule>,
    meter: Option<&'a Meter>,
    standing: Standing,
}

/// Values of header fields, written one after another into one allocation.
#[derive(Debug)]
struct Values(BytesMut);

/// Adds the fields that `fields` asks for. Answers that no rule is behind have none.
pub(super) fn add(answer: &Answer, fields: &Fields, headers: &mut HeaderMap) {
    each(answer, fields, |name, value| {
        headers.append(name, value);
    });
}

/// Calls with each of the fields that `fields` asks for.
pub(super) fn each(answer: &Answer, fields: &Fields, mut field: impl FnMut(HeaderName, HeaderValue)) {
    let mut values = Values(BytesMut::with_capacity(VALUES));
    let mut field = |name, value: Option<HeaderValue>| {
        if let Some(value) = value {
            field(name, value);
        }
    };
    let retry_after = answer.retry_after.filter(|_| answer.decision == Decision::Deny);
    if let Some(seconds) = retry_after
        && (fields.retry_after || fields.x_ratelimit)
    {
        let value = values.number(seconds);
        if fields.retry_after {
            field(RETRY_AFTER, value.clone());
        }
        if fields.x_ratelimit {
            field(X_RATELIMIT_RETRY_AFTER, value);
        }
    }
    if fields.x_ratelimit
        && let Some(standing) = principal(answer)
    {
        field(X_RATELIMIT_LIMIT, values.number(standing.limit));
        field(X_RATELIMIT_REMAINING, values.number(standing.remaining));
    }
    if fields.ietf {
        let shown = shown(answer);
        field(RATELIMIT_POLICY, values.policies(&shown));
        field(RATELIMIT, values.limits(&shown, retry_after));
    }
}

/// The names of the policies that deny, as `RateLimit-Policy` gives them.
pub(super) fn violated(answer: &Answer) -> Vec<Cow<'_, str>> {
    let mut names: Vec<Cow<'_, str>> = Vec::new();
    for rule in
        answer.statuses.iter().filter(|status| !status.allowed).filter_map(|status| status.rule.as_ref())
    {
        let name = name(&rule.label);
        if names.len() < MAX_POLICIES && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Where the rule stands that the numbers of an answer are about, unless it may not show.
fn principal(answer: &Answer) -> Option<Standing> {
    answer.rule.as_ref().filter(|rule| !rule.policy.shadow).and(answer.standing)
}

/// Every rule that shows, once: where descriptors share a rule, that of the least remaining.
fn shown(answer: &Answer) -> Vec<Shown<'_>> {
    let mut all: Vec<Shown<'_>> = Vec::with_capacity(answer.statuses.len().min(MAX_POLICIES));
    for status in &answer.statuses {
        let (Some(rule), Some(standing)) = (&status.rule, status.standing) else { continue };
        if rule.policy.shadow {
            continue;
        }
        let one = Shown { rule, meter: status.meter.as_deref(), standing };
        let full = all.len() == MAX_POLICIES;
        match all.iter_mut().find(|other| Arc::ptr_eq(other.rule, rule)) {
            Some(other) if other.standing.remaining <= standing.remaining => {}
            Some(other) => *other = one,
            None if full => {}
            None => all.push(one),
        }
    }
    all
}

/// A name as the text of a structured field's String can have it: other characters than visible ASCII and
/// space are percent-encoded.
fn name(label: &str) -> Cow<'_, str> {
    utf8_percent_encode(label, CONTROLS).into()
}

/// The window in whole seconds; `None` where it has no such length.
fn window_seconds(limit: &Limit) -> Option<u64> {
    match &limit.window {
        Window::Fixed(nanos) => {
            let nanos = nanos.get();
            (nanos % NANOS_PER_SECOND == 0).then_some(nanos / NANOS_PER_SECOND)
        }
        Window::Calendar(CalendarUnit::Day, _) => Some(86_400),
        Window::Calendar(CalendarUnit::Week, _) => Some(7 * 86_400),
        Window::Calendar(CalendarUnit::Month, _) => None,
    }
}

/// Whole seconds that have passed after `nanos`.
fn seconds(nanos: Nanos) -> u64 {
    nanos.div_ceil(NANOS_PER_SECOND)
}

// === impl Values ===

impl Values {
    fn number(&mut self, number: u64) -> Option<HeaderValue> {
        self.integer(number);
        self.take()
    }

    /// `"burst";q=100;w=60, "daily";q=1000;w=86400`
    fn policies(&mut self, shown: &[Shown<'_>]) -> Option<HeaderValue> {
        for Shown { rule, meter, standing } in shown {
            let before = self.0.len();
            self.item(&rule.label);
            let limit = meter.map(Meter::limit);
            self.parameter(";q=", limit.map_or(standing.limit, |limit| limit.units));
            if let Some(window) = limit.and_then(window_seconds) {
                self.parameter(";w=", window);
            }
            self.fit(before);
        }
        self.take()
    }

    /// `"burst";r=50;t=30`. On denial no window is longer than the wait, so that `Retry-After` never points
    /// into one.
    fn limits(&mut self, shown: &[Shown<'_>], retry_after: Option<u64>) -> Option<HeaderValue> {
        for Shown { rule, standing, .. } in shown {
            let before = self.0.len();
            self.item(&rule.label);
            self.parameter(";r=", standing.remaining);
            self.parameter(";t=", seconds(standing.reset).min(retry_after.unwrap_or(u64::MAX)));
            self.fit(before);
        }
        self.take()
    }

    /// The String of an Item, after a comma if it is not the first.
    fn item(&mut self, label: &str) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b",");
        }
        self.0.extend_from_slice(b"\"");
        for byte in name(label).bytes() {
            if matches!(byte, b'"' | b'\\') {
                self.0.extend_from_slice(b"\\");
            }
            self.0.extend(iter::once(byte));
        }
        self.0.extend_from_slice(b"\"");
    }

    /// Leaves out what was written since, if it made the field too long.
    fn fit(&mut self, before: usize) {
        if self.0.len() > MAX_FIELD {
            self.0.truncate(before);
        }
    }

    fn parameter(&mut self, name: &str, value: u64) {
        self.0.extend_from_slice(name.as_bytes());
        self.integer(value.min(MAX_INTEGER));
    }

    fn integer(&mut self, value: u64) {
        // Memory grows, so writing to it does not fail.
        let _ = write!(self.0, "{value}");
    }

    /// What was written since the last time, if anything.
    fn take(&mut self) -> Option<HeaderValue> {
        let value = self.0.split().freeze();
        if value.is_empty() { None } else { HeaderValue::from_maybe_shared(value).ok() }
    }
}

#[cfg(test)]
mod tests;
