//! Which override of a rule applies.

use super::patterns::Patterns;
use crate::config::http::{Override, ValuePattern};

/// The overrides of a rule, by value and then by tier.
#[derive(Debug, Default)]
pub(crate) struct Choice(Patterns<Tiers>);

/// Those of one value, by their place among the overrides.
#[derive(Debug, Default)]
struct Tiers {
    named: Vec<(Box<str>, usize)>,
    rest: Option<usize>,
}

// === impl Choice ===

impl Choice {
    pub(super) fn new(overrides: &[Override]) -> Self {
        let mut values = Patterns::<Tiers>::default();
        for (place, Override { value, tier, .. }) in overrides.iter().enumerate() {
            let tiers = values.entry(value.as_ref().unwrap_or(&ValuePattern::Any));
            match tier {
                Some(tier) => tiers.named.push((tier.as_str().into(), place)),
                None => _ = tiers.rest.get_or_insert(place),
            }
        }
        Self(values)
    }

    /// The place of the one that applies.
    pub(crate) fn find(&self, value: &str, tier: Option<&str>) -> Option<usize> {
        self.0.matching(value).find_map(|tiers| tiers.find(tier))
    }
}

// === impl Tiers ===

impl Tiers {
    fn find(&self, tier: Option<&str>) -> Option<usize> {
        let named = tier.and_then(|tier| self.named.iter().find(|(name, _)| **name == *tier));
        named.map(|&(_, place)| place).or(self.rest)
    }
}
