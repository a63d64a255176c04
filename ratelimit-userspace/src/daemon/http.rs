//! The HTTP half of the daemon: listeners, the limiter behind them, and what must be done now and then.

mod key;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{MissedTickBehavior, interval},
};
use tracing::{info, warn};

use self::key::KeyError;
use crate::{
    admin,
    config::http::{Domain, Http, Listen},
    http::{
        clock::Clock,
        identify::Identifier,
        limiter::Limiter,
        metrics::Metrics,
        serve::{
            self, Front,
            access::TokenError,
            connection, envoy,
            listener::{ListenError, Listener},
        },
        witness::Witness,
    },
};

/// How often expired reservations are given back and some counters are swept.
const UPKEEP: Duration = Duration::from_secs(1);
/// How often counters of long windows are written to disk: at most this much is forgotten after a crash.
const SNAPSHOT: Duration = Duration::from_mins(1);
/// The file in the state directory that holds them.
const SNAPSHOT_FILE: &str = "http.counters";

/// Why requests cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// Bound, with rules and counters loaded, but nobody is answered yet.
pub(super) struct Requests {
    config: Http,
    key: [u8; 32],
    clock: Arc<Clock>,
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    front: Arc<Front>,
    check: Option<Listener>,
    grpc: Option<Listener>,
}

/// Another configuration, ready to be put in force.
pub(super) struct Prepared {
    config: Http,
    front: serve::Prepared,
}

/// Answering.
pub(super) struct Serving {
    key: [u8; 32],
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    front: Arc<Front>,
    clock: Arc<Clock>,
    /// Where the listeners are, which a reload cannot change.
    listening: [Option<Listen>; 2],
    snapshot: Option<PathBuf>,
    /// Listeners stop when it goes.
    stop: watch::Sender<()>,
    tasks: JoinSet<()>,
}

// === impl Requests ===

impl Requests {
    /// Binds the listeners, and reads the key and the counters that the state directory holds.
    pub(super) fn bind(config: &Http) -> Result<Self, HttpError> {
        raise_descriptors();
        let key = key::obtain(config.state_dir.as_deref())?;
        let clock = Arc::new(Clock::new());
        let identifier = Arc::new(Identifier::new(config, key));
        let config = resolved(config, &identifier);
        let limiter = Arc::new(Limiter::new(&config, key));
        if let Some(file) = snapshot(&config) {
            restore(&limiter, &file, &clock);
        }
        let metrics = Arc::new(Metrics::default());
        let now = {
            let clock = Arc::clone(&clock);
            move || clock.now()
        };
        let front = Front::new(&config, Arc::clone(&limiter), identifier, Arc::clone(&metrics), now)?;
        let check = config.listen.as_ref().map(Listener::bind).transpose()?;
        let grpc = config.grpc_listen.as_ref().map(Listener::bind).transpose()?;
        Ok(Self { config, key, clock, limiter, metrics, front, check, grpc })
    }

    /// Starts to answer; `witness` hears whom rules that escalate deny.
    pub(super) fn serve(self, witness: Arc<dyn Witness>) -> Serving {
        let Self { config, key, clock, limiter, metrics, front, check, grpc } = self;
        front.tell(witness);
        let (stop, stopped) = watch::channel(());
        let ended = |mut stopped: watch::Receiver<()>| async move {
            // An error says that the sender is gone: the end that is waited for.
            while stopped.changed().await.is_ok() {}
        };
        let rules = config.domains.iter().map(Domain::rule_count).sum::<usize>();
        let tell = |what: &str, listener: &Listener, listen: &Option<Listen>| {
            // The real port, where any was asked for.
            let address = listener.local_address().map(Listen::Tcp).or_else(|| listen.clone());
            let address = address.map(|address| address.to_string()).unwrap_or_default();
            info!("listening for {what} on {address}, rules: {rules}, domains: {}", config.domains.len());
        };
        let mut tasks = JoinSet::new();
        if let Some(listener) = check {
            tell("requests", &listener, &config.listen);
            let router = serve::router(Arc::clone(&front));
            tasks.spawn(connection::serve(listener, router, ended(stopped.clone())));
        }
        if let Some(listener) = grpc {
            tell("Envoy's rate-limit service", &listener, &config.grpc_listen);
            tasks.spawn(envoy::serve(listener, Arc::clone(&front), ended(stopped.clone())));
        }
        let snapshot = snapshot(&config);
        tasks.spawn(upkeep(
            Arc::clone(&front),
            Arc::clone(&limiter),
            Arc::clone(&metrics),
            Arc::clone(&clock),
            stopped.clone(),
        ));
        if let Some(file) = snapshot.clone() {
            tasks.spawn(keep(Arc::clone(&limiter), Arc::clone(&clock), file, stopped));
        }
        front.set_ready(true);
        let Http { listen, grpc_listen, .. } = config;
        Serving {
            key,
            limiter,
            metrics,
            front,
            clock,
            listening: [listen, grpc_listen],
            snapshot,
            stop,
            tasks,
        }
    }
}

// === impl Serving ===

impl Serving {
    /// Reads and checks all that another configuration needs; nothing changes yet.
    pub(super) fn prepare(&self, config: &Http) -> Result<Prepared, TokenError> {
        let identifier = Arc::new(Identifier::new(config, self.key));
        let config = resolved(config, &identifier);
        let front = Front::prepare(&config, identifier)?;
        Ok(Prepared { config, front })
    }

    /// Puts another configuration in force.
    pub(super) fn put(&self, prepared: Prepared, reason: &str) {
        let Prepared { config, front } = prepared;
        self.front.put(front);
        self.limiter.reload(&config);
        self.metrics.reloaded(true);
        let rules = config.domains.iter().map(Domain::rule_count).sum::<usize>();
        info!("{reason}: in force, rules: {rules}, domains: {}", config.domains.len());
        if self.listening != [config.listen.clone(), config.grpc_listen.clone()] {
            warn!("{reason}: other addresses to listen on take effect when the daemon is started again");
        }
        if self.snapshot != snapshot(&config) {
            warn!("{reason}: another `state_dir` takes effect when the daemon is started again");
        }
    }

    /// Puts in force what was read anew for a configuration that is the same: the token files.
    pub(super) fn refresh(&self, prepared: Prepared) {
        self.front.put(prepared.front);
    }

    /// Takes back that the files are of no use: they say again what is in force.
    pub(super) fn reload_recovered(&self) {
        self.metrics.reloaded(true);
    }

    /// What the admin API shows of them.
    pub(super) fn shared(&self) -> admin::handle::Requests {
        let Self { limiter, metrics, clock, .. } = self;
        admin::handle::Requests {
            limiter: Arc::clone(limiter),
            metrics: Arc::clone(metrics),
            clock: Arc::clone(clock),
        }
    }

    /// Counts files that were not used because something is wrong with them.
    pub(super) fn reload_failed(&self) {
        self.metrics.reloaded(false);
    }

    /// Finishes the requests that have begun, for some seconds at most, and keeps the counters.
    pub(super) async fn stop(self) {
        let Self { limiter, front, clock, snapshot, stop, mut tasks, .. } = self;
        front.set_ready(false);
        drop(stop);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                warn!("a listener ended badly: {error}");
            }
        }
        if let Some(file) = snapshot
            && let Err(error) = limiter.save(&file, clock.now())
        {
            warn!("failed to write {}, so counters begin anew: {error}", file.display());
        }
    }
}

/// Every connection takes a descriptor, and the usual soft limit of 1024 is there for programs that use
/// select(2), which cannot have more; the hard limit is what the administrator grants.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Fewer connections are served where that is not allowed.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The configuration, with what rules say of secrets in the form that requests have it in.
fn resolved(config: &Http, identifier: &Identifier) -> Http {
    Http { domains: identifier.domains(config), ..config.clone() }
}

fn snapshot(config: &Http) -> Option<PathBuf> {
    config.state_dir.as_ref().map(|directory| directory.join(SNAPSHOT_FILE))
}

fn restore(limiter: &Limiter, file: &Path, clock: &Clock) {
    if !file.exists() {
        return;
    }
    match limiter.restore(file, clock.now()) {
        Ok(counters) => info!("{counters} counters of the last start are kept"),
        Err(error) => warn!("{} is not used, so counters begin anew: {error}", file.display()),
    }
}

/// What must be done now and then, until `stopped` loses its sender.
async fn upkeep(
    front: Arc<Front>,
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    clock: Arc<Clock>,
    mut stopped: watch::Receiver<()>,
) {
    let mut ticks = interval(UPKEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.changed() => return,
        }
        let now = clock.now();
        front.tick();
        limiter.sweep(now);
        metrics.flush(&limiter.rules(), now);
    }
}

/// Writes the counters to disk now and then, until `stopped` loses its sender.
async fn keep(limiter: Arc<Limiter>, clock: Arc<Clock>, file: PathBuf, mut stopped: watch::Receiver<()>) {
    let mut ticks = interval(SNAPSHOT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut failing = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.changed() => return,
        }
        let saved = {
            let (limiter, clock, file) = (Arc::clone(&limiter), Arc::clone(&clock), file.clone());
            spawn_blocking(move || limiter.save(&file, clock.now())).await
        };
        if let Ok(saved) = saved {
            // A full disk is told of once, not every minute.
            if let (Err(error), false) = (&saved, failing) {
                warn!("failed to write {}; after a crash counters would begin anew: {error}", file.display());
            }
            failing = saved.is_err();
        }
    }
}
