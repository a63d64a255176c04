//! `POST /v1/explain`: what `/v1/check` would meet, without charging anything.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;

use super::{
    Asker, Front,
    body::Payload,
    check::{bound, json, parse},
    problem::Problem,
};
use crate::http::{explain::Explanation, wire::Question};

/// The handler.
pub(super) async fn explain(
    State(front): State<Arc<Front>>,
    asker: Asker,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let question: Question = parse(&body)?;
    bound(question.descriptors.as_deref())?;
    let identity = question
        .identify(&asker.settings.identifier)
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(json(StatusCode::OK, &Explanation::new(&front.limiter, identity, front.present())))
}
