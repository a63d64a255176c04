//! The service that the client asks, on a socket of its own.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU64,
    path::PathBuf,
    sync::Arc,
};

use ratelimit::{
    config::http::{
        Access, Algorithm, Align, Answer, ClientAddress, Compatibility, Descriptor, Domain, Http, Limit,
        Listen, OnFull, Rule, ValuePattern, Window,
    },
    http::{
        clock::Clock,
        identify::Identifier,
        limiter::Limiter,
        metrics::Metrics,
        serve::{Front, envoy, listener::Listener},
    },
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::oneshot};

/// A server until it is dropped.
pub(crate) struct Server {
    listen: Listen,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<()>>,
    runtime: Runtime,
    _folder: TempDir,
}

// === impl Server ===

impl Server {
    /// On a free port of the loopback interface.
    pub(crate) fn on_tcp() -> Self {
        Self::start(Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into()), tempfile::tempdir().unwrap())
    }

    /// On a socket in a folder of its own.
    pub(crate) fn on_unix() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start(Listen::Unix(folder.path().join("grpc.sock")), folder)
    }

    fn start(listen: Listen, folder: TempDir) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let guard = runtime.enter();
        let listener = Listener::bind(&listen).unwrap();
        let listen = listener.local_address().map_or(listen, Listen::Tcp);
        let (stop, stopped) = oneshot::channel();
        let ended = runtime.spawn(envoy::serve(listener, front(), async { drop(stopped.await) }));
        drop(guard);
        Self { listen, stop: Some(stop), ended: Some(ended), runtime, _folder: folder }
    }

    /// The address, as gRPC writes it.
    pub(crate) fn address(&self) -> String {
        match &self.listen {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// The address on TCP.
    pub(crate) fn tcp(&self) -> SocketAddr {
        match &self.listen {
            Listen::Tcp(address) => *address,
            Listen::Unix(path) => panic!("it listens on {}", path.display()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(ended) = self.ended.take() {
            let ended = self.runtime.block_on(ended);
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

fn front() -> Arc<Front> {
    let config = config();
    let limiter = Arc::new(Limiter::new(&config, [7; 32]));
    let identifier = Arc::new(Identifier::new(&config, [7; 32]));
    let clock = Clock::new();
    Front::new(&config, limiter, identifier, Arc::new(Metrics::default()), move || clock.now()).unwrap()
}

/// Three an hour for each `user`; `free` is unlimited; `watched` is a shadow rule that would deny everything.
fn config() -> Http {
    let descriptor = |key: &str, units: Option<u64>, shadow| Descriptor {
        key: key.to_owned(),
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(Rule {
            name: Some(format!("per-{key}")),
            limit: units.map(|units| {
                Arc::new(Limit {
                    units,
                    window: Window::Fixed(NonZeroU64::new(3_600_000_000_000).unwrap()),
                    algorithm: Algorithm::SlidingLog,
                    align: Align::Epoch,
                    count_denied: false,
                    soft_margin_permille: 0,
                })
            }),
            shadow,
            quota: false,
            replaces: Vec::new(),
            cost: 1,
            overrides: Vec::new(),
            escalate: None,
        }),
        descriptors: Vec::new(),
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
            descriptors: vec![
                descriptor("user", Some(3), false),
                descriptor("watched", Some(0), true),
                descriptor("free", None, false),
            ],
        }],
        trusted_proxies: Vec::new(),
        client_address: ClientAddress::Peer,
        max_keys: 100_000,
        on_full: OnFull::Evict,
        identify: Vec::new(),
        access: Access::default(),
        answer: Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    }
}
