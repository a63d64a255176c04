//! Which limits apply to a request, and how much of each it costs. Nothing is looked up in the store yet.

use std::{borrow::Cow, cell::LazyCell, collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    identity::Keys,
    replace::replaced,
    settle::{Part, Settlement, Vote},
};
use crate::{
    config::http::{Limit, Override},
    http::{
        algorithm::{Meter, Outcome, State},
        ask::{Ask, Descriptor},
        clock::Now,
        rules::{Metered, Rule, RuleBook},
        store::{
            Identity,
            memory::{OWN, Place},
        },
    },
};

/// The key of the entry whose value is the tier of a request.
const TIER: &str = "tier";

/// Counters among which one is found faster by looking at each.
const FEW: usize = 16;

/// What applies to a request.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// One for each descriptor, in order.
    pub(super) targets: SmallVec<[Target<'a>; 4]>,
    /// Each once, in the order of the descriptors that first met it.
    pub(super) counters: SmallVec<[Counter<'a>; 4]>,
}

/// What applies to a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target<'a> {
    pub(super) rule: Option<&'a Arc<Rule>>,
    /// Its place among the counters; `None`: unlimited.
    pub(super) counter: Option<usize>,
}

/// A counter that a request is about.
#[derive(Debug)]
pub(super) struct Counter<'a> {
    pub(super) identity: Identity,
    pub(super) metered: Cow<'a, Metered>,
    /// What it costs, over all descriptors that meet it.
    pub(super) cost: i64,
    pub(super) vote: Vote,
    /// Where it is in the store.
    pub(super) place: Place,
    /// Its state where that is not in the store, or is not to be changed there.
    pub(super) aside: Option<State>,
    /// It is in the store, and nothing is left of it.
    pub(super) whole: bool,
}

// === impl Counter ===

impl<'a> Counter<'a> {
    fn new(identity: Identity, metered: Cow<'a, Metered>, rule: Option<&Arc<Rule>>, hits: i64) -> Self {
        let part = match rule.map(|rule| &rule.policy) {
            Some(policy) if policy.shadow => Part::Shadow,
            Some(policy) if policy.quota => Part::Quota,
            _ => Part::Hard,
        };
        let count_denied = metered.meter.limit().count_denied;
        let outcome = Outcome::Admit { delay: 0, soft_over: false };
        Self {
            identity,
            metered,
            cost: cost_of(rule, hits),
            vote: Vote { part, count_denied, outcome },
            place: Place::default(),
            aside: None,
            whole: false,
        }
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.metered.meter
    }

    /// Charges the state that is not in the store.
    pub(super) fn charge_aside(&mut self, settlement: &Settlement, now: Now) {
        if settlement.charges(&self.vote) {
            self.metered.meter.charge(&mut self.aside, now, self.cost);
        }
    }
}

// === impl Plan ===

impl<'a> Plan<'a> {
    /// What applies by these rules.
    pub(super) fn new(book: &'a RuleBook, keys: &Keys, ask: &Ask<'_>) -> Self {
        let mut plan = Self::default();
        for descriptor in &ask.descriptors {
            plan.targets.push(Target { rule: book.find(&ask.domain, descriptor), counter: None });
        }
        plan.replace(book, &ask.domain);
        let tier_of_ask = LazyCell::new(|| ask.descriptors.iter().find_map(tier));
        let mut known = None;
        for (place, descriptor) in ask.descriptors.iter().enumerate() {
            let rule = plan.targets[place].rule;
            let limit = limit(keys, &ask.domain, descriptor, rule, || *tier_of_ask);
            if let Some((identity, metered)) = limit {
                let counter = plan.meet(identity, metered, rule, descriptor.hits, &mut known);
                plan.targets[place].counter = Some(counter);
            }
        }
        plan
    }

    /// Takes away the rules that others replace.
    fn replace(&mut self, book: &RuleBook, domain: &str) {
        let rules = self.targets.iter().filter_map(|target| target.rule);
        if rules.clone().all(|rule| rule.policy.replaces.is_empty()) {
            return;
        }
        let replaced = replaced(rules, book.compatibility(domain));
        for target in &mut self.targets {
            target.rule = target.rule.filter(|rule| !replaced.contains(&Arc::as_ptr(rule)));
        }
    }

    /// Notes that a descriptor meets a counter; its place among the counters.
    fn meet(
        &mut self,
        identity: Identity,
        metered: Cow<'a, Metered>,
        rule: Option<&Arc<Rule>>,
        hits: i64,
        known: &mut Option<HashMap<Identity, usize>>,
    ) -> usize {
        let same = if self.counters.len() < FEW {
            self.counters.iter().position(|other| other.identity == identity)
        } else {
            let places = || self.counters.iter().enumerate().map(|(place, other)| (other.identity, place));
            known.get_or_insert_with(|| places().collect()).get(&identity).copied()
        };
        if let Some(place) = same {
            let cost = &mut self.counters[place].cost;
            *cost = cost.saturating_add(cost_of(rule, hits));
            return place;
        }
        let place = self.counters.len();
        if let Some(known) = known {
            known.insert(identity, place);
        }
        self.counters.push(Counter::new(identity, metered, rule, hits));
        place
    }
}

/// The counter of a request of one descriptor, if anything limits it: a shorter way to the same as a plan.
pub(super) fn only_counter<'a>(
    book: &'a RuleBook,
    keys: &Keys,
    domain: &str,
    descriptor: &Descriptor<'_>,
) -> Option<Counter<'a>> {
    let rule = book.find(domain, descriptor);
    let (identity, metered) = limit(keys, domain, descriptor, rule, || None)?;
    Some(Counter::new(identity, metered, rule, descriptor.hits))
}

fn cost_of(rule: Option<&Arc<Rule>>, hits: i64) -> i64 {
    let cost = rule.map_or(1, |rule| i64::try_from(rule.policy.cost).unwrap_or(i64::MAX));
    hits.saturating_mul(cost)
}

/// What limits a descriptor, and the counter of that.
fn limit<'a, 'b>(
    keys: &Keys,
    domain: &str,
    descriptor: &'b Descriptor<'_>,
    rule: Option<&'a Arc<Rule>>,
    tier_of_ask: impl FnOnce() -> Option<&'b str>,
) -> Option<(Identity, Cow<'a, Metered>)> {
    Some(match (rule, &descriptor.limit) {
        (None, None) => return None,
        (None, Some(asked)) => (keys.of_asked(domain, descriptor, asked), Cow::Owned(own(asked))),
        (Some(rule), Some(asked)) => {
            (keys.of_rule(rule, descriptor, None, Some(asked)), Cow::Owned(own(asked)))
        }
        (Some(rule), None) => {
            let (choice, metered) = limit_of(rule, descriptor, tier_of_ask);
            let metered = Cow::Borrowed(metered?);
            (keys.of_rule(rule, descriptor, choice, None), metered)
        }
    })
}

/// A limit that the asker sent.
fn own(limit: &Limit) -> Metered {
    Metered { version: OWN, meter: Arc::new(Meter::new(limit.clone())) }
}

/// The limit that a rule has for a descriptor, and what overrides it.
fn limit_of<'a, 'b>(
    rule: &'a Rule,
    descriptor: &'b Descriptor<'_>,
    tier_of_ask: impl FnOnce() -> Option<&'b str>,
) -> (Option<&'a Override>, Option<&'a Metered>) {
    if rule.overrides.is_empty() {
        return (None, rule.meter.as_ref());
    }
    let value = descriptor.entries.last().map_or("", |entry| &entry.value);
    let tier = tier(descriptor).or_else(tier_of_ask);
    match rule.choice.find(value, tier).and_then(|chosen| rule.overrides.get(chosen)) {
        Some((choice, metered)) => (Some(choice), metered.as_ref()),
        None => (None, rule.meter.as_ref()),
    }
}

fn tier<'a>(descriptor: &'a Descriptor<'_>) -> Option<&'a str> {
    descriptor.entries.iter().find(|entry| entry.key == TIER).map(|entry| &*entry.value)
}
