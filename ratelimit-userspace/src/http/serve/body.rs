//! Bodies of requests: bounded in size, in time and in all.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use super::{Front, problem::Problem};

/// Bytes of a body.
pub const MAX_BODY: usize = 1024 * 1024;

/// How long a body may take.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bodies up to this size are read at once; larger ones, and those that do not tell their size, only as many
/// together as [`MAX_LARGE`], so that many connections cannot fill memory.
const SMALL: u64 = 16 * 1024;

/// Larger bodies that are read together.
pub(super) const MAX_LARGE: usize = 64;

/// A whole body.
#[derive(Debug)]
pub(super) struct Payload(pub(super) Bytes);

// === impl Payload ===

impl FromRequest<Arc<Front>> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, front: &Arc<Front>) -> Result<Self, Problem> {
        let body = request.into_body();
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Err(too_large());
        }
        timeout(BODY_TIMEOUT, read(body, front)).await.map_err(|_| {
            let seconds = BODY_TIMEOUT.as_secs();
            Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body was not complete after {seconds} seconds; send it at once"),
            )
        })?
    }
}

async fn read(body: Body, front: &Front) -> Result<Payload, Problem> {
    let small = body.size_hint().upper().is_some_and(|size| size <= SMALL);
    // Nobody closes the semaphore; without a permit the body is read all the same.
    let _permit = if small { None } else { front.large_bodies.acquire().await.ok() };
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(Payload(collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Problem::bad_request(format!("the body broke off: {error}"))),
    }
}

fn too_large() -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("a body may have at most {MAX_BODY} bytes; ask in several requests"),
    )
}
