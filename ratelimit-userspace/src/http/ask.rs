//! What is asked of the limiter, and what it answers.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use super::{
    algorithm::{Meter, Nanos},
    rules::Rule,
    store::Identity,
};

/// One question: may this request pass? Charged as a whole or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask<'a> {
    /// Whose rules apply.
    pub domain: Cow<'a, str>,
    /// What the request is.
    pub descriptors: Vec<Descriptor<'a>>,
    /// Nothing is charged; the answer is the one that a request of these hits would get.
    pub peek: bool,
    /// Whose request it is.
    pub whose: Whose,
}

/// Whose request it is, for whoever wants to know of denials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// Whoever asks sent descriptors: the client is in one of them, if anywhere.
    #[default]
    Described,
    /// The client that `identify` found; `None`: it is not known, or nobody wants to know.
    Client(Option<Client>),
}

/// A client that `identify` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// Who uses that address, as a number: a secret that is known, since a map file lists it.
    pub identity: Option<u64>,
}

/// One thing that a request is.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor<'a> {
    /// Its entries, in order.
    pub entries: Vec<Entry<'a>>,
    /// How often it counts: 0 reads, negative refunds.
    pub hits: i64,
    /// A limit that replaces the one of the rule it matches, as Envoy sends it.
    pub limit: Option<Arc<crate::config::http::Limit>>,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key.
    pub key: Cow<'a, str>,
    /// Its value.
    pub value: Cow<'a, str>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// It passes.
    Allow,
    /// It passes; a shadow rule would have denied it.
    Shadow,
    /// It passes after a delay.
    Delay,
    /// It does not pass.
    Deny,
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug)]
pub struct Answer {
    /// What becomes of the request.
    pub decision: Decision,
    /// The rule that the numbers are about: the denying one with the longest wait, else the matched hard
    /// one with the least remaining. `None`: no rule, or unlimited.
    pub rule: Option<Arc<Rule>>,
    /// Where it stands, after this request's charge.
    pub standing: Option<Standing>,
    /// Whole seconds, at least 1, after which the same request passes. Only with [`Decision::Deny`], and
    /// `None` there when it never can.
    pub retry_after: Option<u64>,
    /// How long to hold the request. Only with [`Decision::Delay`].
    pub delay: Option<Nanos>,
    /// One for each descriptor, in order.
    pub statuses: Vec<Status>,
    /// Why it is denied when no rule says so.
    pub refusal: Option<Refusal>,
}

/// Why a request is denied when no rule says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Memory is full, and `on_full: deny`.
    StoreFull,
    /// An entry with `missing: deny` has no value.
    MissingEntry,
}

/// Where a counter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The limit that was in force, in units: `requests_per_unit`, or the capacity of a bucket.
    pub limit: u64,
    /// Units that are left.
    pub remaining: u64,
    /// Until then: buckets are full, the current window ends, the newest entry of a log leaves.
    pub reset: Nanos,
}

/// What became of one descriptor.
#[derive(Clone, Debug)]
pub struct Status {
    /// The rule that it matched.
    pub rule: Option<Arc<Rule>>,
    /// Whether this rule alone would let it pass. Shadow rules always do here.
    pub allowed: bool,
    /// Where its counter stands. `None`: no rule, unlimited, or a shadow rule's.
    pub standing: Option<Standing>,
    /// As [`Answer::retry_after`], for this descriptor.
    pub retry_after: Option<u64>,
    /// It passed within the margin of a soft limit.
    pub soft_over: bool,
    /// The rule is a shadow rule and would have denied it. Counted, never shown to clients.
    pub shadow_denied: bool,
    /// The limit that was in force: the rule's, an override's, or the one that the descriptor brought.
    pub meter: Option<Arc<Meter>>,
    /// The identity of its counter. `None`: it has none.
    pub identity: Option<Identity>,
}
