//! What a question meets: rules, limits in words, counters, and the decision.

use serde::{Deserialize, Serialize};

use super::{
    algorithm::Meter,
    ask::{Answer, Ask},
    clock::Now,
    identify::Identity,
    limiter::{Inspected, Limiter},
    rules::Rule,
    wire::{self, Seconds},
    words,
};

/// A question, explained.
#[derive(Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// Whose rules apply; `None`: no `identify` item matches the request.
    pub domain: Option<String>,
    /// One for each descriptor.
    pub descriptors: Vec<Explained>,
    /// What would be decided. Nothing was charged.
    pub answer: serde_json::Value,
}

/// One descriptor, explained.
#[derive(Debug, Serialize, Deserialize)]
pub struct Explained {
    /// Its entries; secrets as their HMAC.
    pub entries: Vec<(String, String)>,
    /// The rule that it matches.
    pub rule: Option<ExplainedRule>,
    /// The rule that it matches and that does not apply, since another rule of the request replaces it.
    pub replaced: Option<String>,
    /// The counter that it is counted in.
    pub counter: Option<Counter>,
}

/// A rule, explained.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExplainedRule {
    /// Its name, else its id.
    pub name: String,
    /// Where it stands in the tree.
    pub id: String,
    /// What its limit means for this descriptor, in words.
    pub means: String,
    /// It never denies.
    pub shadow: bool,
    /// It denies only together with the other quotas of the request.
    pub quota: bool,
    /// The names of the rules that it replaces.
    pub replaces: Vec<String>,
}

/// A counter, as it stands.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Its identity in hexadecimal, as in the denial log.
    pub identity: String,
    /// Units that count now.
    pub used: u64,
    /// The limit in units.
    pub limit: u64,
    /// Units that are left.
    pub remaining: u64,
    /// Until its bucket is full, its window ends, its log is empty.
    pub reset: serde_json::Value,
}

// === impl Explanation ===

impl Explanation {
    /// What a question meets under the rules of a limiter, with its counters.
    pub fn new(limiter: &Limiter, identity: Identity, now: Now) -> Self {
        let ask = match identity.into_ask() {
            Ok(ask) => Ask { peek: true, ..ask },
            Err(answer) => return Self { domain: None, descriptors: Vec::new(), answer: value(&answer) },
        };
        let counters = limiter.inspect(&ask, now);
        let answer = limiter.decide(&ask, now);
        let rules = limiter.rules();
        let met = answer.statuses.iter().zip(counters);
        let descriptors = ask.descriptors.iter().zip(met).map(|(descriptor, (status, counter))| Explained {
            entries: descriptor
                .entries
                .iter()
                .map(|entry| (entry.key.as_ref().to_owned(), entry.value.as_ref().to_owned()))
                .collect(),
            rule: status.rule.as_deref().map(|rule| ExplainedRule::new(rule, status.meter.as_deref())),
            replaced: match status.rule {
                Some(_) => None,
                None => rules.find(&ask.domain, descriptor).map(|rule| rule.label.as_ref().to_owned()),
            },
            counter: counter.map(Counter::from),
        });
        let descriptors = descriptors.collect();
        Self { domain: Some(ask.domain.into_owned()), descriptors, answer: value(&answer) }
    }
}

/// An answer as JSON.
fn value(answer: &Answer) -> serde_json::Value {
    // Numbers and texts: what cannot be written does not occur.
    serde_json::to_value(wire::Answer::from(answer)).unwrap_or_default()
}

// === impl ExplainedRule ===

impl ExplainedRule {
    /// `meter`: the limit that is in force, perhaps an override's.
    fn new(rule: &Rule, meter: Option<&Meter>) -> Self {
        let Rule { label, id, policy, .. } = rule;
        Self {
            name: label.as_ref().to_owned(),
            id: id.as_ref().to_owned(),
            means: meter.map_or_else(|| "unlimited".to_owned(), |meter| words::limit(meter.limit())),
            shadow: policy.shadow,
            quota: policy.quota,
            replaces: policy.replaces.clone(),
        }
    }
}

// === impl Counter ===

impl From<Inspected> for Counter {
    fn from(inspected: Inspected) -> Self {
        let Inspected { standing, used, identity, .. } = inspected;
        Self {
            identity,
            used,
            limit: standing.limit,
            remaining: standing.remaining,
            reset: serde_json::to_value(Seconds(standing.reset)).unwrap_or_default(),
        }
    }
}
