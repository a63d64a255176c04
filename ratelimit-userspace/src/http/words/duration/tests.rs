use jiff::tz::TimeZone;

use super::*;

#[test]
fn lengths_are_exact_and_short() {
    let cases = [
        (0, "0 s"),
        (7, "7 ns"),
        (1_500, "1.5 µs"),
        (250_000_000, "250 ms"),
        (999_999_999, "999.999999 ms"),
        (SECOND, "1 s"),
        (SECOND + 1, "1.000000001 s"),
        (30 * SECOND, "30 s"),
        (MINUTE, "1 minute"),
        (90 * SECOND, "1 min 30 s"),
        (5 * MINUTE, "5 minutes"),
        (HOUR, "1 hour"),
        (3 * HOUR, "3 hours"),
        (90 * MINUTE, "90 minutes"),
        (DAY, "1 day"),
        (7 * DAY, "7 days"),
        (DAY + 2 * HOUR + 3 * MINUTE + 4_500_000_000, "1 d 2 h 3 min 4.5 s"),
        (MINUTE + 250_000_000, "1 min 250 ms"),
        (Nanos::MAX, "213503 d 23 h 34 min 33.709551615 s"),
    ];
    for (nanos, text) in cases {
        assert_eq!(duration(nanos), text);
    }
}

#[test]
fn windows_of_one_unit_go_by_its_name() {
    let fixed = |nanos: Nanos| window_name(&Window::Fixed(nanos.try_into().unwrap()));
    let cases = [
        (SECOND, "second"),
        (MINUTE, "minute"),
        (HOUR, "hour"),
        (DAY, "day"),
        (7 * DAY, "week"),
        (30 * DAY, "30 days"),
        (365 * DAY, "365 days"),
        (30 * SECOND, "30 s"),
    ];
    for (nanos, text) in cases {
        assert_eq!(fixed(nanos), text);
    }
    assert_eq!(window_name(&Window::Calendar(CalendarUnit::Month, TimeZone::UTC)), "calendar month");
}
