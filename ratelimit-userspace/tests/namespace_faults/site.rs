//! The protected host, its files and its daemon.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use ratelimit_common::record::ABI_VERSION;
use xtask::lab::Process;

use crate::{
    PATIENCE, eventually,
    fault::{End, Fault, Moment, TrialEnd},
    host::{Daemon, Host},
    party::{self, Party, Role},
};

const RULES: &str = "rules.yaml";

/// What the log says of a policy that is in force…
const IN_FORCE: &str = "enforcing, ";
/// …of files that say what is in force already…
const UNCHANGED: &str = "SIGHUP: the configuration has not changed";
/// …and of a file with a mistake: its name, and then the line.
const MISTAKE: &str = "rules.yaml:2:";

/// The policy with a mistake in its second line.
fn broken() -> String {
    party::policy().replace("deny_files", "deny_flies")
}

/// The policy with another rule before all others.
fn longer() -> String {
    let rule = "{ name: first, match: { protocol: udp, destination_port: 5999 }, limits: [{ per: rule, rate: 1/s }] }";
    party::policy().replace("rules: [", &format!("rules: [\n  {rule},"))
}

pub(crate) struct Site {
    pub(crate) host: Host,
    /// The builds and their `ABI_VERSION`, the one in use first.
    builds: Vec<(PathBuf, u32)>,
    daemon: Option<Daemon>,
    parties: Vec<Party>,
    /// Whether the sources that are denied at times are.
    listed: bool,
    /// How long the last start took.
    takes: Duration,
}

/// A place in the log of a daemon.
struct LogMark(usize);

// === impl Site ===

impl Site {
    /// A host with the rules for a daemon, and perhaps another build to upgrade it to.
    pub(crate) fn new(upgrade: Option<&Path>) -> Self {
        let host = Host::new("faults");
        let builds = std::iter::once(host.binary.clone()).chain(upgrade.map(Path::to_owned));
        let builds = builds.zip(ABI_VERSION..).collect();
        let parties = party::all(&host);
        let site = Self { host, builds, daemon: None, parties, listed: false, takes: Duration::ZERO };
        site.write_list();
        site.replace(RULES, &party::policy());
        site
    }

    /// Blocks those who are to be.
    pub(crate) fn block(&self) {
        for party in self.parties.iter().filter(|party| party.role == Role::Blocked) {
            let address = party.address.to_string();
            self.ask(&["block", &address, "--for", "1d"]);
        }
    }

    /// Runs a verb that asks the daemon.
    fn ask(&self, arguments: &[&str]) {
        let socket = self.host.file("admin.sock");
        let socket = ["--admin-socket", socket.to_str().expect("text")];
        let output = self.host.verb(&[arguments, &socket].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The daemon that runs.
    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon runs between two faults")
    }

    /// Whether the sources that are denied at times are.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Lets this happen. Afterwards a daemon runs and enforces what the files say.
    pub(crate) fn suffer(&mut self, fault: &Fault) {
        match fault {
            Fault::Restart(end) => {
                self.end(*end);
                self.start();
            }
            Fault::KilledStarts(end, moments) => {
                self.end(*end);
                for moment in moments {
                    self.start_and_kill(*moment);
                }
                self.start();
            }
            Fault::Reload => {
                let log = self.log_from_now();
                self.hang_up();
                log.says(self.daemon(), UNCHANGED);
            }
            Fault::ChangedList => {
                let log = self.log_from_now();
                self.change_list();
                self.hang_up();
                log.says(self.daemon(), IN_FORCE);
            }
            Fault::KilledReload(moment) => {
                self.change_list();
                self.hang_up();
                thread::sleep(moment.of(self.takes));
                self.end(End::Killed);
                self.start();
            }
            Fault::BrokenFile => {
                let log = self.log_from_now();
                self.replace(RULES, &broken());
                self.hang_up();
                log.says(self.daemon(), MISTAKE);
                let log = self.log_from_now();
                self.replace(RULES, &party::policy());
                self.hang_up();
                log.says(self.daemon(), UNCHANGED);
            }
            Fault::BrokenStart(end) => {
                self.replace(RULES, &broken());
                self.end(*end);
                match self.spawn() {
                    Ok(daemon) => panic!("it started with a broken file: {}", daemon.log()),
                    Err(log) => assert!(log.contains(MISTAKE), "{log}"),
                }
                self.replace(RULES, &party::policy());
                self.start();
            }
            Fault::OtherBuild(end, moment) => {
                self.builds.rotate_left(1);
                self.host.binary.clone_from(&self.builds[0].0);
                self.end(*end);
                if let Some(moment) = moment {
                    self.start_and_kill(*moment);
                }
                self.start();
            }
            Fault::Trial(end) => self.try_out(*end),
        }
    }

    /// Puts another policy on trial, and ends that.
    fn try_out(&mut self, end: TrialEnd) {
        self.replace("new.yaml", &longer());
        let file = self.host.file("new.yaml");
        self.ask(&["apply", file.to_str().expect("text"), "--confirm", "1h"]);
        match end {
            TrialEnd::RolledBack => self.ask(&["apply", "rollback"]),
            TrialEnd::Confirmed => {
                self.ask(&["apply", "confirm"]);
                let log = self.log_from_now();
                self.replace(RULES, &party::policy());
                self.hang_up();
                log.says(self.daemon(), IN_FORCE);
            }
            TrialEnd::Killed => {
                self.end(End::Killed);
                self.start();
            }
        }
    }

    fn spawn(&self) -> Result<Daemon, String> {
        let mut command = self.host.daemon_command(&self.host.pin_dir(), &self.host.file(RULES));
        Daemon::spawn(&mut command).map_err(|refusal| refusal.log)
    }

    /// Starts a daemon.
    pub(crate) fn start(&mut self) {
        let begun = Instant::now();
        self.daemon = Some(self.spawn().unwrap_or_else(|log| panic!("the daemon refused: {log}")));
        self.takes = begun.elapsed();
        let (binary, version) = &self.builds[0];
        let state = self.host.pin_dir().join(format!("v{version}")).join("buckets");
        assert!(state.exists(), "{} does not work with {}", binary.display(), state.display());
    }

    fn start_and_kill(&self, moment: Moment) {
        let mut command = self.host.daemon_command(&self.host.pin_dir(), &self.host.file(RULES));
        let daemon = Process::spawn(command.stderr(Stdio::null())).expect("it starts");
        thread::sleep(moment.of(self.takes));
        daemon.signal(Signal::SIGKILL).expect("it is there");
        daemon.wait(PATIENCE).expect("it ends");
    }

    fn end(&mut self, end: End) {
        let daemon = self.daemon.take().expect("a daemon runs");
        match end {
            End::Asked => {
                let (code, log) = daemon.terminate();
                assert_eq!(code, Some(0), "{log}");
            }
            End::Killed => daemon.kill(),
        }
    }

    fn hang_up(&self) {
        self.daemon().signal(Signal::SIGHUP);
    }

    fn log_from_now(&self) -> LogMark {
        LogMark(self.daemon().log().len())
    }

    fn change_list(&mut self) {
        self.listed = !self.listed;
        self.write_list();
    }

    fn write_list(&self) {
        let denied = |role| role == Role::Denied || self.listed && role == Role::Listed;
        let denied = self.parties.iter().filter(|party| denied(party.role));
        // A list of some length, which takes its time.
        let others = (0..2000).map(|number| format!("198.18.{}.{}/28", number / 16, number % 16 * 16));
        let lines: Vec<_> = denied.map(|party| party.address.to_string()).chain(others).collect();
        self.replace("deny.txt", &lines.join("\n"));
    }

    /// Renames another file over this one.
    fn replace(&self, name: &str, text: &str) {
        let (file, staged) = (self.host.file(name), self.host.file("staged"));
        fs::write(&staged, text).expect("a file");
        fs::rename(staged, file).expect("a file");
    }
}

// === impl LogMark ===

impl LogMark {
    /// Waits until the daemon has logged this after the mark.
    fn says(&self, daemon: &Daemon, text: &str) {
        eventually(text, || daemon.log()[self.0..].contains(text).then_some(()));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.as_ref().filter(|_| thread::panicking()) {
            eprintln!("the daemon's log:\n{}", daemon.log());
        }
    }
}
