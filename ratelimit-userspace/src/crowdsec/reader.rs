//! Asks the local API for decisions, again and again.

use std::{fs, io, path::PathBuf, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{Update, decisions::Stream};
use crate::config::policy::CrowdSec;

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that an answer may have: some 500,000 decisions.
const MAX_ANSWER: usize = 128 << 20;
const API_KEY: &str = "x-api-key";

/// Why no decisions came.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The key cannot be read.
    #[error("failed to read the API key in {}", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nobody listens there.
    #[error("failed to reach CrowdSec's local API at {url}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why not.
        source: io::Error,
    },
    /// It takes too long.
    #[error("CrowdSec's local API at {url} did not answer within {} s", PATIENCE.as_secs())]
    Slow {
        /// Where.
        url: String,
    },
    /// It refuses the key.
    #[error(
        "CrowdSec's local API at {url} refuses the API key in {}; `cscli bouncers add NAME` makes one",
        file.display()
    )]
    Forbidden {
        /// Where.
        url: String,
        /// The file of the key.
        file: PathBuf,
    },
    /// It answers with an error.
    #[error("CrowdSec's local API at {url} answered with {status}")]
    Status {
        /// Where.
        url: String,
        /// Its answer.
        status: StatusCode,
    },
    /// What answers there is something else.
    #[error("what CrowdSec's local API at {url} answered is not as its documentation says")]
    Garbled {
        /// Where.
        url: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Asks until nobody takes updates any more. After an error everything is asked for again.
pub async fn read(settings: CrowdSec, updates: mpsc::Sender<Update>) {
    let mut all = true;
    loop {
        let update = match timeout(PATIENCE, ask(&settings, all)).await {
            Ok(Ok(stream)) => Update::Decisions { all, stream },
            Ok(Err(error)) => Update::Failed(error),
            Err(_) => Update::Failed(ReadError::Slow { url: settings.url.clone() }),
        };
        all = matches!(update, Update::Failed(_));
        if updates.send(update).await.is_err() {
            return;
        }
        sleep(settings.every).await;
    }
}

async fn ask(settings: &CrowdSec, all: bool) -> Result<Stream, ReadError> {
    let CrowdSec { url, api_key_file, .. } = settings;
    let failed = |source| ReadError::Key { path: api_key_file.clone(), source };
    let key = fs::read(api_key_file).map_err(failed)?;
    let mut key =
        HeaderValue::from_bytes(key.trim_ascii()).map_err(|error| failed(io::Error::other(error)))?;
    key.set_sensitive(true);
    let unreachable = |source| ReadError::Unreachable { url: url.clone(), source };
    let stream = TcpStream::connect(settings.host()).await.map_err(unreachable)?;
    let (status, body) = exchange(stream, settings, key, all).await.map_err(|source| garbled(url, source))?;
    match status {
        StatusCode::OK => serde_json::from_slice(&body).map_err(|error| garbled(url, error.into())),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            Err(ReadError::Forbidden { url: url.clone(), file: api_key_file.clone() })
        }
        status => Err(ReadError::Status { url: url.clone(), status }),
    }
}

fn garbled(url: &str, source: Box<dyn std::error::Error + Send + Sync>) -> ReadError {
    ReadError::Garbled { url: url.to_owned(), source }
}

async fn exchange(
    stream: TcpStream,
    settings: &CrowdSec,
    key: HeaderValue,
    all: bool,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let target = format!("{}/v1/decisions/stream?startup={all}&dedup=false", settings.path());
    let request = Request::get(target)
        .header(header::HOST, settings.host())
        .header(header::USER_AGENT, concat!("ratelimit/v", env!("CARGO_PKG_VERSION")))
        .header(API_KEY, key)
        .body(Empty::<Bytes>::new())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        Ok((status, Limited::new(response.into_body(), MAX_ANSWER).collect().await?.to_bytes()))
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
