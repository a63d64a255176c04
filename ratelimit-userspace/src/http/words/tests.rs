use jiff::tz::TimeZone;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn words(units: u64, seconds: u64, algorithm: Algorithm) -> String {
    limit(&with(units, seconds, algorithm))
}

fn with(units: u64, seconds: u64, algorithm: Algorithm) -> Limit {
    Limit {
        units,
        window: Window::Fixed((seconds * SECOND).try_into().unwrap()),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    }
}

#[test]
fn each_algorithm_says_what_it_means() {
    let cases = [
        (
            words(60, 60, Algorithm::TokenBucket { burst: 10, interval: false }),
            "at most 10 at once, 60 a minute sustained, at most 69 in any minute",
        ),
        (
            words(10_000, 30, Algorithm::TokenBucket { burst: 200, interval: false }),
            "at most 200 at once, 10,000 every 30 s sustained, at most 10,199 in any 30 s",
        ),
        (
            words(2, 1, Algorithm::TokenBucket { burst: 4, interval: true }),
            "at most 4 at once, 2 more every second, at most 6 in any second",
        ),
        (
            words(5, 1, Algorithm::LeakyBucket { burst: 5, max_delay: None }),
            "at most 5 at once, 5 a second sustained, at most 9 in any second",
        ),
        (
            words(60, 60, Algorithm::LeakyBucket { burst: 10, max_delay: Some(60 * SECOND) }),
            "60 a minute, evenly spaced: up to 10 at once are taken, and wait for their turn, at most 9 s",
        ),
        (
            words(60, 60, Algorithm::LeakyBucket { burst: 10, max_delay: Some(2 * SECOND) }),
            "60 a minute, evenly spaced: up to 3 at once are taken, and wait for their turn, at most 2 s",
        ),
        (
            words(60, 60, Algorithm::LeakyBucket { burst: 1, max_delay: Some(2 * SECOND) }),
            "60 a minute, evenly spaced, without waiting",
        ),
        (words(5, 3600, Algorithm::FixedWindow), "5 an hour, at most 10 in any hour"),
        (
            words(1000, 60, Algorithm::SlidingWindow { round_up: false }),
            "1,000 a minute as long as it comes evenly, at most 2,000 in any minute",
        ),
        (
            words(1000, 60, Algorithm::SlidingWindow { round_up: true }),
            "1,000 a minute as long as it comes evenly, at most 1,999 in any minute",
        ),
        (
            words(200, 60, Algorithm::Segments { segments: 6 }),
            "at most 200 in any 50 s, at most 400 in any minute",
        ),
        (words(2, 60, Algorithm::SlidingLog), "at most 2 in any minute"),
        (words(300, 3 * 3600, Algorithm::SlidingLog), "at most 300 in any 3 hours"),
        (words(0, 60, Algorithm::TokenBucket { burst: 10, interval: false }), "nothing passes"),
    ];
    for (words, expected) in cases {
        assert_eq!(words, expected);
    }
}

#[test]
fn what_changes_a_limit_is_said_after_it() {
    let first = Limit { align: Align::First, ..with(5, 60, Algorithm::FixedWindow) };
    assert_eq!(limit(&first), "5 a minute, counted from the first request on, at most 9 in any minute");
    let soft = Limit { soft_margin_permille: 100, ..with(60, 60, Algorithm::SlidingLog) };
    assert_eq!(limit(&soft), "at most 66 in any minute; 10% above the limit is included, and flagged");
    let counting = Limit { count_denied: true, ..with(2, 60, Algorithm::SlidingLog) };
    assert_eq!(limit(&counting), "at most 2 in any minute; what is refused counts as well");
}

#[test]
fn windows_of_the_calendar_are_named() {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let of = |unit, algorithm| Limit {
        window: Window::Calendar(unit, berlin.clone()),
        ..with(1000, 60, algorithm)
    };
    assert_eq!(
        limit(&of(CalendarUnit::Day, Algorithm::FixedWindow)),
        "1,000 a calendar day (Europe/Berlin), at most 2,000 around a midnight"
    );
    assert_eq!(
        limit(&of(CalendarUnit::Week, Algorithm::FixedWindow)),
        "1,000 a calendar week (Europe/Berlin), at most 2,000 around the start of a week"
    );
    assert_eq!(
        limit(&of(CalendarUnit::Month, Algorithm::SlidingWindow { round_up: false })),
        "1,000 a calendar month (Europe/Berlin) as long as it comes evenly, at most 2,000 in two calendar \
         months in a row"
    );
    assert_eq!(rate(5, &Window::Calendar(CalendarUnit::Day, TimeZone::UTC)), "5 a calendar day (UTC)");
}

#[test]
fn rates_are_read_aloud() {
    let rate = |units, seconds: u64| rate(units, &Window::Fixed((seconds * SECOND).try_into().unwrap()));
    assert_eq!(rate(60, 60), "60 a minute");
    assert_eq!(rate(1, 3600), "1 an hour");
    assert_eq!(rate(10_000, 30), "10,000 every 30 s");
    assert_eq!(rate(5, 7 * 86_400), "5 a week");
    assert_eq!(rate(u64::MAX, 300), "18,446,744,073,709,551,615 every 5 minutes");
}

#[test]
fn percents_have_the_digits_they_need() {
    for (permille, percent) in [(1, "0.1"), (100, "10"), (105, "10.5"), (1000, "100")] {
        assert_eq!(decimal(permille, 10), percent);
    }
}
