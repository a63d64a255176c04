//! One rule at a time.

use super::*;

#[test]
fn a_worked_table_of_a_bucket() {
    use Decision::{Allow, Deny};
    // Burst 5, 1/s: time and hits; remaining, reset, decision and retry time.
    let table = [
        (0.0, 6, 5, 0.0, Deny, None),
        (0.0, 1, 4, 1.0, Allow, None),
        (0.0, 1, 3, 2.0, Allow, None),
        (0.0, 1, 2, 3.0, Allow, None),
        (0.0, 1, 1, 4.0, Allow, None),
        (0.0, 1, 0, 5.0, Allow, None),
        (0.0, 1, 0, 5.0, Deny, Some(1)),
        (3.0, 1, 2, 3.0, Allow, None),
        (3.1, 1, 1, 3.9, Allow, None),
        (4.0, 1, 1, 4.0, Allow, None),
        (8.0, 1, 4, 1.0, Allow, None),
        (9.5, 1, 4, 1.0, Allow, None),
        (9.5, 0, 4, 1.0, Allow, None),
        (9.5, 2, 2, 3.0, Allow, None),
        (9.5, 5, 2, 3.0, Deny, Some(3)),
        (12.5, 5, 0, 5.0, Allow, None),
    ];
    let limiter = limiter(vec![node("ip", rule(bucket(1, 1, 5)))]);
    for (row, (time, cost, remaining, reset, expected, retry)) in table.into_iter().enumerate() {
        let asked = hits("ip=a", cost);
        for asked in [peek(asked.clone()), asked] {
            let answer = limiter.decide(&asked, at(time));
            assert_eq!(answer.decision, expected, "row {row}: {answer:?}");
            let standing = answer.standing.unwrap();
            assert_eq!((standing.limit, standing.remaining), (5, remaining), "row {row}");
            assert_eq!(standing.reset, at(reset).steady - START, "row {row}");
            assert_eq!(answer.retry_after, retry, "row {row}");
        }
    }
}

#[test]
fn the_lean_way_decides_alike() {
    let limiter = limiter(vec![node("ip", rule(fixed(2, 60)))]);
    let ask = ask(&["ip=a"]);
    assert_eq!(limiter.admit(&peek(ask.clone()), at(0.0)), Decision::Allow);
    assert_eq!(limiter.admit(&ask, at(0.0)), Decision::Allow);
    assert_eq!(remaining(&limiter.decide(&ask, at(0.0))), 0);
    assert_eq!(limiter.admit(&ask, at(0.0)), Decision::Deny);
    assert_eq!(limiter.admit(&peek(ask), at(60.0)), Decision::Allow);
}

#[test]
fn nothing_limits_what_no_rule_matches_or_is_unlimited() {
    let limiter = limiter(vec![node("ip", unlimited())]);
    for ask in [ask(&["other=a"]), ask(&["ip=a"]), ask(&[]), Ask { domain: "x".into(), ..ask(&["ip=a"]) }] {
        let answer = limiter.decide(&ask, at(0.0));
        assert_eq!((answer.decision, label(&answer)), (Decision::Allow, "none"));
        assert!(answer.standing.is_none() && answer.statuses.iter().all(|status| status.allowed));
    }
    let answer = limiter.decide(&ask(&["ip=a"]), at(0.0));
    assert_eq!(answer.statuses[0].rule.as_ref().unwrap().id.as_ref(), "d/ip");
    assert_eq!(limiter.stats().keys, 0);
}

#[test]
fn a_refund_gives_back_what_is_used_and_no_more() {
    let limiter = limiter(vec![node("ip", rule(fixed(10, 60)))]);
    assert_eq!(remaining(&limiter.decide(&hits("ip=a", 10), at(0.0))), 0);
    assert_eq!(limiter.decide(&hits("ip=a", 1), at(0.0)).decision, Decision::Deny);
    let refund = limiter.decide(&hits("ip=a", -1), at(0.0));
    assert_eq!((refund.decision, remaining(&refund)), (Decision::Allow, 1));
    assert_eq!(limiter.decide(&hits("ip=a", 1), at(0.0)).decision, Decision::Allow);
    assert_eq!(remaining(&limiter.decide(&hits("ip=a", -50), at(0.0))), 10);
    assert_eq!(limiter.stats().keys, 0, "a counter that is whole is not kept");
    assert_eq!(remaining(&limiter.decide(&hits("ip=a", i64::MIN), at(0.0))), 10);
}

#[test]
fn no_hits_read_and_leave_no_trace() {
    let limiter = limiter(vec![node("ip", rule(fixed(2, 60)))]);
    assert_eq!(remaining(&limiter.decide(&hits("ip=a", 0), at(0.0))), 2);
    assert_eq!(limiter.stats().keys, 0);
    limiter.charge(&hits("ip=a", 2), at(0.0));
    let full = limiter.decide(&hits("ip=a", 0), at(0.0));
    assert_eq!((full.decision, remaining(&full)), (Decision::Allow, 0));
}

#[test]
fn a_peek_answers_as_the_request_would_be_answered_and_changes_nothing() {
    let limiter = limiter(vec![node("ip", rule(fixed(5, 60)))]);
    for _ in 0..3 {
        let answer = limiter.decide(&peek(hits("ip=a", 2)), at(0.0));
        assert_eq!((answer.decision, remaining(&answer)), (Decision::Allow, 3));
    }
    assert_eq!(limiter.decide(&peek(hits("ip=a", 6)), at(0.0)).decision, Decision::Deny);
    assert_eq!(limiter.stats().keys, 0);
    limiter.decide(&hits("ip=a", 4), at(0.0));
    assert_eq!(limiter.decide(&peek(hits("ip=a", 2)), at(0.0)).decision, Decision::Deny);
    assert_eq!(remaining(&limiter.decide(&peek(hits("ip=a", -4)), at(0.0))), 5);
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 4);
}

#[test]
fn the_cost_of_a_rule_multiplies_hits_and_saturates() {
    let costly = |cost| Rule { cost, ..rule(fixed(10, 60)) };
    let limiter = limiter(vec![node("ip", costly(3)), node("huge", costly(u64::MAX))]);
    assert_eq!(remaining(&limiter.decide(&hits("ip=a", 2), at(0.0))), 4);
    assert_eq!(limiter.decide(&hits("ip=a", 2), at(0.0)).decision, Decision::Deny);
    assert_eq!(remaining(&limiter.decide(&hits("ip=a", -1), at(0.0))), 7);
    let huge = limiter.decide(&hits("huge=a", i64::MAX), at(0.0));
    assert_eq!((huge.decision, huge.retry_after), (Decision::Deny, None));
    assert_eq!(limiter.decide(&hits("huge=a", i64::MIN), at(0.0)).decision, Decision::Allow);
}

#[test]
fn a_soft_limit_flags_what_it_admits_above() {
    let soft = Limit { soft_margin_permille: 100, ..fixed(10, 60) };
    let limiter = limiter(vec![node("ip", rule(soft))]);
    let flags: Vec<_> = (0..12)
        .map(|_| {
            let answer = limiter.decide(&ask(&["ip=a"]), at(0.0));
            let status = &answer.statuses[0];
            assert_eq!(status.allowed, answer.decision == Decision::Allow);
            (answer.decision == Decision::Allow, status.soft_over, remaining(&answer))
        })
        .collect();
    assert_eq!(flags[8], (true, false, 1));
    assert_eq!(flags[9], (true, false, 0));
    assert_eq!(flags[10], (true, true, 0));
    assert_eq!(flags[11], (false, false, 0));
}

#[test]
fn a_shaping_limit_delays() {
    let queue = limit(10, 1, Algorithm::LeakyBucket { burst: 3, max_delay: Some(SECOND) });
    let limiter = limiter(vec![node("ip", rule(queue))]);
    let answers: Vec<_> = (0..4).map(|_| limiter.decide(&ask(&["ip=a"]), at(0.0))).collect();
    let decisions: Vec<_> = answers.iter().map(|answer| (answer.decision, answer.delay)).collect();
    assert_eq!(
        decisions,
        [
            (Decision::Allow, None),
            (Decision::Delay, Some(SECOND / 10)),
            (Decision::Delay, Some(SECOND / 5)),
            (Decision::Deny, None)
        ]
    );
    assert_eq!((label(&answers[1]), answers[3].retry_after), ("d/ip", Some(1)));
}

#[test]
fn a_shadow_limit_is_told_to_nobody() {
    let shadow = Rule { shadow: true, ..rule(fixed(1, 60)) };
    let limiter = limiter(vec![node("ip", shadow)]);
    let answers = [0, 1].map(|_| limiter.decide(&ask(&["ip=a"]), at(0.0)));
    for (answer, decision) in answers.iter().zip([Decision::Allow, Decision::Shadow]) {
        assert_eq!(answer.decision, decision);
        assert!(answer.rule.is_none() && answer.standing.is_none() && answer.retry_after.is_none());
        let status = &answer.statuses[0];
        assert!(status.allowed && status.standing.is_none() && status.retry_after.is_none());
        assert_eq!(status.shadow_denied, decision == Decision::Shadow);
    }
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 1, "what it would deny is not charged");
}

#[test]
fn counting_denied_requests_keeps_an_impatient_client_out() {
    let strict = Limit { count_denied: true, ..limit(2, 60, Algorithm::SlidingLog) };
    let limiter = limiter(vec![node("ip", rule(strict))]);
    let decide = |time| limiter.decide(&ask(&["ip=a"]), at(time));
    assert_eq!(decide(1.0).decision, Decision::Allow);
    assert_eq!(decide(30.0).decision, Decision::Allow);
    // At 50 it is charged as well, in the place of the one at 1: the next that leaves is that of 30.
    let denied = decide(50.0);
    assert_eq!((denied.decision, denied.retry_after), (Decision::Deny, Some(40)));
    assert_eq!(decide(89.9).decision, Decision::Deny);
    assert_eq!(decide(110.0).decision, Decision::Allow);
}

#[test]
fn waiting_the_retry_time_is_enough() {
    for count_denied in [false, true] {
        for algorithm in [
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow { round_up: false },
            Algorithm::SlidingWindow { round_up: true },
            Algorithm::SlidingLog,
            Algorithm::Segments { segments: 6 },
            Algorithm::TokenBucket { burst: 4, interval: false },
            Algorithm::TokenBucket { burst: 4, interval: true },
            Algorithm::LeakyBucket { burst: 4, max_delay: None },
        ] {
            let limiter = limiter(vec![node("ip", rule(Limit { count_denied, ..limit(3, 60, algorithm) }))]);
            let mut now = at(7.3);
            for _ in 0..6 {
                admitted(&limiter, &ask(&["ip=a"]), now, 5);
                let wait = limiter.decide(&hits("ip=a", 2), now).retry_after.unwrap();
                now = Now::at(now.steady + wait * SECOND);
                let peeked = limiter.decide(&peek(hits("ip=a", 2)), now);
                assert_eq!(peeked.decision, Decision::Allow, "{algorithm:?} {count_denied}");
            }
        }
    }
}

#[test]
fn time_that_runs_back_neither_locks_out_nor_gives_more_than_one_limit() {
    for back in [11, 3_600, 86_400] {
        for limit in [bucket(10, 60, 10), fixed(10, 60), limit(10, 60, Algorithm::SlidingLog)] {
            let limiter = limiter(vec![node("ip", rule(limit))]);
            let late = at(200_000.0);
            assert_eq!(admitted(&limiter, &ask(&["ip=a"]), late, 20), 10);
            let early = Now::at(late.steady - back * SECOND);
            assert_eq!(admitted(&limiter, &ask(&["ip=a"]), early, 20), 0);
            // Refused then, but not until the clock is where it was.
            let next = Now::at(early.steady + 60 * SECOND);
            assert_eq!(admitted(&limiter, &ask(&["ip=a"]), next, 20), 10, "back by {back}");
        }
    }
}

#[test]
fn counters_are_inspected_and_reset_by_descriptor() {
    let limiter = limiter(vec![node("ip", rule(fixed(5, 60))), node("key", unlimited())]);
    let both = ask(&["ip=a", "key=k", "none=x", "ip=b"]);
    limiter.decide(&ask(&["ip=a"]), at(0.0));
    let inspected = limiter.inspect(&both, at(0.0));
    let seen: Vec<_> = inspected.iter().map(|counter| counter.as_ref().map(|counter| counter.used)).collect();
    assert_eq!(seen, [Some(1), None, None, Some(0)]);
    let counter = inspected[0].as_ref().unwrap();
    assert_eq!((counter.rule.as_ref(), counter.standing.remaining), ("d/ip", 4));
    assert_eq!(counter.identity.len(), 32);
    assert_ne!(counter.identity, inspected[3].as_ref().unwrap().identity);
    assert_eq!(limiter.reset(&both), 1);
    assert_eq!(limiter.reset(&both), 0);
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 0);
    assert_eq!(limiter.stats().keys, 0);
}
