//! Which rule applies: the descriptor trees of all domains, ready to look up.

use std::{collections::HashSet, sync::Arc};

use hashbrown::HashMap;

pub(crate) use self::choice::Choice;
use self::{tree::Tree, versions::Versions};
use super::{algorithm::Meter, ask::Descriptor, metrics::RuleMetrics};
use crate::config::http::{Compatibility, Domain, Override};

mod choice;
mod compile;
mod id;
mod patterns;
mod tree;
mod versions;

#[cfg(test)]
mod tests;

/// One rule, ready to apply.
#[derive(Debug)]
pub struct Rule {
    /// What it is called in answers: its name, else its id.
    pub label: Arc<str>,
    /// `domain/key=value/key`: stable over reloads, unique. Counters are kept under it. What would make it
    /// ambiguous is written as in an URL.
    pub id: Arc<str>,
    /// The domain.
    pub domain: Arc<str>,
    /// What the file says.
    pub policy: crate::config::http::Rule,
    /// The meter of `policy.limit`.
    pub meter: Option<Metered>,
    /// The meters of `policy.overrides`, in the same order.
    pub overrides: Vec<(Override, Option<Metered>)>,
    /// What it did. A rule of the same id keeps it over a reload.
    pub metrics: Arc<RuleMetrics>,
    /// The entries whose values tell its counters apart, by their place in the descriptor: those of bare
    /// keys and wildcards, unless they share their threshold.
    pub counted: Box<[usize]>,
    /// Which of the overrides applies.
    pub(crate) choice: Choice,
}

/// A meter and the number under which counters remember it.
#[derive(Clone, Debug)]
pub struct Metered {
    /// Unique among all limits that any counter was written under.
    pub version: u32,
    /// The meter.
    pub meter: Arc<Meter>,
}

/// All rules, and the meters that counters may have been written under.
#[derive(Clone, Debug, Default)]
pub struct RuleBook {
    trees: Arc<HashMap<Box<str>, Tree>>,
    rules: Arc<[Arc<Rule>]>,
    by_id: Arc<HashMap<Arc<str>, Arc<Rule>>>,
    versions: Versions,
}

// === impl Rule ===

impl Rule {
    /// The limit for a value of the rule's last entry and a tier. `None`: unlimited.
    ///
    /// Of the overrides that match, the one of the most specific value applies: an exact one, then the
    /// longest prefix, then none. Of those of the same value, the one that names the tier does.
    pub fn metered(&self, value: &str, tier: Option<&str>) -> Option<&Metered> {
        match self.choice.find(value, tier) {
            Some(chosen) => self.overrides.get(chosen)?.1.as_ref(),
            None => self.meter.as_ref(),
        }
    }
}

// === impl RuleBook ===

impl RuleBook {
    /// Compiles the rules. Limits that are the same as in `previous` keep their version, so their counters
    /// need no conversion.
    pub fn new(domains: &[Domain], previous: Option<&Self>) -> Self {
        compile::compile(domains, previous)
    }

    /// The rule that a descriptor matches at its full depth: at each level the exact value, else the
    /// longest `prefix*`, else the bare key, without backtracking.
    pub fn find(&self, domain: &str, descriptor: &Descriptor<'_>) -> Option<&Arc<Rule>> {
        self.trees.get(domain)?.find(&descriptor.entries)
    }

    /// Whose way a domain follows.
    pub(crate) fn compatibility(&self, domain: &str) -> Compatibility {
        self.trees.get(domain).map_or(Compatibility::Native, |tree| tree.compatibility)
    }

    /// All rules, in file order.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter()
    }

    /// The rule of an id.
    pub fn rule(&self, id: &str) -> Option<&Arc<Rule>> {
        self.by_id.get(id)
    }

    /// The meter that a counter was written under, as long as it was not dropped
    /// ([`RuleBook::retain_versions`]).
    pub fn meter(&self, version: u32) -> Option<&Arc<Meter>> {
        self.versions.meter(version)
    }

    /// The limit that is now in force in the place of a former one. `None`: it is in force itself, or
    /// nothing took its place.
    pub fn successor(&self, version: u32) -> Option<&Metered> {
        self.versions.successor(version)
    }

    /// The same rules, but of the limits that are no longer in force only these. Whoever still decides by
    /// earlier rules may write counters under the limits of those: nothing may be dropped before they are
    /// done.
    #[must_use]
    pub fn retain_versions(&self, used: &HashSet<u32>) -> Self {
        let mut kept = self.clone();
        kept.versions.retain(used);
        kept
    }
}
