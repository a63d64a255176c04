//! The two endpoints, and the one request that each is loaded with.

use std::{fs, net::SocketAddr, path::Path};

use anyhow::{Context as _, Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use clap::ValueEnum;
use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor},
    service::ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, runtime};

use crate::contender::DOMAIN;

/// A way to ask the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Endpoint {
    /// `POST /v1/check`.
    Check,
    /// Envoy's `ShouldRateLimit`.
    Grpc,
}

/// What a probe tells.
#[derive(Debug, Serialize)]
pub(crate) struct Probed {
    /// Octets of the answer's body.
    length: usize,
}

/// An answer of the check endpoint, for the reference to give.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// Names and values, without those that every server makes itself.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

/// The client that every request is about.
const ADDRESS: &str = "192.0.2.1";

/// Octets before a message: whether it is compressed, and its length.
const GRPC_PREFIX: usize = 5;

/// Headers that hyper writes, whoever is behind it.
const OF_THE_SERVER: [http::HeaderName; 2] = [header::DATE, header::CONTENT_LENGTH];

// === impl Endpoint ===

impl Endpoint {
    /// Writes the body of the request.
    pub(crate) fn write_body(self, file: &Path) -> Result<()> {
        fs::write(file, self.body()).with_context(|| format!("failed to write {}", file.display()))
    }

    /// Makes the request; anything but permission is an error.
    pub(crate) fn probe(self, address: SocketAddr, save: Option<&Path>) -> Result<Probed> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(self.ask(address))?;
        if let Some(file) = save {
            let saved = Saved::new(&answer)?;
            fs::write(file, serde_json::to_vec(&saved)?)
                .with_context(|| format!("failed to write {}", file.display()))?;
        }
        Ok(Probed { length: answer.body.len() })
    }

    fn body(self) -> Bytes {
        match self {
            Self::Check => {
                let entries = [["client_ip", ADDRESS]];
                let descriptors = [serde_json::json!({ "entries": entries, "hits": 1 })];
                serde_json::json!({ "domain": DOMAIN, "descriptors": descriptors }).to_string().into()
            }
            Self::Grpc => {
                let entry =
                    rate_limit_descriptor::Entry { key: "client_ip".to_owned(), value: ADDRESS.to_owned() };
                let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
                frame(&RateLimitRequest {
                    domain: DOMAIN.to_owned(),
                    descriptors: vec![descriptor],
                    hits_addend: 0,
                })
            }
        }
    }

    async fn ask(self, address: SocketAddr) -> Result<Answer> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("failed to reach {address}"))?;
        let io = TokioIo::new(stream);
        let request = self.request(address)?;
        let response = match self {
            Self::Check => {
                let (mut sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            }
            Self::Grpc => {
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            }
        };
        let answer = Answer::read(response).await?;
        match self {
            Self::Check => answer.allows().map(|()| answer),
            Self::Grpc => answer.is_ok().map(|()| answer),
        }
    }

    /// The request.
    pub(crate) fn request(self, address: SocketAddr) -> Result<Request<Full<Bytes>>> {
        let request = match self {
            Self::Check => Request::post("/v1/check")
                .header(header::HOST, address.to_string())
                .header(header::CONTENT_TYPE, "application/json"),
            Self::Grpc => Request::post(format!(
                "http://{address}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
            ))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers"),
        };
        Ok(request.body(Full::new(self.body()))?)
    }
}

/// A message as it stands in a body of gRPC.
fn frame(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(GRPC_PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("a short message"));
    message.encode(&mut frame).expect("there is room");
    frame.freeze()
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

// === impl Answer ===

impl Answer {
    /// Reads it.
    pub(crate) async fn read(response: Response<Incoming>) -> Result<Self> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Self { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    /// Fails unless the check endpoint found a rule and allowed the request.
    pub(crate) fn allows(&self) -> Result<()> {
        #[derive(Deserialize)]
        struct Body {
            decision: String,
            limit: Option<u64>,
        }

        let text = String::from_utf8_lossy(&self.body);
        ensure!(self.status == StatusCode::OK, "the answer is {}: {text}", self.status);
        let Body { decision, limit } =
            serde_json::from_str(&text).with_context(|| format!("failed to read the answer {text}"))?;
        ensure!(decision == "allow" && limit.is_some(), "the answer is not that of a limit: {text}");
        Ok(())
    }

    /// Fails unless the rate-limit service answered OK.
    fn is_ok(&self) -> Result<()> {
        let Self { status, headers, body, trailers } = self;
        ensure!(*status == StatusCode::OK, "the answer is {status}");
        // An answer without a body may have its trailers among the headers.
        let code = trailers.as_ref().unwrap_or(headers).get("grpc-status");
        let code = code.context("the answer has no grpc-status")?;
        ensure!(code == "0", "the answer has grpc-status {code:?}");
        let message = body.get(GRPC_PREFIX..).context("the answer has no message")?;
        let response = RateLimitResponse::decode(message).context("failed to read the message")?;
        ensure!(response.overall_code() == Code::Ok, "the answer is {response:?}");
        Ok(())
    }
}

// === impl Saved ===

impl Saved {
    fn new(Answer { headers, body, .. }: &Answer) -> Result<Self> {
        let headers = headers.iter().filter(|(name, _)| !OF_THE_SERVER.contains(name));
        let headers = headers.map(|(name, value)| Ok((name.to_string(), value.to_str()?.to_owned())));
        Ok(Self { headers: headers.collect::<Result<_>>()?, body: String::from_utf8(body.to_vec())? })
    }
}
