//! `rate_limit` and what stands around it.

use std::sync::Arc;

use super::{
    Algorithm, Compatibility, Limit, Rule, ValuePattern,
    domain::Context,
    escalate,
    limit::{self, Keys},
    overrides,
};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Quoted, Reported},
    section::{Section, all},
    shape::{self, Shape},
    value::{self, flag, whole},
    warnings,
};

/// What a descriptor says of its rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) share_threshold: bool,
}

/// Reads the rule of a descriptor whose value is this pattern; `None` where it has mistakes.
pub(super) fn rule(
    descriptor: &Section<'_>,
    flags: Result<Flags, Reported>,
    pattern: Option<&ValuePattern>,
    context: &mut Context,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Option<Rule>, Reported> {
    let node =
        descriptor.node("rate_limit", diagnostics).and_then(|node| match descriptor.misspelt("rate_limit") {
            Some(reported) if node.is_none() => Err(reported),
            _ => Ok(node),
        });
    let Some(node) = node.inspect_err(|_| context.unnamed = true)? else {
        return without(descriptor, flags?, diagnostics).map(|()| None);
    };
    context.rules += 1;
    let section = Section::open(rate_limit_shape(context.compatibility), node, diagnostics);
    let section = section.inspect_err(|_| context.unnamed = true)?;
    let name = section.one("name", diagnostics, value::label).inspect_err(|_| context.unnamed = true);
    if let Ok(Some(name)) = &name {
        context.names.insert(name.clone());
    }
    let replaces = replaces(&section, name.as_ref().ok().and_then(Option::as_deref), context, diagnostics);
    let cost =
        if section.knows("cost") { section.one("cost", diagnostics, whole(1..=u64::MAX)) } else { Ok(None) };
    let keys = Keys::read(&section, context.compatibility, diagnostics);
    let limit = limit(&section, &keys, diagnostics);
    let shared = flags.is_ok_and(|flags| flags.share_threshold);
    let escalate = escalate::escalate(&section, diagnostics);
    let overrides = overrides::overrides(descriptor, &keys, pattern, shared, diagnostics);
    if let (Ok(Some(cost)), Ok(Some(limit))) = (&cost, &limit) {
        warnings::http::cost(*cost, limit, section.place("cost"), diagnostics);
    }
    let Flags { shadow, quota, share_threshold } = flags?;
    let (limit, overrides) = (limit?, overrides?);
    if let (true, Ok(Some(_))) = (shadow, &escalate) {
        let place = section.place("escalate");
        warnings::no_effect("escalate", "a shadow rule denies nobody", place, diagnostics);
    }
    if limit.is_none() && overrides.is_empty() {
        if let Ok(Some(_)) = escalate {
            let why = "an unlimited rule never denies";
            warnings::no_effect("escalate", why, section.place("escalate"), diagnostics);
        }
        for (key, set) in [("shadow_mode", shadow), ("quota_mode", quota)] {
            if set {
                let why = "an unlimited rule never denies";
                warnings::no_effect(key, why, descriptor.place(key), diagnostics);
            }
        }
    }
    if share_threshold && matches!(pattern, Some(ValuePattern::Exact(_))) {
        let why = "one value has one counter";
        let place = descriptor.place("share_threshold");
        warnings::no_effect("share_threshold", why, place, diagnostics);
    }
    Ok(Some(Rule {
        name: name?,
        limit,
        shadow,
        quota,
        replaces: replaces?,
        cost: cost?.unwrap_or(1),
        overrides,
        escalate: escalate?,
    }))
}

fn rate_limit_shape(compatibility: Compatibility) -> &'static Shape {
    match compatibility {
        Compatibility::Native => &shape::http::RATE_LIMIT,
        Compatibility::Envoy => &shape::http::ENVOY_RATE_LIMIT,
    }
}

/// A descriptor without a rule has nothing that could be changed.
fn without(
    descriptor: &Section<'_>,
    flags: Flags,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<(), Reported> {
    for (key, set) in [("shadow_mode", flags.shadow), ("quota_mode", flags.quota)] {
        if set {
            let why = "the descriptor has no rate_limit";
            warnings::no_effect(key, why, descriptor.place(key), diagnostics);
        }
    }
    if descriptor.knows("overrides") && descriptor.entry("overrides").is_some() {
        let message = "`overrides` change the `rate_limit` beside them, and there is none";
        let mistake = Mistake::new(Code::Conflict, message).expected("a rate_limit in this descriptor");
        return Err(diagnostics.error(descriptor.place("overrides"), mistake));
    }
    Ok(())
}

/// The limit of a `rate_limit` or an override; `None`: unlimited.
pub(super) fn limit(
    section: &Section<'_>,
    keys: &Keys,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Option<Arc<Limit>>, Reported> {
    if !section.one("unlimited", diagnostics, flag)?.unwrap_or(false) {
        let limit = limit::resolve(keys.clone(), section, diagnostics)?;
        if section.knows("algorithm") {
            warnings::http::limit(&limit, section, diagnostics);
        }
        return Ok(Some(Arc::new(limit)));
    }
    match section.first_of(&shape::http::limit_keys()) {
        None => Ok(None),
        Some(entry) => {
            let message = format!("what is unlimited has no {}", Quoted(&entry.key));
            let mistake = Mistake::new(Code::Conflict, message).expected("`unlimited`, or a limit");
            Err(diagnostics.error(entry.place, mistake))
        }
    }
}

/// Reads the names of the rules that do not apply while this one does.
fn replaces(
    section: &Section<'_>,
    own: Option<&str>,
    context: &mut Context,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<String>, Reported> {
    let Some(nodes) = section.nodes("replaces", diagnostics)? else { return Ok(Vec::new()) };
    all(nodes.iter().map(|node| {
        let section = Section::open(&shape::http::REPLACED, node, diagnostics)?;
        let name = section.one("name", diagnostics, value::label);
        let name = section.required("name", diagnostics, name)?;
        let place = section.value_place("name");
        if own == Some(name.as_str()) {
            let mistake = Mistake::new(Code::Conflict, "a rule cannot replace itself")
                .expected("the name of another rule");
            return Err(diagnostics.error(place, mistake));
        }
        context.replaced.push((name.clone(), place));
        Ok(name)
    }))
}

// === impl Limit ===

impl Limit {
    /// The most units that fit at once.
    pub(in crate::config) fn capacity(&self) -> u64 {
        let units = match self.algorithm {
            Algorithm::TokenBucket { burst, .. } | Algorithm::LeakyBucket { burst, .. } => burst,
            _ => self.units,
        };
        let margin = u128::from(units) * u128::from(self.soft_margin_permille) / 1000;
        u64::try_from(u128::from(units) + margin).unwrap_or(u64::MAX)
    }
}
