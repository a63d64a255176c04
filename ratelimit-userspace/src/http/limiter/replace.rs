//! Rules that do not apply while others do.

use std::{collections::HashSet, sync::Arc};

use crate::{config::http::Compatibility, http::rules::Rule};

/// Those of some rules that others of them replace. A rule that is itself replaced replaces none; where
/// rules replace each other in a circle, all of it apply. By Envoy's account each replaces what it names,
/// itself replaced or not.
pub(super) fn replaced<'a>(
    rules: impl Iterator<Item = &'a Arc<Rule>>,
    compatibility: Compatibility,
) -> HashSet<*const Rule> {
    let mut replaced = HashSet::new();
    let mut open: Vec<&Arc<Rule>> = rules.collect();
    open.sort_unstable_by_key(|rule| Arc::as_ptr(rule));
    open.dedup_by_key(|rule| Arc::as_ptr(rule));
    if compatibility == Compatibility::Envoy {
        let gone = open.iter().filter(|rule| open.iter().any(|other| replaces(other, rule)));
        return gone.map(|rule| Arc::as_ptr(rule)).collect();
    }
    // One round after the other: those that nobody replaces apply, and replace others.
    loop {
        let (apply, rest): (Vec<_>, Vec<_>) =
            open.iter().copied().partition(|rule| !open.iter().any(|other| replaces(other, rule)));
        if apply.is_empty() {
            return replaced;
        }
        let (gone, left): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|rule| apply.iter().any(|other| replaces(other, rule)));
        replaced.extend(gone.into_iter().map(Arc::as_ptr));
        open = left;
    }
}

fn replaces(rule: &Arc<Rule>, other: &Arc<Rule>) -> bool {
    let replaces = &rule.policy.replaces;
    !Arc::ptr_eq(rule, other) && other.policy.name.as_ref().is_some_and(|name| replaces.contains(name))
}

#[cfg(test)]
mod tests;
