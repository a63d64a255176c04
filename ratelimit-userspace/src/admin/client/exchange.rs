//! One request and its answer over a connection of its own.

use std::{
    io::{self, Read},
    path::Path,
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
    task::{AbortHandle, spawn_blocking},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;

use super::ClientError;

/// How long an answer may take: a daemon that puts a large policy in force, or a million blocks, answers
/// when that is done.
const PATIENCE: Duration = Duration::from_secs(90);

/// Bytes of an answer: a list of four million blocks is below that.
const MAX_ANSWER: usize = 1 << 30;

/// Bytes of a problem.
const MAX_PROBLEM: usize = 1 << 20;

/// Bytes of a list that are read at once, and how many such pieces may wait to be sent.
const PIECE: usize = 64 * 1024;
const PIECES: usize = 4;

/// A request.
pub(super) struct Exchange {
    request: Request<Body>,
    /// What is sent as it is read.
    list: Option<Box<dyn Read + Send>>,
}

/// An answer whose body is still to come. The connection ends with it.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) response: Response<Incoming>,
    connection: AbortHandle,
}

// === impl Exchange ===

impl Exchange {
    /// Without a body.
    pub(super) fn new(method: Method, target: &str) -> Self {
        Self::with(method, target, None, Body::empty())
    }

    /// With JSON.
    pub(super) fn json(method: Method, target: &str, body: &impl Serialize) -> Self {
        // What is sent consists of names, numbers and texts.
        let text = serde_json::to_vec(body).unwrap_or_default();
        Self::with(method, target, Some("application/json"), Body::from(text))
    }

    /// With a text.
    pub(super) fn text(method: Method, target: &str, media_type: &'static str, text: String) -> Self {
        Self::with(method, target, Some(media_type), Body::from(text))
    }

    /// With what is read until it ends.
    pub(super) fn stream(method: Method, target: &str, list: impl Read + Send + 'static) -> Self {
        Self { list: Some(Box::new(list)), ..Self::with(method, target, Some("text/plain"), Body::empty()) }
    }

    fn with(method: Method, target: &str, media_type: Option<&'static str>, body: Body) -> Self {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // Targets are made here, of what may stand in one.
        *request.uri_mut() = target.parse().unwrap_or_default();
        request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        if let Some(media_type) = media_type {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        Self { request, list: None }
    }

    /// Asks and waits for the whole answer. Refusals are errors.
    pub(super) async fn run(self, socket: &Path) -> Result<Bytes, ClientError> {
        let answer = async {
            let mut answering = self.begin(socket).await?;
            let body = Limited::new(answering.response.body_mut(), MAX_ANSWER).collect().await;
            Ok(body.map_err(|error| garbled(socket, &*error))?.to_bytes())
        };
        timeout(PATIENCE, answer)
            .await
            .unwrap_or_else(|_| Err(ClientError::Slow { socket: socket.to_owned(), patience: PATIENCE }))
    }

    /// Asks and waits for the answer to begin. Refusals are errors.
    pub(super) async fn begin(self, socket: &Path) -> Result<Answering, ClientError> {
        let Self { mut request, list } = self;
        let stream =
            UnixStream::connect(socket).await.map_err(|error| ClientError::connect(socket, error))?;
        let failed = |error: hyper::Error| ClientError::Connection {
            socket: socket.to_owned(),
            source: io::Error::other(error),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Where it fails, so does the request.
        let connection = tokio::spawn(async { drop(connection.await) }).abort_handle();
        let mut unreadable = None;
        if let Some(list) = list {
            let (body, failure) = sending(list);
            *request.body_mut() = body;
            unreadable = Some(failure);
        }
        let outcome = sender.send_request(request).await;
        if let Some(error) = unreadable.and_then(|mut failure| failure.try_recv().ok()) {
            return Err(ClientError::List(error));
        }
        let answering = Answering { response: outcome.map_err(failed)?, connection };
        let status = answering.response.status();
        if status.is_success() {
            return Ok(answering);
        }
        let mut answering = answering;
        let body = Limited::new(answering.response.body_mut(), MAX_PROBLEM).collect().await;
        let body = body.map(Collected::to_bytes).unwrap_or_default();
        Err(ClientError::refused(status, &body))
    }
}

/// A body of what is read, and why it broke off if it did: then the daemon gets no whole list.
fn sending(mut list: Box<dyn Read + Send>) -> (Body, oneshot::Receiver<io::Error>) {
    let (sender, pieces) = mpsc::channel::<Result<Bytes, io::Error>>(PIECES);
    let (failure, failed) = oneshot::channel();
    spawn_blocking(move || {
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            match (&mut list).take(PIECE as u64).read_to_end(&mut piece) {
                Ok(0) => return,
                // The daemon may have answered before it has everything.
                Ok(_) if sender.blocking_send(Ok(piece.into())).is_err() => return,
                Ok(_) => {}
                Err(error) => {
                    let broken = io::Error::from(error.kind());
                    drop(failure.send(error));
                    drop(sender.blocking_send(Err(broken)));
                    return;
                }
            }
        }
    });
    (Body::from_stream(ReceiverStream::new(pieces)), failed)
}

pub(super) fn garbled(socket: &Path, error: &dyn std::error::Error) -> ClientError {
    ClientError::Garbled { socket: socket.to_owned(), what: error.to_string() }
}

// === impl Answering ===

impl Drop for Answering {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
