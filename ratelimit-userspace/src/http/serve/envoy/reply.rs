//! What Envoy is told: from an [`Answer`] to its message.

use envoy_types::pb::{
    envoy::config::core::v3::HeaderValue,
    envoy::service::ratelimit::v3::{
        RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    },
    google::protobuf::Duration,
};

use http::{HeaderName, header::CONTENT_TYPE};

use super::unit;
use crate::{
    config::http::Answer as Fields,
    http::{
        algorithm::{Meter, Nanos},
        ask::{Answer, Decision, Status},
        rules::Rule,
        serve::{
            headers::{self, X_RATELIMIT_LIMIT},
            judge,
            problem::PROBLEM_JSON,
        },
    },
};

const X_RATELIMIT_RESET: &str = "x-ratelimit-reset";

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The decision, where each descriptor stands, and what the client is told.
///
/// Envoy cannot be told to hold a request, so one that a shaping limit delays is let through at once: it
/// fits, and is counted, but the outflow is not constant.
pub(super) fn response(answer: &Answer, fields: &Fields) -> RateLimitResponse {
    let denied = answer.decision == Decision::Deny;
    let mut response_headers_to_add = headers(answer, fields);
    let mut raw_body = Vec::new();
    if denied {
        // Envoy calls a body plain text unless told otherwise, and only a refusal's body is ours.
        response_headers_to_add.push(header(&CONTENT_TYPE, &PROBLEM_JSON));
        raw_body = judge::document(answer, fields, |document| document.to_json());
    }
    RateLimitResponse {
        overall_code: code(!denied).into(),
        statuses: answer.statuses.iter().map(status).collect(),
        response_headers_to_add,
        raw_body,
        ..RateLimitResponse::default()
    }
}

/// The configured fields. With the `x-ratelimit-*` ones comes `X-Ratelimit-Reset`, whole seconds rounded up:
/// Envoy's own service and Envoy itself have it beside limit and remaining.
fn headers(answer: &Answer, fields: &Fields) -> Vec<HeaderValue> {
    // All that there can be, and what a refusal adds.
    let mut added = Vec::with_capacity(8);
    let mut limit_is_told = false;
    headers::each(answer, fields, |name, value| {
        limit_is_told |= name == X_RATELIMIT_LIMIT;
        added.push(header(&name, &value));
    });
    if let Some(standing) = answer.standing.filter(|_| limit_is_told) {
        let value = standing.reset.div_ceil(NANOS_PER_SECOND).to_string();
        added.push(HeaderValue { key: X_RATELIMIT_RESET.to_owned(), value, ..HeaderValue::default() });
    }
    added
}

/// Envoy reads `value`, as it is, and not `raw_value`.
fn header(name: &HeaderName, value: &http::HeaderValue) -> HeaderValue {
    let value = value.to_str().unwrap_or_default().to_owned();
    HeaderValue { key: name.as_str().to_owned(), value, ..HeaderValue::default() }
}

fn code(allowed: bool) -> Code {
    if allowed { Code::Ok } else { Code::OverLimit }
}

fn status(status: &Status) -> DescriptorStatus {
    let code = code(status.allowed).into();
    let rule = status.rule.as_deref();
    // Shadow rules do not show.
    let shown = rule.is_none_or(|rule| !rule.policy.shadow);
    match &status.standing {
        Some(standing) if shown => DescriptorStatus {
            code,
            current_limit: Some(current_limit(rule, status, standing.limit)),
            limit_remaining: saturating(standing.remaining),
            duration_until_reset: Some(duration(standing.reset)),
            // Quota that Envoy may spend without asking is not given away: nobody could count it.
            quota: None,
        },
        // Unlimited, as Envoy's own service puts it.
        None if shown && rule.is_some() => {
            DescriptorStatus { code, limit_remaining: u32::MAX, ..DescriptorStatus::default() }
        }
        _ => DescriptorStatus { code, ..DescriptorStatus::default() },
    }
}

/// The limit in force. A window that is none of Envoy's units has the unit UNKNOWN, and `requests_per_unit`
/// is then the units in a window. Without a rule it is one that the descriptor brought.
fn current_limit(rule: Option<&Rule>, status: &Status, limit: u64) -> RateLimit {
    let in_force = status.meter.as_deref().map(Meter::limit);
    RateLimit {
        name: rule.map_or_else(String::new, |rule| rule.label.as_ref().to_owned()),
        requests_per_unit: saturating(in_force.map_or(limit, |limit| limit.units)),
        unit: in_force.map_or(Unit::Unknown, |limit| unit::unit(&limit.window)).into(),
    }
}

fn saturating(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

fn duration(nanos: Nanos) -> Duration {
    Duration {
        seconds: i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos % NANOS_PER_SECOND).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
