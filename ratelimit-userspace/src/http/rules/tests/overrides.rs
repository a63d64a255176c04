//! Which limit of a rule applies.

use super::*;

fn rule(overrides: &[(&str, &str, Option<u64>)]) -> Arc<Rule> {
    let overrides = overrides.iter().map(|&(value, tier, units)| Override {
        value: match value.strip_suffix('*') {
            _ if value.is_empty() => None,
            Some(prefix) => Some(ValuePattern::Prefix(prefix.to_owned())),
            None => Some(ValuePattern::Exact(value.to_owned())),
        },
        tier: (!tier.is_empty()).then(|| tier.to_owned()),
        limit: units.map(limit),
    });
    let book = book(vec![ruled("k", config::Rule { overrides: overrides.collect(), ..policy(1) })]);
    Arc::clone(book.rules().next().unwrap())
}

fn units(rule: &Rule, value: &str, tier: Option<&str>) -> Option<u64> {
    rule.metered(value, tier).map(|metered| metered.meter.limit().units)
}

#[test]
fn without_an_override_the_rule_itself_applies() {
    assert_eq!(units(&rule(&[]), "x", Some("gold")), Some(1));
    assert_eq!(units(&rule(&[("y", "", Some(2)), ("", "silver", Some(3))]), "x", Some("gold")), Some(1));
    assert_eq!(units(&rule(&[("", "gold", Some(3))]), "x", None), Some(1));
}

#[test]
fn the_most_specific_override_applies() {
    // From the least to the most specific; each is the last that is there.
    let all = [
        ("", "gold", Some(2)),
        ("a*", "", Some(3)),
        ("a*", "gold", Some(4)),
        ("ab*", "", Some(5)),
        ("ab*", "gold", Some(6)),
        ("abc", "", Some(7)),
        ("abc", "gold", Some(8)),
    ];
    for count in 0..=all.len() {
        let expected = u64::try_from(count).unwrap() + 1;
        assert_eq!(units(&rule(&all[..count]), "abc", Some("gold")), Some(expected));
        let mut backwards = all[..count].to_vec();
        backwards.reverse();
        assert_eq!(units(&rule(&backwards), "abc", Some("gold")), Some(expected));
    }
    let all = rule(&all);
    for (value, tier, expected) in [
        ("abc", None, 7),
        ("abc", Some("silver"), 7),
        ("abx", Some("gold"), 6),
        ("abx", None, 5),
        ("ax", Some("gold"), 4),
        ("a", Some("silver"), 3),
        ("x", Some("gold"), 2),
        ("x", Some("silver"), 1),
    ] {
        assert_eq!(units(&all, value, tier), Some(expected), "{value} {tier:?}");
    }
}

#[test]
fn a_tier_that_is_named_must_match() {
    let rule = rule(&[("abc", "gold", Some(2)), ("ab*", "", Some(3))]);
    assert_eq!(units(&rule, "abc", Some("gold")), Some(2));
    assert_eq!(units(&rule, "abc", Some("silver")), Some(3));
    assert_eq!(units(&rule, "abc", None), Some(3));
}

#[test]
fn among_equals_the_first_applies() {
    let rule = rule(&[("a", "", Some(2)), ("a", "", Some(3)), ("", "gold", Some(4)), ("", "gold", Some(5))]);
    assert_eq!(units(&rule, "a", None), Some(2));
    assert_eq!(units(&rule, "x", Some("gold")), Some(4));
}

#[test]
fn an_override_may_lift_the_limit() {
    let rule = rule(&[("internal", "", None)]);
    assert_eq!(units(&rule, "internal", None), None);
    assert_eq!(units(&rule, "other", None), Some(1));
}

#[test]
fn an_unlimited_rule_may_be_limited_for_some() {
    let choice = Override { value: None, tier: Some("free".to_owned()), limit: Some(limit(9)) };
    let policy = config::Rule { limit: None, overrides: vec![choice], ..policy(1) };
    let book = book(vec![ruled("k", policy)]);
    let rule = book.rules().next().unwrap();
    assert_eq!(units(rule, "x", Some("free")), Some(9));
    assert_eq!(units(rule, "x", None), None);
}
