//! Requests against rules, on a virtual clock.

mod full;
mod identity;
mod model;
mod reload;
mod replace;
mod several;
mod single;
mod snapshot;

use std::{path::PathBuf, sync::Arc};

use super::*;
use crate::{
    config::http::{
        Access, Algorithm, Align, Answer as AnswerConfig, ClientAddress, Compatibility, Descriptor as Node,
        Domain, Limit, OnFull, Override, Rule, ValuePattern, Window,
    },
    http::ask::{Descriptor, Entry, Refusal, Whose},
};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// The start of a minute, hour and day.
const START: u64 = 19_675 * 86_400 * SECOND;

fn at(seconds: f64) -> Now {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, positive times")]
    let nanos = (seconds * 1_000.0).round() as u64 * 1_000_000;
    Now::at(START + nanos)
}

fn limit(units: u64, seconds: u64, algorithm: Algorithm) -> Limit {
    Limit {
        units,
        window: Window::Fixed((seconds * SECOND).try_into().unwrap()),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    }
}

fn fixed(units: u64, seconds: u64) -> Limit {
    limit(units, seconds, Algorithm::FixedWindow)
}

fn bucket(units: u64, seconds: u64, burst: u64) -> Limit {
    limit(units, seconds, Algorithm::TokenBucket { burst, interval: false })
}

fn rule(limit: Limit) -> Rule {
    Rule {
        name: None,
        limit: Some(Arc::new(limit)),
        shadow: false,
        quota: false,
        replaces: vec![],
        cost: 1,
        overrides: vec![],
        escalate: None,
    }
}

fn named(name: &str, limit: Limit) -> Rule {
    Rule { name: Some(name.to_owned()), ..rule(limit) }
}

fn unlimited() -> Rule {
    Rule { limit: None, ..rule(fixed(1, 1)) }
}

/// `key`, `key=value` or `key=prefix*`.
fn node(text: &str, rule: Rule) -> Node {
    let (key, value) = match text.split_once('=') {
        None => (text, ValuePattern::Any),
        Some((key, value)) => match value.strip_suffix('*') {
            Some(prefix) => (key, ValuePattern::Prefix(prefix.to_owned())),
            None => (key, ValuePattern::Exact(value.to_owned())),
        },
    };
    Node {
        key: key.to_owned(),
        value,
        share_threshold: false,
        rule: Some(rule),
        descriptors: vec![],
        line: 1,
    }
}

fn config(descriptors: Vec<Node>) -> Http {
    let domain = Domain {
        name: "d".to_owned(),
        file: PathBuf::from("d.yaml"),
        compatibility: Compatibility::Native,
        descriptors,
    };
    Http {
        listen: None,
        grpc_listen: None,
        rule_paths: vec![],
        domains: vec![domain],
        trusted_proxies: vec![],
        client_address: ClientAddress::Peer,
        max_keys: 10_000,
        on_full: OnFull::Evict,
        identify: vec![],
        access: Access::default(),
        answer: AnswerConfig { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    }
}

fn limiter(descriptors: Vec<Node>) -> Limiter {
    Limiter::new(&config(descriptors), [7; 32])
}

/// `key=value`, or several with commas between.
fn descriptor(text: &str) -> Descriptor<'_> {
    let entries = text.split(',').map(|entry| {
        let (key, value) = entry.split_once('=').unwrap();
        Entry { key: key.into(), value: value.into() }
    });
    Descriptor { entries: entries.collect(), hits: 1, limit: None }
}

/// Descriptors of one hit each.
fn ask<'a>(descriptors: &[&'a str]) -> Ask<'a> {
    let descriptors = descriptors.iter().map(|text| descriptor(text)).collect();
    Ask { domain: "d".into(), descriptors, peek: false, whose: Whose::Described }
}

/// One descriptor of so many hits.
fn hits(text: &str, hits: i64) -> Ask<'_> {
    let descriptors = vec![Descriptor { hits, ..descriptor(text) }];
    Ask { domain: "d".into(), descriptors, peek: false, whose: Whose::Described }
}

fn peek(ask: Ask<'_>) -> Ask<'_> {
    Ask { peek: true, ..ask }
}

/// How many of these requests pass.
fn admitted(limiter: &Limiter, ask: &Ask<'_>, now: Now, requests: usize) -> usize {
    (0..requests).filter(|_| limiter.decide(ask, now).decision != Decision::Deny).count()
}

/// What the counters of a request's descriptors have counted.
fn used(limiter: &Limiter, descriptor: &str, now: Now) -> u64 {
    limiter.inspect(&ask(&[descriptor]), now)[0].as_ref().unwrap().used
}

fn remaining(answer: &Answer) -> u64 {
    answer.standing.unwrap().remaining
}

fn label(answer: &Answer) -> &str {
    answer.rule.as_ref().map_or("none", |rule| &rule.label)
}
