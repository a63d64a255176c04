//! Which counter slot a rule has: kept from one generation of the program to the next, so that a reload
//! does not move a rule's counts.

use std::collections::{BTreeMap, BTreeSet};

use ratelimit_common::policy::{MAX_COUNTER_SLOTS, MAX_RULES};
use serde::{Deserialize, Serialize};

/// The slots of one generation, by rule name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slots {
    by_rule: BTreeMap<String, u32>,
}

const _: () = assert!(MAX_COUNTER_SLOTS >= 2 * MAX_RULES);

impl Slots {
    /// The slots of the generation that follows `previous` and has the rules `names`, of which there are
    /// at most [`MAX_RULES`], and the slots that are new in it, to be zeroed before its program runs.
    ///
    /// A rule that stays keeps its slot. A new one never gets a slot that `previous` uses, not even that
    /// of a rule which is gone, because the previous program still counts until it has drained.
    pub fn assign<'a>(previous: &Self, names: impl IntoIterator<Item = &'a str>) -> (Self, Vec<u32>) {
        let used: BTreeSet<u32> = previous.by_rule.values().copied().collect();
        let mut unused = (0..).take(MAX_COUNTER_SLOTS).filter(|slot| !used.contains(slot));
        let mut by_rule = BTreeMap::new();
        let mut fresh = Vec::new();
        for name in names {
            let kept = previous.get(name).filter(|slot| (*slot as usize) < MAX_COUNTER_SLOTS);
            let slot = kept.or_else(|| {
                let slot = unused.next()?;
                fresh.push(slot);
                Some(slot)
            });
            // Slots run out only beyond MAX_RULES names, and compiling refuses a rule without a slot.
            if let Some(slot) = slot {
                by_rule.insert(name.to_owned(), slot);
            }
        }
        (Self { by_rule }, fresh)
    }

    /// The slot of a rule.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.by_rule.get(name).copied()
    }

    /// All rules with their slots, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.by_rule.iter().map(|(name, slot)| (name.as_str(), *slot))
    }
}
