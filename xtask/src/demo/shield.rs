//! The limiter on the server's interface: the daemon, its rules file, its counters.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::scene::Scene;
use crate::lab::{BpfFs, Namespace, Process, capture};

/// What the daemon is told. The honest client opens 20 connections a second.
pub(super) const RULES: &str = "\
interfaces:
  - name: eth0
network:
  on_stop: detach
  rules:
    - name: handshakes
      match: { protocol: tcp, tcp_flags: syn }
      limits: [{ per: source, rate: 25/s, burst: 50 }]
    - name: datagrams
      match: { protocol: udp }
      limits: [{ per: source, rate: 5/s, burst: 10 }]
";

const PATIENCE: Duration = Duration::from_secs(30);
const LOG_LINES: usize = 20;
const POLL: Duration = Duration::from_millis(20);

/// A running daemon.
#[derive(Debug)]
pub(super) struct Shield {
    daemon: Process,
    binary: PathBuf,
    pins: BpfFs,
    log: PathBuf,
}

/// What became of the packets that met one rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuleCount {
    pub(super) name: String,
    pub(super) passed: u64,
    pub(super) shed: u64,
}

// === impl Shield ===

impl Shield {
    /// Starts the daemon on the server's interface and waits until its program is attached.
    pub(super) fn raise(binary: &Path, scene: &Scene, directory: &Path) -> Result<Self> {
        let (config, log) = (directory.join("rules.yaml"), directory.join("daemon.log"));
        fs::write(&config, RULES).with_context(|| format!("failed to write {}", config.display()))?;
        let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        let pins = BpfFs::mount()?;
        let namespace = &scene.lab.server;
        let daemon = Process::spawn(
            namespace
                .command(binary)
                .args(["daemon", "--config"])
                .arg(&config)
                .arg("--pin-dir")
                .arg(pin_dir(&pins))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(output),
        )?;
        let shield = Self { daemon, binary: binary.to_owned(), pins, log };
        shield.await_program(namespace, &scene.lab.link.server.device)?;
        Ok(shield)
    }

    /// What it did so far, rule by rule.
    pub(super) fn counters(&self) -> Result<Vec<RuleCount>> {
        let mut command = Command::new(&self.binary);
        command.args(["counters", "--json", "--pin-dir"]).arg(pin_dir(&self.pins));
        parse(&capture(&mut command)?)
    }

    /// Packets it shed so far.
    pub(super) fn shed(&self) -> Result<u64> {
        Ok(self.counters()?.iter().map(|rule| rule.shed).sum())
    }

    /// Stops the daemon, and with it the program.
    pub(super) fn lower(self) -> Result<()> {
        let status = self.daemon.terminate(PATIENCE)?;
        if !status.success() {
            bail!("the daemon ended with {status}; its log:\n{}", self.read_log());
        }
        Ok(())
    }

    fn await_program(&self, namespace: &Namespace, device: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !has_program(namespace, device)? {
            if let Some(status) = self.daemon.try_wait()? {
                bail!("the daemon ended with {status}; its log:\n{}", self.read_log());
            }
            if Instant::now() > deadline {
                bail!("the daemon attached nothing in {PATIENCE:?}; its log:\n{}", self.read_log());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// The first lines: an error of the daemon comes first, and a verifier's log after it is endless.
    fn read_log(&self) -> String {
        match fs::read_to_string(&self.log) {
            Ok(log) => log.lines().take(LOG_LINES).collect::<Vec<_>>().join("\n"),
            Err(error) => format!("(unreadable: {error})"),
        }
    }
}

fn pin_dir(pins: &BpfFs) -> PathBuf {
    pins.path().join("ratelimit")
}

/// Whether an XDP program is attached, by the kernel's account rather than the daemon's.
fn has_program(namespace: &Namespace, device: &str) -> Result<bool> {
    #[derive(Deserialize)]
    struct Device {
        xdp: Option<serde::de::IgnoredAny>,
    }

    let json =
        capture(Command::new("ip").args(["-netns", namespace.name(), "-json", "link", "show", device]))?;
    let devices: Vec<Device> = serde_json::from_str(&json).context("failed to read the answer of ip link")?;
    Ok(devices.iter().any(|device| device.xdp.is_some()))
}

/// Reads what `ratelimit counters --json` prints.
fn parse(json: &str) -> Result<Vec<RuleCount>> {
    #[derive(Deserialize)]
    struct Counters {
        rules: Vec<Rule>,
    }
    #[derive(Deserialize)]
    struct Rule {
        #[serde(rename = "rule")]
        name: String,
        passed: Tally,
        limits: Vec<Limit>,
    }
    #[derive(Deserialize)]
    struct Limit {
        shed: Tally,
    }
    #[derive(Deserialize)]
    struct Tally {
        packets: u64,
    }

    let Counters { rules } =
        serde_json::from_str(json).context("failed to read the answer of ratelimit counters")?;
    let count = |Rule { name, passed, limits }: Rule| RuleCount {
        name,
        passed: passed.packets,
        shed: limits.iter().map(|limit| limit.shed.packets).sum(),
    };
    Ok(rules.into_iter().map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_limits_of_a_rule_shed_is_added_up() {
        let json = r#"{"rules": [{"rule": "web", "passed": {"packets": 3, "bytes": 180},
            "limits": [{"limit": "a", "shed": {"packets": 4, "bytes": 1}, "would_shed": {"packets": 9, "bytes": 1}},
                       {"limit": "b", "shed": {"packets": 5, "bytes": 1}, "would_shed": {"packets": 9, "bytes": 1}}]}],
            "reasons": [], "events": []}"#;
        let counted = parse(json).unwrap();
        assert_eq!(counted, [RuleCount { name: "web".to_owned(), passed: 3, shed: 9 }]);
    }
}
