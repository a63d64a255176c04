//! What is done now and then: counters that are whole are forgotten, and limits that no counter needs.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use arc_swap::ArcSwap;

use crate::http::{clock::Now, rules::RuleBook, store::memory::Memory};

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Rules that others have taken the place of, and by which a request may still be decided.
    superseded: Vec<Weak<RuleBook>>,
    /// There are limits that no longer are in force.
    former: bool,
    /// The versions that are met on the present way through all counters. `None`: on it, counters could
    /// still be written under others.
    used: Option<HashSet<u32>>,
}

// === impl Upkeep ===

impl Upkeep {
    /// Other rules have taken the place of these.
    pub(super) fn superseded(&mut self, before: &Arc<RuleBook>) {
        self.superseded.push(Arc::downgrade(before));
        self.former = true;
        self.used = None;
    }

    /// Goes on through the counters, a bounded part of the way.
    pub(super) fn sweep(&mut self, book: &ArcSwap<RuleBook>, memory: &Memory, now: Now) {
        let rules = book.load_full();
        let through = memory.sweep(now, &rules, |version| {
            if let Some(used) = &mut self.used {
                used.insert(version);
            }
        });
        if !through {
            return;
        }
        if let Some(used) = self.used.take() {
            book.store(Arc::new(rules.retain_versions(&used)));
            self.superseded.push(Arc::downgrade(&rules));
            self.former = false;
        }
        self.superseded.retain(|book| book.strong_count() > 0);
        self.used = (self.former && self.superseded.is_empty()).then(HashSet::new);
    }
}
