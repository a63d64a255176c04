//! Rules that do not apply while others do.

use super::*;

fn replacing(name: &str, others: &[&str], units: u64) -> Rule {
    let replaces = others.iter().map(|&other| other.to_owned()).collect();
    Rule { replaces, ..named(name, fixed(units, 60)) }
}

fn met<'a>(answer: &'a Answer) -> Vec<&'a str> {
    let label = |rule: &'a Arc<crate::http::rules::Rule>| &*rule.label;
    answer.statuses.iter().map(|status| status.rule.as_ref().map_or("none", label)).collect()
}

#[test]
fn a_rule_takes_the_place_of_others_in_requests_that_meet_it() {
    let limiter = limiter(vec![
        node("ip", named("base", fixed(1, 60))),
        node("key", replacing("partner", &["base"], 5)),
    ]);
    assert_eq!(admitted(&limiter, &ask(&["ip=a"]), at(0.0), 3), 1);
    assert_eq!(admitted(&limiter, &ask(&["ip=a", "key=k"]), at(0.0), 9), 5);
    let answer = limiter.decide(&ask(&["ip=a", "key=k"]), at(0.0));
    assert_eq!(met(&answer), ["none", "partner"]);
    assert!(answer.statuses[0].allowed && answer.statuses[0].standing.is_none());
    assert_eq!(used(&limiter, "ip=a", at(0.0)), 1);
}

#[test]
fn an_unlimited_rule_can_replace_a_limit() {
    let free = Rule { limit: None, ..replacing("free", &["base"], 1) };
    let limiter = limiter(vec![node("ip", named("base", fixed(1, 60))), node("key", free)]);
    assert_eq!(admitted(&limiter, &ask(&["key=k", "ip=a"]), at(0.0), 9), 9);
}

#[test]
fn a_rule_that_is_itself_replaced_replaces_none() {
    let limiter = limiter(vec![
        node("a", replacing("first", &["second"], 9)),
        node("b", replacing("second", &["third"], 9)),
        node("c", named("third", fixed(9, 60))),
    ]);
    let decide = |names: &[&str]| limiter.decide(&ask(names), at(0.0));
    assert_eq!(met(&decide(&["c=1", "b=1", "a=1"])), ["third", "none", "first"]);
    assert_eq!(met(&decide(&["c=1", "b=1"])), ["none", "second"]);
}

#[test]
fn rules_that_replace_each_other_all_apply() {
    let limiter = limiter(vec![
        node("a", replacing("first", &["second", "first"], 9)),
        node("b", replacing("second", &["first", "third"], 9)),
        node("c", named("third", fixed(9, 60))),
    ]);
    assert_eq!(met(&limiter.decide(&ask(&["a=1", "b=1"]), at(0.0))), ["first", "second"]);
    assert_eq!(met(&limiter.decide(&ask(&["a=1", "a=2"]), at(0.0))), ["first", "first"]);
}
