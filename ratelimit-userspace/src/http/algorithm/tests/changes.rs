//! Limits that change under their counters.

use super::*;

#[test]
fn raising_a_limit_admits_the_next_request() {
    let used = |burst| {
        let mut counter = Counter::new(limit(10, 20 * SECOND, token_bucket(burst)));
        assert_eq!(counter.offer(HOUR, 11), 10);
        counter
    };
    let mut counter = used(10).changed(HOUR, limit(1_000, 20 * SECOND, token_bucket(1_000)));
    assert_eq!(counter.offer(HOUR, 2_000), 990);
    let mut counter = used(10).changed(HOUR, limit(1_000, 20 * SECOND, token_bucket(10)));
    assert_eq!(counter.wait(HOUR, 1), Some(20 * MILLI));
    assert!(counter.passes(HOUR + 20 * MILLI, 1));
}

#[test]
fn a_limit_that_is_the_same_gives_no_free_burst() {
    let same = limit(5, HOUR, token_bucket(5));
    let mut counter = Counter::new(same.clone());
    assert_eq!(counter.offer(0, 6), 5);
    for _ in 0..10 {
        counter = counter.changed(0, same.clone());
        assert!(!counter.passes(0, 1));
    }
}

#[test]
fn another_window_or_algorithm_starts_at_what_was_used() {
    for old in all(10) {
        for new in all(4) {
            let mut counter = Counter::new(limit(10, HOUR, old));
            assert_eq!(counter.offer(5 * HOUR, 7), 7);
            let at = 5 * HOUR + 1;
            let counter = counter.changed(at, limit(4, SECOND, new));
            assert_eq!(counter.remaining(at), 0, "{old:?} to {new:?}");
            assert_eq!(counter.used(at), 4, "{old:?} to {new:?}");
            // Of the new window, not of the old.
            assert!(counter.wait(at, 1).unwrap() <= 2 * SECOND, "{old:?} to {new:?}");
        }
    }
}

#[test]
fn a_lower_limit_locks_nobody_out_and_leaves_nothing_negative() {
    for (old, new) in all(10).into_iter().zip(all(3)) {
        let mut counter = Counter::new(limit(10, MINUTE, old));
        assert_eq!(counter.offer(HOUR, 10), 10);
        let mut counter = counter.changed(HOUR, limit(3, MINUTE, new));
        assert_eq!((counter.remaining(HOUR), counter.used(HOUR)), (0, 3), "{new:?}");
        let wait = counter.wait(HOUR, 1).unwrap();
        assert!(wait <= 2 * MINUTE, "{new:?}: {wait}");
        assert!(counter.passes(HOUR + wait, 1), "{new:?}");
    }
}

#[test]
fn a_limit_that_becomes_nothing_leaves_nothing() {
    for (old, new) in all(10).into_iter().zip(all(0)) {
        let mut counter = Counter::new(limit(10, MINUTE, old));
        assert_eq!(counter.offer(HOUR, 10), 10);
        let counter = counter.changed(HOUR, limit(0, MINUTE, new));
        assert_eq!((counter.remaining(HOUR), &counter.state), (0, &None), "{new:?}");
        assert_eq!(counter.wait(HOUR, 1), None, "{new:?}");
    }
}

#[test]
fn what_drained_before_a_change_drained_at_the_former_rate() {
    let mut counter = Counter::new(limit(10, 10 * SECOND, token_bucket(10)));
    assert_eq!(counter.offer(0, 10), 10);
    // Three are back; at the new rate it would be all, or none.
    for units in [1_000, 1] {
        let counter = counter.clone().changed(3 * SECOND, limit(units, 10 * SECOND, token_bucket(10)));
        assert_eq!(counter.remaining(3 * SECOND), 3);
    }
}
