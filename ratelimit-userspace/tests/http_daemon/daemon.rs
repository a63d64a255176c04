//! The real program as a process of its own, and its files.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, StatusCode};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use ratelimit::{config::http::Listen, http::client};
use serde_json::Value;
use tempfile::TempDir;

/// Far longer than anything waited for takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Files of a daemon: `rules.yaml` and `rules.d`.
pub(crate) struct Files(TempDir);

/// A running daemon; killed when it goes.
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
    address: Listen,
}

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ratelimit"))
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A question about one address.
pub(crate) fn question(address: &str) -> String {
    format!(r#"{{"domain":"api","descriptors":[{{"entries":[["client_ip","{address}"]]}}]}}"#)
}

// === impl Files ===

impl Files {
    /// `main` is the rules file, `rules` the one rule file.
    pub(crate) fn new(main: &str, rules: &str) -> Self {
        let files = Self(TempDir::new().unwrap());
        fs::create_dir(files.path("rules.d")).unwrap();
        fs::write(files.path("rules.yaml"), main).unwrap();
        files.write_rules(rules);
        files
    }

    /// With so many requests an hour for each address.
    pub(crate) fn with_limit(requests: u32) -> Self {
        Self::new("http: { listen: \"127.0.0.1:0\", rules: rules.d, state_dir: state }\n", &limit(requests))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write_rules(&self, rules: &str) {
        fs::write(self.path("rules.d/api.yaml"), rules).unwrap();
    }

    pub(crate) fn start(&self) -> Daemon {
        Daemon::start(&self.path("rules.yaml"))
    }

    /// Runs a verb with this rules file.
    pub(crate) fn run(&self, verb: &str, arguments: &[&str]) -> Output {
        let mut command = program();
        command.arg(verb).arg("--config").arg(self.path("rules.yaml")).args(arguments);
        command.output().unwrap()
    }
}

/// A rule file with so many requests an hour for each address.
pub(crate) fn limit(requests: u32) -> String {
    format!(
        "domain: api\ndescriptors:\n  - key: client_ip\n    rate_limit: {{ name: per-address, \
         requests_per_unit: {requests}, unit: hour, algorithm: token_bucket }}\n"
    )
}

// === impl Daemon ===

impl Daemon {
    fn start(rules_file: &Path) -> Self {
        let mut child =
            program().arg("daemon").arg("--config").arg(rules_file).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let writer = Arc::clone(&log);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut log = writer.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let unknown = Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut daemon = Self { child, log, address: unknown };
        eventually("it listens", || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "it ended: {}", daemon.log());
            daemon.logged("listening for requests on ")
        });
        let log = daemon.log();
        let (_, rest) = log.split_once("listening for requests on ").unwrap();
        let address = rest.split(',').next().unwrap();
        daemon.address = match address.strip_prefix("unix:") {
            Some(path) => Listen::Unix(path.into()),
            None => Listen::Tcp(address.parse().unwrap()),
        };
        daemon
    }

    pub(crate) fn address(&self) -> &Listen {
        &self.address
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn logged(&self, text: &str) -> bool {
        self.log().contains(text)
    }

    pub(crate) fn times_logged(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    pub(crate) fn send(&self, method: Method, target: &str, body: String) -> (StatusCode, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sent = client::send(&self.address, method, target, None, Bytes::from(body));
        let (status, body) = runtime.block_on(sent).unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) fn get(&self, target: &str) -> (StatusCode, String) {
        self.send(Method::GET, target, String::new())
    }

    /// Asks for one address; the status and the answer.
    pub(crate) fn check(&self, address: &str) -> (u16, Value) {
        let (status, body) = self.send(Method::POST, "/v1/check", question(address));
        (status.as_u16(), serde_json::from_str(&body).unwrap())
    }

    /// How many of `requests` for one address pass.
    pub(crate) fn passed(&self, address: &str, requests: usize) -> usize {
        (0..requests).filter(|_| self.check(address).0 == 200).count()
    }

    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        (status, self.log())
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already, or is to.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
