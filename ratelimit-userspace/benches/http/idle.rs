//! Many connections that have been used once and are kept.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    runtime,
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use crate::endpoint::{Answer, Endpoint};

/// How long a server may take for one connection and its request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens `count` connections to the check endpoint, has one request answered on each, prints `open`, and
/// holds them until SIGTERM. Fails unless each of them is served then, too.
pub(crate) fn run(address: SocketAddr, count: usize) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut end = signal(SignalKind::terminate()).context("failed to wait for SIGTERM")?;
        let mut senders = Vec::with_capacity(count);
        for number in 1..=count {
            let sender = patiently(open(address)).await;
            senders.push(sender.with_context(|| format!("failed to use connection {number}"))?);
        }
        println!("open");
        end.recv().await;
        for (sender, number) in senders.iter_mut().zip(1..) {
            let answered = patiently(ask(sender, address)).await;
            answered.with_context(|| format!("connection {number} is not served any more"))?;
        }
        Ok(())
    })
}

/// Dropped, it ends its connection.
type Sender = http1::SendRequest<Full<Bytes>>;

async fn open(address: SocketAddr) -> Result<Sender> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    ask(&mut sender, address).await?;
    Ok(sender)
}

async fn ask(sender: &mut Sender, address: SocketAddr) -> Result<()> {
    let response = sender.send_request(Endpoint::Check.request(address)?).await?;
    Answer::read(response).await?.allows()
}

async fn patiently<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| bail!("no answer within {PATIENCE:?}"))
}
