use super::{
    super::fixture::{SECOND, answer, fields, limit, policy, rule, status},
    *,
};
use crate::{
    config::http::{Algorithm, Rule as Policy},
    http::ask::Status,
};

fn windowed(label: &str, units: u64, seconds: u64) -> Arc<Rule> {
    rule(label, policy(limit(units, seconds, Algorithm::FixedWindow)))
}

/// The fields, as `name: value` lines, sorted.
fn told(answer: &Answer, fields: &Fields) -> Vec<String> {
    let mut headers = HeaderMap::new();
    add(answer, fields, &mut headers);
    let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    let mut lines: Vec<String> = headers.iter().map(line).collect();
    lines.sort();
    lines
}

fn field(answer: &Answer, name: &str) -> Option<String> {
    let prefix = format!("{name}: ");
    told(answer, &fields()).into_iter().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
}

fn allow(statuses: Vec<Status>) -> Answer {
    answer(Decision::Allow, None, statuses)
}

#[test]
fn half_of_a_quota_with_half_of_its_window_to_go() {
    let answer = allow(vec![status(&windowed("default", 100, 60), 50, 30 * SECOND)]);
    assert_eq!(
        told(&answer, &fields()),
        [
            "ratelimit-policy: \"default\";q=100;w=60",
            "ratelimit: \"default\";r=50;t=30",
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 50",
        ]
    );
}

#[test]
fn two_policies_stand_side_by_side() {
    let (burst, daily) = (windowed("burst", 100, 60), windowed("daily", 1000, 86_400));
    let answer = allow(vec![status(&burst, 99, 12 * SECOND), status(&daily, 700, 40_000 * SECOND)]);
    assert_eq!(field(&answer, "ratelimit-policy").unwrap(), "\"burst\";q=100;w=60,\"daily\";q=1000;w=86400");
    assert_eq!(field(&answer, "ratelimit").unwrap(), "\"burst\";r=99;t=12,\"daily\";r=700;t=40000");
}

#[test]
fn a_denial_tells_when_to_retry_and_no_window_is_longer_than_that() {
    let (burst, daily) = (windowed("burst", 100, 60), windowed("daily", 1000, 86_400));
    let refused =
        Status { allowed: false, retry_after: Some(12), ..status(&burst, 0, 11 * SECOND + SECOND / 2) };
    let answer = answer(Decision::Deny, Some(12), vec![refused, status(&daily, 700, 40_000 * SECOND)]);
    assert_eq!(
        told(&answer, &fields()),
        [
            "ratelimit-policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400",
            "ratelimit: \"burst\";r=0;t=12,\"daily\";r=700;t=12",
            "retry-after: 12",
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-retry-after: 12",
        ]
    );
    assert_eq!(violated(&answer), ["burst"]);
}

#[test]
fn what_can_never_pass_has_no_time_to_retry_at() {
    let rule = windowed("small", 1, 60);
    let refused = Status { allowed: false, ..status(&rule, 1, 60 * SECOND) };
    let answer = answer(Decision::Deny, None, vec![refused]);
    assert_eq!(field(&answer, "retry-after"), None);
    assert_eq!(field(&answer, "x-ratelimit-retry-after"), None);
    assert_eq!(field(&answer, "ratelimit").unwrap(), "\"small\";r=1;t=60");
}

#[test]
fn any_subset_can_be_left_out() {
    let refused = Status { allowed: false, ..status(&windowed("a", 1, 60), 0, SECOND) };
    let answer = answer(Decision::Deny, Some(1), vec![refused]);
    let none = Fields { x_ratelimit: false, retry_after: false, ietf: false, text: None };
    assert_eq!(told(&answer, &none), [""; 0]);
    assert_eq!(told(&answer, &Fields { retry_after: true, ..none.clone() }), ["retry-after: 1"]);
    assert_eq!(
        told(&answer, &Fields { x_ratelimit: true, ..none.clone() }),
        ["x-ratelimit-limit: 1", "x-ratelimit-remaining: 0", "x-ratelimit-retry-after: 1"]
    );
    assert_eq!(
        told(&answer, &Fields { ietf: true, ..none }),
        ["ratelimit-policy: \"a\";q=1;w=60", "ratelimit: \"a\";r=0;t=1"]
    );
}

#[test]
fn shadow_rules_never_show() {
    let limit = limit(10, 60, Algorithm::FixedWindow);
    let shadow = rule("trial", Policy { shadow: true, ..policy(limit) });
    let alone = answer(Decision::Shadow, None, vec![status(&shadow, 0, SECOND)]);
    assert_eq!(told(&alone, &fields()), [""; 0]);
    let hard = windowed("hard", 5, 60);
    let both = answer(Decision::Shadow, None, vec![status(&hard, 4, SECOND), status(&shadow, 0, SECOND)]);
    assert!(told(&both, &fields()).iter().all(|line| !line.contains("trial")), "{both:?}");
    assert_eq!(field(&both, "ratelimit").unwrap(), "\"hard\";r=4;t=1");
}

#[test]
fn without_a_rule_there_is_nothing_to_tell() {
    let mut answer = allow(vec![status(&windowed("a", 1, 60), 0, 0)]);
    answer.rule = None;
    answer.standing = None;
    answer.statuses.clear();
    assert_eq!(told(&answer, &fields()), [""; 0]);
}

#[test]
fn a_rule_shows_once_with_its_least_remaining() {
    let shared = windowed("shared", 10, 60);
    let statuses = vec![status(&shared, 7, SECOND), status(&shared, 3, SECOND), status(&shared, 5, SECOND)];
    assert_eq!(field(&allow(statuses), "ratelimit").unwrap(), "\"shared\";r=3;t=1");
}

#[test]
fn names_are_strings_of_structured_fields() {
    for (label, text) in [
        ("api/client_ip=*", r#""api/client_ip=*""#),
        (r#"say "hi""#, r#""say \"hi\"""#),
        (r"back\slash", r#""back\\slash""#),
        ("büro", r#""b%C3%BCro""#),
        ("line\r\nSet-Cookie: a", r#""line%0D%0ASet-Cookie: a""#),
        ("", r#""""#),
    ] {
        let answer = allow(vec![status(&windowed(label, 1, 60), 1, 0)]);
        assert_eq!(field(&answer, "ratelimit").unwrap(), format!("{text};r=1;t=0"), "{label:?}");
    }
}

#[test]
fn windows_that_are_no_whole_seconds_stay_untold() {
    let mut short = limit(5, 1, Algorithm::FixedWindow);
    short.window = Window::Fixed(std::num::NonZeroU64::new(SECOND / 2).unwrap());
    let answer = allow(vec![status(&rule("short", policy(short)), 4, SECOND / 4)]);
    assert_eq!(field(&answer, "ratelimit-policy").unwrap(), "\"short\";q=5");
    assert_eq!(field(&answer, "ratelimit").unwrap(), "\"short\";r=4;t=1", "time left is rounded up");
}

#[test]
fn calendar_windows_have_the_length_of_their_unit() {
    let with = |unit| {
        let mut limit = limit(5, 1, Algorithm::FixedWindow);
        limit.window = Window::Calendar(unit, jiff::tz::TimeZone::UTC);
        field(&allow(vec![status(&rule("c", policy(limit)), 4, 0)]), "ratelimit-policy").unwrap()
    };
    assert_eq!(with(CalendarUnit::Day), "\"c\";q=5;w=86400");
    assert_eq!(with(CalendarUnit::Week), "\"c\";q=5;w=604800");
    assert_eq!(with(CalendarUnit::Month), "\"c\";q=5", "months differ");
}

#[test]
fn numbers_beyond_structured_fields_are_cut() {
    let answer = allow(vec![status(&windowed("vast", u64::MAX, 60), u64::MAX, u64::MAX)]);
    assert_eq!(field(&answer, "ratelimit-policy").unwrap(), "\"vast\";q=999999999999999;w=60");
    assert_eq!(field(&answer, "ratelimit").unwrap(), "\"vast\";r=999999999999999;t=18446744074");
    assert_eq!(field(&answer, "x-ratelimit-limit").unwrap(), u64::MAX.to_string());
}

#[test]
fn a_request_with_thousands_of_descriptors_tells_a_bounded_part() {
    let statuses: Vec<Status> =
        (0..5000).map(|n| status(&windowed(&format!("rule {n}"), 1, 60), 1, 0)).collect();
    let policies = field(&allow(statuses), "ratelimit-policy").unwrap();
    assert_eq!(policies.split(',').count(), MAX_POLICIES);
}

#[test]
fn fields_stay_short_enough_for_proxies() {
    let statuses: Vec<Status> = [300, 300, 2000, 300, 300, 5]
        .iter()
        .map(|n| status(&windowed(&"n".repeat(*n), 1, 60), 1, 0))
        .collect();
    let answer = allow(statuses);
    for name in ["ratelimit", "ratelimit-policy"] {
        let field = field(&answer, name).unwrap();
        assert!(field.len() <= MAX_FIELD, "{name} has {} bytes", field.len());
        assert_eq!(field.split(',').count(), 4, "those that fit are told: {field}");
    }
}
