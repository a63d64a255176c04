//! The numbers under which counters remember the limits they were written under.

use std::{collections::HashSet, sync::Arc};

use hashbrown::HashMap;

use super::Metered;
use crate::{
    config::http::{Limit, Override, ValuePattern},
    http::algorithm::Meter,
};

/// Not a version: stores may use it for limits that are in no rule file.
const RESERVED: u32 = u32::MAX;

/// All limits that counters may have been written under.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    pub(super) next: u32,
    known: HashMap<u32, Known>,
    in_force: HashMap<Arc<Place>, Metered>,
}

#[derive(Clone, Debug)]
struct Known {
    place: Arc<Place>,
    meter: Arc<Meter>,
}

/// Where a limit is written: in a rule, or in one of its overrides.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    rule: Arc<str>,
    /// Value and tier of the override.
    choice: Option<(Option<ValuePattern>, Option<String>)>,
}

// === impl Place ===

impl Place {
    pub(super) fn in_rule(rule: &Arc<str>) -> Self {
        Self { rule: Arc::clone(rule), choice: None }
    }

    pub(super) fn in_override(rule: &Arc<str>, choice: &Override) -> Self {
        let choice = (choice.value.clone(), choice.tier.clone());
        Self { rule: Arc::clone(rule), choice: Some(choice) }
    }
}

// === impl Versions ===

impl Versions {
    /// None in force yet; those of before are known.
    pub(super) fn after(previous: &Self) -> Self {
        Self { next: previous.next, known: previous.known.clone(), in_force: HashMap::new() }
    }

    /// Puts a limit in force: under its former version if it is the one that was in force in that place.
    pub(super) fn enforce(&mut self, place: Place, limit: &Limit, previous: Option<&Self>) -> Metered {
        let before = previous.and_then(|previous| previous.in_force.get_key_value(&place));
        let unchanged = before.filter(|(_, before)| before.meter.limit() == limit);
        let (place, metered) = match unchanged {
            Some((place, metered)) => (Arc::clone(place), metered.clone()),
            None => self.add(Arc::new(place), limit),
        };
        // Of overrides for the same value and tier the first applies.
        self.in_force.entry(place).or_insert_with(|| metered.clone());
        metered
    }

    fn add(&mut self, place: Arc<Place>, limit: &Limit) -> (Arc<Place>, Metered) {
        let meter = Arc::new(Meter::new(limit.clone()));
        let version = self.unused();
        self.known.insert(version, Known { place: Arc::clone(&place), meter: Arc::clone(&meter) });
        (place, Metered { version, meter })
    }

    fn unused(&mut self) -> u32 {
        loop {
            let version = self.next;
            self.next = self.next.wrapping_add(1);
            if version != RESERVED && !self.known.contains_key(&version) {
                return version;
            }
        }
    }

    pub(super) fn meter(&self, version: u32) -> Option<&Arc<Meter>> {
        self.known.get(&version).map(|known| &known.meter)
    }

    pub(super) fn successor(&self, version: u32) -> Option<&Metered> {
        let known = self.known.get(&version)?;
        self.in_force.get(&known.place).filter(|metered| metered.version != version)
    }

    pub(super) fn retain(&mut self, used: &HashSet<u32>) {
        let Self { known, in_force, .. } = self;
        known.retain(|version, known| {
            used.contains(version)
                || in_force.get(&known.place).is_some_and(|metered| metered.version == *version)
        });
    }
}
