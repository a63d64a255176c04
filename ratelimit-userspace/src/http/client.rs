//! Asking the daemon over its own listener, for the command line.

use std::{io, net::IpAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use crate::config::http::Listen;

/// How long the whole exchange may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that an answer may have.
const MAX_ANSWER: usize = 1 << 20;

/// Why the daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no daemon answers at {at}; is `ratelimit daemon` running with this configuration?")]
    Unreachable {
        /// Where.
        at: String,
        /// Why not.
        source: io::Error,
    },
    /// It takes too long.
    #[error("the daemon at {at} did not answer within {} s", PATIENCE.as_secs())]
    Slow {
        /// Where.
        at: String,
    },
    /// What answers there does not speak HTTP.
    #[error("what listens at {at} gave no proper answer")]
    Garbled {
        /// Where.
        at: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Sends one request and returns status and body of the answer. A body is JSON.
pub async fn send(
    listen: &Listen,
    method: Method,
    target: &str,
    token: Option<&str>,
    body: Bytes,
) -> Result<(StatusCode, Bytes), ClientError> {
    let at = listen.to_string();
    let exchange = async {
        let unreachable = |source| ClientError::Unreachable { at: at.clone(), source };
        match listen {
            Listen::Tcp(address) => {
                let mut address = *address;
                // A daemon that listens on every address listens on the loopback one.
                if address.ip().is_unspecified() {
                    address.set_ip(match address.ip() {
                        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
                        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
                    });
                }
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                exchange(stream, method, target, token, body).await
            }
            Listen::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                exchange(stream, method, target, token, body).await
            }
        }
        .map_err(|source| ClientError::Garbled { at: at.clone(), source })
    };
    timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(ClientError::Slow { at: at.clone() }))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    target: &str,
    token: Option<&str>,
    body: Bytes,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::builder().method(method).uri(target).header(header::HOST, "localhost");
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(body))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await?.to_bytes();
        Ok((status, body))
    };
    tokio::select! {
        answer = answer => answer,
        // The connection ends after the answer, or without one.
        ended = connection => {
            ended?;
            Err("the connection was closed".into())
        }
    }
}
