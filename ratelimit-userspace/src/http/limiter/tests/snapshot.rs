//! Counters outlive a restart.

use std::{fs, io::ErrorKind, path::Path};

use tempfile::TempDir;

use super::*;

const HOUR: u64 = 60 * MINUTE;

fn algorithms() -> Vec<(&'static str, Limit)> {
    let hourly = |algorithm| limit(10, 3_600, algorithm);
    vec![
        ("fixed", hourly(Algorithm::FixedWindow)),
        ("sliding", hourly(Algorithm::SlidingWindow { round_up: false })),
        ("log", hourly(Algorithm::SlidingLog)),
        ("segments", hourly(Algorithm::Segments { segments: 6 })),
        ("bucket", hourly(Algorithm::TokenBucket { burst: 10, interval: false })),
        ("refill", hourly(Algorithm::TokenBucket { burst: 10, interval: true })),
        ("leaky", hourly(Algorithm::LeakyBucket { burst: 10, max_delay: Some(HOUR) })),
        ("first", Limit { align: Align::First, ..hourly(Algorithm::FixedWindow) }),
        (
            "day",
            Limit {
                window: Window::Calendar(
                    crate::config::http::CalendarUnit::Day,
                    jiff::tz::TimeZone::get("Asia/Tokyo").unwrap(),
                ),
                ..hourly(Algorithm::FixedWindow)
            },
        ),
        ("soft", Limit { count_denied: true, soft_margin_permille: 100, ..hourly(Algorithm::FixedWindow) }),
    ]
}

fn all() -> Http {
    config(algorithms().into_iter().map(|(key, limit)| node(key, rule(limit))).collect())
}

fn used_by_all(limiter: &Limiter, now: Now) -> Vec<(&'static str, u64)> {
    let used = |key: &'static str| (key, used(limiter, &format!("{key}=a"), now));
    algorithms().into_iter().map(|(key, _)| used(key)).collect()
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A limiter, on these rules, with the counters of the file.
fn restored(file: &Path, config: &Http, now: Now) -> (Limiter, usize) {
    let limiter = Limiter::new(config, [7; 32]);
    let counters = limiter.restore(file, now).unwrap();
    (limiter, counters)
}

/// One that has counted, saved to a file.
fn saved(file: &Path, config: &Http, now: Now) -> Limiter {
    let limiter = Limiter::new(config, [7; 32]);
    for (key, _) in algorithms() {
        limiter.charge(&hits(&format!("{key}=a"), 7), now);
        limiter.charge(&hits(&format!("{key}=b"), 3), now);
    }
    limiter.save(file, now).unwrap();
    limiter
}

#[test]
fn every_algorithm_goes_on_where_it_was() {
    let directory = directory();
    let file = directory.path().join("counters");
    let before = saved(&file, &all(), at(100.0));
    let (after, counters) = restored(&file, &all(), at(400.0));
    assert_eq!(counters, 20);
    for seconds in [400.0, 1_000.0, 3_599.0, 3_700.0, 7_200.0] {
        assert_eq!(used_by_all(&after, at(seconds)), used_by_all(&before, at(seconds)), "{seconds}");
    }
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["counters"], "nothing temporary is left");
}

#[test]
fn only_what_lasts_longer_than_a_minute_is_kept() {
    let rules = config(vec![
        node("short", rule(fixed(10, 60))),
        node("slow", rule(bucket(1, 30, 5))),
        node("long", rule(fixed(10, 61))),
    ]);
    let directory = directory();
    let file = directory.path().join("counters");
    let limiter = Limiter::new(&rules, [7; 32]);
    for name in ["short=a", "long=a", "slow=a"] {
        limiter.charge(&hits(name, 1), at(0.0));
    }
    limiter.charge(&hits("slow=b", 3), at(0.0));
    limiter.save(&file, at(0.0)).unwrap();
    let (after, counters) = restored(&file, &rules, at(0.0));
    assert_eq!(counters, 2);
    let kept = ["short=a", "long=a", "slow=a", "slow=b"].map(|name| used(&after, name, at(0.0)));
    assert_eq!(kept, [0, 1, 0, 3]);
}

#[test]
fn what_is_whole_meanwhile_is_not_restored() {
    let directory = directory();
    let file = directory.path().join("counters");
    saved(&file, &all(), at(0.0));
    let (after, counters) = restored(&file, &all(), at(3.0 * 86_400.0));
    assert_eq!((counters, after.stats().keys), (0, 0));
}

#[test]
fn a_steady_clock_that_was_set_otherwise_is_allowed_for() {
    let directory = directory();
    let file = directory.path().join("counters");
    // The wall clock was an hour ahead at the start, and set right since: steady time still is ahead.
    let saved_at = Now { steady: at(3_600.0 + 100.0).steady, utc: at(100.0).utc };
    saved(&file, &all(), saved_at);
    // The next process starts with both alike, ten minutes later.
    let (after, _) = restored(&file, &all(), at(700.0));
    let log = after.decide(&hits("log=a", 4), at(700.0));
    assert_eq!((log.decision, log.retry_after), (Decision::Deny, Some(3_000)));
    let bucket = after.decide(&hits("bucket=a", 0), at(700.0));
    assert_eq!(bucket.standing.unwrap().reset, 7 * 360 * SECOND - 600 * SECOND);
    let fixed = after.decide(&hits("fixed=a", 4), at(700.0));
    assert_eq!((fixed.decision, fixed.retry_after), (Decision::Deny, Some(2_900)));
}

#[test]
fn a_wall_clock_that_was_set_back_while_nothing_ran_loses_no_count() {
    let directory = directory();
    let file = directory.path().join("counters");
    saved(&file, &all(), at(5_000.0));
    let (after, counters) = restored(&file, &all(), at(4_000.0));
    assert_eq!(counters, 20);
    for (key, used) in used_by_all(&after, at(4_000.0)) {
        assert_eq!(used, 7, "{key}");
    }
    let bucket = after.decide(&hits("bucket=a", 0), at(4_000.0));
    assert_eq!(bucket.standing.unwrap().reset, 7 * 360 * SECOND);
}

#[test]
fn changed_limits_convert_and_rules_that_are_gone_do_not_come_back() {
    let directory = directory();
    let file = directory.path().join("counters");
    saved(&file, &all(), at(100.0));
    let changed = config(vec![
        node("fixed", rule(fixed(5, 3_600))),
        node("bucket", rule(bucket(10, 3_600, 20))),
        node("log", rule(fixed(100, 7_200))),
        node("sliding", unlimited()),
    ]);
    let (after, counters) = restored(&file, &changed, at(100.0));
    assert_eq!(counters, 6);
    let used = ["fixed=a", "fixed=b", "bucket=a", "log=a"].map(|name| used(&after, name, at(100.0)));
    assert_eq!(used, [5, 3, 7, 7]);
}

#[test]
fn a_change_that_no_request_has_met_before_the_save_converts_as_well() {
    let directory = directory();
    let file = directory.path().join("counters");
    let limiter = saved(&file, &all(), at(100.0));
    let changed = config(vec![node("fixed", rule(fixed(5, 3_600)))]);
    limiter.reload(&changed);
    limiter.save(&file, at(100.0)).unwrap();
    let (after, counters) = restored(&file, &changed, at(100.0));
    assert_eq!((counters, used(&after, "fixed=a", at(100.0))), (2, 5));
}

#[test]
fn overrides_and_limits_that_askers_sent_are_found_again() {
    let tier =
        Override { value: None, tier: Some("gold".to_owned()), limit: Some(Arc::new(fixed(50, 3_600))) };
    let value = |value, units| Override {
        value: Some(value),
        tier: None,
        limit: Some(Arc::new(fixed(units, 3_600))),
    };
    let overrides = vec![
        tier,
        value(ValuePattern::Exact("p".to_owned()), 60),
        value(ValuePattern::Prefix("q".to_owned()), 70),
    ];
    let rules = config(vec![node("key", Rule { overrides, ..rule(fixed(5, 3_600)) })]);
    let asked = Ask {
        descriptors: vec![Descriptor {
            limit: Some(Arc::new(fixed(80, 3_600))),
            hits: 8,
            ..descriptor("key=x")
        }],
        ..ask(&[])
    };
    let gold = ask(&["key=x", "tier=gold"]);
    let directory = directory();
    let file = directory.path().join("counters");
    let limiter = Limiter::new(&rules, [7; 32]);
    for (name, units) in [("key=x", 1), ("key=p", 6), ("key=q1", 7)] {
        limiter.charge(&hits(name, units), at(0.0));
    }
    limiter.charge(&gold, at(0.0));
    limiter.charge(&asked, at(0.0));
    limiter.save(&file, at(0.0)).unwrap();
    let (after, counters) = restored(&file, &rules, at(0.0));
    assert_eq!(counters, 5);
    assert_eq!(["key=x", "key=p", "key=q1"].map(|name| used(&after, name, at(0.0))), [1, 6, 7]);
    for ask in [gold, asked] {
        let used = after.inspect(&ask, at(0.0))[0].as_ref().unwrap().used;
        assert_eq!(used, ask.descriptors[0].hits.unsigned_abs());
    }
}

#[test]
fn counters_that_are_there_already_stay_as_they_are() {
    let directory = directory();
    let file = directory.path().join("counters");
    let limiter = saved(&file, &all(), at(100.0));
    limiter.charge(&hits("fixed=a", 2), at(100.0));
    assert_eq!(limiter.restore(&file, at(100.0)).unwrap(), 0);
    assert_eq!(used(&limiter, "fixed=a", at(100.0)), 9);
    let (small, counters) = restored(&file, &Http { max_keys: 5, ..all() }, at(100.0));
    assert_eq!((counters, small.stats().keys), (5, 5));
}

#[test]
fn damaged_and_foreign_files_are_refused_and_change_nothing() {
    let directory = directory();
    let file = directory.path().join("counters");
    saved(&file, &all(), at(100.0));
    let whole = fs::read(&file).unwrap();
    let limiter = Limiter::new(&all(), [7; 32]);
    let refused = |bytes: &[u8], words: &str| {
        fs::write(&file, bytes).unwrap();
        let error = limiter.restore(&file, at(100.0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(limiter.stats().keys, 0);
    };
    refused(b"", "not a file of saved counters");
    refused(b"# some notes\n", "not a file of saved counters");
    for length in (8..whole.len()).step_by(37) {
        refused(&whole[..length], "damaged");
    }
    for place in (12..whole.len()).step_by(41) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        refused(&damaged, "damaged");
    }
    let mut newer = whole.clone();
    newer[8] = 2;
    refused(&newer, "format 2");
    fs::write(&file, &whole).unwrap();
    let other = Limiter::new(&all(), [8; 32]);
    let error = other.restore(&file, at(100.0)).unwrap_err();
    assert!(error.to_string().contains("another key"), "{error}");
    assert_eq!(other.stats().keys, 0);
    assert_eq!(limiter.restore(&file, at(100.0)).unwrap(), 20);
}

#[test]
fn files_that_cannot_be_read_or_written_say_so_and_leave_the_former_one() {
    let directory = directory();
    let limiter = Limiter::new(&all(), [7; 32]);
    let missing = directory.path().join("missing");
    assert_eq!(limiter.restore(&missing, at(0.0)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(limiter.save(&missing.join("counters"), at(0.0)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(limiter.save(Path::new("/"), at(0.0)).unwrap_err().kind(), ErrorKind::InvalidInput);
    let file = directory.path().join("counters");
    saved(&file, &all(), at(100.0));
    fs::create_dir(directory.path().join("counters.new")).unwrap();
    assert!(limiter.save(&file, at(100.0)).is_err());
    assert_eq!(limiter.restore(&file, at(100.0)).unwrap(), 20);
}
