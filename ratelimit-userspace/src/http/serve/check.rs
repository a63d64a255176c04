//! `POST /v1/check`: a question, or a batch of them, as JSON.
//!
//! One question is answered with 200 or 429 and the fields that a client of the asker may get; a batch, each
//! item of which is decided and charged apart, always with 200 and a list of answers in the same order. All of
//! a batch is understood before any of it is decided: a mistake in it charges nothing.

use std::{fmt, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
};

use super::{Asker, Front, body::Payload, headers, problem::Problem};
use crate::{
    config::http::Answer as Fields,
    http::{
        ask::{Answer, Decision, Status},
        wire::{self, Descriptor, Question, Seconds},
    },
};

/// Questions of a batch.
pub(super) const MAX_BATCH: usize = 1000;

/// Descriptors of a question.
pub(super) const MAX_DESCRIPTORS: usize = 64;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Bytes that the usual answer has room in.
const USUAL_ANSWER: usize = 512;

/// An answer with all that is to know: a [`wire::Answer`] and the statuses. Written out, since flattening
/// makes a map of it first.
#[derive(Debug, Serialize)]
pub(super) struct Full<'a> {
    decision: &'static str,
    rule: Option<&'a str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Seconds>,
    retry_after: Option<u64>,
    delay: Option<Seconds>,
    statuses: Vec<StatusLine<'a>>,
}

/// What became of one descriptor.
#[derive(Debug, Serialize)]
struct StatusLine<'a> {
    rule: Option<&'a str>,
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Seconds>,
    retry_after: Option<u64>,
    soft_over: bool,
}

/// Questions, no more than [`MAX_BATCH`]: they are counted while they are read, since small texts could make
/// a large list.
#[derive(Debug)]
struct Batch(Vec<Question>);

/// The handler.
pub(super) async fn check(
    State(front): State<Arc<Front>>,
    asker: Asker,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let identifier = &asker.settings.identifier;
    if body.trim_ascii_start().starts_with(b"[") {
        let Batch(questions) = parse(&body)?;
        let mut identities = Vec::with_capacity(questions.len());
        for (index, question) in questions.into_iter().enumerate() {
            permit(&asker, &question)?;
            let identity = question.identify(identifier).map_err(|error| {
                Problem::bad_request(format!("question {index} (counted from 0): {error}"))
            })?;
            identities.push(identity);
        }
        let answers: Vec<Answer> =
            identities.into_iter().map(|identity| front.judge(identity, asker.peer)).collect();
        let answers: Vec<Full<'_>> = answers.iter().map(Full::from).collect();
        Ok(json(StatusCode::OK, &answers))
    } else {
        let question: Question = parse(&body)?;
        permit(&asker, &question)?;
        let identity =
            question.identify(identifier).map_err(|error| Problem::bad_request(error.to_string()))?;
        let answer = front.judge(identity, asker.peer);
        Ok(respond(&answer, &Full::from(&answer), &asker.settings.answer))
    }
}

/// Refunds need the write right, and there are only so many descriptors.
fn permit(asker: &Asker, question: &Question) -> Result<(), Problem> {
    bound(question.descriptors.as_deref())?;
    let descriptors = question.descriptors.iter().flatten();
    let mut hits = descriptors.map(|descriptor| descriptor.hits).chain([question.hits]);
    if hits.any(|hits| hits.is_some_and(i64::is_negative)) { asker.may_write() } else { Ok(()) }
}

/// The counters of a question are locked together, so there are not too many of them.
pub(super) fn bound(descriptors: Option<&[Descriptor]>) -> Result<(), Problem> {
    match descriptors {
        Some(many) if many.len() > MAX_DESCRIPTORS => Err(Problem::bad_request(format!(
            "a question has at most {MAX_DESCRIPTORS} descriptors, not {}",
            many.len()
        ))),
        _ => Ok(()),
    }
}

/// Reads JSON, or says what is wrong with it and where.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request(format!("the body is not as it should be: {error}")))
}

/// 200 or 429, with the fields for clients and `body`.
pub(super) fn respond(answer: &Answer, body: &impl Serialize, fields: &Fields) -> Response {
    let status = match answer.decision {
        Decision::Deny => StatusCode::TOO_MANY_REQUESTS,
        Decision::Allow | Decision::Shadow | Decision::Delay => StatusCode::OK,
    };
    let mut response = json(status, body);
    headers::add(answer, fields, response.headers_mut());
    response
}

/// JSON with a status.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut text = Vec::with_capacity(USUAL_ANSWER);
    // What is answered has names for keys, so it always has a JSON form.
    if serde_json::to_writer(&mut text, body).is_err() {
        text.clear();
    }
    (status, [(CONTENT_TYPE, JSON)], text).into_response()
}

// === impl Full ===

impl<'a> From<&'a Answer> for Full<'a> {
    fn from(answer: &'a Answer) -> Self {
        let wire::Answer { decision, rule, limit, remaining, reset, retry_after, delay } = answer.into();
        let statuses = answer.statuses.iter().map(StatusLine::from).collect();
        Self { decision, rule, limit, remaining, reset, retry_after, delay, statuses }
    }
}

// === impl StatusLine ===

impl<'a> From<&'a Status> for StatusLine<'a> {
    fn from(status: &'a Status) -> Self {
        let Status { rule, allowed, standing, retry_after, soft_over, .. } = status;
        Self {
            rule: rule.as_ref().map(|rule| &*rule.label),
            allowed: *allowed,
            limit: standing.map(|standing| standing.limit),
            remaining: standing.map(|standing| standing.remaining),
            reset: standing.map(|standing| Seconds(standing.reset)),
            retry_after: *retry_after,
            soft_over: *soft_over,
        }
    }
}

// === impl Batch ===

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Questions;

        impl<'de> Visitor<'de> for Questions {
            type Value = Vec<Question>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of questions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Question>, A::Error> {
                let mut questions = Vec::new();
                while let Some(question) = list.next_element()? {
                    if questions.len() == MAX_BATCH {
                        return Err(A::Error::custom(format_args!(
                            "a batch has at most {MAX_BATCH} questions; ask in several requests"
                        )));
                    }
                    questions.push(question);
                }
                Ok(questions)
            }
        }

        deserializer.deserialize_seq(Questions).map(Self)
    }
}

#[cfg(test)]
mod tests;
