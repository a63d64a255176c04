//! Values of secret entries that rules name.

use std::collections::HashSet;

use super::secret::Keyed;
use crate::config::http::{Descriptor, Domain, Http, Override, ValuePattern};

/// The domain with a copy, for the value as requests have it, of each descriptor and override for an exact
/// value of an entry that is a secret there. The value as written stays, for those who ask with descriptors
/// of their own.
pub(super) fn join_secrets(domain: &Domain, config: &Http, keyed: &Keyed) -> Domain {
    let items = config.identify.iter().filter(|item| item.domain == domain.name);
    let entries = items.flat_map(|item| item.descriptors.iter().flatten());
    let secrets = entries.filter(|entry| entry.secret).map(|entry| entry.key.as_str()).collect();
    Domain { descriptors: Joining { secrets, keyed }.descriptors(&domain.descriptors), ..domain.clone() }
}

struct Joining<'a> {
    /// Keys of secret entries.
    secrets: HashSet<&'a str>,
    keyed: &'a Keyed,
}

// === impl Joining ===

impl Joining<'_> {
    fn descriptors(&self, descriptors: &[Descriptor]) -> Vec<Descriptor> {
        let mut joined = Vec::with_capacity(descriptors.len());
        for descriptor in descriptors {
            let mut descriptor =
                Descriptor { descriptors: self.descriptors(&descriptor.descriptors), ..descriptor.clone() };
            if !self.secrets.contains(descriptor.key.as_str()) {
                joined.push(descriptor);
                continue;
            }
            if let Some(rule) = &mut descriptor.rule {
                rule.overrides = self.overrides(&rule.overrides);
            }
            let hidden = self.hidden(&descriptor.value);
            let copy = hidden.map(|value| Descriptor { value, ..descriptor.clone() });
            joined.push(descriptor);
            joined.extend(copy);
        }
        joined
    }

    fn overrides(&self, overrides: &[Override]) -> Vec<Override> {
        let joined = overrides.iter().flat_map(|one| {
            let hidden = one.value.as_ref().and_then(|value| self.hidden(value));
            let copy = hidden.map(|value| Override { value: Some(value), ..one.clone() });
            [Some(one.clone()), copy]
        });
        joined.flatten().collect()
    }

    fn hidden(&self, value: &ValuePattern) -> Option<ValuePattern> {
        match value {
            ValuePattern::Exact(value) => Some(ValuePattern::Exact(self.keyed.secret(value.as_bytes()))),
            ValuePattern::Prefix(_) | ValuePattern::Any => None,
        }
    }
}

#[cfg(test)]
mod tests;
