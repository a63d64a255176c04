//! Other rules come in force while counters are in use.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::*;

#[test]
fn the_same_rules_again_give_nothing_back() {
    let rules = config(vec![node("ip", rule(bucket(1, 60, 5)))]);
    let limiter = Limiter::new(&rules, [7; 32]);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 9), 5);
    for _ in 0..10 {
        limiter.reload(&rules);
        assert_eq!(limiter.decide(&ask(&["ip=a"]), at(0.0)).decision, Decision::Deny);
    }
}

#[test]
fn a_faster_bucket_admits_soon_and_gives_no_burst() {
    let limiter = limiter(vec![node("ip", rule(bucket(10, 20, 10)))]);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 99), 10);
    limiter.reload(&config(vec![node("ip", rule(bucket(1_000, 20, 1_000)))]));
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 2_000), 990);
}

#[test]
fn a_smaller_limit_locks_nobody_out_and_a_larger_window_starts_at_what_was_used() {
    let limiter = limiter(vec![node("ip", rule(fixed(100, 3_600)))]);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 50), 50);
    limiter.reload(&config(vec![node("ip", rule(fixed(20, 3_600)))]));
    let denied = limiter.decide(&ask(&["ip=a"]), at(0.0));
    assert_eq!((denied.decision, remaining(&denied), denied.retry_after), (Decision::Deny, 0, Some(3_600)));
    limiter.reload(&config(vec![node("ip", rule(fixed(30, 1)))]));
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 99), 10);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(1.0), 99), 30);
}

#[test]
fn a_rule_that_goes_limits_nothing_and_finds_its_counters_when_it_is_back() {
    let with = config(vec![node("ip", rule(fixed(5, 3_600)))]);
    let without = config(vec![node("other", rule(fixed(5, 3_600)))]);
    let limiter = Limiter::new(&with, [7; 32]);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 9), 5);
    limiter.reload(&without);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 9), 9);
    for _ in 0..4 {
        limiter.sweep(at(0.0));
    }
    limiter.reload(&with);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 9), 0);
}

#[test]
fn sweeps_convert_what_nobody_asks_about_and_drop_limits_that_no_counter_needs() {
    let limiter = limiter(vec![node("ip", rule(fixed(10, 3_600))), node("gone", rule(fixed(10, 60)))]);
    let version = |limiter: &Limiter, id| limiter.rules().rule(id).unwrap().meter.as_ref().unwrap().version;
    let (old, gone) = (version(&limiter, "d/ip"), version(&limiter, "d/gone"));
    limiter.charge(&hits("ip=a", 4), at(0.0));
    limiter.charge(&hits("gone=a", 4), at(0.0));
    limiter.reload(&config(vec![node("ip", rule(fixed(20, 3_600)))]));
    assert!(limiter.rules().meter(old).is_some());
    for _ in 0..3 {
        limiter.sweep(at(1.0));
    }
    assert!(limiter.rules().meter(old).is_none(), "no counter is under it any more");
    assert!(limiter.rules().meter(gone).is_some(), "a counter still is");
    assert_eq!(limiter.stats().keys, 2);
    assert_eq!(used(&limiter, "ip=a", at(1.0)), 4);
    limiter.reload(&config(vec![node("ip", rule(fixed(20, 3_600)))]));
    for _ in 0..3 {
        limiter.sweep(at(60.0));
    }
    assert!(limiter.rules().meter(gone).is_none());
    assert_eq!(limiter.stats().keys, 1);
}

#[test]
fn no_limit_is_dropped_while_someone_may_decide_by_it() {
    let limiter = limiter(vec![node("ip", rule(fixed(10, 3_600)))]);
    let before = limiter.rules();
    let old = before.rule("d/ip").unwrap().meter.as_ref().unwrap().version;
    limiter.reload(&config(vec![node("ip", rule(fixed(20, 3_600)))]));
    for _ in 0..5 {
        limiter.sweep(at(0.0));
    }
    assert!(limiter.rules().meter(old).is_some());
    drop(before);
    for _ in 0..3 {
        limiter.sweep(at(0.0));
    }
    assert!(limiter.rules().meter(old).is_none());
}

#[test]
fn reloads_while_requests_run_lose_no_count() {
    let rules = [10_000, 20_000].map(|units| config(vec![node("ip", rule(fixed(units, 86_400)))]));
    let limiter = Limiter::new(&rules[0], [7; 32]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                limiter.reload(&rules[turn % 2]);
                limiter.sweep(at(0.0));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let tasks = [(); 2].map(|()| scope.spawn(|| admitted(&limiter, &ask(&["ip=a"]), at(0.0), 3_000)));
        let passed: usize = tasks.into_iter().map(|task| task.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        assert_eq!(passed, 6_000);
    });
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 6_000);
}
