//! Envoy's rate-limit service over gRPC: `envoy.service.ratelimit.v3.RateLimitService`, and
//! `grpc.health.v1.Health` beside it.
//!
//! `statuses` has one entry for each descriptor. `response_headers_to_add` has the configured headers, which
//! Envoy adds to responses that pass and to refusals alike; Envoy's own `enable_x_ratelimit_headers` makes
//! the same `x-ratelimit-*` fields from `statuses`, so use one of the two. A refusal also has a body.
//!
//! Over a Unix socket, clients of gRPC's C core (Python, C++, Ruby) must set `grpc.default_authority`: they
//! would else send the percent-encoded path, and the `http` crate takes no `%` in an authority. Envoy sends
//! the name of its cluster.

mod connection;
pub(super) mod json;
mod preface;
mod question;
mod reply;
mod unit;

use std::{
    pin::pin,
    sync::{Arc, atomic::AtomicU64},
};

use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_service_server::{self, RateLimitService},
};
use http::HeaderValue;
use tokio::{select, sync::watch};
use tonic::{Code, Request, Response, Status, async_trait};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use self::question::{Question, QuestionError};
use super::{
    Front,
    access::{AccessError, Rights},
    listener::{Listener, Peer},
};

/// Names under which health is asked for: the process, the service, and what Envoy's own service answers to.
const HEALTH_NAMES: [&str; 3] = ["", rate_limit_service_server::SERVICE_NAME, "ratelimit"];

/// The service as one connection meets it.
#[derive(Debug)]
struct Asker {
    front: Arc<Front>,
    peer: Peer,
    /// Requests that the connection began.
    requests: AtomicU64,
}

/// Serves until `stop`, then finishes what has begun, for a few seconds at most.
pub async fn serve(listener: Listener, front: Arc<Front>, stop: impl Future<Output = ()>) {
    let health = HealthReporter::new();
    let health_server = HealthServer::new(HealthService::from_health_reporter(health.clone()));
    report(&health, ServingStatus::Serving).await;
    let (running, stopped) = watch::channel(());
    let mut stop = pin!(stop);
    loop {
        let connection = select! {
            biased;
            () = &mut stop => break,
            connection = listener.accept() => connection,
        };
        let peer = connection.peer();
        let asker = Arc::new(Asker { front: Arc::clone(&front), peer, requests: AtomicU64::new(0) });
        tokio::spawn(connection::drive(connection, asker, health_server.clone(), stopped.clone()));
    }
    report(&health, ServingStatus::NotServing).await;
    drop(running);
    listener.close().await;
}

async fn report(health: &HealthReporter, status: ServingStatus) {
    for name in HEALTH_NAMES {
        health.set_service_status(name, status).await;
    }
}

// === impl Asker ===

impl Asker {
    /// Whether a request with this `Authorization` may do what needs these rights.
    fn demand(&self, needed: Rights, authorization: Option<&HeaderValue>) -> Result<(), Status> {
        let access = &self.front.settings.load().access;
        Ok(access.demand(needed, access.rights(self.peer, authorization))?)
    }
}

#[async_trait]
impl RateLimitService for Asker {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let message = request.get_ref();
        let Question { ask, needs } = Question::new(message, || self.front.limiter.rules())?;
        if needs > Rights::Ask {
            let authorization = request.metadata().get("authorization");
            let authorization =
                authorization.and_then(|value| HeaderValue::from_bytes(value.as_encoded_bytes()).ok());
            self.demand(needs, authorization.as_ref())?;
        }
        let answer = self.front.decide(&ask, self.peer, self.front.present());
        Ok(Response::new(reply::response(&answer, &self.front.settings.load().answer)))
    }
}

// === impl Status ===

impl From<QuestionError> for Status {
    fn from(error: QuestionError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

impl From<AccessError> for Status {
    fn from(error: AccessError) -> Self {
        let code = match error {
            AccessError::Unauthenticated => Code::Unauthenticated,
            AccessError::Forbidden | AccessError::NeedsWrite => Code::PermissionDenied,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests;
