use std::num::NonZeroU64;

use jiff::tz::TimeZone;

use super::*;
use crate::{
    config::http::{self as config, Algorithm, CalendarUnit, Limit, Window},
    http::{
        ask::{Refusal, Standing},
        serve::fixture::{self, SECOND, policy, rule},
    },
};

fn limit(units: u64, window: Window) -> Limit {
    Limit { window, ..fixture::limit(units, 60, Algorithm::FixedWindow) }
}

fn fixed(seconds: u64) -> Window {
    Window::Fixed(NonZeroU64::new(seconds * SECOND).unwrap())
}

/// Where a descriptor of a rule `per-address` stands, 12.5 seconds before it is whole.
fn limited(limit: &Limit, remaining: u64) -> Status {
    fixture::status(&rule("per-address", policy(limit.clone())), remaining, 12_500_000_000)
}

fn refused(limit: &Limit) -> Status {
    Status { allowed: false, retry_after: Some(13), ..limited(limit, 0) }
}

fn answer(decision: Decision, statuses: Vec<Status>) -> Answer {
    let retry_after = statuses[0].retry_after;
    fixture::answer(decision, retry_after, statuses)
}

fn response(answer: &Answer) -> RateLimitResponse {
    super::response(answer, &fixture::fields())
}

/// The headers, a line each.
fn lines(response: &RateLimitResponse) -> Vec<String> {
    let headers = response.response_headers_to_add.iter();
    let mut lines: Vec<_> = headers.map(|header| format!("{}: {}", header.key, header.value)).collect();
    lines.sort();
    lines
}

fn unit(window: Window) -> Unit {
    let response = response(&answer(Decision::Allow, vec![limited(&limit(60, window), 59)]));
    response.statuses[0].current_limit.as_ref().unwrap().unit()
}

#[test]
fn each_descriptor_has_a_status() {
    let minute = limit(60, fixed(60));
    let unlimited = rule("free", config::Rule { limit: None, ..policy(minute.clone()) });
    let statuses = vec![
        limited(&minute, 59),
        refused(&minute),
        Status { rule: None, standing: None, meter: None, ..limited(&minute, 0) },
        Status { rule: Some(unlimited), standing: None, meter: None, ..limited(&minute, 0) },
    ];
    let response = response(&answer(Decision::Deny, statuses));
    assert_eq!(response.overall_code(), Code::OverLimit);
    let current_limit =
        RateLimit { name: "per-address".to_owned(), requests_per_unit: 60, unit: Unit::Minute.into() };
    let admitted = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(current_limit),
        limit_remaining: 59,
        duration_until_reset: Some(Duration { seconds: 12, nanos: 500_000_000 }),
        quota: None,
    };
    let refused = DescriptorStatus { code: Code::OverLimit.into(), limit_remaining: 0, ..admitted.clone() };
    let unmatched = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    let unlimited = DescriptorStatus { limit_remaining: u32::MAX, ..unmatched.clone() };
    assert_eq!(response.statuses, [admitted, refused, unmatched, unlimited]);
}

#[test]
fn a_delayed_request_passes() {
    let minute = limit(60, fixed(60));
    let delayed = Answer { delay: Some(SECOND), ..answer(Decision::Delay, vec![limited(&minute, 0)]) };
    assert_eq!(response(&delayed).overall_code(), Code::Ok);
    assert!(response(&delayed).raw_body.is_empty());
}

#[test]
fn a_shadow_rule_does_not_show() {
    let minute = limit(60, fixed(60));
    let shadow = config::Rule { shadow: true, ..policy(minute.clone()) };
    let shadow = Status {
        rule: Some(rule("watched", shadow)),
        standing: None,
        shadow_denied: true,
        ..limited(&minute, 0)
    };
    let unmatched = Status { rule: None, standing: None, ..limited(&minute, 0) };
    let answer = Answer { rule: None, ..answer(Decision::Shadow, vec![shadow, unmatched]) };
    let response = response(&answer);
    assert_eq!(response.overall_code(), Code::Ok);
    assert_eq!(response.statuses[0], response.statuses[1]);
    assert_eq!(lines(&response), [""; 0]);
}

#[test]
fn an_answer_that_passes_has_the_quota_in_headers_and_no_body() {
    let response = response(&answer(Decision::Allow, vec![limited(&limit(60, fixed(60)), 59)]));
    let expected = [
        "ratelimit-policy: \"per-address\";q=60;w=60",
        "ratelimit: \"per-address\";r=59;t=13",
        "x-ratelimit-limit: 60",
        "x-ratelimit-remaining: 59",
        "x-ratelimit-reset: 13",
    ];
    assert_eq!(lines(&response), expected);
    assert!(response.raw_body.is_empty());
}

#[test]
fn a_refusal_has_a_problem_for_a_body() {
    let response = response(&answer(Decision::Deny, vec![refused(&limit(60, fixed(60)))]));
    let lines = lines(&response);
    for line in ["content-type: application/problem+json", "retry-after: 13", "x-ratelimit-retry-after: 13"] {
        assert!(lines.iter().any(|have| have == line), "{lines:?}");
    }
    let body = String::from_utf8(response.raw_body).unwrap();
    assert!(
        body.contains(r#""status":429"#) && body.contains(r#""violated-policies":["per-address"]"#),
        "{body}"
    );
}

#[test]
fn only_configured_headers_are_added() {
    let none = config::Answer { x_ratelimit: false, retry_after: false, ietf: false, text: None };
    let minute = limit(60, fixed(60));
    let passed = super::response(&answer(Decision::Allow, vec![limited(&minute, 59)]), &none);
    assert_eq!(lines(&passed), [""; 0]);
    let denied = super::response(&answer(Decision::Deny, vec![refused(&minute)]), &none);
    assert_eq!(lines(&denied), ["content-type: application/problem+json"]);
}

#[test]
fn a_refusal_that_is_no_rules_is_one_all_the_same() {
    let unmatched = Status { rule: None, standing: None, ..limited(&limit(60, fixed(60)), 0) };
    let full = Answer {
        refusal: Some(Refusal::StoreFull),
        rule: None,
        standing: None,
        ..answer(Decision::Deny, vec![unmatched])
    };
    let response = response(&full);
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert_eq!(lines(&response), ["content-type: application/problem+json"]);
}

#[test]
fn a_window_has_the_unit_that_is_as_long() {
    let days = |days: u64| fixed(days * 86_400);
    for (window, expected) in [
        (fixed(1), Unit::Second),
        (fixed(60), Unit::Minute),
        (fixed(3_600), Unit::Hour),
        (days(1), Unit::Day),
        (days(7), Unit::Week),
        (days(30), Unit::Month),
        (days(365), Unit::Year),
        (fixed(30), Unit::Unknown),
        (Window::Calendar(CalendarUnit::Day, TimeZone::UTC), Unit::Day),
        (Window::Calendar(CalendarUnit::Week, TimeZone::UTC), Unit::Week),
        (Window::Calendar(CalendarUnit::Month, TimeZone::UTC), Unit::Month),
    ] {
        assert_eq!(unit(window.clone()), expected, "{window:?}");
    }
}

#[test]
fn numbers_that_are_too_large_for_envoy_saturate() {
    let most = limit(u64::MAX, fixed(1));
    let standing = Some(Standing { limit: u64::MAX, remaining: u64::MAX, reset: u64::MAX });
    let status = Status { standing, ..limited(&most, 0) };
    let response = response(&answer(Decision::Allow, vec![status]));
    let DescriptorStatus { current_limit, limit_remaining, duration_until_reset, .. } = &response.statuses[0];
    assert_eq!(current_limit.as_ref().unwrap().requests_per_unit, u32::MAX);
    assert_eq!(*limit_remaining, u32::MAX);
    assert_eq!(*duration_until_reset, Some(Duration { seconds: 18_446_744_073, nanos: 709_551_615 }));
}
