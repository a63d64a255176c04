//! What limits and overrides mean, and which make no sense.

use std::num::NonZeroU64;

use ratelimit::config::{
    diagnostic::Code,
    http::{Algorithm, Align, CalendarUnit, Limit, MAX_WINDOW_NANOS, Override, Rule, ValuePattern, Window},
};

use crate::fixture::{domain, limit, limit_refused, rules_refused};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

fn rule(rate_limit: &str, around: &str) -> Rule {
    let text =
        format!("domain: api\ndescriptors:\n  - {{ key: a, rate_limit: {{ {rate_limit} }}, {around} }}\n");
    domain(&text).descriptors.remove(0).rule.unwrap()
}

fn fixed(nanos: u64) -> Window {
    Window::Fixed(NonZeroU64::new(nanos).unwrap())
}

#[test]
fn windows() {
    for (text, nanos) in [
        ("unit: second", SECOND),
        ("unit: Minute", 60 * SECOND),
        ("unit: HOUR", 3600 * SECOND),
        ("unit: day", DAY),
        ("unit: week", 7 * DAY),
        ("unit: month", 30 * DAY),
        ("unit: year", 365 * DAY),
        ("window: 1ns", 1),
        ("window: 250us", 250_000),
        ("window: 1ms", 1_000_000),
        ("window: 90s", 90 * SECOND),
        ("window: 15m", 900 * SECOND),
        ("window: 24h", DAY),
        ("window: 2w", 14 * DAY),
        ("window: 3650d", MAX_WINDOW_NANOS),
    ] {
        let found = limit(&format!("requests_per_unit: 5, {text}"));
        assert_eq!(found.window, fixed(nanos), "{text}");
    }
    let refused = |text: &str, code, nearest| {
        limit_refused(&format!("requests_per_unit: 5, window: «{text}"), code, nearest);
    };
    refused("0s", Code::OutOfRange, None);
    refused("-1s", Code::OutOfRange, None);
    refused("3651d", Code::OutOfRange, None);
    refused("99999999999999999999s", Code::OutOfRange, None);
    refused("30", Code::BadValue, Some("30s"));
    refused("1.5s", Code::BadValue, Some("1500ms"));
    refused("0.5h", Code::BadValue, Some("30m"));
    refused("\"30 s\"", Code::BadValue, Some("30s"));
    refused("30sec", Code::BadValue, Some("30s"));
    refused("5min", Code::BadValue, Some("5m"));
    refused("1month", Code::BadValue, None);
    refused("1h30m", Code::BadValue, None);
    refused("030s", Code::BadValue, None);
    refused("s", Code::BadValue, None);
    refused("NaN", Code::BadValue, None);
    refused(".inf", Code::BadValue, None);
    refused("\"\"", Code::BadValue, None);
    limit_refused("requests_per_unit: 5, unit: «mintue", Code::BadValue, Some("minute"));
    limit_refused("requests_per_unit: 5, unit: «unknown", Code::BadValue, None);
    limit_refused("requests_per_unit: 5, unit: minute, «window: 30s", Code::Conflict, None);
    limit_refused("requests_per_unit: 5, «windw: 30s", Code::UnknownKey, Some("window"));
}

#[test]
fn times_that_are_missing() {
    rules_refused(
        "domain: api\ndescriptors: { key: a, rate_limit: «{ requests_per_unit: 5 } }\n",
        Code::MissingKey,
        None,
    );
    rules_refused(
        "domain: api\ndescriptors: { key: a, rate_limit: «{ unit: day } }\n",
        Code::MissingKey,
        None,
    );
    limit_refused("unit: day, «requests_per_unti: 5", Code::UnknownKey, Some("requests_per_unit"));
}

#[test]
fn requests() {
    for units in [0, 1, 4_294_967_296, u64::MAX] {
        assert_eq!(limit(&format!("window: 3650d, requests_per_unit: {units}")).units, units);
    }
    let refused = |text: &str, code, nearest| {
        limit_refused(&format!("unit: day, requests_per_unit: «{text}"), code, nearest);
    };
    refused("-1", Code::OutOfRange, None);
    refused("1.7", Code::BadValue, None);
    refused("1e3", Code::BadValue, None);
    refused("18446744073709551616", Code::OutOfRange, None);
    refused("010", Code::BadValue, Some("10"));
    refused("many", Code::BadValue, None);
    refused("\"\"", Code::BadValue, None);
}

#[test]
fn algorithms() {
    use Algorithm::{FixedWindow, LeakyBucket, Segments, SlidingLog, SlidingWindow, TokenBucket};

    let algorithm = |keys: &str| limit(&format!("unit: minute, requests_per_unit: 60, {keys}")).algorithm;
    for (keys, wanted) in [
        ("name: x", SlidingWindow { round_up: false }),
        ("algorithm: sliding_window, rounding: up", SlidingWindow { round_up: true }),
        ("rounding: down", SlidingWindow { round_up: false }),
        ("segments: 6", Segments { segments: 6 }),
        ("algorithm: sliding_log", SlidingLog),
        ("algorithm: fixed_window", FixedWindow),
        ("algorithm: token_bucket", TokenBucket { burst: 60, interval: false }),
        ("algorithm: token_bucket, burst: 1", TokenBucket { burst: 1, interval: false }),
        (
            "algorithm: token_bucket, burst: 18446744073709551615",
            TokenBucket { burst: u64::MAX, interval: false },
        ),
        ("algorithm: token_bucket, refill: interval", TokenBucket { burst: 60, interval: true }),
        ("algorithm: leaky_bucket, burst: 5", LeakyBucket { burst: 5, max_delay: None }),
        ("algorithm: leaky_bucket, on_limit: deny", LeakyBucket { burst: 60, max_delay: None }),
        // Without max_delay only the queue bounds the wait: 5 of 60 a minute take 5 s.
        (
            "algorithm: leaky_bucket, burst: 5, on_limit: delay",
            LeakyBucket { burst: 5, max_delay: Some(5 * SECOND) },
        ),
        // The queue of a soft limit is longer.
        (
            "algorithm: leaky_bucket, burst: 5, on_limit: delay, enforcement: soft, soft_margin: 40%",
            LeakyBucket { burst: 5, max_delay: Some(7 * SECOND) },
        ),
        (
            "algorithm: leaky_bucket, on_limit: delay, max_delay: 500ms",
            LeakyBucket { burst: 60, max_delay: Some(SECOND / 2) },
        ),
    ] {
        assert_eq!(algorithm(keys), wanted, "{keys}");
    }
    let refused = |keys: &str, code, nearest| {
        limit_refused(&format!("unit: minute, requests_per_unit: 60, {keys}"), code, nearest);
    };
    refused("algorithm: «token-bucket", Code::BadValue, Some("token_bucket"));
    refused("algorithm: «gcra", Code::BadValue, None);
    refused("«burst: 5", Code::Conflict, None);
    refused("algorithm: sliding_log, «burst: 5", Code::Conflict, None);
    refused("algorithm: token_bucket, burst: «0", Code::BadBurst, None);
    refused("algorithm: leaky_bucket, burst: «-1", Code::OutOfRange, None);
    refused("algorithm: token_bucket, burst: «1.5", Code::BadValue, None);
    refused("«refill: interval", Code::Conflict, None);
    refused("algorithm: leaky_bucket, «refill: continuous", Code::Conflict, None);
    refused("algorithm: fixed_window, «segments: 6", Code::Conflict, None);
    refused("segments: «1", Code::OutOfRange, None);
    refused("segments: «3601", Code::OutOfRange, None);
    refused("«segments: 7", Code::BadValue, None);
    refused("segments: 6, «rounding: up", Code::Conflict, None);
    refused("algorithm: token_bucket, «rounding: up", Code::Conflict, None);
    refused("rounding: «nearest", Code::BadValue, None);
    refused("«on_limit: delay", Code::Conflict, None);
    refused("algorithm: token_bucket, «on_limit: delay", Code::Conflict, None);
    refused("algorithm: leaky_bucket, «max_delay: 1s", Code::Conflict, None);
    refused("algorithm: leaky_bucket, on_limit: delay, max_delay: «0s", Code::OutOfRange, None);
}

#[test]
fn a_limit_of_zero_blocks_whatever_the_algorithm() {
    let algorithm = |name: &str| {
        let found = limit(&format!("unit: day, requests_per_unit: 0, algorithm: {name}"));
        assert_eq!(found.units, 0);
        found.algorithm
    };
    algorithm("sliding_window");
    algorithm("sliding_log");
    algorithm("fixed_window");
    assert_eq!(algorithm("token_bucket"), Algorithm::TokenBucket { burst: 0, interval: false });
    assert_eq!(algorithm("leaky_bucket"), Algorithm::LeakyBucket { burst: 0, max_delay: None });
    let shaped = algorithm("leaky_bucket, on_limit: delay");
    assert_eq!(shaped, Algorithm::LeakyBucket { burst: 0, max_delay: None });
    limit_refused(
        "unit: day, requests_per_unit: 0, algorithm: token_bucket, «burst: 5",
        Code::BadBurst,
        None,
    );
}

#[test]
fn alignment() {
    let align = |keys: &str| {
        let Limit { window, align, .. } = limit(&format!("requests_per_unit: 60, {keys}"));
        (window, align)
    };
    assert_eq!(align("unit: day, align: epoch"), (fixed(DAY), Align::Epoch));
    assert_eq!(align("unit: day, align: first"), (fixed(DAY), Align::First));
    assert_eq!(align("unit: day, segments: 24, align: first").1, Align::First);
    assert_eq!(align("unit: day, algorithm: token_bucket, refill: interval, align: first").1, Align::First);
    let utc = jiff::tz::TimeZone::UTC;
    for (unit, calendar) in
        [("day", CalendarUnit::Day), ("week", CalendarUnit::Week), ("month", CalendarUnit::Month)]
    {
        let wanted = (Window::Calendar(calendar, utc.clone()), Align::Epoch);
        assert_eq!(align(&format!("unit: {unit}, align: calendar")), wanted);
        assert_eq!(align(&format!("unit: {unit}, align: calendar, algorithm: fixed_window")), wanted);
    }
    let berlin = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    let wanted = Window::Calendar(CalendarUnit::Month, berlin);
    assert_eq!(align("unit: month, align: calendar, timezone: Europe/Berlin").0, wanted);

    let refused =
        |keys: &str, code, nearest| limit_refused(&format!("requests_per_unit: 60, {keys}"), code, nearest);
    refused("unit: day, align: «calender", Code::BadValue, Some("calendar"));
    refused("unit: day, align: calendar, timezone: «Europe/Berln", Code::BadValue, Some("Europe/Berlin"));
    refused("unit: day, align: calendar, timezone: «\"\"", Code::BadValue, None);
    refused("unit: day, align: first, «timezone: UTC", Code::Conflict, None);
    refused("unit: day, «timezone: UTC", Code::Conflict, None);
    refused("unit: hour, «align: calendar", Code::Conflict, None);
    refused("unit: year, «align: calendar", Code::Conflict, None);
    refused("window: 1d, «align: calendar", Code::Conflict, None);
    refused("unit: day, segments: 24, «align: calendar", Code::Conflict, None);
    refused("unit: day, algorithm: token_bucket, refill: interval, «align: calendar", Code::Conflict, None);
    refused("unit: day, algorithm: token_bucket, «align: first", Code::Conflict, None);
    refused("unit: day, algorithm: leaky_bucket, «align: epoch", Code::Conflict, None);
    refused("unit: day, algorithm: sliding_log, «align: first", Code::Conflict, None);
}

#[test]
fn enforcement() {
    let margin =
        |keys: &str| limit(&format!("unit: day, requests_per_unit: 60, {keys}")).soft_margin_permille;
    assert_eq!(margin("enforcement: hard"), 0);
    assert_eq!(margin("enforcement: soft"), 100);
    assert_eq!(margin("enforcement: soft, soft_margin: 25%"), 250);
    assert_eq!(margin("enforcement: soft, soft_margin: 0.1%"), 1);
    assert_eq!(margin("enforcement: soft, soft_margin: 100%"), 1000);
    let refused = |keys: &str, code, nearest| {
        limit_refused(&format!("unit: day, requests_per_unit: 60, {keys}"), code, nearest);
    };
    refused("enforcement: «sfot", Code::BadValue, Some("soft"));
    refused("«soft_margin: 10%", Code::Conflict, None);
    refused("enforcement: hard, «soft_margin: 10%", Code::Conflict, None);
    refused("enforcement: soft, soft_margin: «10", Code::BadValue, Some("10%"));
    refused("enforcement: soft, soft_margin: «0%", Code::OutOfRange, None);
    refused("enforcement: soft, soft_margin: «101%", Code::OutOfRange, None);
    refused("enforcement: soft, soft_margin: «1.25%", Code::BadValue, None);
    refused("enforcement: soft, soft_margin: «-5%", Code::BadValue, None);
    assert!(limit("unit: day, requests_per_unit: 60, count_denied: true").count_denied);
    refused("count_denied: «on", Code::BadValue, Some("true"));
}

#[test]
fn costs() {
    assert_eq!(rule("unit: day, requests_per_unit: 60, cost: 7", "shadow_mode: false").cost, 7);
    let refused = |cost: &str, code| {
        limit_refused(&format!("unit: day, requests_per_unit: 60, cost: «{cost}"), code, None);
    };
    refused("0", Code::OutOfRange);
    refused("-1", Code::OutOfRange);
    refused("1.5", Code::BadValue);
}

#[test]
fn what_is_unlimited_has_no_limit() {
    let found = rule("unlimited: true, name: free", "quota_mode: false");
    assert_eq!((found.limit, found.name.as_deref()), (None, Some("free")));
    assert_eq!(limit("unlimited: false, unit: day, requests_per_unit: 1").units, 1);
    limit_refused("unlimited: true, «unit: day", Code::Conflict, None);
    limit_refused("unlimited: true, «requests_per_unit: 5", Code::Conflict, None);
    limit_refused("unlimited: true, «algorithm: fixed_window", Code::Conflict, None);
    limit_refused("unlimited: «maybe", Code::BadValue, None);
}

fn overrides(rate_limit: &str, overrides: &str) -> Vec<Override> {
    rule(rate_limit, &format!("overrides: [{overrides}]")).overrides
}

#[test]
fn an_override_inherits_what_it_leaves_out() {
    let over = |rate_limit: &str, keys: &str| {
        let found = overrides(rate_limit, &format!("{{ tier: gold, {keys} }}")).remove(0);
        (*found.limit.unwrap()).clone()
    };
    let bucket = "window: 30s, requests_per_unit: 100, algorithm: token_bucket";
    let token = |burst| Algorithm::TokenBucket { burst, interval: false };
    // A burst that is written is inherited, one that is not is the requests again.
    assert_eq!(over(&format!("{bucket}, burst: 7"), "requests_per_unit: 500").algorithm, token(7));
    assert_eq!(over(bucket, "requests_per_unit: 500").algorithm, token(500));
    assert_eq!(over(bucket, "window: 1m").window, fixed(60 * SECOND));
    assert_eq!(over(bucket, "unit: hour").window, fixed(3600 * SECOND));
    assert_eq!(over(bucket, "burst: 9").units, 100);
    // What does not fit what the override says is dropped.
    let blocked = over(&format!("{bucket}, burst: 7"), "requests_per_unit: 0");
    assert_eq!((blocked.units, blocked.algorithm), (0, token(0)));
    let log = over(&format!("{bucket}, burst: 7, refill: interval, align: first"), "algorithm: sliding_log");
    assert_eq!((log.algorithm, log.align), (Algorithm::SlidingLog, Align::Epoch));
    let soft = "unit: day, requests_per_unit: 5, enforcement: soft, soft_margin: 50%";
    assert_eq!(over(soft, "requests_per_unit: 6").soft_margin_permille, 500);
    assert_eq!(over(soft, "enforcement: hard").soft_margin_permille, 0);
    let monthly = "unit: month, requests_per_unit: 5, align: calendar, timezone: Asia/Tokyo";
    assert!(matches!(over(monthly, "requests_per_unit: 6").window, Window::Calendar(CalendarUnit::Month, _)));
    assert!(matches!(over(monthly, "unit: day").window, Window::Calendar(CalendarUnit::Day, _)));
    assert_eq!(over(monthly, "unit: hour").window, fixed(3600 * SECOND));
    let all = "unit: day, requests_per_unit: 5, count_denied: true, align: first";
    let inherited = over(all, "requests_per_unit: 6");
    assert_eq!((inherited.count_denied, inherited.align), (true, Align::First));
    assert_eq!(over("unlimited: true", "unit: day, requests_per_unit: 1").units, 1);
}

#[test]
fn an_override_is_for_a_value_or_a_tier_or_both() {
    let base = "unit: day, requests_per_unit: 5";
    let found = overrides(
        base,
        "{ value: \"partner-*\", unlimited: true }, { value: 7, tier: gold, requests_per_unit: 6 }, { tier: gold, requests_per_unit: 7 }",
    );
    let conditions: Vec<_> = found
        .iter()
        .map(|found| (found.value.clone(), found.tier.as_deref(), found.limit.is_some()))
        .collect();
    let (prefix, exact) = (ValuePattern::Prefix("partner-".to_owned()), ValuePattern::Exact("7".to_owned()));
    assert_eq!(
        conditions,
        [(Some(prefix), None, false), (Some(exact), Some("gold"), true), (None, Some("gold"), true)]
    );
    let around = |around: &str, overrides: &str, code, nearest| {
        let text = format!(
            "domain: api\ndescriptors:\n  - key: a\n    rate_limit: {{ {base} }}\n    {around}\n    overrides: [{overrides}]\n"
        );
        rules_refused(&text, code, nearest);
    };
    let refused = |overrides: &str, code, nearest| around("value: \"x*\"", overrides, code, nearest);
    refused("«{ requests_per_unit: 6 }", Code::MissingKey, None);
    refused("«{ value: x }", Code::MissingKey, None);
    refused("{ value: x, «requests_per_unt: 6 }", Code::UnknownKey, Some("requests_per_unit"));
    refused("{ «valeu: x, requests_per_unit: 6 }", Code::UnknownKey, Some("value"));
    refused("{ value: x, requests_per_unit: 6, «name: y }", Code::UnknownKey, None);
    refused("{ value: x, requests_per_unit: 6, «cost: 2 }", Code::UnknownKey, None);
    refused("{ tier: «\"\", requests_per_unit: 6 }", Code::BadName, None);
    refused("{ value: x, requests_per_unit: «-6 }", Code::OutOfRange, None);
    refused("{ value: x, «burst: 6 }", Code::Conflict, None);
    refused("{ value: x, unlimited: true, «requests_per_unit: 6 }", Code::Conflict, None);
    refused("{ value: x, requests_per_unit: 6 }, «{ value: x, unit: hour }", Code::DuplicateName, None);
    refused("«x", Code::BadType, None);
    around("share_threshold: true", "{ value: «x, requests_per_unit: 6 }", Code::Conflict, None);
    // A mistake of the rule is not one of each override.
    let text = "domain: api\ndescriptors:\n  - key: a\n    rate_limit: { unit: «dya, requests_per_unit: 5 }\n    overrides: [{ value: x, requests_per_unit: 6 }]\n";
    rules_refused(text, Code::BadValue, Some("day"));
    // `overrides` stand beside the limit that they change.
    limit_refused("unit: day, requests_per_unit: 5, «overrides: []", Code::UnknownKey, None);
}

#[test]
fn segments_divide_the_window_of_an_override_too() {
    let text = "domain: api\ndescriptors:\n  - key: a\n    rate_limit: { window: 7ns, requests_per_unit: 5, segments: 7 }\n    overrides: [«{ tier: x, window: 9ns }]\n";
    rules_refused(text, Code::BadValue, None);
}
