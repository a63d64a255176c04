//! What the daemon's endpoints are compared with: servers of the same libraries that read the same request
//! into the same shape and then have their answer ready.

use std::{fs, hint::black_box, net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use axum::{Json, Router, extract::State, routing::post, serve::ListenerExt as _};
use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::Code,
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use http::HeaderMap;
use ratelimit::http::wire::Question;
use tokio::{net::TcpListener, runtime};

use crate::endpoint::Saved;

/// Serves both until the process is ended.
pub(crate) fn serve(check: SocketAddr, grpc: SocketAddr, answer: &Path) -> Result<()> {
    let text = fs::read_to_string(answer).with_context(|| format!("failed to read {}", answer.display()))?;
    let Saved { headers, body } = serde_json::from_str(&text).context("failed to read the answer to give")?;
    let mut ready = HeaderMap::new();
    for (name, value) in headers {
        ready.append(http::HeaderName::try_from(name)?, value.try_into()?);
    }
    let ready = Arc::new((ready, Bytes::from(body)));

    // Like the daemon's, one thread: more than one would only pass requests around on one CPU.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let router = Router::new().route("/v1/check", post(give)).with_state(ready);
        let listener = TcpListener::bind(check).await.with_context(|| format!("failed to bind {check}"))?;
        // As on the sockets of the daemon, and on those of tonic.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let grpc =
            tonic::transport::Server::builder().add_service(RateLimitServiceServer::new(Empty)).serve(grpc);
        tokio::try_join!(
            async { axum::serve(listener, router).await.context("the check endpoint failed") },
            async { grpc.await.context("the rate-limit service failed") },
        )?;
        Ok(())
    })
}

async fn give(
    State(ready): State<Arc<(HeaderMap, Bytes)>>,
    Json(question): Json<Question>,
) -> (HeaderMap, Bytes) {
    black_box(question);
    let (headers, body) = &*ready;
    (headers.clone(), body.clone())
}

/// A service that decides nothing.
#[derive(Debug)]
struct Empty;

#[tonic::async_trait]
impl RateLimitService for Empty {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, tonic::Status> {
        black_box(request.into_inner());
        let response = RateLimitResponse { overall_code: Code::Ok.into(), ..Default::default() };
        Ok(tonic::Response::new(response))
    }
}
