//! Bodies of requests: bounded in size, in time and in all.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::{sync::Semaphore, time::timeout};

use super::{Front, problem::Problem};

/// Bytes of a body.
pub const MAX_BODY: usize = 1024 * 1024;

/// How long a body may take.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bodies up to this size are read at once; larger ones, and those that do not tell their size, only as many
/// together as [`MAX_LARGE`], so that many connections cannot fill memory.
const SMALL: u64 = 16 * 1024;

/// Larger bodies that are read together.
pub(crate) const MAX_LARGE: usize = 64;

/// A whole body.
#[derive(Debug)]
pub(super) struct Payload(pub(super) Bytes);

// === impl Payload ===

impl FromRequest<Arc<Front>> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, front: &Arc<Front>) -> Result<Self, Problem> {
        read(request.into_body(), MAX_BODY, &front.large_bodies).await.map(Payload)
    }
}

/// A whole body of at most `max` bytes, within [`BODY_TIMEOUT`]. It waits for one of `large` where it may be
/// large.
pub(crate) async fn read(body: Body, max: usize, large: &Semaphore) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > max as u64 {
        return Err(too_large(max));
    }
    let small = body.size_hint().upper().is_some_and(|size| size <= SMALL);
    let read = async {
        // Nobody closes the semaphore; without a permit the body is read all the same.
        let _permit = if small { None } else { large.acquire().await.ok() };
        match Limited::new(body, max).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large(max)),
            Err(error) => Err(broken(&error)),
        }
    };
    timeout(BODY_TIMEOUT, read).await.map_err(|_| too_slow(BODY_TIMEOUT))?
}

/// A body that broke off.
pub(crate) fn broken(error: &dyn std::fmt::Display) -> Problem {
    Problem::bad_request(format!("the body broke off: {error}"))
}

/// A body that was not there after `limit`.
pub(crate) fn too_slow(limit: Duration) -> Problem {
    let seconds = limit.as_secs();
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        format!("the body was not complete after {seconds} seconds; send it at once"),
    )
}

/// A body of more than `max` bytes.
pub(crate) fn too_large(max: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("a body may have at most {max} bytes; ask in several requests"),
    )
}
