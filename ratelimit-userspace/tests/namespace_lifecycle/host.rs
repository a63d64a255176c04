//! A protected host in a namespace of its own, with a BPF file system of its own.

use std::{
    fs,
    io::{ErrorKind, Read as _},
    path::{Path, PathBuf},
    process::{ChildStderr, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use xtask::lab::{BpfFs, Directory, Lab, Plan, Process, frame};

/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// The line that says that the policy is in force.
const READY: &str = " ms after reading ";

pub(crate) struct Host {
    pub(crate) lab: Lab,
    /// The build that is installed there.
    pub(crate) binary: PathBuf,
    bpffs: BpfFs,
    files: Directory,
}

/// A running daemon and all that it logged.
pub(crate) struct Daemon {
    process: Process,
    log: Arc<Mutex<String>>,
    ended: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// Reads what a daemon logs.
struct LogReader {
    pipe: ChildStderr,
    log: Arc<Mutex<String>>,
    /// Whether the daemon is no more. A guard of a trial outlives it and has the same standard error, so that
    /// the end of the pipe may come much later.
    ended: Arc<AtomicBool>,
    ready: mpsc::Sender<()>,
}

/// How a daemon ended before it was ready.
pub(crate) struct Refusal {
    pub(crate) code: Option<i32>,
    pub(crate) log: String,
}

// === impl Host ===

impl Host {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            lab: Lab::new(name).expect("a lab"),
            binary: env!("CARGO_BIN_EXE_ratelimit").into(),
            bpffs: BpfFs::mount().expect("a BPF file system"),
            files: Directory::new(name).expect("a directory"),
        }
    }

    pub(crate) fn pin_dir(&self) -> PathBuf {
        self.bpffs.path().join("ratelimit")
    }

    /// A file of the host's own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Starts a daemon on these rules and waits until it enforces, or how it refused.
    pub(crate) fn try_start(&self, rules: &str) -> Result<Daemon, Refusal> {
        self.try_start_in(&self.pin_dir(), rules)
    }

    pub(crate) fn start(&self, rules: &str) -> Daemon {
        self.try_start(rules).unwrap_or_else(|refusal| panic!("the daemon refused: {}", refusal.log))
    }

    pub(crate) fn refuse(&self, rules: &str) -> Refusal {
        match self.try_start(rules) {
            Ok(daemon) => panic!("the daemon started: {}", daemon.log()),
            Err(refusal) => refusal,
        }
    }

    pub(crate) fn try_start_in(&self, pin_dir: &Path, rules: &str) -> Result<Daemon, Refusal> {
        let file = self.file_of(pin_dir, "rules.yaml");
        fs::write(&file, rules).expect("a rules file");
        Daemon::spawn(&mut self.daemon_command(pin_dir, &file))
    }

    /// A file of the daemon with these pins. Those of other pins on this host have places of their own, rules
    /// files too: each daemon follows its own.
    fn file_of(&self, pin_dir: &Path, name: &str) -> PathBuf {
        let other = (pin_dir != self.pin_dir()).then(|| pin_dir.file_name()).flatten();
        let prefix = other.map(|name| format!("{}-", name.display())).unwrap_or_default();
        self.file(&format!("{prefix}{name}"))
    }

    /// What starts a daemon whose every trace is the host's own.
    pub(crate) fn daemon_command(&self, pin_dir: &Path, rules_file: &Path) -> Command {
        let mut command = self.command("daemon");
        command.arg("--config").arg(rules_file).arg("--pin-dir").arg(pin_dir);
        command.arg("--state-dir").arg(self.file_of(pin_dir, "state"));
        command.arg("--admin-socket").arg(self.file_of(pin_dir, "admin.sock"));
        command
    }

    /// A verb, run where the host is.
    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = self.lab.server.command(&self.binary);
        command.arg(verb);
        command
    }

    /// Runs a verb with `--pin-dir` to its end.
    pub(crate) fn verb(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments[0]);
        command.args(&arguments[1..]).arg("--pin-dir").arg(self.pin_dir());
        command.output().expect("the verb runs")
    }

    pub(crate) fn status(&self) -> Value {
        let output = self.verb(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).expect("status prints JSON")
    }

    /// Mode of each interface that is attached, and whether it runs the recorded policy.
    pub(crate) fn interfaces(&self) -> Vec<(String, String, bool)> {
        let status = self.status();
        let interfaces = status["interfaces"].as_array().expect("a list");
        interfaces
            .iter()
            .map(|interface| {
                (
                    interface["name"].as_str().expect("a name").to_owned(),
                    interface["mode"].as_str().unwrap_or("none").to_owned(),
                    interface["current"].as_bool().expect("a flag"),
                )
            })
            .collect()
    }

    pub(crate) fn program_id(&self) -> u64 {
        self.status()["interfaces"][0]["program_id"].as_u64().expect("an attached program")
    }

    /// Packets of a rule: passed and shed by its first limit.
    pub(crate) fn counts(&self, rule: &str) -> (u64, u64) {
        let output = self.verb(&["counters", "--json"]);
        let counters: Value = serde_json::from_slice(&output.stdout).expect("counters prints JSON");
        let rules = counters["rules"].as_array().expect("a list");
        let rule = rules.iter().find(|found| found["rule"] == rule).expect("the rule");
        (
            rule["passed"]["packets"].as_u64().expect("a number"),
            rule["limits"][0]["shed"]["packets"].as_u64().expect("a number"),
        )
    }

    /// Sends UDP datagrams from one source and waits until the rule has counted all of them.
    pub(crate) fn send(&self, packets: u64, rule: &str) -> (u64, u64) {
        let (passed, shed) = self.counts(rule);
        self.flood(packets);
        let expected = passed + shed + packets;
        for _ in 0..1000 {
            let counts = self.counts(rule);
            if counts.0 + counts.1 == expected {
                return counts;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?} packets counted, expected {expected}", self.counts(rule));
    }

    /// Waits until something is so.
    pub(crate) fn comes_to(&self, is_so: impl Fn() -> bool, what: &str) {
        for _ in 0..3000 {
            if is_so() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("{what}: {:#}", self.status());
    }

    /// Sends UDP datagrams from one source.
    pub(crate) fn flood(&self, packets: u64) {
        let source = frame::sources_v4(1).next().expect("a source");
        let plan = Plan {
            frames: vec![self.lab.route_v4().udp(source, 4000, 5000, b"hello")],
            duration: PATIENCE,
            packets: Some(packets),
            rate: None,
            cpu: None,
        };
        self.lab.flood(plan).and_then(xtask::lab::Flood::wait).expect("a flood");
    }

    /// What `ip` shows of XDP on an interface of the host.
    pub(crate) fn xdp_on(&self, interface: &str) -> String {
        let output =
            self.lab.server.command("ip").args(["-details", "link", "show", "dev", interface]).output();
        let text = String::from_utf8(output.expect("ip runs").stdout).expect("text");
        text.lines().filter(|line| line.contains("xdp")).map(str::to_owned).collect()
    }
}

// === impl Daemon ===

impl Daemon {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self, Refusal> {
        let process = Process::spawn(command.stderr(Stdio::piped())).expect("the daemon runs");
        let pipe = process.take_stderr().expect("a pipe");
        let (log, ended) = (Arc::default(), Arc::default());
        let (ready, told) = mpsc::channel();
        let reader = LogReader { pipe, log: Arc::clone(&log), ended: Arc::clone(&ended), ready };
        let reader = Some(thread::spawn(move || reader.read()));
        let mut daemon = Self { process, log, ended, reader };
        // The channel closes when the daemon closes its standard error, that is, ends.
        if told.recv_timeout(PATIENCE).is_ok() {
            return Ok(daemon);
        }
        let status = daemon.wait();
        Err(Refusal { code: status.code(), log: daemon.log() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no panic while held").clone()
    }

    /// Waits until its log holds these words.
    pub(crate) fn tells(&self, words: &str) {
        for _ in 0..3000 {
            if self.log().contains(words) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("`{words}` is not in the log: {}", self.log());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("the daemon runs");
    }

    /// Waits until it ends and its log is complete.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.process.wait(PATIENCE).expect("the daemon ends");
        self.ended.store(true, Ordering::Release);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no panic");
        }
        status
    }

    /// SIGTERM, and its exit code and log.
    pub(crate) fn terminate(mut self) -> (Option<i32>, String) {
        self.process.terminate(PATIENCE).expect("the daemon ends");
        (self.wait().code(), self.log())
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }
}

// === impl LogReader ===

impl LogReader {
    /// Reads until the end of the pipe, or until the daemon is no more and all that it wrote is read.
    fn read(mut self) {
        rustix::io::ioctl_fionbio(&self.pipe, true).expect("a pipe that does not block");
        let mut buffer = [0; 4096];
        loop {
            // Asked before: what is written until then is read.
            let ended = self.ended.load(Ordering::Acquire);
            match self.pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => self.add(&String::from_utf8_lossy(&buffer[..length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock && ended => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("the log of the daemon cannot be read: {error}"),
            }
        }
    }

    fn add(&self, text: &str) {
        let mut log = self.log.lock().expect("no panic while held");
        log.push_str(text);
        let lines = log.rfind('\n').map_or("", |end| &log[..end]);
        if lines.contains(READY) || lines.contains("nothing to enforce") {
            let _ = self.ready.send(());
        }
    }
}
