//! Other rules and modes.

use std::time::Duration;

use axum::{Json, body::Body, extract::State};
use serde::Deserialize;

use super::{Answer, Failures, Params, Payload, Segment, Shared};
use crate::{
    admin::{
        access::Writer,
        command::{Command, Kind, Refusal},
        problem::Problem,
        schema::{Applied, Mode, ModeAnswer, ModeRequest, Reloaded, text},
    },
    config::MAX_FILE_BYTES,
    http::serve::body,
};

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Force {
    /// Also where that cuts the connection of who asks
    force: bool,
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ApplyParams {
    /// Go back to what was in force unless this is confirmed within a time such as `60s`
    #[serde(with = "text::optional_duration")]
    #[param(value_type = Option<String>)]
    confirm: Option<Duration>,
    /// Also where that cuts the connection of who asks
    force: bool,
}

/// Read the files again and put them in force
///
/// After a failure what was in force still is.
#[utoipa::path(
    post,
    path = "/v1/reload",
    tag = "changes",
    params(Force),
    responses((status = OK, description = "What became of it", body = Reloaded), Failures)
)]
pub(super) async fn reload(
    writer: Writer,
    State(api): State<Shared>,
    Params(Force { force }): Params<Force>,
) -> Answer<Reloaded> {
    let session = writer.session().await;
    let reloaded = api.handle.ask(|reply| Command::Reload { force, session, reply }).await?;
    Ok(Json(reloaded.into()))
}

/// Put another rules file in force, whose text is the body
///
/// The file on disk stays as it is, and files that the text names are looked for beside that one.
#[utoipa::path(
    post,
    path = "/v1/apply",
    tag = "changes",
    params(ApplyParams),
    request_body(content = String, content_type = "application/yaml", description = "At most 32 MiB"),
    responses((status = OK, description = "It is in force", body = Applied), Failures)
)]
pub(super) async fn apply(
    writer: Writer,
    State(api): State<Shared>,
    Params(ApplyParams { confirm, force }): Params<ApplyParams>,
    body: Body,
) -> Answer<Applied> {
    if confirm.is_some_and(|time| time.is_zero()) {
        let message = "there is no time to confirm it; leave `confirm` out to apply without a trial";
        return Err(Refusal::new(Kind::Invalid, message).into());
    }
    let max = usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX);
    let text = String::from_utf8(body::read(body, max, &api.uploads).await?.into()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::from(Refusal::new(Kind::Invalid, format!("the text is not UTF-8 from byte {at} on")))
    })?;
    let session = writer.session().await;
    let applied = api.handle.ask(|reply| Command::Apply { text, confirm, force, session, reply }).await?;
    Ok(Json(applied.into()))
}

/// Keep what was applied on trial
#[utoipa::path(
    post,
    path = "/v1/apply/{id}/confirm",
    tag = "changes",
    params(("id" = String, Path, description = "As the answer to `apply` has it")),
    responses((status = OK, description = "It is done"), Failures)
)]
pub(super) async fn confirm(
    _: Writer,
    State(api): State<Shared>,
    Segment(id): Segment<String>,
) -> Result<(), Problem> {
    Ok(api.handle.ask(|reply| Command::Confirm { id, reply }).await?)
}

/// Go back to what was in force before the trial
#[utoipa::path(
    post,
    path = "/v1/apply/{id}/rollback",
    tag = "changes",
    params(("id" = String, Path, description = "As the answer to `apply` has it")),
    responses((status = OK, description = "It is done"), Failures)
)]
pub(super) async fn roll_back(
    _: Writer,
    State(api): State<Shared>,
    Segment(id): Segment<String>,
) -> Result<(), Problem> {
    Ok(api.handle.ask(|reply| Command::Rollback { id, reply }).await?)
}

/// Shed, or only count what would be shed
#[utoipa::path(
    put,
    path = "/v1/mode",
    tag = "changes",
    request_body = ModeRequest,
    responses((status = OK, description = "It is set", body = ModeAnswer), Failures)
)]
pub(super) async fn mode(writer: Writer, State(api): State<Shared>, payload: Payload) -> Answer<ModeAnswer> {
    let ModeRequest { mode, force } = payload.required()?;
    let session = writer.session().await;
    let monitor = mode == Mode::Monitor;
    let set = api.handle.ask(|reply| Command::Mode { monitor, force, session, reply }).await?;
    Ok(Json(ModeAnswer { mode, changed: set.changed }))
}
