//! Rule files: a domain and its tree of descriptors.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use super::{
    Compatibility, Descriptor, Domain, ValuePattern,
    rule::{self, Flags},
    rule_files::Domains,
};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported, nearest},
    file::Node,
    section::{Section, all},
    shape::{self, Shape},
    value::{self, flag},
    warnings,
};

/// What is known of a rule file while its tree is read.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) compatibility: Compatibility,
    /// The `name`s of its rules.
    pub(super) names: HashSet<String>,
    /// A rule may have a `name` that cannot be read.
    pub(super) unnamed: bool,
    /// What `replaces` names, and where.
    pub(super) replaced: Vec<(String, Place)>,
    /// Rules so far, with or without mistakes.
    pub(super) rules: usize,
    /// The first setting for metrics of values.
    metric: Option<(&'static str, Place)>,
}

/// Reads the tree of a rule file.
pub(super) fn read(
    root: &Node,
    file: PathBuf,
    compatibility: Compatibility,
    domains: &mut Domains,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Domain, Reported> {
    let section = match Section::open(&shape::http::RULE_FILE, root, diagnostics) {
        Ok(section) => section,
        Err(reported) => {
            return domains.note(Err(reported), &file, root.place, diagnostics).and(Err(reported));
        }
    };
    let name = section.one("domain", diagnostics, value::label);
    let name = section.required("domain", diagnostics, name);
    let place = section.value_place("domain");
    let name = domains.note(name, &file, place, diagnostics);
    let mut context = Context {
        compatibility,
        names: HashSet::new(),
        unnamed: false,
        replaced: Vec::new(),
        rules: 0,
        metric: None,
    };
    let descriptors = descriptors(&section, &mut context, diagnostics);
    context.replaced(diagnostics);
    if let Some((key, place)) = context.metric {
        warnings::http::metric(key, place, diagnostics);
    }
    if let (Ok(_), Ok(name), 0) = (&descriptors, &name, context.rules) {
        warnings::http::no_rules(name, place, diagnostics);
    }
    Ok(Domain { name: name?, file, compatibility, descriptors: descriptors? })
}

/// Reads one level of the tree. Aliases do not let it be deeper than a file could be written.
fn descriptors(
    section: &Section<'_>,
    context: &mut Context,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Descriptor>, Reported> {
    const KEY: &str = "descriptors";
    let nodes = section.nodes(KEY, diagnostics).and_then(|nodes| match section.misspelt(KEY) {
        Some(reported) if nodes.is_none() => Err(reported),
        _ => Ok(nodes),
    });
    let Some(nodes) = nodes.inspect_err(|_| context.unnamed = true)? else { return Ok(Vec::new()) };
    let mut seen = HashMap::new();
    all(nodes.iter().map(|node| descriptor(node, &mut seen, context, diagnostics)))
}

fn descriptor(
    node: &Node,
    seen: &mut HashMap<(String, ValuePattern), Place>,
    context: &mut Context,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Descriptor, Reported> {
    let section = Section::open(context.descriptor_shape(), node, diagnostics);
    let section = section.inspect_err(|_| context.unnamed = true)?;
    let key = section.one("key", diagnostics, value::label);
    let key = section.required("key", diagnostics, key);
    let pattern = section.one("value", diagnostics, |text| Ok(pattern(text)));
    let pattern = pattern.and_then(|pattern| match (pattern, context.compatibility) {
        (None, _) => section.misspelt("value").map_or(Ok(ValuePattern::Any), Err),
        // As upstream has it.
        (Some(ValuePattern::Exact(value)), Compatibility::Envoy) if value.is_empty() => Ok(ValuePattern::Any),
        (Some(pattern), _) => Ok(pattern),
    });
    if let Ok(pattern) = &pattern {
        warnings::http::literal_wildcard(pattern, section.value_place("value"), diagnostics);
    }
    let unique = match (&key, &pattern) {
        (Ok(key), Ok(pattern)) => unique(key, pattern, section.value_place("key"), seen, diagnostics),
        _ => Ok(()),
    };
    let [shadow, share, quota, detailed, valued] =
        ["shadow_mode", "share_threshold", "quota_mode", "detailed_metric", "value_to_metric"].map(|key| {
            let set = section.one(key, diagnostics, flag)?.unwrap_or(false);
            if set && key.ends_with("metric") {
                context.metric.get_or_insert_with(|| (key, section.place(key)));
            }
            Ok(set)
        });
    let flags = flags(shadow, quota, share);
    let rule = rule::rule(&section, flags, pattern.as_ref().ok(), context, diagnostics);
    let descriptors = descriptors(&section, context, diagnostics);
    detailed.and(valued).and(unique)?;
    Ok(Descriptor {
        key: key?,
        value: pattern?,
        share_threshold: share?,
        rule: rule?,
        descriptors: descriptors?,
        line: node.place.line,
    })
}

fn flags(
    shadow: Result<bool, Reported>,
    quota: Result<bool, Reported>,
    share_threshold: Result<bool, Reported>,
) -> Result<Flags, Reported> {
    Ok(Flags { shadow: shadow?, quota: quota?, share_threshold: share_threshold? })
}

/// Reads a value, or the start of one and `*`.
pub(super) fn pattern(text: &str) -> ValuePattern {
    match text.strip_suffix('*') {
        Some(prefix) => ValuePattern::Prefix(prefix.to_owned()),
        None => ValuePattern::Exact(text.to_owned()),
    }
}

/// Only one descriptor of a level may be for a key and a value.
fn unique(
    key: &str,
    pattern: &ValuePattern,
    place: Place,
    seen: &mut HashMap<(String, ValuePattern), Place>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<(), Reported> {
    let Some(Place { line, column }) = seen.insert((key.to_owned(), pattern.clone()), place) else {
        return Ok(());
    };
    let what = match pattern {
        ValuePattern::Any => format!("{} without a value", Quoted(key)),
        ValuePattern::Exact(value) => format!("{} with the value {}", Quoted(key), Quoted(value)),
        ValuePattern::Prefix(start) => {
            format!("{} with the value {}", Quoted(key), Quoted(&format!("{start}*")))
        }
    };
    let message = format!("a descriptor for {what} stands here already, at line {line}, column {column}");
    let mistake = Mistake::new(Code::DuplicateName, message)
        .expected("each key and value once; nested levels can be merged");
    Err(diagnostics.error(place, mistake))
}

// === impl Context ===

impl Context {
    fn descriptor_shape(&self) -> &'static Shape {
        match self.compatibility {
            Compatibility::Native => &shape::http::DESCRIPTOR,
            Compatibility::Envoy => &shape::http::ENVOY_DESCRIPTOR,
        }
    }

    /// Checks that the rules which are replaced exist.
    fn replaced(&self, diagnostics: &mut Diagnostics<'_>) {
        for (name, place) in &self.replaced {
            if self.names.contains(name) || self.unnamed {
                continue;
            }
            let mut names: Vec<_> = self.names.iter().map(String::as_str).collect();
            names.sort_unstable();
            let message = format!("no rule of this file has the name {}", Quoted(name));
            let expected = if names.is_empty() {
                "a `name` in the rate_limit that is replaced".to_owned()
            } else {
                let shown = names.iter().take(10).map(|name| Quoted(name).to_string());
                format!("a name of a rule, such as {}", shown.collect::<Vec<_>>().join(", "))
            };
            let mistake =
                Mistake::new(Code::BadValue, message).expected(expected).nearest(nearest(name, names));
            diagnostics.error(*place, mistake);
        }
    }
}
