//! The limiter that the servers ask, and the application behind them.

use std::{net::Ipv4Addr, num::NonZeroU64, path::PathBuf, sync::Arc};

use axum::{Router, http::Method};
use ratelimit::{
    config::http::{
        Access, Algorithm, Align, Answer, ClientAddress, Compatibility, Descriptor, Domain, EntrySource,
        Http, Identify, Limit, Listen, Missing, OnFull, RequestMatch, Rule, Source, ValuePattern, Window,
    },
    http::{
        clock::Clock,
        identify::Identifier,
        limiter::Limiter,
        metrics::Metrics,
        serve::{Front, connection::serve, listener::Listener, router},
    },
};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

/// Something that is served until it is dropped.
pub(crate) struct Served {
    /// With the port that it got.
    pub(crate) listen: Listen,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
    runtime: Runtime,
}

// === impl Served ===

impl Served {
    /// Three requests in ten minutes for each address, except to `/free`.
    pub(crate) fn limiter(listen: Listen) -> Self {
        let config = config();
        let limiter = Arc::new(Limiter::new(&config, [7; 32]));
        let identifier = Arc::new(Identifier::new(&config, [7; 32]));
        let clock = Clock::new();
        let front =
            Front::new(&config, limiter, identifier, Arc::new(Metrics::default()), move || clock.now());
        Self::start(listen, router(front.unwrap()))
    }

    /// Answers everything with its name, and what it saw of the request in headers.
    pub(crate) fn application() -> Self {
        Self::start(
            Self::free(),
            Router::new().fallback(async |method: Method, body: String| {
                ([("x-seen", method.to_string()), ("x-body", body)], "application")
            }),
        )
    }

    /// A free port of loopback.
    pub(crate) fn free() -> Listen {
        Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())
    }

    fn start(listen: Listen, router: Router) -> Self {
        let runtime = Runtime::new().unwrap();
        let _guard = runtime.enter();
        let listener = Listener::bind(&listen).unwrap();
        let listen = listener.local_address().map_or(listen, Listen::Tcp);
        let (stop, stopped) = oneshot::channel();
        let task = runtime.spawn(serve(listener, router, async { drop(stopped.await) }));
        Self { listen, stop: Some(stop), task: Some(task), runtime }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(task) = self.task.take() {
            let ended = self.runtime.block_on(task);
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

fn config() -> Http {
    let limit = Limit {
        units: 3,
        window: Window::Fixed(NonZeroU64::new(600 * 1_000_000_000).unwrap()),
        algorithm: Algorithm::SlidingLog,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    };
    let item = |path: &str, key: &str, source| Identify {
        matches: RequestMatch { paths: vec![path.to_owned()], ..RequestMatch::default() },
        domain: "api".to_owned(),
        descriptors: vec![vec![EntrySource {
            key: key.to_owned(),
            source,
            secret: false,
            missing: Missing::Skip,
        }]],
        line: 1,
    };
    Http {
        listen: None,
        grpc_listen: None,
        rule_paths: Vec::new(),
        domains: vec![Domain {
            name: "api".to_owned(),
            file: PathBuf::new(),
            compatibility: Compatibility::Native,
            descriptors: vec![Descriptor {
                key: "client_ip".to_owned(),
                value: ValuePattern::Any,
                share_threshold: false,
                rule: Some(Rule {
                    name: Some("per-address".to_owned()),
                    limit: Some(Arc::new(limit)),
                    shadow: false,
                    quota: false,
                    replaces: Vec::new(),
                    cost: 1,
                    overrides: Vec::new(),
                    escalate: None,
                }),
                descriptors: Vec::new(),
                line: 1,
            }],
        }],
        trusted_proxies: vec!["127.0.0.1/32".parse().unwrap()],
        client_address: ClientAddress::XForwardedFor,
        max_keys: 10_000,
        on_full: OnFull::Evict,
        identify: vec![
            item("/free", "free", Source::Constant(String::new())),
            item("/**", "client_ip", Source::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 }),
        ],
        access: Access::default(),
        answer: Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    }
}
