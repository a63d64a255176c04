//! The least and the most that limits, costs and counts can be.

use super::*;

#[test]
fn a_limit_of_nothing_blocks_and_never_asks_to_retry() {
    for kind in all(9) {
        let mut counter = Counter::new(limit(0, MINUTE, kind));
        for now in [0, SECOND, 30 * DAY] {
            assert_eq!(counter.ask(now, 1), Outcome::Refuse { wait: None }, "{kind:?}");
            assert_eq!(counter.ask(now, 0), Outcome::Admit { delay: 0, soft_over: false }, "{kind:?}");
            assert_eq!(counter.remaining(now), 0, "{kind:?}");
            counter.charge(now, 1);
            assert_eq!(counter.state, None, "{kind:?}");
        }
    }
}

#[test]
fn a_refund_gives_back_what_was_used_and_no_more() {
    for kind in all(10) {
        let mut counter = Counter::new(limit(10, HOUR, kind));
        assert_eq!(counter.offer(HOUR, 11), 10, "{kind:?}");
        assert!(counter.passes(HOUR, -1), "{kind:?}");
        assert_eq!(counter.remaining(HOUR), 1, "{kind:?}");
        assert!(counter.passes(HOUR, 1), "{kind:?}");
        assert!(counter.passes(HOUR, -25), "{kind:?}");
        assert_eq!((counter.remaining(HOUR), &counter.state), (10, &None), "{kind:?}");
        assert!(counter.passes(HOUR, i64::MIN), "{kind:?}");
        assert_eq!(counter.offer(HOUR, 12), 10, "{kind:?}");
    }
}

#[test]
fn extreme_limits_do_not_overflow() {
    const LONGEST: Nanos = http::MAX_WINDOW_NANOS;
    let now = 1_800_000_000 * SECOND;
    for (units, window) in [
        (1, 365 * DAY),
        (1, LONGEST),
        (u64::MAX, LONGEST),
        (u64::MAX, MILLI),
        (1, MILLI),
        (u64::from(u32::MAX) + 1, SECOND),
    ] {
        for kind in all(units) {
            let mut counter = Counter::new(limit(units, window - window % 5, kind));
            let cost = i64::try_from(units).unwrap_or(i64::MAX);
            for _ in 0..4 {
                counter.charge(now, cost);
            }
            assert_eq!(counter.remaining(now), 0, "{units} in {window}, {kind:?}");
            let wait = counter.wait(now, cost).unwrap();
            assert!(0 < wait && wait <= 2 * window, "{units} in {window}, {kind:?}: {wait}");
            assert!(counter.passes(now + wait, cost), "{units} in {window}, {kind:?}");
        }
    }
}
