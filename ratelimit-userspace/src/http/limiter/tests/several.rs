//! Several rules in one request.

use std::thread;

use super::*;

fn shadow(limit: Limit) -> Rule {
    Rule { shadow: true, ..rule(limit) }
}

fn quota(limit: Limit) -> Rule {
    Rule { quota: true, ..rule(limit) }
}

#[test]
fn a_request_that_the_narrow_limit_denies_leaves_the_broad_one_alone() {
    let limiter = limiter(vec![node("user", rule(fixed(5, 60))), node("org", rule(fixed(10, 60)))]);
    assert_eq!(admitted(&limiter, &ask(&["user=1", "org=o"]), at(0.0), 8), 5);
    assert_eq!(used(&limiter, "org=o", at(0.0)), 5);
    assert_eq!(admitted(&limiter, &ask(&["user=2", "org=o"]), at(0.0), 5), 5);
    let denied = limiter.decide(&ask(&["user=3", "org=o"]), at(0.0));
    assert_eq!((denied.decision, label(&denied)), (Decision::Deny, "d/org"));
    assert_eq!(used(&limiter, "user=3", at(0.0)), 0);
}

#[test]
fn the_least_remaining_is_shown_the_first_among_equals() {
    let limiter = limiter(vec![
        node("a", rule(fixed(9, 60))),
        node("b", rule(fixed(5, 60))),
        node("c", rule(fixed(5, 60))),
        node("s", shadow(fixed(1, 60))),
        node("u", unlimited()),
    ]);
    let answer = limiter.decide(&ask(&["u=1", "s=1", "a=1", "c=1", "b=1"]), at(0.0));
    assert_eq!((label(&answer), remaining(&answer)), ("d/c", 4));
    let left = answer.statuses.iter().map(|status| status.standing.map(|standing| standing.remaining));
    assert_eq!(left.collect::<Vec<_>>(), [None, None, Some(8), Some(4), Some(4)]);
}

#[test]
fn the_longest_wait_is_shown() {
    let limiter = limiter(vec![
        node("a", rule(fixed(1, 10))),
        node("b", rule(fixed(1, 60))),
        node("c", rule(fixed(1, 20))),
        node("zero", rule(fixed(0, 1))),
    ]);
    let three = ["a=1", "b=1", "c=1"];
    limiter.decide(&ask(&three), at(0.0));
    let denied = limiter.decide(&ask(&three), at(5.0));
    assert_eq!((label(&denied), denied.retry_after), ("d/b", Some(55)));
    let waits = denied.statuses.iter().map(|status| status.retry_after);
    assert_eq!(waits.collect::<Vec<_>>(), [Some(5), Some(55), Some(15)]);
    let never = limiter.decide(&ask(&["a=1", "b=1", "zero=1"]), at(5.0));
    assert_eq!((label(&never), never.retry_after), ("d/zero", None));
    assert!(never.statuses.iter().all(|status| !status.allowed));
}

#[test]
fn the_same_counter_twice_is_charged_twice_and_judged_once() {
    let limiter = limiter(vec![node("ip", rule(fixed(3, 60)))]);
    let twice = ask(&["ip=a", "ip=a"]);
    let first = limiter.decide(&twice, at(0.0));
    assert_eq!((first.decision, remaining(&first)), (Decision::Allow, 1));
    assert!(first.statuses.iter().all(|status| status.standing.unwrap().remaining == 1));
    assert_eq!(limiter.decide(&twice, at(0.0)).decision, Decision::Deny);
    assert_eq!(limiter.decide(&ask(&["ip=a"]), at(0.0)).decision, Decision::Allow);
    let cancelled = Ask {
        descriptors: vec![descriptor("ip=a"), Descriptor { hits: -1, ..descriptor("ip=a") }],
        ..ask(&[])
    };
    let read = limiter.decide(&cancelled, at(0.0));
    assert_eq!((read.decision, remaining(&read)), (Decision::Allow, 0));
}

#[test]
fn very_many_descriptors_are_merged_as_few_are() {
    let limiter = limiter(vec![node("ip", rule(fixed(1_000, 60)))]);
    let names: Vec<String> = (0..600).map(|number| format!("ip={}", number % 50)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = limiter.decide(&ask(&names), at(0.0));
    assert!(answer.statuses.iter().all(|status| status.standing.unwrap().remaining == 988));
    assert_eq!(limiter.stats().keys, 50);
}

#[test]
fn a_shadow_limit_is_charged_with_the_others() {
    let limiter = limiter(vec![node("ip", rule(fixed(2, 60))), node("s", shadow(fixed(5, 60)))]);
    assert_eq!(admitted(&limiter, &ask(&["ip=a", "s=1"]), at(0.0), 4), 2);
    assert_eq!(used(&limiter, "s=1", at(0.0)), 2);
}

#[test]
fn denial_is_over_delay_is_over_shadow() {
    let queue = limit(1, 1, Algorithm::LeakyBucket { burst: 9, max_delay: Some(9 * SECOND) });
    let limiter =
        limiter(vec![node("q", rule(queue)), node("s", shadow(fixed(0, 1))), node("z", rule(fixed(0, 1)))]);
    assert_eq!(limiter.decide(&ask(&["q=1", "s=1"]), at(0.0)).decision, Decision::Shadow);
    let delayed = limiter.decide(&ask(&["q=1", "s=1"]), at(0.0));
    assert_eq!((delayed.decision, delayed.delay), (Decision::Delay, Some(SECOND)));
    let denied = limiter.decide(&ask(&["q=1", "s=1", "z=1"]), at(0.0));
    assert_eq!((denied.decision, denied.delay), (Decision::Deny, None));
    assert_eq!(used(&limiter, "q=1", at(0.0)), 2);
}

#[test]
fn quotas_deny_only_together() {
    let limiter = limiter(vec![node("a", quota(fixed(1, 10))), node("b", quota(fixed(2, 60)))]);
    let both = ask(&["a=1", "b=1"]);
    assert_eq!(limiter.decide(&both, at(0.0)).decision, Decision::Allow);
    let second = limiter.decide(&both, at(0.0));
    assert_eq!(second.decision, Decision::Allow);
    let allowed: Vec<_> = second.statuses.iter().map(|status| status.allowed).collect();
    assert_eq!(allowed, [false, true]);
    assert_eq!([used(&limiter, "a=1", at(0.0)), used(&limiter, "b=1", at(0.0))], [1, 2]);
    let third = limiter.decide(&both, at(0.0));
    // It passes as soon as one of them lets it.
    assert_eq!((third.decision, label(&third), third.retry_after), (Decision::Deny, "d/a", Some(10)));
    assert_eq!(limiter.decide(&both, at(10.0)).decision, Decision::Allow);
    assert_eq!(limiter.decide(&ask(&["b=1"]), at(10.0)).decision, Decision::Deny);
}

#[test]
fn what_counts_denied_requests_is_charged_though_another_limit_denies() {
    let counting = Limit { count_denied: true, ..fixed(3, 60) };
    let limiter = limiter(vec![node("a", rule(counting)), node("z", rule(fixed(1, 10)))]);
    let both = ask(&["a=1", "z=1"]);
    assert_eq!(limiter.decide(&both, at(0.0)).decision, Decision::Allow);
    let second = limiter.decide(&both, at(0.0));
    assert_eq!((label(&second), second.retry_after), ("d/z", Some(10)));
    assert_eq!(used(&limiter, "a=1", at(0.0)), 2);
    // By its own charge the first limit is full now, so ten seconds are not enough.
    let third = limiter.decide(&both, at(0.0));
    assert_eq!((third.decision, label(&third), third.retry_after), (Decision::Deny, "d/z", Some(60)));
    assert_eq!(limiter.decide(&both, at(10.0)).decision, Decision::Deny);
}

#[test]
fn a_charge_asks_nobody() {
    let limiter = limiter(vec![node("a", rule(fixed(5, 60))), node("z", rule(fixed(2, 60)))]);
    for _ in 0..3 {
        limiter.charge(&ask(&["a=1", "z=1"]), at(0.0));
    }
    assert_eq!([used(&limiter, "a=1", at(0.0)), used(&limiter, "z=1", at(0.0))], [3, 2]);
    limiter.charge(&hits("a=1", -2), at(0.0));
    assert_eq!(used(&limiter, "a=1", at(0.0)), 1);
}

#[test]
fn of_very_many_tasks_one_takes_the_last_unit() {
    let limiter = limiter(vec![
        node("ip", rule(limit(5, 60, Algorithm::SlidingWindow { round_up: false }))),
        node("org", rule(bucket(1, 86_400, 5))),
    ]);
    let passed: usize = thread::scope(|scope| {
        let tasks: Vec<_> = (0..200)
            .map(|task| {
                let limiter = &limiter;
                // In both orders: locks are taken in one.
                let names = if task % 2 == 0 { ["ip=a", "org=o"] } else { ["org=o", "ip=a"] };
                scope.spawn(move || admitted(limiter, &ask(&names), at(0.0), 1))
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap()).sum()
    });
    assert_eq!(passed, 5);
    assert_eq!([used(&limiter, "ip=a", at(0.0)), used(&limiter, "org=o", at(0.0))], [5, 5]);

    limiter.decide(&hits("org=o", -1), at(0.0));
    let ask = ask(&["org=o"]);
    let last: usize = thread::scope(|scope| {
        let tasks: Vec<_> = (0..200).map(|_| scope.spawn(|| admitted(&limiter, &ask, at(0.0), 1))).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).sum()
    });
    assert_eq!(last, 1);
}

#[test]
fn all_or_none_holds_while_many_ask_for_overlapping_counters() {
    let nodes = ["a", "b", "c", "d"].map(|key| node(key, rule(fixed(300, 86_400))));
    let limiter = limiter(nodes.to_vec());
    let pairs = [["a=1", "b=1"], ["b=1", "c=1"], ["c=1", "d=1"], ["d=1", "a=1"]];
    let passed = thread::scope(|scope| {
        let tasks = pairs.map(|pair| {
            let limiter = &limiter;
            scope.spawn(move || admitted(limiter, &ask(&pair), at(0.0), 1_000))
        });
        tasks.map(|task| task.join().unwrap() as u64)
    });
    let counted = ["a=1", "b=1", "c=1", "d=1"].map(|name| used(&limiter, name, at(0.0)));
    let [ab, bc, cd, da] = passed;
    assert_eq!(counted, [ab + da, ab + bc, bc + cd, cd + da]);
    assert!(counted.iter().all(|counted| *counted <= 300));
}
