//! Every path of the API, and its description as `OpenAPI` 3.1, which is made from the same handlers.

mod blocks;
mod changes;
mod events;
mod listing;
mod state;
mod upload;

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use axum::{
    Json, Router,
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    middleware,
};
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use serde::de::DeserializeOwned;
use tokio::{sync::Semaphore, task::spawn_blocking};
use utoipa::{
    IntoResponses, Modify, OpenApi,
    openapi::{
        self, ContentBuilder, Ref, RefOr, Response, ResponseBuilder,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{access, command::Kind, handle::Handle, problem::Problem, read::ReadError, schema};
use crate::{
    http::serve::{
        access::Tokens,
        body::{self, MAX_BODY},
    },
    network::state::StateDir,
};

/// Answers that take long to make, and are made at once: more askers wait for their turn.
const HEAVY: usize = 2;

/// Listeners to events.
const MAX_LISTENERS: usize = 64;

/// What every handler shares.
pub(super) type Shared = Arc<Api>;

/// What the API is made of.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) handle: Handle,
    pub(super) tokens: ArcSwap<Tokens>,
    /// Bodies of some size, read together.
    bodies: Semaphore,
    /// Texts to apply and lists of blocks, which may be large: one after the other.
    uploads: Semaphore,
    heavy: Arc<Semaphore>,
    listeners: Arc<Semaphore>,
}

/// The whole body, if it is not too large.
#[derive(Debug)]
struct Payload(Bytes);

/// The parameters in the target.
#[derive(Debug)]
struct Params<T>(T);

/// The part of the path that stands for something.
#[derive(Debug)]
struct Segment<T>(T);

/// Whatever goes wrong, in the description.
struct Failures;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ratelimit",
        version = "1",
        description = "What a running `ratelimit daemon` tells and does. Over its Unix socket everything is \
                       allowed to whoever may open it; over TCP, on loopback only, it takes a token. \
                       Packets are packets, bytes those of whole frames, times RFC 3339 in UTC, durations \
                       text such as `10m`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "http://localhost", description = "`curl --unix-socket /run/ratelimit/admin.sock`")),
    tags(
        (name = "state", description = "What is enforced, and what it sees"),
        (name = "blocks", description = "Blocked sources"),
        (name = "changes", description = "Other rules and modes"),
        (name = "health", description = "For whoever watches over the process"),
    ),
    security((), ("token" = [])),
    components(schemas(schema::Problem, schema::Event)),
    modifiers(&Token),
)]
struct Described;

/// Says how a token is sent.
struct Token;

/// The router and its description.
pub(super) fn router(api: Shared) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .fallback(async || {
            Problem::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path; GET /openapi.json lists what there is",
            )
        })
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path has no such method; GET /openapi.json lists what there is",
            )
        })
        .layer(middleware::from_fn(access::check_host))
        .with_state(api)
}

/// The description as text, as it is served and as it stands in the documentation.
pub fn description() -> String {
    let (_, description) = described().split_for_parts();
    // It consists of strings, numbers, lists and maps with names.
    let mut text = description.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(state::status))
        .routes(routes!(state::rules))
        .routes(routes!(state::counters))
        .routes(routes!(state::sources))
        .routes(routes!(state::source))
        .routes(routes!(state::config))
        .routes(routes!(events::events))
        .routes(routes!(blocks::list, blocks::add))
        .routes(routes!(blocks::put, blocks::delete))
        .routes(routes!(blocks::put_prefix, blocks::delete_prefix))
        .routes(routes!(changes::reload))
        .routes(routes!(changes::apply))
        .routes(routes!(changes::confirm))
        .routes(routes!(changes::roll_back))
        .routes(routes!(changes::mode))
        .routes(routes!(state::metrics))
        .routes(routes!(state::healthz))
        .routes(routes!(state::readyz))
        .routes(routes!(state::openapi))
}

// === impl Api ===

impl Api {
    pub(super) fn new(handle: Handle) -> Shared {
        Arc::new(Self {
            handle,
            tokens: ArcSwap::default(),
            bodies: Semaphore::new(body::MAX_LARGE),
            uploads: Semaphore::new(1),
            heavy: Arc::new(Semaphore::new(HEAVY)),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
        })
    }

    /// Looks at what is pinned, where that may take system calls and time.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&StateDir) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Problem> {
        let state = self.handle.state().clone();
        match spawn_blocking(move || look(&state)).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Problem::new(Kind::Failed.status(), "looking at the pinned state failed badly")),
        }
    }
}

// === extractors ===

impl FromRequest<Shared> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, api: &Shared) -> Result<Self, Problem> {
        body::read(request.into_body(), MAX_BODY, &api.bodies).await.map(Self)
    }
}

impl<T: DeserializeOwned> FromRequestParts<Shared> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for Segment<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, api).await {
            Ok(Path(segment)) => Ok(Self(segment)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

// === impl Payload ===

impl Payload {
    /// What its JSON says; nothing at all stands for an object without members.
    fn json<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.0.trim_ascii().is_empty() { Ok(T::default()) } else { self.required() }
    }

    /// What its JSON says.
    fn required<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.0).map_err(|error| Problem::bad_request(format!("the body: {error}")))
    }
}

// === the description ===

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description("What went wrong, in words")
            .content("application/problem+json", content)
            .build();
        BTreeMap::from([("default".to_owned(), response.into())])
    }
}

impl Modify for Token {
    fn modify(&self, openapi: &mut openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "Over TCP: the token of `token_file` to look, that of `write_token_file` to change something too",
        ));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
    }
}

/// JSON as an answer.
type Answer<T> = Result<Json<T>, Problem>;

#[cfg(test)]
mod tests;
