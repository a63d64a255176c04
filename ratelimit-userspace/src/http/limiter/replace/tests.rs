//! Who is left when rules replace each other.

use super::*;
use crate::{
    config::http::{Algorithm, Rule as Policy},
    http::serve::fixture::{limit, policy, rule},
};

/// The names that are left of rules and what each replaces.
fn left(rules: &[(&'static str, &[&str])], compatibility: Compatibility) -> Vec<&'static str> {
    let named = |&(name, others): &(&'static str, &[&str])| {
        let replaces = others.iter().map(|&other| other.into()).collect();
        let policy = policy(limit(1, 60, Algorithm::FixedWindow));
        (name, rule(name, Policy { name: Some(name.into()), replaces, ..policy }))
    };
    let rules: Vec<_> = rules.iter().map(named).collect();
    let gone = replaced(rules.iter().map(|(_, rule)| rule), compatibility);
    rules.iter().filter(|(_, rule)| !gone.contains(&Arc::as_ptr(rule))).map(|(name, _)| *name).collect()
}

#[test]
fn rules_that_are_replaced_replace_none() {
    let chain: &[(_, &[_])] = &[("c", &[]), ("b", &["c"]), ("a", &["b"])];
    assert_eq!(left(chain, Compatibility::Native), ["c", "a"]);
    let circle: &[(_, &[_])] = &[("a", &["b"]), ("b", &["a", "c"]), ("c", &[])];
    assert_eq!(left(circle, Compatibility::Native), ["a", "b", "c"]);
}

#[test]
fn rules_of_envoy_replace_though_they_are_replaced() {
    let chain: &[(_, &[_])] = &[("c", &[]), ("b", &["c"]), ("a", &["b"])];
    assert_eq!(left(chain, Compatibility::Envoy), ["a"]);
    let circle: &[(_, &[_])] = &[("a", &["b"]), ("b", &["a"]), ("c", &[])];
    assert_eq!(left(circle, Compatibility::Envoy), ["c"]);
}
