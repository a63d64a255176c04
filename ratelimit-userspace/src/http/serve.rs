//! The ways to ask: check, forward authentication, Envoy's rate-limit service.
//!
//! | path | who asks |
//! |---|---|
//! | `POST /v1/check` | programs: one question, or a batch of them |
//! | `POST /v1/explain` | operators who wonder why |
//! | `POST /v1/reserve`, `POST /v1/commit` | programs that learn later what a request cost |
//! | `GET`, `DELETE /v1/counters` | operators |
//! | `/auth/nginx`, `/auth/traefik`, `/auth/caddy`, `/auth/envoy/…` | proxies, before they let a request pass |
//! | `POST /json` | Envoy's rate-limit service as JSON |
//! | `GET /metrics` | Prometheus |
//! | `GET /healthz`, `GET /readyz` | whoever watches over the process; needs no right |

pub mod access;
pub mod body;
mod check;
pub mod connection;
mod counters;
mod denial;
pub mod envoy;
mod explain;
#[cfg(test)]
pub(crate) mod fixture;
mod forward_auth;
mod headers;
mod judge;
pub mod listener;
mod metrics;
pub(crate) mod problem;
mod reserve;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::FromRequestParts,
    routing::{any, get, post},
};
use http::{StatusCode, header::AUTHORIZATION, request::Parts};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::warn;

use self::{
    access::{Access, Rights, TokenError},
    forward_auth::Proxy,
    listener::Peer,
    problem::Problem,
};
use super::{
    algorithm::Nanos, clock::Now, identify::Identifier, limiter::Limiter, metrics::Metrics,
    reserve::Reservations, witness::Witness,
};
use crate::config::http::{Answer, ClientAddress, Http};

/// Between complaints about proxies.
const COMPLAINTS: Nanos = 10_000_000_000;

/// What every way to ask over HTTP shares.
pub struct Front {
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    now: Box<dyn Fn() -> Now + Send + Sync>,
    settings: ArcSwap<Settings>,
    reservations: Mutex<Reservations>,
    /// When the first reservation expires; `u64::MAX`: there is none. Spares most requests the lock.
    next_expiry: AtomicU64,
    ready: AtomicBool,
    /// Not before then is the operator told again of proxies that ask wrongly.
    next_complaint: AtomicU64,
    large_bodies: Semaphore,
    witness: OnceLock<Arc<dyn Witness>>,
}

/// What a reload replaces.
#[derive(Debug)]
struct Settings {
    identifier: Arc<Identifier>,
    access: Access,
    trusted_proxies: Vec<IpNet>,
    client_address: ClientAddress,
    answer: Answer,
}

/// Settings that were read and checked, ready to be put in force.
#[derive(Debug)]
pub struct Prepared(Settings);

/// Who asks, and what is in force as long as the request lasts. Extracting it turns away who may not ask.
#[derive(Debug)]
struct Asker {
    peer: Peer,
    rights: Rights,
    settings: Arc<Settings>,
}

/// Every path there is.
pub fn router(front: Arc<Front>) -> Router {
    Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/explain", post(explain::explain))
        .route("/v1/reserve", post(reserve::reserve))
        .route("/v1/commit", post(reserve::commit))
        .route("/v1/counters", get(counters::inspect).delete(counters::reset))
        .route("/auth/nginx", any(forward_auth::nginx))
        .route("/auth/traefik", any(forward_auth::traefik))
        .route("/auth/caddy", any(forward_auth::caddy))
        .route(Proxy::ENVOY_ROOT, any(forward_auth::envoy))
        .route(Proxy::ENVOY_REST, any(forward_auth::envoy))
        .route("/json", post(envoy::json::should_rate_limit))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method")
        })
        .with_state(front)
}

async fn readyz(
    axum::extract::State(front): axum::extract::State<Arc<Front>>,
) -> Result<&'static str, Problem> {
    if front.ready.load(Ordering::Relaxed) {
        Ok("ready\n")
    } else {
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the rules are not in force yet, or no longer"))
    }
}

// === impl Front ===

impl Front {
    /// As the configuration has it; reads the token files. `now` is asked for the time of every request.
    pub fn new(
        config: &Http,
        limiter: Arc<Limiter>,
        identifier: Arc<Identifier>,
        metrics: Arc<Metrics>,
        now: impl Fn() -> Now + Send + Sync + 'static,
    ) -> Result<Arc<Self>, TokenError> {
        Ok(Arc::new(Self {
            limiter,
            metrics,
            now: Box::new(now),
            settings: ArcSwap::from_pointee(Settings::new(config, identifier)?),
            reservations: Mutex::default(),
            next_expiry: AtomicU64::new(u64::MAX),
            ready: AtomicBool::new(false),
            next_complaint: AtomicU64::new(0),
            large_bodies: Semaphore::new(body::MAX_LARGE),
            witness: OnceLock::new(),
        }))
    }

    /// Reads what another configuration needs, its token files among it; nothing changes yet.
    pub fn prepare(config: &Http, identifier: Arc<Identifier>) -> Result<Prepared, TokenError> {
        Settings::new(config, identifier).map(Prepared)
    }

    /// Puts another configuration in force.
    pub fn put(&self, prepared: Prepared) {
        self.settings.store(Arc::new(prepared.0));
    }

    /// From now on, `witness` hears of denials by rules that escalate. The first one is heard alone.
    pub fn tell(&self, witness: Arc<dyn Witness>) {
        // A second one would be of the same daemon.
        let _ = self.witness.set(witness);
    }

    /// Whether `/readyz` says so. Not before this was called.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Gives back what was reserved and has expired. To be called every second; requests do so themselves
    /// before they are decided here.
    pub fn tick(&self) {
        self.expire((self.now)());
    }

    /// Tells the operator of a proxy that asks wrongly, now and then: the proxy shows nobody the answer.
    fn complain(&self, proxy: Proxy, problem: &Problem) {
        let now = (self.now)().steady;
        let next = self.next_complaint.load(Ordering::Relaxed);
        let then = now.saturating_add(COMPLAINTS);
        let exchange =
            |next| self.next_complaint.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed);
        if now >= next && exchange(next).is_ok() {
            warn!("{proxy:?} asks, but cannot be answered: {}", problem.detail());
        }
    }

    fn expire(&self, now: Now) {
        if now.steady < self.next_expiry.load(Ordering::Relaxed) {
            return;
        }
        let given_back = {
            let mut reservations = self.reservations.lock();
            let given_back = reservations.expire(now);
            self.note_expiry(&reservations);
            given_back
        };
        for ask in given_back {
            self.limiter.charge(&ask, now);
        }
    }

    /// Under the lock, so that what is noted is what is there.
    fn note_expiry(&self, reservations: &Reservations) {
        let next: Nanos = reservations.next_expiry().unwrap_or(u64::MAX);
        self.next_expiry.store(next, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").field("settings", &self.settings).finish_non_exhaustive()
    }
}

// === impl Settings ===

impl Settings {
    fn new(config: &Http, identifier: Arc<Identifier>) -> Result<Self, TokenError> {
        Ok(Self {
            identifier,
            access: Access::new(&config.access)?,
            trusted_proxies: config.trusted_proxies.clone(),
            client_address: config.client_address,
            answer: config.answer.clone(),
        })
    }

    /// Whether what `peer` says of a request that it forwards is believed.
    fn trusts(&self, peer: Peer) -> bool {
        match peer {
            Peer::Unix => true,
            Peer::Address(address) => self.trusted_proxies.iter().any(|network| network.contains(&address)),
        }
    }
}

// === impl Asker ===

impl Asker {
    /// Turns away who may not write.
    fn may_write(&self) -> Result<(), Problem> {
        Ok(self.settings.access.demand(Rights::Write, self.rights)?)
    }
}

impl FromRequestParts<Arc<Front>> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, front: &Arc<Front>) -> Result<Self, Problem> {
        let settings = front.settings.load_full();
        let Some(&peer) = parts.extensions.get::<Peer>() else {
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "it is not known who asks"));
        };
        let rights = settings.access.rights(peer, parts.headers.get(AUTHORIZATION));
        settings.access.demand(Rights::Ask, rights)?;
        Ok(Self { peer, rights, settings })
    }
}
