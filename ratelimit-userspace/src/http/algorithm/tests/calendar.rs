//! Days, weeks and months, where they are as long as usual and where they are not.

use jiff::{Timestamp, tz::TimeZone};

use super::{
    super::{calendar::Calendar, window::Span},
    *,
};

fn at(instant: &str) -> Nanos {
    instant.parse::<Timestamp>().unwrap().as_nanosecond().try_into().unwrap()
}

fn span(unit: CalendarUnit, zone: &str, instant: &str) -> (String, String, Nanos) {
    let Span { start, end } = Calendar::new(unit, TimeZone::get(zone).unwrap()).current(at(instant));
    let text = |nanos: Nanos| Timestamp::from_nanosecond(nanos.into()).unwrap().to_string();
    (text(start), text(end), (end - start) / HOUR)
}

fn counter(units: u64, unit: CalendarUnit, zone: &str, algorithm: Kinds) -> Counter {
    let window = Window::Calendar(unit, TimeZone::get(zone).unwrap());
    Counter::new(Limit { window, ..limit(units, DAY, algorithm) })
}

#[test]
fn days_are_as_long_as_clocks_make_them() {
    use CalendarUnit::Day;
    let day = |zone, instant| span(Day, zone, instant);
    let expected = |start: &str, end: &str, hours: Nanos| (start.to_owned(), end.to_owned(), hours);
    for (zone, instant, answer) in [
        ("UTC", "2025-03-30T12:00:00Z", expected("2025-03-30T00:00:00Z", "2025-03-31T00:00:00Z", 24)),
        (
            "Europe/Berlin",
            "2025-03-30T12:00:00Z",
            expected("2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z", 23),
        ),
        (
            "Europe/Berlin",
            "2025-10-26T22:59:59Z",
            expected("2025-10-25T22:00:00Z", "2025-10-26T23:00:00Z", 25),
        ),
        // Midnight did not happen.
        (
            "America/Sao_Paulo",
            "2018-11-04T12:00:00Z",
            expected("2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", 23),
        ),
        // A whole date did not happen.
        (
            "Pacific/Apia",
            "2011-12-30T09:00:00Z",
            expected("2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", 24),
        ),
        (
            "Pacific/Apia",
            "2011-12-30T11:00:00Z",
            expected("2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", 24),
        ),
        // Clocks went back from 0:01 to 23:01, so midnight came twice: the first counts.
        (
            "America/St_Johns",
            "2006-10-29T02:20:00Z",
            expected("2006-10-28T02:30:00Z", "2006-10-29T02:30:00Z", 24),
        ),
        (
            "America/St_Johns",
            "2006-10-29T03:00:00Z",
            expected("2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", 25),
        ),
    ] {
        assert_eq!(day(zone, instant), answer, "{zone} {instant}");
    }
}

#[test]
fn weeks_begin_on_monday_and_months_on_the_first() {
    use CalendarUnit::{Month, Week};
    let expected = |start: &str, end: &str, days: Nanos| (start.to_owned(), end.to_owned(), days * 24);
    for (unit, instant, answer) in [
        (Week, "2026-01-01T00:00:00Z", expected("2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", 7)),
        (Week, "2026-01-04T23:59:59Z", expected("2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", 7)),
        (Week, "2026-01-05T00:00:00Z", expected("2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z", 7)),
        (Month, "2024-02-29T23:00:00Z", expected("2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", 29)),
        (Month, "2025-02-01T00:00:00Z", expected("2025-02-01T00:00:00Z", "2025-03-01T00:00:00Z", 28)),
        (Month, "2025-12-31T23:59:59Z", expected("2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z", 31)),
    ] {
        assert_eq!(span(unit, "UTC", instant), answer, "{unit:?} {instant}");
    }
    assert_eq!(span(Month, "Europe/Berlin", "2025-03-15T00:00:00Z").2, 31 * 24 - 1);
}

#[test]
fn windows_of_the_calendar_leave_no_gap() {
    let zones =
        ["UTC", "Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu"];
    for zone in zones {
        for unit in [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month] {
            let calendar = Calendar::new(unit, TimeZone::get(zone).unwrap());
            // Hours of years that had odd days in these zones, with a step that meets every hour of a day.
            for year in ["2006-01-01T00:00:00Z", "2011-06-01T00:00:00Z", "2018-06-01T00:00:00Z"] {
                for step in 0..800 {
                    let now = at(year) + step * 13 * HOUR + step * 7 * MINUTE;
                    let span = calendar.current(now);
                    assert!(span.holds(now), "{zone} {unit:?} {now}");
                    let fresh = Calendar::new(unit, TimeZone::get(zone).unwrap());
                    assert_eq!(fresh.around(span.start), span, "{zone} {unit:?} {now}");
                    assert_eq!(fresh.around(span.end - 1), span, "{zone} {unit:?} {now}");
                    assert_eq!(fresh.around(span.end).start, span.end, "{zone} {unit:?} {now}");
                }
            }
        }
    }
}

#[test]
fn fixed_windows_follow_the_calendar() {
    let mut counter = counter(3, CalendarUnit::Day, "Europe/Berlin", Kinds::FixedWindow);
    let morning = at("2025-03-30T06:00:00Z");
    assert_eq!(counter.offer(morning, 5), 3);
    assert_eq!(counter.wait(morning, 1), Some(16 * HOUR));
    assert_eq!(counter.standing(morning).reset, 16 * HOUR);
    assert!(!counter.passes(morning + 16 * HOUR - 1, 1));
    assert_eq!(counter.offer(morning + 16 * HOUR, 5), 3);
    let state = counter.state.as_ref().unwrap();
    assert_eq!(counter.meter.whole_at(state), at("2025-03-31T22:00:00Z"));
}

#[test]
fn sliding_windows_weigh_by_the_real_length() {
    let mut counter = counter(100, CalendarUnit::Day, "Europe/Berlin", SLIDING);
    counter.charge(at("2025-03-29T12:00:00Z"), 100);
    // Half of a day of 23 hours: half of the day before counts.
    let half = at("2025-03-29T23:00:00Z") + 23 * HOUR / 2;
    assert_eq!(counter.remaining(half), 50);
    assert_eq!(counter.offer(half, 100), 50);
    let wait = counter.wait(half, 10).unwrap();
    assert_eq!(wait, 23 * HOUR / 100 * 9 + 1);
    // The day after weighs by its own 24 hours.
    let evening = at("2025-03-30T22:00:00Z") + 6 * HOUR;
    assert_eq!(counter.used(evening), 38);
    assert_eq!(counter.remaining(evening), 63);
}

#[test]
fn a_month_that_was_skipped_counts_for_nothing() {
    let mut counter = counter(10, CalendarUnit::Month, "UTC", SLIDING);
    assert_eq!(counter.offer(at("2025-01-20T00:00:00Z"), 20), 10);
    assert_eq!(counter.remaining(at("2025-02-01T00:00:00Z")), 0);
    assert_eq!(counter.remaining(at("2025-03-01T00:00:00Z")), 10);
    assert_eq!(counter.standing(at("2025-03-01T00:00:00Z")).reset, 31 * DAY);
}
