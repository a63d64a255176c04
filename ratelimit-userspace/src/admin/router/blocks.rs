//! Blocked sources.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header::CONTENT_TYPE};
use ipnet::IpNet;
use serde::Deserialize;

use super::{
    Answer, Failures, Params, Payload, Segment, Shared,
    listing::{self, Wanted},
    upload::Upload,
};
use crate::{
    admin::{
        access::{Reader, Writer},
        command::{Batch, Command, Kind, NewBlock, Refusal},
        intake::{self, Intake},
        problem::Problem,
        read,
        schema::{BlockRequest, Blocked, Blocks, BulkBlocked, Origin, text},
    },
    config,
};

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Only blocks that cover this address or prefix, or lie within it
    prefix: Option<String>,
    /// Only blocks that these made
    origin: Option<Origin>,
    /// No more than so many
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// For how long, such as `10m`, where a line says nothing else; absent: until somebody ends it
    #[serde(rename = "for", with = "text::optional_duration")]
    #[param(value_type = Option<String>)]
    duration: Option<Duration>,
    /// Why, where a line says nothing else; at most 120 bytes
    reason: String,
    /// Also where that cuts the connection of who asks
    force: bool,
}

/// Blocked sources
#[utoipa::path(
    get,
    path = "/v1/blocks",
    tag = "blocks",
    params(Filter),
    responses((status = OK, description = "They, in no order", body = Blocks), Failures)
)]
pub(super) async fn list(
    _: Reader,
    State(api): State<Shared>,
    Params(filter): Params<Filter>,
) -> Result<Response, Problem> {
    let prefix = filter.prefix.as_deref().map(config::prefix).transpose().map_err(invalid)?;
    let wanted = Wanted { prefix, origin: filter.origin, left: filter.limit.unwrap_or(usize::MAX) };
    // Nobody closes the semaphore; without a permit the list is made all the same.
    let permit = Arc::clone(&api.heavy).acquire_owned().await.ok();
    let blocks = api.look(read::open_blocks).await?;
    let body = listing::body(blocks, wanted, permit);
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Block many sources
///
/// A line holds an address, a prefix, or an object as `{"prefix": "192.0.2.0/24", "for": "10m", "reason":
/// "abuse"}`; what stands after `#` does not count. Lines that are wrong are told and keep no other one from
/// being blocked; if there is no room for all of them, none is.
#[utoipa::path(
    post,
    path = "/v1/blocks",
    tag = "blocks",
    params(ListParams),
    request_body(content = String, content_type = "text/plain", description = "At most 64 MiB"),
    responses((status = OK, description = "What became of each line", body = BulkBlocked), Failures)
)]
pub(super) async fn add(
    writer: Writer,
    State(api): State<Shared>,
    Params(ListParams { duration, reason, force }): Params<ListParams>,
    body: Body,
) -> Answer<BulkBlocked> {
    // Nobody closes the semaphore; without a permit the list is read all the same.
    let _permit = api.uploads.acquire().await.ok();
    let mut upload = Upload::new(body)?;
    let taken = match Intake::new(duration, reason) {
        Ok(intake) => take(&mut upload, intake).await,
        Err(message) => Err(invalid(message)),
    };
    let (batch, intake) = match taken {
        Ok(taken) => taken,
        Err(problem) => {
            upload.drain().await;
            return Err(problem);
        }
    };
    let session = writer.session().await;
    let prefixes: Vec<IpNet> = batch.entries.iter().map(|entry| entry.prefix).collect();
    let blocked = api.handle.ask(|reply| Command::Block { batch, force, session, reply }).await?;
    Ok(Json(intake.answer(&prefixes, blocked)))
}

async fn take(upload: &mut Upload, mut intake: Intake) -> Result<(Batch, Intake), Problem> {
    let too_many = |error: intake::TooMany| Refusal::new(Kind::Full, error.to_string());
    while let Some(chunk) = upload.next().await? {
        intake.push(&chunk).map_err(too_many)?;
    }
    let batch = intake.finish().map_err(too_many)?;
    Ok((batch, intake))
}

/// Block an address, or a prefix whose slash is written `%2F`
#[utoipa::path(
    put,
    path = "/v1/blocks/{prefix}",
    tag = "blocks",
    params(("prefix" = String, Path, description = "An address or a prefix")),
    request_body = BlockRequest,
    responses(
        (status = CREATED, description = "It was not blocked before", body = Blocked),
        (status = OK, description = "It was, and is as asked for now", body = Blocked),
        Failures,
    )
)]
pub(super) async fn put(
    writer: Writer,
    State(api): State<Shared>,
    Segment(prefix): Segment<String>,
    payload: Payload,
) -> Result<(StatusCode, Json<Blocked>), Problem> {
    block(writer, &api, &prefix, &payload).await
}

/// Block a prefix
#[utoipa::path(
    put,
    path = "/v1/blocks/{prefix}/{length}",
    tag = "blocks",
    params(
        ("prefix" = String, Path, description = "Its address"),
        ("length" = String, Path, description = "How many bits of it count"),
    ),
    request_body = BlockRequest,
    responses(
        (status = CREATED, description = "It was not blocked before", body = Blocked),
        (status = OK, description = "It was, and is as asked for now", body = Blocked),
        Failures,
    )
)]
pub(super) async fn put_prefix(
    writer: Writer,
    State(api): State<Shared>,
    Segment((address, length)): Segment<(String, String)>,
    payload: Payload,
) -> Result<(StatusCode, Json<Blocked>), Problem> {
    block(writer, &api, &format!("{address}/{length}"), &payload).await
}

async fn block(
    writer: Writer,
    api: &Shared,
    prefix: &str,
    payload: &Payload,
) -> Result<(StatusCode, Json<Blocked>), Problem> {
    let prefix = config::prefix(prefix).map_err(invalid)?;
    let BlockRequest { duration, reason, force } = payload.json()?;
    intake::check(duration, &reason).map_err(invalid)?;
    let session = writer.session().await;
    let batch = Batch { entries: vec![NewBlock { prefix, duration, reason }], reason: String::new() };
    let blocked = api.handle.ask(|reply| Command::Block { batch, force, session, reply }).await?;
    if let Some((_, message)) = blocked.errors.into_iter().next() {
        return Err(invalid(message));
    }
    let added = blocked.added > 0;
    let until = duration.and_then(|duration| SystemTime::now().checked_add(duration));
    let status = if added { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Blocked { prefix, until, added })))
}

/// End the block of an address, or of a prefix whose slash is written `%2F`
#[utoipa::path(
    delete,
    path = "/v1/blocks/{prefix}",
    tag = "blocks",
    params(("prefix" = String, Path, description = "Exactly what was blocked")),
    responses((status = NO_CONTENT, description = "It is not blocked any more"), Failures)
)]
pub(super) async fn delete(
    _: Writer,
    State(api): State<Shared>,
    Segment(prefix): Segment<String>,
) -> Result<StatusCode, Problem> {
    unblock(&api, &prefix).await
}

/// End the block of a prefix
#[utoipa::path(
    delete,
    path = "/v1/blocks/{prefix}/{length}",
    tag = "blocks",
    params(
        ("prefix" = String, Path, description = "Its address"),
        ("length" = String, Path, description = "How many bits of it count"),
    ),
    responses((status = NO_CONTENT, description = "It is not blocked any more"), Failures)
)]
pub(super) async fn delete_prefix(
    _: Writer,
    State(api): State<Shared>,
    Segment((address, length)): Segment<(String, String)>,
) -> Result<StatusCode, Problem> {
    unblock(&api, &format!("{address}/{length}")).await
}

async fn unblock(api: &Shared, prefix: &str) -> Result<StatusCode, Problem> {
    let prefix = config::prefix(prefix).map_err(invalid)?;
    let prefixes = vec![prefix];
    let unblocked = api.handle.ask(|reply| Command::Unblock { prefixes, reply }).await?;
    if unblocked.removed.is_empty() {
        let message =
            format!("{prefix} is not blocked; GET /v1/blocks?prefix={prefix} lists the blocks that cover it");
        return Err(Refusal::new(Kind::NotFound, message).into());
    }
    Ok(StatusCode::NO_CONTENT)
}

fn invalid(message: String) -> Problem {
    Refusal::new(Kind::Invalid, message).into()
}
