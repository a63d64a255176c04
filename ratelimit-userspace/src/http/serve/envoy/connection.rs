//! One HTTP/2 connection, within bounds.
//!
//! What a hostile client can make a connection hold: [`STREAMS`] requests of [`MESSAGE`] bytes each, for
//! [`REQUEST`] at most, and a header list of [`HEADERS`] bytes, which bounds CONTINUATION frames too (h2
//! closes the connection after the few more than such a list can fill). Streams that a client opens and
//! resets before they are served are bounded by [`RESETS`], and those that its protocol errors reset by
//! [`ERRORS`]; beyond that the connection is closed. Bodies are read only for askers that may ask.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use http::header::AUTHORIZATION;
use hyper::{body::Incoming, server::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    sync::watch,
    time::{sleep, timeout},
};
use tonic::{Status, body::Body, codegen::Service as _};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};
use tracing::debug;

use super::{Asker, preface::Prompt};
use crate::http::serve::access::Rights;

/// Requests that one connection may have open. Envoy opens few connections and puts many requests on each,
/// but waits for the next free stream, and a decision takes microseconds.
const STREAMS: u32 = 128;

/// Bytes of a request's message. The descriptors of a request are made from its headers.
pub(super) const MESSAGE: usize = 64 * 1024;

/// Bytes of a request's header list.
const HEADERS: u32 = 16 * 1024;

/// Bytes in flight of one body, and of all bodies of a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

const RESETS: usize = 20;

/// A client that has not read yet how many streams it may open has those beyond refused, each an error of its
/// own; a proxy that just connected may have hundreds of requests waiting.
const ERRORS: usize = 1024;

/// Until the client's preface has arrived.
const PREFACE: Duration = Duration::from_secs(10);

/// Until a request's message has arrived.
const REQUEST: Duration = Duration::from_secs(10);

/// A peer that does not answer a ping sent this often within this long is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING: Duration = Duration::from_secs(10);

/// A connection on which no request begins for this long is closed; clients open another when they need one.
const IDLE: Duration = Duration::from_mins(15);

/// For requests that have begun when the connection is to end.
const GRACE: Duration = Duration::from_secs(5);

type Response = http::Response<Body>;

/// Which service a request is for.
#[derive(Debug)]
struct Services {
    asker: Arc<Asker>,
    rate_limit: RateLimitServiceServer<Asker>,
    health: HealthServer<HealthService>,
}

/// Serves a connection until it ends, is idle, or `stopped` changes.
pub(super) async fn drive(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    asker: Arc<Asker>,
    health: HealthServer<HealthService>,
    mut stopped: watch::Receiver<()>,
) {
    let rate_limit = RateLimitServiceServer::from_arc(Arc::clone(&asker)).max_decoding_message_size(MESSAGE);
    let services = Services { asker: Arc::clone(&asker), rate_limit, health };
    let io = TokioIo::new(Prompt::new(stream, PREFACE));
    let mut connection = pin!(builder().serve_connection(io, services));
    let mut seen = 0;
    loop {
        select! {
            ended = &mut connection => return tell(ended),
            _ = stopped.changed() => break,
            () = sleep(IDLE) => {
                let requests = asker.requests.load(Ordering::Relaxed);
                if requests == seen {
                    break;
                }
                seen = requests;
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(ended) = timeout(GRACE, connection).await {
        tell(ended);
    }
}

fn tell(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(%error, "a gRPC connection failed");
    }
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(ERRORS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING)
        .auto_date_header(false);
    builder
}

// === impl Services ===

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        // Health is anybody's: what asks for it, a load balancer, seldom has a token.
        if request.uri().path().starts_with("/grpc.health.v1.Health/") {
            return self.health.clone().call(request);
        }
        self.asker.requests.fetch_add(1, Ordering::Relaxed);
        if let Err(refused) = self.asker.demand(Rights::Ask, request.headers().get(AUTHORIZATION)) {
            return Box::pin(async move { Ok(refused.into_http()) });
        }
        let answer = self.rate_limit.clone().call(request);
        Box::pin(async move {
            timeout(REQUEST, answer).await.unwrap_or_else(|_| {
                Ok(Status::deadline_exceeded("the message did not arrive in time").into_http())
            })
        })
    }
}

#[cfg(test)]
mod tests;
