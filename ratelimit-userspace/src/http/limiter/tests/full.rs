//! Memory is full.

use super::*;

fn full(limit: Limit, max_keys: usize, on_full: OnFull) -> Limiter {
    let config = Http { max_keys, on_full, ..config(vec![node("ip", rule(limit))]) };
    Limiter::new(&config, [7; 32])
}

/// Requests of so many clients, one each.
fn flood(limiter: &Limiter, clients: std::ops::Range<u32>, now: Now) -> usize {
    let mut ask = ask(&["ip="]);
    clients
        .filter(|client| {
            ask.descriptors[0].entries[0].value = client.to_string().into();
            limiter.admit(&ask, now) != Decision::Deny
        })
        .count()
}

#[test]
fn a_flood_of_newcomers_neither_grows_memory_nor_frees_an_offender() {
    // As many times the capacity as five million are of a hundred thousand.
    let (max_keys, clients) = (2_000, 100_000);
    let limiter = full(fixed(10, 3_600), max_keys, OnFull::Evict);
    assert_eq!(admitted(&limiter, &ask(&["ip=offender"]), at(0.0), 20), 10);
    for round in 0..10 {
        let from = round * clients / 10;
        assert_eq!(flood(&limiter, from..from + clients / 10, at(1.0)), clients as usize / 10);
        assert!(limiter.stats().keys <= max_keys);
    }
    assert_eq!(admitted(&limiter, &ask(&["ip=offender"]), at(2.0), 20), 0);
    let stats = limiter.stats();
    assert_eq!((stats.keys, stats.evictions), (max_keys, u64::from(clients) - 2_000 + 1));
    assert_eq!((stats.forgotten, stats.refusals, stats.uncounted), (0, 0, 0));
}

#[test]
fn an_offender_against_a_fast_limit_stays_though_newcomers_of_a_slow_one_wait_longer() {
    // A bucket that is whole again after ten seconds, and one that a single request empties for an hour.
    let rules = vec![node("fast", rule(bucket(10, 10, 10))), node("ip", rule(bucket(4, 3_600, 4)))];
    let limiter = Limiter::new(&Http { max_keys: 500, ..config(rules) }, [7; 32]);
    assert_eq!(admitted(&limiter, &ask(&["fast=offender"]), at(0.0), 20), 10);
    flood(&limiter, 0..10_000, at(0.5));
    assert_eq!(admitted(&limiter, &ask(&["fast=offender"]), at(0.5), 20), 0);
}

#[test]
fn counters_that_are_whole_make_way_first() {
    for on_full in [OnFull::Evict, OnFull::Deny, OnFull::Allow] {
        // As many as are looked at, half of them whole when the newcomers are there.
        let limiter = full(fixed(10, 60), 16, on_full);
        assert_eq!(flood(&limiter, 0..8, at(0.0)), 8);
        assert_eq!(flood(&limiter, 8..16, at(59.0)), 8);
        assert_eq!(flood(&limiter, 8..16, at(60.0)), 8);
        assert_eq!(flood(&limiter, 16..24, at(60.0)), 8);
        let stats = limiter.stats();
        assert_eq!((stats.keys, stats.forgotten, stats.evictions), (16, 8, 0), "{on_full:?}");
        assert_eq!((stats.refusals, stats.uncounted), (0, 0), "{on_full:?}");
        assert_eq!(used(&limiter, "ip=8", at(60.0)), 1);
    }
}

#[test]
fn newcomers_are_refused_if_so_configured_and_others_are_not() {
    let limiter = full(fixed(3, 60), 50, OnFull::Deny);
    assert_eq!(flood(&limiter, 0..80, at(0.0)), 50);
    assert_eq!(flood(&limiter, 0..50, at(0.0)), 50);
    let refused = limiter.decide(&ask(&["ip=60"]), at(0.0));
    assert_eq!((refused.decision, refused.refusal), (Decision::Deny, Some(Refusal::StoreFull)));
    assert!(refused.rule.is_none() && refused.standing.is_none());
    assert_eq!(limiter.stats().refusals, 31);
    assert_eq!(limiter.stats().keys, 50);
    // What needs no room is answered.
    assert_eq!(limiter.decide(&hits("ip=60", 0), at(0.0)).decision, Decision::Allow);
    assert_eq!(limiter.decide(&ask(&["ip=60"]), at(60.0)).decision, Decision::Allow);
}

#[test]
fn newcomers_pass_uncounted_if_so_configured() {
    let limiter = full(fixed(1, 60), 50, OnFull::Allow);
    assert_eq!(flood(&limiter, 0..80, at(0.0)), 80);
    assert_eq!(flood(&limiter, 0..80, at(0.0)), 30, "those without a counter");
    let stats = limiter.stats();
    assert_eq!((stats.keys, stats.uncounted, stats.evictions), (50, 60, 0));
}

#[test]
fn a_request_whose_counter_finds_no_room_charges_no_other() {
    let limiter = full(fixed(9, 60), 1, OnFull::Deny);
    assert_eq!(limiter.admit(&ask(&["ip=a"]), at(0.0)), Decision::Allow);
    assert_eq!(limiter.admit(&ask(&["ip=a", "ip=b"]), at(0.0)), Decision::Deny);
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 1);
}

#[test]
fn no_counter_of_the_request_itself_makes_way() {
    let limiter = full(fixed(9, 60), 3, OnFull::Evict);
    assert_eq!(flood(&limiter, 0..3, at(0.0)), 3);
    let three = ask(&["ip=a", "ip=b", "ip=c"]);
    assert_eq!(admitted(&limiter, &three, at(0.0), 5), 5);
    assert_eq!(["ip=a", "ip=b", "ip=c"].map(|name| used(&limiter, name, at(0.0))), [5; 3]);
    assert_eq!(limiter.stats().keys, 3);
    // More than there can be.
    let four = limiter.decide(&ask(&["ip=a", "ip=b", "ip=c", "ip=d"]), at(0.0));
    assert_eq!((four.decision, four.refusal), (Decision::Deny, Some(Refusal::StoreFull)));
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 5);
}

#[test]
fn sweeps_forget_what_is_whole_and_nothing_sooner() {
    let limiter = full(fixed(9, 60), 100_000, OnFull::Evict);
    flood(&limiter, 0..9_000, at(0.0));
    flood(&limiter, 9_000..10_000, at(60.0));
    for _ in 0..4 {
        limiter.sweep(at(59.9));
    }
    assert_eq!(limiter.stats().keys, 10_000);
    for _ in 0..4 {
        limiter.sweep(at(60.0));
    }
    assert_eq!(limiter.stats().keys, 1_000);
    assert_eq!(flood(&limiter, 0..10_000, at(61.0)), 10_000);
    assert_eq!(used(&limiter, "ip=9500", at(61.0)), 2);
}

#[test]
fn fewer_keys_after_a_reload_leave_with_the_next_sweep() {
    let rules = vec![node("ip", rule(fixed(9, 60)))];
    let limiter = Limiter::new(&config(rules.clone()), [7; 32]);
    flood(&limiter, 0..5_000, at(0.0));
    limiter.reload(&Http { max_keys: 100, ..config(rules) });
    flood(&limiter, 0..6_000, at(0.0));
    assert_eq!(limiter.stats().keys, 5_000, "no more come in");
    limiter.sweep(at(0.0));
    assert_eq!(limiter.stats().keys, 100);
    flood(&limiter, 0..6_000, at(0.0));
    assert_eq!(limiter.stats().keys, 100);
}

#[test]
fn many_threads_never_hold_more_than_the_maximum() {
    let limiter = full(fixed(9, 60), 3_000, OnFull::Evict);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let limiter = &limiter;
            scope.spawn(move || {
                for batch in 0..10 {
                    flood(
                        limiter,
                        (thread * 10_000 + batch * 1_000)..(thread * 10_000 + batch * 1_000 + 1_000),
                        at(0.0),
                    );
                    assert!(limiter.stats().keys <= 3_000);
                }
            });
        }
    });
    let inspected = (0..40_000).map(|client| format!("ip={client}"));
    let held = inspected.filter(|name| used(&limiter, name, at(0.0)) > 0).count();
    assert_eq!((held, limiter.stats().keys), (3_000, 3_000));
}
