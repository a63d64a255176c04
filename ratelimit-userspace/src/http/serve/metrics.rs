//! `GET /metrics`.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};

use super::{Asker, Front, problem::Problem};
use crate::http::metrics::Format;

/// Everything that is counted. Labels tell what rules there are, so it needs the right to ask.
pub(super) async fn metrics(
    _: Asker,
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    let Front { limiter, metrics, .. } = &*front;
    let text = metrics
        .text(limiter.rules(), limiter.stats(), (front.now)(), format)
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"))?;
    Ok(([(CONTENT_TYPE, format.media_type())], text).into_response())
}
