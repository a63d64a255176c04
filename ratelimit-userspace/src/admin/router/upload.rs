//! A list that is read as it comes, within bounds.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    admin::problem::Problem,
    http::serve::body::{self, BODY_TIMEOUT},
};

/// Bytes of a list.
pub(super) const MAX_LIST: usize = 64 << 20;

/// How long a list may take to come.
const LIST_TIMEOUT: Duration = Duration::from_mins(1);

/// What is left of the body of a request.
pub(super) struct Upload {
    chunks: BodyDataStream,
    length: usize,
    deadline: Instant,
}

// === impl Upload ===

impl Upload {
    /// Refuses what says itself that it is too large.
    pub(super) fn new(body: Body) -> Result<Self, Problem> {
        if body.size_hint().lower() > MAX_LIST as u64 {
            return Err(body::too_large(MAX_LIST));
        }
        let deadline = Instant::now() + LIST_TIMEOUT;
        Ok(Self { chunks: body.into_data_stream(), length: 0, deadline })
    }

    /// The next piece; `None`: that was all.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let chunk = self.chunk().await?;
        self.length += chunk.as_ref().map_or(0, Bytes::len);
        if self.length > MAX_LIST { Err(body::too_large(MAX_LIST)) } else { Ok(chunk) }
    }

    /// Reads the rest and forgets it. A client that sends when nobody reads any more would meet a broken
    /// connection instead of the answer.
    pub(super) async fn drain(&mut self) {
        let mut left = MAX_LIST;
        while let Ok(Some(chunk)) = self.chunk().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                return;
            }
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        match timeout_at(self.deadline, timeout(BODY_TIMEOUT, self.chunks.next())).await {
            Ok(Ok(chunk)) => chunk.transpose().map_err(|error| body::broken(&error)),
            Ok(Err(_)) => Err(body::too_slow(BODY_TIMEOUT)),
            Err(_) => Err(body::too_slow(LIST_TIMEOUT)),
        }
    }
}
