//! `POST /v1/reserve` and `POST /v1/commit`: charged now for what a request may cost, later for what it did.
//!
//! A reservation is decided and answered like a check, with an `id` when it passes. Its commit settles the
//! real cost; without one it is given back whole after its `ttl`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::{
    Asker, Front,
    body::Payload,
    check::{Full, bound, json, parse, respond},
    problem::Problem,
};
use crate::http::{
    ask::{Ask, Decision, Whose},
    identify::Identity,
    reserve::{CommitError, Id, Settlement},
    wire::{Descriptor, Question, Request},
};

/// Seconds that a reservation lasts when it does not say.
const DEFAULT_TTL: u64 = 60;

/// Seconds that a reservation may last.
const MAX_TTL: u64 = 86_400;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserve {
    domain: Option<String>,
    descriptors: Option<Vec<Descriptor>>,
    request: Option<Request>,
    /// What it may cost, by every descriptor.
    hits: u32,
    /// Seconds.
    ttl: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Reserved<'a> {
    id: Option<String>,
    expires_in: Option<u64>,
    #[serde(flatten)]
    answer: Full<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    id: String,
    /// What it did cost.
    hits: u32,
}

#[derive(Debug, Serialize)]
struct Settled {
    id: String,
    reserved: u64,
    committed: u64,
}

/// Charges what a request may cost.
pub(super) async fn reserve(
    State(front): State<Arc<Front>>,
    asker: Asker,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let Reserve { domain, descriptors, request, hits, ttl } = parse(&body)?;
    let ttl = ttl.unwrap_or(DEFAULT_TTL);
    if !(1..=MAX_TTL).contains(&ttl) {
        return Err(Problem::bad_request(format!("`ttl` is in seconds, from 1 to {MAX_TTL}")));
    }
    bound(descriptors.as_deref())?;
    if descriptors.iter().flatten().any(|descriptor| descriptor.hits.is_some()) {
        return Err(Problem::bad_request(
            "a reservation counts all its descriptors alike: give `hits` once, outside of `descriptors`",
        ));
    }
    let question = Question { domain, descriptors, request, hits: Some(hits.into()), peek: false };
    let identity = question
        .identify(&asker.settings.identifier)
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    let now = front.present();
    let ask = match identity {
        Identity::Ask(ask) => ask,
        // There is nothing to give back, so nothing of what it was needs remembering.
        Identity::Unmatched => {
            Ask { domain: "".into(), descriptors: Vec::new(), peek: false, whose: Whose::Client(None) }
        }
        Identity::Refused(_) => {
            let answer = front.judge(identity, asker.peer);
            let body = Reserved { id: None, expires_in: None, answer: Full::from(&answer) };
            return Ok(respond(&answer, &body, &asker.settings.answer));
        }
    };
    // Decided under the lock: what is charged has a place to be remembered at.
    let mut reservations = front.reservations.lock();
    reservations
        .room(&ask)
        .map_err(|full| Problem::new(StatusCode::SERVICE_UNAVAILABLE, full.to_string()))?;
    let answer = front.decide(&ask, asker.peer, now);
    let id = match answer.decision {
        Decision::Deny => None,
        Decision::Allow | Decision::Shadow | Decision::Delay => {
            let id = random_id();
            reservations.insert(id, ask, hits.into(), &answer, ttl.saturating_mul(NANOS_PER_SECOND), now);
            front.note_expiry(&reservations);
            Some(id.to_string())
        }
    };
    drop(reservations);
    let body = Reserved { expires_in: id.is_some().then_some(ttl), id, answer: Full::from(&answer) };
    Ok(respond(&answer, &body, &asker.settings.answer))
}

/// Settles what it did cost.
pub(super) async fn commit(
    State(front): State<Arc<Front>>,
    asker: Asker,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    asker.may_write()?;
    let Commit { id, hits } = parse(&body)?;
    let unknown = |error: CommitError| {
        let status = match error {
            CommitError::Unknown => StatusCode::NOT_FOUND,
            CommitError::Conflict { .. } => StatusCode::CONFLICT,
        };
        Problem::new(status, error.to_string())
    };
    let known: Id = id.parse().map_err(|_| unknown(CommitError::Unknown))?;
    let now = front.present();
    let settled = {
        let mut reservations = front.reservations.lock();
        let settled = reservations.commit(known, hits.into(), now);
        front.note_expiry(&reservations);
        settled
    };
    let Settlement { reserved, correction } = settled.map_err(unknown)?;
    if let Some(ask) = correction {
        front.limiter.charge(&ask, now);
    }
    Ok(json(StatusCode::OK, &Settled { id, reserved, committed: hits.into() }))
}

fn random_id() -> Id {
    let mut bytes = [0; 16];
    // Cannot fail: so few bytes come whole, without a signal's interruption.
    let filled = getrandom(&mut bytes[..], GetRandomFlags::empty());
    debug_assert_eq!(filled, Ok(bytes.len()));
    Id::from_bits(u128::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests;
