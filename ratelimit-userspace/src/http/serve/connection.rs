//! HTTP/1.1 over a listener: every connection is bounded in size and in time, whatever its client does.

mod guarded;

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    sync::watch,
    time::timeout,
};
use tower::Service as _;
use tracing::debug;

use self::guarded::{Guarded, Stage};
use super::listener::{Connection, Listener, Peer};

/// How long a connection may be open without a request. Longer than the minute after which proxies close
/// their idle connections, so that they do so before us and no request meets a closed one.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a request line with its headers may take, from the first byte on.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may leave an answer unread.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long requests have to end when the listener stops.
pub const GRACE: Duration = Duration::from_secs(10);

/// Bytes of a request line with its headers: twice what nginx lets through, since it comes with headers of
/// its own.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Serves connections until `stop`, then gives those that are open [`GRACE`] to end.
pub async fn serve(listener: Listener, router: Router, stop: impl Future<Output = ()>) {
    serve_each(listener, |_| router.clone(), stop).await;
}

/// The same with a router for each connection.
pub async fn serve_each(
    listener: Listener,
    router: impl Fn(&Connection) -> Router,
    stop: impl Future<Output = ()>,
) {
    let (running, stopped) = watch::channel(());
    let mut stop = pin!(stop);
    loop {
        select! {
            connection = listener.accept() => {
                let peer = connection.peer();
                let router = router(&connection);
                tokio::spawn(attend(connection, peer, router, stopped.clone()));
            }
            () = &mut stop => break,
        }
    }
    drop(running);
    listener.close().await;
}

/// Serves one connection. `stopped` says so by losing its sender.
async fn attend<S>(stream: S, peer: Peer, router: Router, mut stopped: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stage = Arc::new(Stage::default());
    let io = TokioIo::new(Guarded::new(stream, Arc::clone(&stage)));
    let service = service_fn(move |mut request: Request<Incoming>| {
        stage.serve();
        request.extensions_mut().insert(peer);
        let answer = router.clone().call(request.map(Body::new));
        let stage = Arc::clone(&stage);
        async move {
            let answer: Result<_, Infallible> = answer.await;
            stage.answer();
            answer
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .half_close(true)
            .header_read_timeout(None)
            .max_buf_size(MAX_HEADER_BYTES)
            .max_header_size(MAX_HEADER_BYTES)
            .serve_connection(io, service)
    );
    let end = select! {
        end = connection.as_mut() => end,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            match timeout(GRACE, connection).await {
                Ok(end) => end,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = end {
        debug!(?peer, %error, "a connection failed");
    }
}

#[cfg(test)]
mod tests;
