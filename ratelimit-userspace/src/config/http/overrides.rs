//! `overrides`: other limits for some values or tiers.

use std::collections::HashMap;

use super::{Override, ValuePattern, domain, limit::Keys, rule};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Reported},
    file::Node,
    section::{Section, all},
    shape, value, warnings,
};

/// A value and a tier, as far as an override names them.
type Condition = (Option<ValuePattern>, Option<String>);

/// The rule whose limit is overridden.
struct Overridden<'a> {
    keys: &'a Keys,
    /// The value of its descriptor; `None` where it has mistakes.
    pattern: Option<&'a ValuePattern>,
    /// All its values share a counter.
    shared: bool,
}

/// Reads the overrides beside a `rate_limit` with these keys.
pub(super) fn overrides(
    descriptor: &Section<'_>,
    keys: &Keys,
    pattern: Option<&ValuePattern>,
    shared: bool,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Override>, Reported> {
    if !descriptor.knows("overrides") {
        return Ok(Vec::new());
    }
    let Some(nodes) = descriptor.nodes("overrides", diagnostics)? else { return Ok(Vec::new()) };
    let rule = Overridden { keys, pattern, shared };
    let mut seen = HashMap::new();
    all(nodes.iter().map(|node| one(node, &rule, &mut seen, diagnostics)))
}

fn one(
    node: &Node,
    rule: &Overridden<'_>,
    seen: &mut HashMap<Condition, Place>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Override, Reported> {
    let section = Section::open(&shape::http::OVERRIDE, node, diagnostics)?;
    let value = section.one("value", diagnostics, |text| Ok(domain::pattern(text)));
    let tier = section.one("tier", diagnostics, value::label);
    let limit = if section
        .first_of(&shape::http::limit_keys())
        .or_else(|| section.first_of(&["unlimited"]))
        .is_some()
    {
        let keys = Keys::read(&section, super::Compatibility::Native, diagnostics).or(rule.keys, node.place);
        rule::limit(&section, &keys, diagnostics)
    } else {
        Err(nothing(&section, node.place, diagnostics))
    };
    let condition = (value?, tier?);
    condition_fits(&section, &condition, rule, diagnostics)?;
    if let Some(Place { line, column }) = seen.insert(condition.clone(), node.place) {
        let message =
            format!("an override for the same value and tier stands at line {line}, column {column}");
        let mistake = Mistake::new(Code::DuplicateName, message).expected("each value and tier once");
        return Err(diagnostics.error(node.place, mistake));
    }
    let (value, tier) = condition;
    Ok(Override { value, tier, limit: limit? })
}

/// An override that changes nothing is a mistake, or one of its keys is misspelt.
fn nothing(section: &Section<'_>, place: Place, diagnostics: &mut Diagnostics<'_>) -> Reported {
    let misspelt = shape::http::limit_keys().iter().find_map(|key| section.misspelt(key));
    misspelt.unwrap_or_else(|| {
        let mistake = Mistake::new(Code::MissingKey, "this override changes nothing")
            .expected("what is different, such as requests_per_unit, or unlimited: true");
        diagnostics.error(place, mistake)
    })
}

/// Checks that an override names something that the rule can meet.
fn condition_fits(
    section: &Section<'_>,
    condition: &Condition,
    rule: &Overridden<'_>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<(), Reported> {
    let place = section.value_place("value");
    match condition {
        (None, None) => {
            let misspelt = section.misspelt("value").or_else(|| section.misspelt("tier"));
            Err(misspelt.unwrap_or_else(|| {
                let mistake = Mistake::new(Code::MissingKey, "an override needs `value` or `tier`")
                    .expected("the value or the tier that it is for");
                diagnostics.error(place, mistake)
            }))
        }
        (Some(_), _) if rule.shared && !matches!(rule.pattern, None | Some(ValuePattern::Exact(_))) => {
            let message = "with share_threshold all values share one counter, so that none has its own limit";
            let mistake = Mistake::new(Code::Conflict, message)
                .expected("an override by tier alone, or a descriptor of its own for this value");
            Err(diagnostics.error(place, mistake))
        }
        (Some(value), _) => {
            warnings::http::literal_wildcard(value, place, diagnostics);
            if rule.pattern.is_some_and(|pattern| !meet(pattern, value)) {
                warnings::http::override_never_matches(place, diagnostics);
            }
            Ok(())
        }
        (None, Some(_)) => Ok(()),
    }
}

/// Whether a value can meet both.
fn meet(one: &ValuePattern, other: &ValuePattern) -> bool {
    use ValuePattern::{Any, Exact, Prefix};
    match (one, other) {
        (Any, _) | (_, Any) => true,
        (Exact(one), Exact(other)) => one == other,
        (Prefix(start), Exact(value)) | (Exact(value), Prefix(start)) => value.starts_with(start.as_str()),
        (Prefix(one), Prefix(other)) => one.starts_with(other.as_str()) || other.starts_with(one.as_str()),
    }
}
