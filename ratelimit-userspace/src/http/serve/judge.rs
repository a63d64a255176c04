//! From what a request is to what is answered.

use std::borrow::Cow;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;

use super::{
    Front, denial,
    headers::{self, QUOTA_EXCEEDED},
    listener::Peer,
    problem::Document,
};
use crate::{
    config::http::Answer as Fields,
    http::{
        ask::{Answer, Ask, Decision, Refusal},
        clock::Now,
        identify::Identity,
    },
};

// === impl Front ===

impl Front {
    /// What becomes of a request that `peer` asks about.
    pub(super) fn judge(&self, identity: Identity, peer: Peer) -> Answer {
        let now = self.present();
        match &identity {
            Identity::Ask(_) => {}
            Identity::Unmatched => self.metrics.unmatched(),
            Identity::Refused(refusal) => self.metrics.refused(*refusal, now),
        }
        match identity.into_ask() {
            Ok(ask) => self.decide(&ask, peer, now),
            Err(answer) => *answer,
        }
    }

    /// Decides and counts.
    pub(super) fn decide(&self, ask: &Ask<'_>, peer: Peer, now: Now) -> Answer {
        let answer = self.limiter.decide(ask, now);
        let latency = (self.now)().steady.saturating_sub(now.steady);
        self.metrics.observe(ask, &answer, latency, now);
        if let Some(witness) = self.witness.get() {
            denial::tell_of_identity(&**witness, ask, peer, now);
            if answer.decision == Decision::Deny {
                denial::tell(&**witness, ask, &answer, peer, now);
            }
        }
        answer
    }

    /// The time, with everything given back that has expired by then.
    pub(super) fn present(&self) -> Now {
        let now = (self.now)();
        self.expire(now);
        now
    }
}

/// Why a request was denied and when to try again, for the client that made it.
pub(super) fn refusal(answer: &Answer, fields: &Fields) -> Response {
    let mut response = document(answer, fields, |document| document.into_response());
    headers::add(answer, fields, response.headers_mut());
    response
}

/// What `write` makes of the problem that a refusal is.
pub(super) fn document<T>(answer: &Answer, fields: &Fields, write: impl FnOnce(Document<'_>) -> T) -> T {
    let violated_policies = headers::violated(answer);
    let detail = fields.text.as_ref().map_or_else(|| explain(answer).into(), |text| Cow::Borrowed(&**text));
    write(Document {
        kind: (!violated_policies.is_empty()).then_some(QUOTA_EXCEEDED),
        title: "Too many requests",
        status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
        detail: &detail,
        retry_after: answer.retry_after,
        violated_policies: &violated_policies,
    })
}

/// The built-in words.
fn explain(answer: &Answer) -> String {
    match answer.refusal {
        Some(Refusal::StoreFull) => {
            return "The limiter has no room to count this client, so the request is refused. Try again later."
                .to_owned();
        }
        Some(Refusal::MissingEntry) => {
            return "The request lacks something that it is limited by, such as an API key, so it is refused."
                .to_owned();
        }
        None => {}
    }
    let name = answer.rule.as_ref().map_or("", |rule| &rule.label);
    let limit = answer.standing.map_or(0, |standing| standing.limit);
    match answer.retry_after {
        Some(1) => format!("The limit \"{name}\" of {limit} is used up. Try again in 1 second."),
        Some(seconds) => {
            format!("The limit \"{name}\" of {limit} is used up. Try again in {seconds} seconds.")
        }
        None if limit == 0 => format!("The limit \"{name}\" admits no requests."),
        None => format!("The limit \"{name}\" admits {limit} at once, and this request counts as more."),
    }
}

#[cfg(test)]
mod tests;
