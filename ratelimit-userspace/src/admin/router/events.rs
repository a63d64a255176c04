//! What happens, as it happens or afterwards.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    response::{
        IntoResponse as _, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use futures_util::StreamExt as _;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::{Failures, Params, Shared};
use crate::admin::{access::Reader, problem::Problem, schema};

/// A comment is sent after so long a silence, so that both ends notice when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Range {
    /// Answer with so many recent events as one JSON object instead, the newest last
    limit: Option<usize>,
    /// Begin with the event after the one of this number, as far as it is kept; so does `Last-Event-ID`
    after: Option<u64>,
}

/// What happens, as server-sent events
///
/// The name of an event is its `type`, its data the JSON of an `Event`. A comment comes when nothing happens
/// for 15 seconds. Who reads too slowly loses events and gets one called `lost` with their number.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "state",
    params(Range, ("Last-Event-ID" = Option<u64>, Header, description = "As `after`")),
    responses(
        (status = OK, description = "They, as they happen or as one object", content(
            (String = "text/event-stream"),
            (schema::Events = "application/json"),
        )),
        Failures,
    )
)]
pub(super) async fn events(
    _: Reader,
    State(api): State<Shared>,
    Params(Range { limit, after }): Params<Range>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let log = api.handle.events();
    if let Some(limit) = limit {
        return Ok(Json(schema::Events { events: log.recent(limit) }).into_response());
    }
    let Ok(permit) = Arc::clone(&api.listeners).try_acquire_owned() else {
        let detail = "there are as many listeners as there may be; end one, or ask with `limit`";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let last = || headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok();
    let stream = log.listen(after.or_else(last)).map(move |event| {
        // It counts as a listener as long as the stream is there.
        let _counted = &permit;
        Ok::<_, Infallible>(sent(&event))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response())
}

fn sent(event: &schema::Event) -> sse::Event {
    // Names and numbers alone always have a JSON form.
    let data = serde_json::to_string(event).unwrap_or_default();
    sse::Event::default().id(event.id.to_string()).event(event.what.name()).data(data)
}
