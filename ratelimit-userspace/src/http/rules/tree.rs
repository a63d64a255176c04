//! The descriptor tree of a domain.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Rule, patterns::Patterns};
use crate::{config::http::Compatibility, http::ask::Entry};

/// A tree, and how it is walked.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) compatibility: Compatibility,
    pub(super) root: Node,
}

/// What a descriptor has come to after some of its entries.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) rule: Option<Arc<Rule>>,
    pub(super) keys: HashMap<Box<str>, Patterns<Node>>,
}

// === impl Tree ===

impl Tree {
    /// The rule at the full depth of a descriptor. What a level chose is not taken back when a later one
    /// finds nothing.
    pub(super) fn find(&self, entries: &[Entry<'_>]) -> Option<&Arc<Rule>> {
        let mut node = &self.root;
        for Entry { key, value } in entries {
            let values = node.keys.get(&**key)?;
            node = match self.compatibility {
                Compatibility::Native => values.matching(value).next(),
                Compatibility::Envoy => values.first_written(value),
            }?;
        }
        node.rule.as_ref()
    }
}
