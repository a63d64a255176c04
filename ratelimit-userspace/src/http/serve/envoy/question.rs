//! What Envoy asks: from its message to an [`Ask`], which borrows from it.

use std::{borrow::Cow, num::NonZeroU64, sync::Arc};

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{self, RateLimitOverride},
    },
    service::ratelimit::v3::RateLimitRequest,
    r#type::v3::RateLimitUnit,
};

use super::unit;
use crate::{
    config::http::{Algorithm, Align, Limit},
    http::{
        ask::{Ask, Descriptor, Entry, Whose},
        rules::RuleBook,
        serve::access::Rights,
    },
};

/// Descriptors that one request may have. Envoy makes a few; the counters of all of them are locked together.
pub(super) const MAX_DESCRIPTORS: usize = 64;

/// Why there is nothing to decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QuestionError {
    /// In the words of Envoy's own service.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// In the words of Envoy's own service.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("the request has {0} descriptors, and at most {MAX_DESCRIPTORS} are decided at once; send fewer")]
    TooManyDescriptors(usize),
    #[error(
        "descriptor {number} ({keys}) brings a limit whose unit is {unit}; it must be one of 1 (SECOND), \
         2 (MINUTE), 3 (HOUR), 4 (DAY), 5 (MONTH), 6 (YEAR)"
    )]
    Unit { number: usize, keys: String, unit: i32 },
}

/// What is asked, and what the asker must be allowed to.
#[derive(Debug, PartialEq)]
pub(super) struct Question<'a> {
    pub(super) ask: Ask<'a>,
    pub(super) needs: Rights,
}

// === impl Question ===

impl<'a> Question<'a> {
    /// Reads a request. `rules` is asked only if a descriptor brings a limit of its own.
    pub(super) fn new(
        request: &'a RateLimitRequest,
        rules: impl Fn() -> Arc<RuleBook>,
    ) -> Result<Self, QuestionError> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        if domain.is_empty() {
            return Err(QuestionError::NoDomain);
        }
        match descriptors.len() {
            0 => return Err(QuestionError::NoDescriptors),
            1..=MAX_DESCRIPTORS => {}
            many => return Err(QuestionError::TooManyDescriptors(many)),
        }
        let mut asked = Vec::with_capacity(descriptors.len());
        let mut needs = Rights::Ask;
        for (descriptor, number) in descriptors.iter().zip(1..) {
            let mut asks = Descriptor {
                entries: descriptor.entries.iter().map(entry).collect(),
                hits: hits(descriptor, *hits_addend),
                limit: None,
            };
            if let Some(brought) = descriptor.limit {
                asks.limit = Some(limit(brought, domain, &asks, &rules()).ok_or_else(|| {
                    QuestionError::Unit { number, keys: keys(descriptor), unit: brought.unit }
                })?);
            }
            if asks.hits < 0 || asks.limit.is_some() {
                needs = Rights::Write;
            }
            asked.push(asks);
        }
        let ask =
            Ask { domain: Cow::Borrowed(domain), descriptors: asked, peek: false, whose: Whose::Described };
        Ok(Self { ask, needs })
    }
}

fn entry(entry: &rate_limit_descriptor::Entry) -> Entry<'_> {
    Entry { key: Cow::Borrowed(&entry.key), value: Cow::Borrowed(&entry.value) }
}

/// How often a descriptor counts. Its own number stands, also 0, which reads; where it has none the request's
/// does, of which 0 means absent, so 1. `is_negative_hits` gives back, whichever of the two it is.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> i64 {
    let hits = match &descriptor.hits_addend {
        Some(own) => i64::try_from(own.value).unwrap_or(i64::MAX),
        None => i64::from(of_request.max(1)),
    };
    if descriptor.is_negative_hits { -hits } else { hits }
}

/// The limit that a descriptor brings. What it does not say (the algorithm and its settings) is as in the
/// limit that it replaces, else as in a rule that says no more. `None`: its unit is none.
fn limit(
    brought: RateLimitOverride,
    domain: &str,
    descriptor: &Descriptor<'_>,
    rules: &RuleBook,
) -> Option<Arc<Limit>> {
    let RateLimitOverride { requests_per_unit, unit } = brought;
    let window = unit::window(RateLimitUnit::try_from(unit).ok()?)?;
    let units = u64::from(requests_per_unit);
    let rule = rules.find(domain, descriptor);
    let replaced = rule.and_then(|rule| rule.policy.limit.as_deref());
    let (algorithm, align, count_denied, soft_margin_permille) = match replaced {
        Some(replaced) => (
            algorithm(replaced.algorithm, units, window),
            replaced.align,
            replaced.count_denied,
            replaced.soft_margin_permille,
        ),
        None => (Algorithm::SlidingWindow { round_up: false }, Align::Epoch, false, 0),
    };
    let window = crate::config::http::Window::Fixed(window);
    Some(Arc::new(Limit { units, window, algorithm, align, count_denied, soft_margin_permille }))
}

/// The algorithm with another number of units and another window.
fn algorithm(replaced: Algorithm, units: u64, window: NonZeroU64) -> Algorithm {
    match replaced {
        Algorithm::TokenBucket { burst: _, interval } => Algorithm::TokenBucket { burst: units, interval },
        Algorithm::LeakyBucket { burst: _, max_delay } => Algorithm::LeakyBucket { burst: units, max_delay },
        // Segments are whole nanoseconds.
        Algorithm::Segments { segments } if !window.get().is_multiple_of(segments.into()) => {
            Algorithm::SlidingWindow { round_up: false }
        }
        same => same,
    }
}

/// The keys of a descriptor, for a message. Its values may be secrets.
fn keys(descriptor: &RateLimitDescriptor) -> String {
    const MOST: usize = 200;
    let keys = descriptor.entries.iter().map(|entry| entry.key.escape_debug().to_string());
    let mut keys = keys.collect::<Vec<_>>().join(", ");
    if keys.len() > MOST {
        keys.truncate(keys.floor_char_boundary(MOST));
        keys.push('…');
    }
    keys
}

#[cfg(test)]
mod tests;
