//! What counters remember over reloads.

use super::*;

fn choice(value: &str, units: u64) -> Override {
    Override { value: Some(ValuePattern::Exact(value.to_owned())), tier: None, limit: Some(limit(units)) }
}

fn with_overrides(units: u64, overrides: Vec<Override>) -> Vec<Domain> {
    vec![domain("d", vec![ruled("k", config::Rule { overrides, ..policy(units) })])]
}

fn version(book: &RuleBook, value: &str) -> u32 {
    let rule = book.find("d", &descriptor(&[("k", value)])).unwrap();
    rule.metered(value, None).unwrap().version
}

fn units(book: &RuleBook, version: u32) -> Option<u64> {
    book.meter(version).map(|meter| meter.limit().units)
}

#[test]
fn an_unchanged_limit_keeps_its_version() {
    let domains = with_overrides(10, vec![choice("a", 20), choice("b", 30)]);
    let first = RuleBook::new(&domains, None);
    let mut domains = domains;
    domains.insert(0, domain("c", vec![leaf("other")]));
    domains[1].descriptors.insert(0, leaf("l"));
    // Another name, and overrides in another order, are no other limits.
    let rule = domains[1].descriptors[1].rule.as_mut().unwrap();
    rule.name = Some("named".to_owned());
    rule.overrides.reverse();
    let second = RuleBook::new(&domains, Some(&first));
    for value in ["x", "a", "b"] {
        let kept = version(&first, value);
        assert_eq!(version(&second, value), kept, "{value}");
        assert!(Arc::ptr_eq(first.meter(kept).unwrap(), second.meter(kept).unwrap()));
        assert!(second.successor(kept).is_none());
    }
}

#[test]
fn every_limit_has_a_version_of_its_own() {
    let domains = with_overrides(10, vec![choice("a", 20), choice("b", 10)]);
    let book = RuleBook::new(&domains, None);
    let versions: HashSet<_> = ["x", "a", "b"].map(|value| version(&book, value)).into();
    assert_eq!(versions.len(), 3);
    assert!(!versions.contains(&u32::MAX));
}

#[test]
fn a_changed_limit_succeeds_the_former_one() {
    let first = RuleBook::new(&with_overrides(10, vec![choice("a", 20)]), None);
    let second = RuleBook::new(&with_overrides(11, vec![choice("a", 20)]), Some(&first));
    let third = RuleBook::new(&with_overrides(12, vec![choice("a", 21)]), Some(&second));
    let [old, middle, new] = [&first, &second, &third].map(|book| version(book, "x"));
    assert!(old != middle && middle != new && old != new);
    assert_eq!([old, middle, new].map(|version| units(&third, version)), [Some(10), Some(11), Some(12)]);
    assert_eq!(units(&first, middle), None);
    for version in [old, middle] {
        assert_eq!(third.successor(version).unwrap().version, new);
    }
    assert!(third.successor(new).is_none());
    // An override's, by an override of the same value.
    assert_eq!(version(&second, "a"), version(&first, "a"));
    assert_eq!(third.successor(version(&first, "a")).unwrap().version, version(&third, "a"));
}

#[test]
fn a_rule_that_is_gone_leaves_its_meters_until_no_counter_needs_them() {
    let first = RuleBook::new(&with_overrides(10, vec![choice("a", 20)]), None);
    let second = RuleBook::new(&[domain("d", vec![leaf("l")])], Some(&first));
    let [rule, of_a] = ["x", "a"].map(|value| version(&first, value));
    assert_eq!([rule, of_a].map(|version| units(&second, version)), [Some(10), Some(20)]);
    assert!(second.successor(rule).is_none());

    let kept = second.retain_versions(&HashSet::from([of_a]));
    assert_eq!([rule, of_a].map(|version| units(&kept, version)), [None, Some(20)]);
    // What is in force stays, though no counter has it yet.
    let in_force = kept.rules().next().unwrap().meter.as_ref().unwrap().version;
    assert_eq!(units(&kept, in_force), Some(1));
    assert_eq!(found(&kept, &[("l", "x")]), Some("d/l"));

    // A rule that comes back does not take up a number that another limit had.
    let again = RuleBook::new(&with_overrides(10, vec![]), Some(&kept.retain_versions(&HashSet::new())));
    let fresh = version(&again, "x");
    assert!(![rule, of_a, in_force].contains(&fresh));
}

#[test]
fn an_override_that_is_gone_has_no_successor() {
    let first = RuleBook::new(&with_overrides(10, vec![choice("a", 20)]), None);
    let second = RuleBook::new(&with_overrides(10, vec![]), Some(&first));
    let former = version(&first, "a");
    assert_eq!(units(&second, former), Some(20));
    assert!(second.successor(former).is_none());
    assert_eq!(version(&second, "a"), version(&first, "x"));
}

#[test]
fn numbers_that_run_out_are_taken_up_again_if_nothing_has_them() {
    let mut first = RuleBook::new(&with_overrides(1, vec![]), None);
    let kept = version(&first, "x");
    assert_eq!(kept, 0);
    first.versions.next = u32::MAX;
    let second = RuleBook::new(&with_overrides(2, vec![]), Some(&first));
    assert_eq!(version(&second, "x"), 1);
    assert_eq!(units(&second, kept), Some(1));
}
