//! What is enforced, and what it sees.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header::CONTENT_TYPE};

use serde::Deserialize;
use utoipa::ToSchema;

use super::{Answer, Failures, Params, Segment, Shared, description};
use crate::{
    admin::{
        access::{Reader, Writer},
        command::{Command, Kind, Refusal},
        metrics::{self, Figures},
        problem::Problem,
        read::{self, ReadError},
        schema::{Address, Config, Rules, Sources, Status},
    },
    http::metrics::Format,
    network::counters::Counters,
};

/// Sources that are told at most: as many as are kept.
const MAX_TOP: usize = 16_384;

/// How many, and which.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Top {
    /// How many
    #[param(default = 20)]
    top: usize,
    /// Whose packets count: those that passed, or those that were shed
    #[param(default = "shed", inline)]
    by: By,
}

/// What counts.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// Packets that passed.
    Passed,
    /// Packets that were shed.
    Shed,
}

// === impl Top ===

impl Default for Top {
    fn default() -> Self {
        Self { top: 20, by: By::Shed }
    }
}

// === handlers ===

/// What is enforced, and where
#[utoipa::path(get, path = "/v1/status", tag = "state", responses((status = OK, description = "What runs now", body = Status), Failures))]
pub(super) async fn status(_: Reader, State(api): State<Shared>) -> Answer<Status> {
    let mut status = api.look(read::status).await?;
    status.reloads = Some(api.handle.reloads());
    status.trial = api.handle.trial();
    Ok(Json(status))
}

/// The rules on packets
#[utoipa::path(get, path = "/v1/rules", tag = "state", responses((status = OK, description = "They, in the order in which they are tried", body = Rules), Failures))]
pub(super) async fn rules(_: Reader, State(api): State<Shared>) -> Answer<Rules> {
    Ok(Json(api.look(read::rules).await?))
}

/// What was counted since the counters were made
#[utoipa::path(get, path = "/v1/counters", tag = "state", responses((status = OK, description = "They", body = Counters), Failures))]
pub(super) async fn counters(_: Reader, State(api): State<Shared>) -> Answer<Counters> {
    Ok(Json(api.look(read::counters).await?))
}

/// The sources that sent the most
///
/// They are found by sampling: what is told of a source is exact while it is little, else an estimate with
/// its error.
#[utoipa::path(
    get,
    path = "/v1/sources",
    tag = "state",
    params(Top),
    responses((status = OK, description = "They", body = Sources), Failures)
)]
pub(super) async fn sources(
    _: Reader,
    State(api): State<Shared>,
    Params(Top { top, by }): Params<Top>,
) -> Answer<Sources> {
    let by = match by {
        By::Passed => read::By::Passed,
        By::Shed => read::By::Shed,
    };
    // Nobody closes the semaphore; without a permit they are looked for all the same.
    let _permit = api.heavy.acquire().await.ok();
    Ok(Json(api.look(move |state| read::sources(state, top.min(MAX_TOP), by)).await?))
}

/// What becomes of an address now, and what was seen of it
#[utoipa::path(
    get,
    path = "/v1/sources/{address}",
    tag = "state",
    params(("address" = String, Path, description = "IPv4 or IPv6")),
    responses((status = OK, description = "All that is known", body = Address), Failures)
)]
pub(super) async fn source(
    _: Reader,
    State(api): State<Shared>,
    Segment(address): Segment<String>,
) -> Answer<Address> {
    let address = address.parse().map_err(|_| {
        let message = format!("{address:?} is no address; one looks like 192.0.2.1 or 2001:db8::1");
        Refusal::new(Kind::Invalid, message)
    })?;
    Ok(Json(api.look(move |state| read::address(state, address)).await?))
}

/// The configuration in force
///
/// It may hold what others should not see, such as names of clients, so it takes the right to change.
#[utoipa::path(get, path = "/v1/config", tag = "state", responses((status = OK, description = "It", body = Config), Failures))]
pub(super) async fn config(_: Writer, State(api): State<Shared>) -> Answer<Config> {
    let configuration = api.handle.ask(|reply| Command::Config { reply }).await?;
    Ok(Json(configuration.into()))
}

/// All numbers for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    responses((status = OK, description = "`OpenMetrics` 1.0", body = String, content_type = "application/openmetrics-text"), Failures)
)]
pub(super) async fn metrics(_: Reader, State(api): State<Shared>) -> Result<Response, Problem> {
    let handle = api.handle.clone();
    let text = api
        .look(move |state| {
            let counters = match read::counters(state) {
                Ok(counters) => Some(counters),
                Err(ReadError::NoPolicy(_)) => None,
                Err(error) => return Err(error),
            };
            let (reloads, escalations, feed) = (handle.reloads(), handle.escalations(), handle.feed());
            let figures = Figures { status: read::status(state)?, counters, reloads, escalations, feed };
            Ok(metrics::write(figures, handle.requests()))
        })
        .await?;
    let text =
        text.map_err(|_| Problem::new(Kind::Failed.status(), "the metrics cannot be written as text"))?;
    Ok(([(CONTENT_TYPE, Format::OpenMetrics.media_type())], text).into_response())
}

/// Whether the process lives; needs no right
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = OK, description = "It does", body = String)))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the policy is in force on all of its interfaces; needs no right
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = OK, description = "It is", body = String), Failures))]
pub(super) async fn readyz(State(api): State<Shared>) -> Result<&'static str, Problem> {
    let standing = api.look(read::readiness).await?;
    let none = || match api.handle.requests() {
        Some(_) => Ok(()),
        None => Err("no policy is in force yet".to_owned()),
    };
    standing.unwrap_or_else(none).map(|()| "ready\n").map_err(|lacking| {
        let detail = format!("not everything that should be protected is: {lacking}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })
}

/// This description; needs no right
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = OK, description = "`OpenAPI` 3.1", body = String, content_type = "application/json")))]
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], description()).into_response()
}
