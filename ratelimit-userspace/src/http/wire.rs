//! Questions and answers as JSON: what `/v1/check` takes and gives, and what a recorded trace consists of.

mod headers;
mod seconds;

use std::{borrow::Cow, net::IpAddr};

use http::HeaderMap;
use serde::{Deserialize, Serialize};

pub use self::seconds::Seconds;
use super::{
    ask::{self, Ask, Decision, Whose},
    identify::{self, Identifier, Identity},
};

/// One question: descriptors of a domain, or a request that `identify` is to turn into descriptors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Whose rules apply. Only with `descriptors`.
    pub domain: Option<String>,
    /// What the request is.
    pub descriptors: Option<Vec<Descriptor>>,
    /// The request itself.
    pub request: Option<Request>,
    /// How often each descriptor counts that does not say so itself; absent: once.
    pub hits: Option<i64>,
    /// Nothing is charged.
    #[serde(default)]
    pub peek: bool,
}

/// One thing that a request is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// Keys and values, in order.
    pub entries: Vec<(String, String)>,
    /// How often it counts: 0 reads, negative refunds.
    pub hits: Option<i64>,
}

/// A request, as its asker describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target: path and query, or a whole URI.
    pub path: String,
    /// The host, if neither a header nor the target says it.
    pub host: Option<String>,
    /// The peer of the connection that the request came over; absent: one that is trusted, as on a Unix
    /// socket.
    pub peer: Option<IpAddr>,
    /// Headers: a value, or a list of values, by name.
    #[serde(default, deserialize_with = "headers::deserialize")]
    pub headers: HeaderMap,
}

/// Why a question of the right shape cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// Nothing to decide.
    #[error("there is neither `descriptors` nor `request`; one of them says what to decide")]
    Nothing,
    /// Two things to decide.
    #[error("there are both `descriptors` and `request`; leave one of them out")]
    Both,
    /// No domain for the descriptors.
    #[error("`descriptors` needs a `domain` that is not empty: the one whose rules apply")]
    NoDomain,
    /// A domain beside a request.
    #[error("`domain` goes with `descriptors` only; that of a request is found by `identify`")]
    DomainOfRequest,
    /// No descriptors.
    #[error("`descriptors` is empty; name at least one")]
    NoDescriptors,
    /// A descriptor without entries.
    #[error("descriptor {0} has no entries; give at least one [key, value]")]
    NoEntries(usize),
    /// An entry without a key.
    #[error("descriptor {0} has an entry with an empty key; no rule can match it")]
    EmptyKey(usize),
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Answer<'a> {
    /// `allow`, `deny`, `delay` or `shadow`.
    pub decision: &'static str,
    /// The rule that the numbers are about.
    pub rule: Option<&'a str>,
    /// Its limit in units.
    pub limit: Option<u64>,
    /// Units that are left.
    pub remaining: Option<u64>,
    /// Until its bucket is full, its window ends, its log is empty.
    pub reset: Option<Seconds>,
    /// Whole seconds after which the same request passes.
    pub retry_after: Option<u64>,
    /// How long to hold the request.
    pub delay: Option<Seconds>,
}

// === impl Question ===

impl Question {
    /// What it asks, once `identifier` has told what its request is.
    pub fn identify(self, identifier: &Identifier) -> Result<Identity, QuestionError> {
        let Self { domain, descriptors, request, hits, peek } = self;
        let hits = hits.unwrap_or(1);
        match (descriptors, request) {
            (None, None) => Err(QuestionError::Nothing),
            (Some(_), Some(_)) => Err(QuestionError::Both),
            (Some(descriptors), None) => {
                let domain = domain.filter(|domain| !domain.is_empty()).ok_or(QuestionError::NoDomain)?;
                Ok(Identity::Ask(ask(domain, descriptors, hits, peek)?))
            }
            (None, Some(_)) if domain.is_some() => Err(QuestionError::DomainOfRequest),
            (None, Some(request)) => Ok(match identifier.identify(&request.into(), hits) {
                Identity::Ask(ask) => Identity::Ask(Ask { peek, ..ask }),
                other => other,
            }),
        }
    }
}

fn ask(
    domain: String,
    descriptors: Vec<Descriptor>,
    hits: i64,
    peek: bool,
) -> Result<Ask<'static>, QuestionError> {
    if descriptors.is_empty() {
        return Err(QuestionError::NoDescriptors);
    }
    let descriptors = descriptors.into_iter().zip(1..).map(|(descriptor, number)| {
        if descriptor.entries.is_empty() {
            return Err(QuestionError::NoEntries(number));
        }
        if descriptor.entries.iter().any(|(key, _)| key.is_empty()) {
            return Err(QuestionError::EmptyKey(number));
        }
        let entries = descriptor.entries.into_iter();
        Ok(ask::Descriptor {
            entries: entries
                .map(|(key, value)| ask::Entry { key: Cow::Owned(key), value: Cow::Owned(value) })
                .collect(),
            hits: descriptor.hits.unwrap_or(hits),
            limit: None,
        })
    });
    Ok(Ask {
        domain: Cow::Owned(domain),
        descriptors: descriptors.collect::<Result<_, _>>()?,
        peek,
        whose: Whose::Described,
    })
}

// === impl Request ===

impl From<Request> for identify::Request {
    fn from(request: Request) -> Self {
        let Request { method, path, host, peer, headers } = request;
        Self { method, target: path, host, headers, peer }
    }
}

// === impl Answer ===

impl<'a> From<&'a ask::Answer> for Answer<'a> {
    fn from(answer: &'a ask::Answer) -> Self {
        let ask::Answer { decision, rule, standing, retry_after, delay, .. } = answer;
        Self {
            decision: match decision {
                Decision::Allow => "allow",
                Decision::Shadow => "shadow",
                Decision::Delay => "delay",
                Decision::Deny => "deny",
            },
            rule: rule.as_ref().map(|rule| &*rule.label),
            limit: standing.map(|standing| standing.limit),
            remaining: standing.map(|standing| standing.remaining),
            reset: standing.map(|standing| Seconds(standing.reset)),
            retry_after: *retry_after,
            delay: delay.map(Seconds),
        }
    }
}

#[cfg(test)]
mod tests;
