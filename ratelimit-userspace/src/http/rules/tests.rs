//! What matches, how it is called, and which version its limits have.

mod matching;
mod overrides;
mod versions;

use std::{borrow::Cow, path::PathBuf};

use super::*;
use crate::{
    config::http::{self as config, Algorithm, Align, Compatibility, Limit, ValuePattern, Window},
    http::ask::Entry,
};

fn limit(units: u64) -> Arc<Limit> {
    Arc::new(Limit {
        units,
        window: Window::Fixed(1_000_000_000.try_into().unwrap()),
        algorithm: Algorithm::FixedWindow,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    })
}

fn policy(units: u64) -> config::Rule {
    config::Rule {
        name: None,
        limit: Some(limit(units)),
        shadow: false,
        quota: false,
        replaces: vec![],
        cost: 1,
        overrides: vec![],
        escalate: None,
    }
}

/// `key`, `key=value` or `key=prefix*`, without a rule.
fn branch(text: &str, descriptors: Vec<config::Descriptor>) -> config::Descriptor {
    let (key, value) = match text.split_once('=') {
        None => (text, ValuePattern::Any),
        Some((key, value)) => match value.strip_suffix('*') {
            Some(prefix) => (key, ValuePattern::Prefix(prefix.to_owned())),
            None => (key, ValuePattern::Exact(value.to_owned())),
        },
    };
    config::Descriptor {
        key: key.to_owned(),
        value,
        share_threshold: false,
        rule: None,
        descriptors,
        line: 1,
    }
}

/// The same with a rule.
fn leaf(text: &str) -> config::Descriptor {
    ruled(text, policy(1))
}

fn ruled(text: &str, rule: config::Rule) -> config::Descriptor {
    config::Descriptor { rule: Some(rule), ..branch(text, vec![]) }
}

fn domain(name: &str, descriptors: Vec<config::Descriptor>) -> Domain {
    Domain {
        name: name.to_owned(),
        file: PathBuf::from("rules.yaml"),
        compatibility: Compatibility::Native,
        descriptors,
    }
}

fn book(descriptors: Vec<config::Descriptor>) -> RuleBook {
    RuleBook::new(&[domain("d", descriptors)], None)
}

fn descriptor<'a>(entries: &[(&'a str, &'a str)]) -> Descriptor<'a> {
    let entry = |&(key, value)| Entry { key: Cow::Borrowed(key), value: Cow::Borrowed(value) };
    Descriptor { entries: entries.iter().map(entry).collect(), hits: 1, limit: None }
}

/// The id of the rule that a descriptor of domain `d` matches.
fn found<'a>(book: &'a RuleBook, entries: &[(&str, &str)]) -> Option<&'a str> {
    book.find("d", &descriptor(entries)).map(|rule| &*rule.id)
}
