//! A server in a process of its own, bound to its CPU: the daemon, or what it is compared with.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{time::clock_getcpuclockid, unistd::Pid};

use super::{SERVER_CPU, Tools, on_cpu, row::Endpoint};
use crate::lab::{Directory, Process};

/// A running server with both endpoints.
#[derive(Debug)]
pub(super) struct Server {
    check: SocketAddr,
    grpc: SocketAddr,
    // Dropped in this order: the process goes before its files.
    process: Process,
    _files: Directory,
}

/// No request is ever over this limit, and the daemon has no less work for it.
const RULES: &str = "\
domain: api
descriptors:
  - key: client_ip
    rate_limit: { name: per-address, requests_per_unit: 4000000000, unit: hour }
";

// === impl Server ===

impl Server {
    /// The daemon, with one rule.
    pub(super) fn daemon(Tools { daemon, .. }: &Tools) -> Result<Self> {
        Self::start(|[check, grpc], files| {
            let rules = files.join("rules.d");
            let config = files.join("ratelimit.yaml");
            let text =
                format!("http:\n  listen: {check}\n  grpc_listen: {grpc}\n  rules: {}\n", rules.display());
            fs::create_dir(&rules)
                .and_then(|()| fs::write(rules.join("api.yaml"), RULES))
                .and_then(|()| fs::write(&config, text))
                .with_context(|| format!("failed to write into {}", files.display()))?;
            let mut command = Command::new(daemon);
            command.args(["daemon", "--config"]).arg(&config).arg("--pin-dir").arg(files.join("pins"));
            Ok(command)
        })
    }

    /// A server that gives the check endpoint's answer from the file `answer`, and decides nothing.
    pub(super) fn reference(Tools { contenders, .. }: &Tools, answer: &Path) -> Result<Self> {
        Self::start(|[check, grpc], _| {
            let mut command = contenders.command();
            command.args(["reference", "--check", &check.to_string(), "--grpc", &grpc.to_string()]);
            command.arg("--answer").arg(answer);
            Ok(command)
        })
    }

    /// Starts what `command` makes of two addresses and a directory, and waits until both are served.
    fn start(command: impl FnOnce([SocketAddr; 2], &Path) -> Result<Command>) -> Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(10);

        let files = Directory::new("bench-server")?;
        let [check, grpc] = free_addresses()?;
        let log = files.path().join("log");
        let mut command = command([check, grpc], files.path())?;
        let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let process = on_cpu(SERVER_CPU, || Process::spawn(&mut command))?;
        let deadline = Instant::now() + PATIENCE;
        for address in [check, grpc] {
            while TcpStream::connect(address).is_err() {
                if let Some(status) = process.try_wait()? {
                    bail!("{command:?} ended ({status}): {}", said(&log));
                }
                if Instant::now() > deadline {
                    bail!("{command:?} does not serve {address} after {PATIENCE:?}: {}", said(&log));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(Self { check, grpc, process, _files: files })
    }

    /// Where an endpoint is.
    pub(super) fn address(&self, endpoint: Endpoint) -> SocketAddr {
        match endpoint {
            Endpoint::Check => self.check,
            Endpoint::Grpc => self.grpc,
        }
    }

    /// CPU time that all threads of the process, those that ended too, have used so far.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        let time = clock_getcpuclockid(pid).and_then(nix::time::ClockId::now);
        Ok(time.with_context(|| format!("failed to read the CPU time of process {pid}"))?.into())
    }

    /// Bytes of its memory that are in use.
    pub(super) fn resident(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        resident(&text).with_context(|| format!("{path} shows no VmRSS"))
    }
}

/// Two addresses that nobody listens on.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let both = || Ok([bind()?, bind()?].map(|listener| listener.local_addr()));
    let [first, second] = both().map_err(|err: std::io::Error| err).context("failed to find free ports")?;
    Ok([first?, second?])
}

/// Octets, from the line `VmRSS:     1234 kB`.
fn resident(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(value.parse::<u64>().ok()? * 1024)
}

/// The last thing that a log says.
fn said(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().next_back().unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_octets() {
        assert_eq!(resident("VmPeak:\t 9 kB\nVmRSS:\t    1234 kB\nVmData: 5 kB\n"), Some(1234 * 1024));
        assert_eq!(resident("Name:\tkthreadd\n"), None);
    }
}
