//! One network namespace.

use std::{
    ffi::OsStr,
    fs::{self, File},
    panic,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sched::{CloneFlags, setns},
    unistd::geteuid,
};

use super::{
    Cleanup,
    process::{capture, feed},
    sweep,
};

/// What every namespace starts with: nothing happens on the wire that a test did not ask for, and
/// addresses are usable at once.
const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/ipv6/conf/default/forwarding", "0"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// A named network namespace, removed with its processes and veth devices when the guard goes.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    _cleanup: Cleanup,
}

// === impl Namespace ===

impl Namespace {
    /// Makes a namespace with only its loopback device, up; `role` is part of its name.
    pub fn new(role: &str) -> Result<Self> {
        ensure!(geteuid().is_root(), "network namespaces need root: run this as root, e.g. by sudo");
        let name = sweep::unique_name(role);
        let cleanup = Cleanup::new({
            let name = name.clone();
            move || sweep::remove_namespace(&name)
        });
        capture(Command::new("ip").args(["netns", "add", &name]))
            .context("failed to make a network namespace (is iproute2 installed?)")?;
        let namespace = Self { name, _cleanup: cleanup };
        namespace.run(|| SYSCTLS.iter().try_for_each(|(key, value)| write_sysctl(key, value)))?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` prints it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that names it.
    pub fn path(&self) -> PathBuf {
        Path::new(sweep::NETNS).join(&self.name)
    }

    /// Runs the closure on a thread inside the namespace. Sockets made there, and threads started
    /// there, stay in the namespace; a panic comes back to the caller.
    ///
    /// # Panics
    /// If the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter().expect("the namespace stands as long as its guard");
                work()
            });
            worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// Starts a thread inside the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<T>> {
        let file = self.open()?;
        Ok(thread::spawn(move || {
            enter(&file).expect("an open namespace can be entered");
            work()
        }))
    }

    /// A command that will run inside the namespace and sees everything else as the caller does.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut net = std::ffi::OsString::from("--net=");
        net.push(self.path());
        let mut command = Command::new("nsenter");
        command.arg(net).arg("--").arg(program);
        command
    }

    /// Runs lines of `ip` commands (without the word `ip`) inside the namespace.
    pub fn ip(&self, lines: &str) -> Result<()> {
        feed(Command::new("ip").args(["-netns", &self.name, "-batch", "-"]), lines)
            .map(drop)
            .with_context(|| format!("the ip commands were:\n{lines}"))
    }

    /// Runs `ethtool` inside the namespace.
    pub fn ethtool(&self, arguments: &[&str]) -> Result<()> {
        capture(self.command("ethtool").args(arguments)).map(drop)
    }

    /// Sets a value under `/proc/sys/`; the key uses slashes, as in `net/ipv4/tcp_syncookies`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        // The kernel shows each reader the values of the reader's own namespace.
        self.run(|| write_sysctl(key, value))
    }

    fn enter(&self) -> Result<()> {
        enter(&self.open()?)
    }

    fn open(&self) -> Result<File> {
        let path = self.path();
        File::open(&path).with_context(|| format!("failed to open {}", path.display()))
    }
}

fn enter(file: &File) -> Result<()> {
    setns(file, CloneFlags::CLONE_NEWNET).context("failed to enter the network namespace")
}

fn write_sysctl(key: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(key);
    fs::write(&path, value).with_context(|| format!("failed to write {value} to {}", path.display()))
}
