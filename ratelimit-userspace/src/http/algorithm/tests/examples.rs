//! Worked examples with exact answers.

use super::*;

fn interval(units: u64, window: Nanos, burst: u64) -> Counter {
    Counter::new(limit(units, window, Kinds::TokenBucket { burst, interval: true }))
}

#[test]
fn token_bucket_admits_its_burst_at_once() {
    let mut counter = Counter::new(limit(10, SECOND, token_bucket(10)));
    assert_eq!(counter.offer(0, 15), 10);
    assert_eq!(counter.wait(0, 1), Some(100 * MILLI));
}

#[test]
fn token_bucket_answers_as_the_unit_table_of_redis_cell() {
    let mut counter = Counter::new(limit(1, SECOND, token_bucket(5)));
    let admitted = Outcome::Admit { delay: 0, soft_over: false };
    let refused = |seconds: Option<u64>| Outcome::Refuse { wait: seconds.map(|wait| wait * SECOND) };
    // Tenths of a second, cost, outcome, remaining, reset in tenths.
    let table = [
        (0, 6, refused(None), 5, 0),
        (0, 1, admitted, 4, 10),
        (0, 1, admitted, 3, 20),
        (0, 1, admitted, 2, 30),
        (0, 1, admitted, 1, 40),
        (0, 1, admitted, 0, 50),
        (0, 1, refused(Some(1)), 0, 50),
        (30, 1, admitted, 2, 30),
        (31, 1, admitted, 1, 39),
        (40, 1, admitted, 1, 40),
        (80, 1, admitted, 4, 10),
        (95, 1, admitted, 4, 10),
        (95, 0, admitted, 4, 10),
        (95, 2, admitted, 2, 30),
        (95, 5, refused(Some(3)), 2, 30),
        (125, 5, admitted, 0, 50),
    ];
    let tenth = SECOND / 10;
    for (at, cost, outcome, remaining, reset) in table {
        assert_eq!(counter.ask(at * tenth, cost), outcome, "{cost} at {at}");
        let standing = Standing { limit: 5, remaining, reset: reset * tenth };
        assert_eq!(counter.standing(at * tenth), standing, "after {cost} at {at}");
    }
}

#[test]
fn token_bucket_answers_as_the_first_call_in_the_manual_of_redis_cell() {
    let mut counter = Counter::new(limit(30, MINUTE, token_bucket(16)));
    assert!(counter.passes(0, 1));
    assert_eq!(counter.standing(0), Standing { limit: 16, remaining: 15, reset: 2 * SECOND });
}

#[test]
fn token_bucket_admits_as_governor() {
    let mut counter = Counter::new(limit(5, SECOND, token_bucket(5)));
    assert_eq!(counter.offer(0, 7), 5);
    assert_eq!(counter.wait(0, 1), Some(200 * MILLI));
    assert!(!counter.passes(199 * MILLI, 1));
    assert!(counter.passes(200 * MILLI, 1));
    assert_eq!(counter.wait(200 * MILLI, 6), None);

    let mut slow = Counter::new(limit(1, 2 * SECOND, token_bucket(5)));
    let passed: Vec<_> = (0..30).map(|second| slow.offer(second * SECOND, 10)).collect();
    let expected: Vec<_> =
        (0..30).map(|second| if second == 0 { 5 } else { u64::from(second % 2 == 0) }).collect();
    assert_eq!(passed, expected);

    let mut greedy = Counter::new(limit(60, MINUTE, token_bucket(60)));
    assert_eq!((0..600).map(|tenth| greedy.offer(tenth * SECOND / 10, 100)).sum::<u64>(), 119);
}

#[test]
fn token_bucket_holds_high_rates() {
    let mut counter = Counter::new(limit(6_000, SECOND, token_bucket(6_000)));
    assert_eq!(counter.offer(0, 7_000), 6_000);
    // 8,000 a second for ten seconds.
    let passed: u64 = (1..=80_000).map(|index| counter.offer(index * 125_000, 1)).sum();
    assert!((59_999..=60_001).contains(&passed), "{passed}");
}

#[test]
fn interval_refill_comes_all_at_once() {
    let mut counter = interval(2, SECOND, 4);
    assert_eq!(counter.offer(0, 5), 4);
    assert_eq!(counter.offer(SECOND - 1, 5), 0);
    assert_eq!(counter.wait(SECOND - 1, 1), Some(1));
    assert_eq!(counter.offer(SECOND, 5), 2);
    assert_eq!(counter.offer(10 * SECOND, 5), 4);
    assert_eq!(counter.standing(10 * SECOND), Standing { limit: 4, remaining: 0, reset: 2 * SECOND });

    let mut minutely = interval(4, MINUTE, 4);
    assert_eq!(minutely.offer(30 * SECOND, 5), 4);
    assert_eq!(minutely.wait(30 * SECOND, 4), Some(30 * SECOND));
    assert_eq!(minutely.offer(MINUTE, 5), 4);
}

#[test]
fn interval_refill_that_is_due_counts_before_the_request() {
    let mut counter = interval(2, SECOND, 10);
    assert_eq!(counter.offer(0, 5), 5);
    assert_eq!(counter.remaining(0), 5);
    assert_eq!(counter.offer(2 * SECOND, 4), 4);
    assert_eq!(counter.offer(3 * SECOND, 8), 7);
}

#[test]
fn interval_refill_counts_from_the_first_charge_when_told_so() {
    let mut counter = interval(2, SECOND, 2);
    counter.meter = Meter::new(Limit { align: Align::First, ..counter.meter.limit().clone() });
    assert_eq!(counter.offer(300 * MILLI, 3), 2);
    assert_eq!(counter.wait(SECOND, 1), Some(300 * MILLI));
    assert_eq!(counter.offer(1_300 * MILLI, 3), 2);
    // Whole again, so the next charge sets a new beginning.
    assert_eq!(counter.offer(2_900 * MILLI, 3), 2);
    assert_eq!(counter.wait(2_900 * MILLI, 1), Some(SECOND));
}

#[test]
fn fixed_window_aligns_and_forgets() {
    let mut counter = Counter::new(limit(3, SECOND, Kinds::FixedWindow));
    assert_eq!(counter.offer(SECOND / 2, 5), 3);
    assert_eq!(counter.wait(SECOND / 2, 1), Some(SECOND / 2));
    assert_eq!(counter.offer(SECOND, 5), 3);

    let mut minutely = Counter::new(limit(5, MINUTE, Kinds::FixedWindow));
    let two = 2 * HOUR;
    let passed: u64 = (0..5).map(|step| minutely.offer(two + (30 + 6 * step) * SECOND, 1)).sum();
    assert_eq!(passed, 5);
    let passed: u64 = (0..6).map(|step| minutely.offer(two + MINUTE + 6 * step * SECOND, 1)).sum();
    assert_eq!(passed, 5);
}

#[test]
fn fixed_window_resets_as_envoy() {
    for (now, window, reset) in
        [(1_234, MINUTE, 26), (1_234, SECOND, 1), (1_000_000, HOUR, 800), (1_000_000, DAY, 36_800)]
    {
        let mut counter = Counter::new(limit(10, window, Kinds::FixedWindow));
        let reset = reset * SECOND;
        assert_eq!(counter.standing(now * SECOND), Standing { limit: 10, remaining: 10, reset });
        assert_eq!(counter.offer(now * SECOND, 5), 5);
        assert_eq!(counter.standing(now * SECOND), Standing { limit: 10, remaining: 5, reset });
        assert_eq!(counter.offer(now * SECOND, 6), 5);
        assert_eq!(counter.standing(now * SECOND), Standing { limit: 10, remaining: 0, reset });
    }
}

/// A sliding window a minute long with so much in the previous minute and the current one.
fn sliding(units: u64, previous: i64, current: i64, round_up: bool) -> Counter {
    let mut counter = Counter::new(limit(units, MINUTE, Kinds::SlidingWindow { round_up }));
    counter.charge(10 * MINUTE, previous);
    counter.charge(11 * MINUTE, 0);
    counter.charge(11 * MINUTE, current);
    counter
}

#[test]
fn sliding_window_estimates_as_cloudflare() {
    // Charged when less was left of the previous minute: the count must not saturate on the way.
    let at = 11 * MINUTE + 15 * SECOND;
    let mut counter = sliding(50, 42, 0, false);
    counter.charge(at, 18);
    assert_eq!(counter.remaining(at), 1);
    assert!(counter.passes(at, 1));
    let wait = counter.wait(at, 1).unwrap();
    assert!(wait <= SECOND, "{wait}");
    assert!(counter.passes(at + wait, 1));

    let mut strict = sliding(50, 42, 0, true);
    strict.charge(at, 18);
    assert!(!strict.passes(at, 1));
}

#[test]
fn sliding_window_admits_up_to_the_rounded_estimate() {
    let quarter = 11 * MINUTE + 15 * SECOND;
    let mut counter = sliding(100, 84, 0, false);
    counter.charge(quarter, 36);
    assert_eq!(counter.offer(quarter, 3), 1);

    let half = 11 * MINUTE + 30 * SECOND;
    let mut counter = sliding(100, 80, 0, false);
    counter.charge(half, 40);
    assert_eq!(counter.offer(half, 30), 20);

    let third = 11 * MINUTE + 18 * SECOND;
    let mut counter = sliding(7, 5, 0, false);
    counter.charge(third, 3);
    assert_eq!(counter.remaining(third), 1);
    assert_eq!(counter.offer(third, 2), 1);
}

#[test]
fn sliding_window_compares_products_as_haproxy() {
    // 42 * 45,000 + 18 * 60,000 = 2,970,000 of 3,000,000: half a unit is left, which rounding up takes.
    let at = 11 * MINUTE + 15 * SECOND;
    for (round_up, remaining) in [(false, 1), (true, 0)] {
        let mut counter = sliding(50, 42, 0, round_up);
        counter.charge(at, 18);
        assert_eq!(counter.remaining(at), remaining);
        assert_eq!(counter.used(at), 50);
    }
}

#[test]
fn sliding_log_keeps_what_it_denied_when_told_so() {
    let start = HOUR;
    let ask = |count_denied| {
        let mut counter = Counter::new(Limit { count_denied, ..limit(2, MINUTE, Kinds::SlidingLog) });
        [1, 30, 50, 100, 101].map(|second| counter.passes(start + second * SECOND, 1))
    };
    assert_eq!(ask(true), [true, true, false, true, false]);
    assert_eq!(ask(false), [true, true, false, true, true]);
}

#[test]
fn sliding_window_keeps_out_who_goes_on_asking_when_told_so() {
    // Every second for five minutes.
    let passed = |count_denied, round_up| {
        let kind = Kinds::SlidingWindow { round_up };
        let mut counter = Counter::new(Limit { count_denied, ..limit(10, MINUTE, kind) });
        (0..300).filter(|second| counter.passes(HOUR + second * SECOND, 1)).count()
    };
    assert_eq!(passed(false, false), 50);
    assert_eq!(passed(true, true), 10);
    // Rounded down, 9 and a part are 9 once a window.
    assert_eq!(passed(true, false), 14);
}

#[test]
fn window_of_envoy_counts_on_above_the_limit() {
    let mut counter = Counter::new(Limit { count_denied: true, ..limit(10, MINUTE, Kinds::EnvoyWindow) });
    assert!(counter.passes(HOUR, 8));
    assert!(counter.passes(HOUR, 0));
    assert!(!counter.passes(HOUR, 5));
    // 13 of 10: who only reads is denied as well, until enough is given back or the window ends.
    assert_eq!(counter.wait(HOUR, 0), Some(MINUTE));
    assert_eq!((counter.used(HOUR), counter.remaining(HOUR)), (13, 0));
    counter.charge(HOUR, -3);
    assert!(counter.passes(HOUR, 0));
    assert!(!counter.passes(HOUR, 1));
    assert!(counter.passes(HOUR + MINUTE, 10));
}

#[test]
fn sliding_log_is_half_open_and_counts_every_entry_of_an_instant() {
    let mut counter = Counter::new(limit(3, MINUTE, Kinds::SlidingLog));
    assert_eq!(counter.offer(SECOND, 5), 3);
    assert_eq!(counter.wait(SECOND, 1), Some(MINUTE));
    assert!(!counter.passes(SECOND + MINUTE - 1, 1));
    assert_eq!(counter.offer(SECOND + MINUTE, 5), 3);
}

#[test]
fn sliding_log_remembers_only_what_was_hit() {
    let mut counter = Counter::new(limit(1_000_000, DAY, Kinds::SlidingLog));
    for second in 0..10 {
        assert_eq!(counter.offer(second * SECOND, 1_000), 1_000);
    }
    let Some(State::Log(log)) = &counter.state else { panic!("{:?}", counter.state) };
    assert_eq!(log.entries().collect::<Vec<_>>(), (0..10).map(|at| (at * SECOND, 1_000)).collect::<Vec<_>>());
}

#[test]
fn segments_forget_one_after_the_other() {
    let mut counter = Counter::new(limit(200, MINUTE, Kinds::Segments { segments: 6 }));
    assert_eq!(counter.offer(5 * SECOND, 150), 150);
    assert_eq!(counter.standing(5 * SECOND), Standing { limit: 200, remaining: 50, reset: 5 * SECOND });
    assert_eq!(counter.offer(15 * SECOND, 60), 50);
    assert_eq!(counter.wait(15 * SECOND, 1), Some(45 * SECOND));
    assert!(!counter.passes(MINUTE - 1, 1));
    assert_eq!(counter.offer(MINUTE, 200), 150);
    assert_eq!(counter.offer(70 * SECOND, 200), 50);
}

#[test]
fn leaky_bucket_drops_what_overflows() {
    let mut counter = Counter::new(limit(5, SECOND, leaky_bucket(5)));
    let passed: u64 = (0..10).map(|_| counter.offer(0, 1)).sum();
    assert_eq!(passed, 5);
    let passed: u64 = (1..=100).map(|step| counter.offer(step * SECOND / 10, 1)).sum();
    assert_eq!(passed, 50);
}

#[test]
fn leaky_bucket_leaks_while_hits_come() {
    let mut counter = Counter::new(limit(10, 30 * SECOND, leaky_bucket(10)));
    for second in 0..=9 {
        counter.charge(second * SECOND, 1);
        let leaked = second / 3;
        assert_eq!(counter.used(second * SECOND), second + 1 - leaked, "at {second} s");
    }

    let mut busy = Counter::new(limit(3, SECOND, leaky_bucket(3)));
    let passed: u64 = (0..100).map(|step| busy.offer(step * SECOND / 10, 1)).sum();
    assert!((30..=33).contains(&passed), "{passed}");
}

#[test]
fn leaky_bucket_shapes_to_a_constant_outflow() {
    let shaping = Kinds::LeakyBucket { burst: 10, max_delay: Some(SECOND) };
    let mut counter = Counter::new(limit(3, SECOND, shaping));
    let mut delays = vec![];
    while let Outcome::Admit { delay, .. } = counter.ask(0, 1) {
        delays.push(delay);
    }
    assert_eq!(delays, [0, 333_333_334, 666_666_667, SECOND]);
    // Four seconds' thirds are queued; one third later the next would leave a second from then.
    assert_eq!(counter.wait(0, 1), Some(333_333_334));
    assert_eq!(counter.ask(0, 0), Outcome::Admit { delay: 0, soft_over: false });
    assert_eq!(counter.ask(333_333_334, 1), Outcome::Admit { delay: SECOND, soft_over: false });
}
