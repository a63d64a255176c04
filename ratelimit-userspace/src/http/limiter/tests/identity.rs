//! Which requests share a counter.

use std::collections::HashSet;

use super::*;

fn identity(limiter: &Limiter, descriptor: &Descriptor<'_>) -> String {
    let ask = Ask { descriptors: vec![descriptor.clone()], ..ask(&[]) };
    limiter.inspect(&ask, at(0.0))[0].as_ref().unwrap().identity.clone()
}

fn two(first: &str, second: &str) -> Descriptor<'static> {
    let entries = [("user", first), ("path", second)];
    let entry =
        |(key, value): (&'static str, &str)| Entry { key: key.into(), value: value.to_owned().into() };
    Descriptor { entries: entries.map(entry).to_vec(), hits: 1, limit: None }
}

fn nested(key: &str, below: Node) -> Node {
    Node { rule: None, descriptors: vec![below], ..node(key, unlimited()) }
}

#[test]
fn a_key_that_looks_like_another_key_and_value_is_another_rule() {
    let limiter = limiter(vec![node("type_example", rule(fixed(1, 86_400)))]);
    assert_eq!(admitted(&limiter, &ask(&["type=example"]), at(0.0), 2), 2);
    assert_eq!(admitted(&limiter, &ask(&["type_example="]), at(0.0), 2), 1);
}

#[test]
fn no_value_can_be_written_so_that_two_descriptors_meet() {
    let limiter = limiter(vec![
        nested("user", node("path", rule(fixed(1, 60)))),
        node("user", rule(fixed(1, 60))),
        nested("a", node("b", rule(fixed(1, 60)))),
        node("a", rule(fixed(1, 60))),
    ]);
    let long = "x".repeat(8_192);
    let parts = ["", "x", "y", "x_path_y", "x:y", "x|y", "{x}", "%00", "\0", "_", ":", "|", &long];
    let mut identities = HashSet::new();
    let mut descriptors = 0;
    for first in parts {
        descriptors += 1;
        identities.insert(identity(
            &limiter,
            &Descriptor { entries: vec![two(first, "").entries[0].clone()], ..two("", "") },
        ));
        for second in parts {
            descriptors += 1;
            identities.insert(identity(&limiter, &two(first, second)));
        }
    }
    for text in ["a=1_b_2", "a=1,b=2", "a=1b=2", "a=12,b=", "a=1,b=2b"] {
        descriptors += 1;
        identities.insert(identity(&limiter, &descriptor(text)));
    }
    assert_eq!(identities.len(), descriptors);
}

#[test]
fn entries_of_different_descriptors_are_not_put_together() {
    let limiter = limiter(vec![nested("a", nested("b", node("c", rule(fixed(0, 1)))))]);
    assert_eq!(limiter.decide(&ask(&["c=1", "a=1,b=1"]), at(0.0)).decision, Decision::Allow);
    assert_eq!(limiter.decide(&ask(&["a=1,b=1,c=1"]), at(0.0)).decision, Decision::Deny);
}

#[test]
fn wildcards_count_each_value_apart_unless_they_share() {
    let shared = Node { share_threshold: true, ..node("shared=api-*", rule(fixed(2, 60))) };
    let limiter = limiter(vec![shared, node("apart=api-*", rule(fixed(2, 60)))]);
    assert_eq!(admitted(&limiter, &ask(&["shared=api-1"]), at(0.0), 1), 1);
    assert_eq!(admitted(&limiter, &ask(&["shared=api-2"]), at(0.0), 5), 1);
    assert_eq!(admitted(&limiter, &ask(&["apart=api-1"]), at(0.0), 5), 2);
    assert_eq!(admitted(&limiter, &ask(&["apart=api-2"]), at(0.0), 5), 2);
}

#[test]
fn identities_depend_on_the_key_alone() {
    let config = config(vec![node("ip", rule(fixed(1, 60)))]);
    let [one, same, other] =
        [[1; 32], [1; 32], [2; 32]].map(|key| identity(&Limiter::new(&config, key), &descriptor("ip=a")));
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn the_first_half_of_a_key_is_not_all_that_counts() {
    let config = config(vec![node("ip", rule(fixed(1, 60)))]);
    let mut key = [1; 32];
    let one = identity(&Limiter::new(&config, key), &descriptor("ip=a"));
    key[31] = 2;
    assert_ne!(one, identity(&Limiter::new(&config, key), &descriptor("ip=a")));
}

#[test]
fn an_override_by_value_is_another_limit_of_the_same_counter() {
    let partner = Override {
        value: Some(ValuePattern::Exact("partner".to_owned())),
        tier: None,
        limit: Some(Arc::new(fixed(5, 60))),
    };
    let with = Rule { overrides: vec![partner], ..rule(fixed(2, 60)) };
    let limiter = limiter(vec![node("key", rule(fixed(2, 60)))]);
    assert_eq!(admitted(&limiter, &ask(&["key=partner"]), at(0.0), 5), 2);
    limiter.reload(&config(vec![node("key", with)]));
    assert_eq!(admitted(&limiter, &ask(&["key=partner"]), at(0.0), 9), 3, "what was used still counts");
    assert_eq!(admitted(&limiter, &ask(&["key=other"]), at(0.0), 9), 2);
}

#[test]
fn tiers_come_from_the_descriptor_or_else_from_any_other() {
    let tier = |tier: &str, limit| Override { value: None, tier: Some(tier.to_owned()), limit };
    let overrides = vec![tier("gold", Some(Arc::new(fixed(5, 60)))), tier("free", None)];
    let tiered = |units| Rule { overrides: overrides.clone(), ..rule(fixed(units, 60)) };
    let limiter = limiter(vec![
        node("path", tiered(2)),
        nested("user", node("tier", tiered(3))),
        node("tier", rule(fixed(100, 60))),
    ]);
    assert_eq!(admitted(&limiter, &ask(&["path=/"]), at(0.0), 9), 2);
    assert_eq!(admitted(&limiter, &ask(&["path=/", "tier=silver"]), at(0.0), 9), 0);
    assert_eq!(admitted(&limiter, &ask(&["path=/", "tier=free"]), at(0.0), 9), 9, "unlimited");
    // Those of another tier do not use up the same counter, nor is it converted to and fro.
    for _ in 0..3 {
        assert_eq!(admitted(&limiter, &ask(&["path=/", "tier=gold"]), at(0.0), 1), 1);
        assert_eq!(admitted(&limiter, &ask(&["path=/"]), at(0.0), 1), 0);
    }
    assert_eq!(admitted(&limiter, &ask(&["tier=gold", "path=/"]), at(0.0), 9), 2);
    // Its own tier goes before that of another descriptor.
    assert_eq!(admitted(&limiter, &ask(&["tier=free", "user=u,tier=gold"]), at(0.0), 9), 5);
}

#[test]
fn a_shared_counter_is_not_shared_with_its_overrides() {
    let partner = Override {
        value: Some(ValuePattern::Exact("api-1".to_owned())),
        tier: None,
        limit: Some(Arc::new(fixed(5, 60))),
    };
    let with = Rule { overrides: vec![partner], ..rule(fixed(2, 60)) };
    let limiter = limiter(vec![Node { share_threshold: true, ..node("key=api-*", with) }]);
    for _ in 0..2 {
        assert_eq!(admitted(&limiter, &ask(&["key=api-1"]), at(0.0), 1), 1);
        assert_eq!(admitted(&limiter, &ask(&["key=api-2"]), at(0.0), 1), 1);
    }
    assert_eq!(admitted(&limiter, &ask(&["key=api-3"]), at(0.0), 9), 0);
    assert_eq!(admitted(&limiter, &ask(&["key=api-1"]), at(0.0), 9), 3);
}

#[test]
fn a_limit_that_the_asker_sends_goes_before_the_rule_and_has_counters_of_its_own() {
    let limiter = limiter(vec![node("ip", rule(fixed(2, 60)))]);
    let asked = |limit: Limit, text: &'static str| Ask {
        descriptors: vec![Descriptor { limit: Some(Arc::new(limit)), ..descriptor(text) }],
        ..ask(&[])
    };
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 9), 2);
    assert_eq!(admitted(&limiter, &asked(fixed(5, 60), "ip=a"), at(0.0), 9), 5);
    assert_eq!(admitted(&limiter, &asked(fixed(6, 60), "ip=a"), at(0.0), 9), 6);
    assert_eq!(admitted(&limiter, &asked(fixed(5, 60), "ip=b"), at(0.0), 9), 5);
    let denied = limiter.decide(&asked(fixed(5, 60), "ip=a"), at(1.0));
    assert_eq!((label(&denied), denied.retry_after), ("d/ip", Some(59)));
    // Where no rule is, the limit is still what was asked for.
    assert_eq!(admitted(&limiter, &asked(fixed(3, 60), "other=a"), at(0.0), 9), 3);
    let answer = limiter.decide(&asked(fixed(3, 60), "other=b"), at(0.0));
    assert_eq!((label(&answer), remaining(&answer)), ("none", 2));
    assert!(answer.statuses[0].rule.is_none());
    assert_eq!(limiter.stats().keys, 6);
    for _ in 0..5 {
        limiter.sweep(at(60.0));
    }
    assert_eq!(limiter.stats().keys, 0);
}
