//! From the descriptors of the rule files to trees.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{
    Metered, Rule, RuleBook,
    choice::Choice,
    id,
    tree::{Node, Tree},
    versions::{Place, Versions},
};
use crate::{
    config::http::{self, Descriptor, Domain, Limit, ValuePattern},
    http::metrics::RuleMetrics,
};

struct Compiler<'a> {
    previous: Option<&'a RuleBook>,
    versions: Versions,
    rules: Vec<Arc<Rule>>,
}

/// How a descriptor of the file was reached.
struct Path<'a> {
    domain: &'a Arc<str>,
    id: String,
    depth: usize,
    /// [`Rule::counted`], up to here.
    counted: Vec<usize>,
}

pub(super) fn compile(domains: &[Domain], previous: Option<&RuleBook>) -> RuleBook {
    let versions = previous.map(|previous| Versions::after(&previous.versions)).unwrap_or_default();
    let mut compiler = Compiler { previous, versions, rules: Vec::new() };
    let mut trees = HashMap::new();
    for domain in domains {
        let name = Arc::from(domain.name.as_str());
        let path = Path { domain: &name, id: id::of_domain(&name), depth: 0, counted: Vec::new() };
        let mut root = Node::default();
        compiler.grow(&mut root, &path, &domain.descriptors);
        let tree = Tree { compatibility: domain.compatibility, root };
        trees.entry(domain.name.as_str().into()).or_insert(tree);
    }
    let Compiler { versions, rules, .. } = compiler;
    let by_id = rules.iter().map(|rule| (Arc::clone(&rule.id), Arc::clone(rule))).collect();
    RuleBook { trees: Arc::new(trees), rules: rules.into(), by_id: Arc::new(by_id), versions }
}

// === impl Compiler ===

impl Compiler<'_> {
    /// Adds descriptors to a node. Of two alike the first has the rule.
    fn grow(&mut self, node: &mut Node, parent: &Path<'_>, descriptors: &[Descriptor]) {
        for descriptor in descriptors {
            let child = node.keys.entry(descriptor.key.as_str().into()).or_default().entry(&descriptor.value);
            let path = parent.below(descriptor);
            if let (None, Some(policy)) = (&child.rule, &descriptor.rule) {
                child.rule = Some(self.rule(&path, policy));
            }
            self.grow(child, &path, &descriptor.descriptors);
        }
    }

    fn rule(&mut self, path: &Path<'_>, policy: &http::Rule) -> Arc<Rule> {
        let id = Arc::from(path.id.as_str());
        let meter = self.meter(policy.limit.as_deref(), || Place::in_rule(&id));
        let overrides = policy.overrides.iter().map(|choice| {
            let meter = self.meter(choice.limit.as_deref(), || Place::in_override(&id, choice));
            (choice.clone(), meter)
        });
        let rule = Arc::new(Rule {
            label: policy.name.as_deref().map_or_else(|| Arc::clone(&id), Arc::from),
            domain: Arc::clone(path.domain),
            policy: policy.clone(),
            meter,
            overrides: overrides.collect(),
            counted: path.counted.as_slice().into(),
            choice: Choice::new(&policy.overrides),
            metrics: self.metrics(&id),
            id,
        });
        self.rules.push(Arc::clone(&rule));
        rule
    }

    fn meter(&mut self, limit: Option<&Limit>, place: impl FnOnce() -> Place) -> Option<Metered> {
        let previous = self.previous.map(|previous| &previous.versions);
        limit.map(|limit| self.versions.enforce(place(), limit, previous))
    }

    /// What a rule of this id did before, which it goes on with.
    fn metrics(&self, id: &str) -> Arc<RuleMetrics> {
        let before = self.previous.and_then(|previous| previous.rule(id));
        before.map(|rule| Arc::clone(&rule.metrics)).unwrap_or_default()
    }
}

// === impl Path ===

impl<'a> Path<'a> {
    fn below(&self, descriptor: &Descriptor) -> Path<'a> {
        let mut counted = self.counted.clone();
        // An exact value is in the id.
        if !matches!(descriptor.value, ValuePattern::Exact(_)) && !descriptor.share_threshold {
            counted.push(self.depth);
        }
        let id = id::below(&self.id, descriptor);
        Path { domain: self.domain, id, depth: self.depth + 1, counted }
    }
}
