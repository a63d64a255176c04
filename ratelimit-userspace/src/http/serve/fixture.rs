//! Rules, answers, configurations and a whole front for tests.

use std::{
    num::NonZeroU64,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ::http::{HeaderMap, Request, StatusCode, request};
use axum::{Router, body::Body};
use serde_json::Value;
use tower::ServiceExt as _;

use super::{Front, listener::Peer, router};
use crate::{
    config::http::{
        self, Access, Algorithm, Align, ClientAddress, Compatibility, Descriptor, Domain, EntrySource, Http,
        Identify, Limit, Missing, OnFull, RequestMatch, Source, ValuePattern, Window,
    },
    http::{
        algorithm::Meter,
        ask::{Answer, Decision, Standing, Status},
        clock::Now,
        identify::Identifier,
        limiter::Limiter,
        metrics::Metrics,
        rules::{Choice, Rule},
    },
};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// `units` a window of `seconds`.
pub(crate) fn limit(units: u64, seconds: u64, algorithm: Algorithm) -> Limit {
    Limit {
        units,
        window: Window::Fixed(NonZeroU64::new(seconds * SECOND).unwrap()),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    }
}

/// What a rule file says of a limit.
pub(crate) fn policy(limit: Limit) -> http::Rule {
    http::Rule {
        name: None,
        limit: Some(Arc::new(limit)),
        shadow: false,
        quota: false,
        replaces: Vec::new(),
        cost: 1,
        overrides: Vec::new(),
        escalate: None,
    }
}

/// A rule on its own.
pub(crate) fn rule(label: &str, policy: http::Rule) -> Arc<Rule> {
    Arc::new(Rule {
        label: label.into(),
        id: label.into(),
        domain: "api".into(),
        policy,
        meter: None,
        overrides: Vec::new(),
        metrics: Arc::default(),
        counted: Box::default(),
        choice: Choice::default(),
    })
}

/// Where a descriptor of this rule stands.
pub(crate) fn status(rule: &Arc<Rule>, remaining: u64, reset: u64) -> Status {
    let limit = rule.policy.limit.as_deref().unwrap();
    Status {
        rule: Some(Arc::clone(rule)),
        allowed: true,
        standing: Some(Standing { limit: limit.units, remaining, reset }),
        retry_after: None,
        soft_over: false,
        shadow_denied: false,
        meter: Some(Arc::new(Meter::new(limit.clone()))),
        identity: None,
    }
}

/// An answer about the first of these.
pub(crate) fn answer(decision: Decision, retry_after: Option<u64>, statuses: Vec<Status>) -> Answer {
    Answer {
        decision,
        rule: statuses[0].rule.clone(),
        standing: statuses[0].standing,
        retry_after,
        delay: None,
        statuses,
        refusal: None,
    }
}

/// Everything that may be said to clients.
pub(crate) fn fields() -> http::Answer {
    http::Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None }
}

/// An `http:` section with nothing in it.
pub(crate) fn config() -> Http {
    Http {
        listen: None,
        grpc_listen: None,
        rule_paths: Vec::new(),
        domains: Vec::new(),
        trusted_proxies: Vec::new(),
        client_address: ClientAddress::Peer,
        max_keys: 10_000,
        on_full: OnFull::Evict,
        identify: Vec::new(),
        access: Access::default(),
        answer: fields(),
        state_dir: None,
    }
}

/// A rule for every value of a key, called after the key.
pub(crate) fn keyed(key: &str, rule: http::Rule) -> Descriptor {
    Descriptor {
        key: key.to_owned(),
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(http::Rule { name: Some(format!("per-{key}")), ..rule }),
        descriptors: Vec::new(),
        line: 1,
    }
}

/// `api`: for each `user` 3 a minute, for each `tokens` 100 a minute, for each `client_ip` 2 a minute, `blocked`
/// never, `trial` never but in shadow, `queue` one a second with a queue of 3 that waits.
pub(crate) fn domain() -> Domain {
    let queue = Algorithm::LeakyBucket { burst: 3, max_delay: Some(60 * SECOND) };
    let shadow = http::Rule { shadow: true, ..policy(limit(0, 60, Algorithm::SlidingLog)) };
    Domain {
        name: "api".to_owned(),
        file: PathBuf::new(),
        compatibility: Compatibility::Native,
        descriptors: vec![
            keyed("user", policy(limit(3, 60, Algorithm::SlidingLog))),
            keyed("tokens", policy(limit(100, 60, Algorithm::SlidingLog))),
            keyed("client_ip", policy(limit(2, 60, Algorithm::SlidingLog))),
            keyed("blocked", policy(limit(0, 60, Algorithm::SlidingLog))),
            keyed("trial", shadow),
            keyed("queue", policy(limit(60, 60, queue))),
        ],
    }
}

/// Requests to `/queue` are held, those to `/keyed` need a header `x-api-key`, all others are told apart by client.
pub(crate) fn identify() -> Vec<Identify> {
    let item = |path: &str, key: &str, source, missing| Identify {
        matches: RequestMatch { paths: vec![path.to_owned()], ..RequestMatch::default() },
        domain: "api".to_owned(),
        descriptors: vec![vec![EntrySource { key: key.to_owned(), source, secret: false, missing }]],
        line: 1,
    };
    vec![
        item("/queue", "queue", Source::Constant("q".to_owned()), Missing::Skip),
        item("/keyed", "user", Source::Header("x-api-key".to_owned()), Missing::Deny),
        item("/**", "client_ip", Source::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 }, Missing::Skip),
    ]
}

/// A front with a clock that stands until it is moved.
pub(crate) struct Bed {
    pub(crate) front: Arc<Front>,
    pub(crate) router: Router,
    clock: Arc<AtomicU64>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Bed {
    /// [`domain`] and [`identify`], with loopback trusted and `X-Forwarded-For` read.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same, with changes.
    pub(crate) fn with(change: impl FnOnce(&mut Http)) -> Self {
        let mut config = Http {
            domains: vec![domain()],
            identify: identify(),
            trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
            client_address: ClientAddress::XForwardedFor,
            ..config()
        };
        change(&mut config);
        let clock = Arc::new(AtomicU64::new(1_800_000_000 * SECOND));
        let limiter = Arc::new(Limiter::new(&config, [7; 32]));
        let identifier = Arc::new(Identifier::new(&config, [7; 32]));
        let now = {
            let clock = Arc::clone(&clock);
            move || Now::at(clock.load(Ordering::Relaxed))
        };
        let front = Front::new(&config, limiter, identifier, Arc::new(Metrics::default()), now).unwrap();
        Self { router: router(Arc::clone(&front)), front, clock }
    }

    /// Moves the clock.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.fetch_add(seconds * SECOND, Ordering::Relaxed);
    }

    /// Asks from a peer.
    pub(crate) async fn ask_from(
        &self,
        peer: &str,
        request: request::Builder,
        body: impl Into<Body>,
    ) -> Told {
        let peer = if peer == "unix" { Peer::Unix } else { Peer::Address(peer.parse().unwrap()) };
        let request: Request<Body> = request.extension(peer).body(body.into()).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Told { status: parts.status, headers: parts.headers, body }
    }

    /// Posts JSON from this host.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Told {
        self.ask_from("127.0.0.1", Request::post(path), body.to_string()).await
    }
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// It is a problem of this status, with these words in it.
    pub(crate) fn is_problem(&self, status: u16, words: &str) {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let json = self.json();
        assert_eq!(json["status"], status);
        assert!(json["title"].is_string());
        let detail = json["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{words:?} is not in {detail:?}");
    }
}
