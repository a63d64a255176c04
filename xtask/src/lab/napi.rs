//! The receiving side of a wire as a kernel thread of its own, so that its cost can be read.
//!
//! Without this a veth runs the receiver's work in the sender's system calls: the two costs mix, and a
//! flood slows itself down. With threaded NAPI (Linux 5.12) the receiver has its own thread, hence its
//! own CPU and its own run time.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::Pid,
};

use super::{Namespace, pin, renice, sweep};

/// The kernel thread that receives for one device.
#[derive(Clone, Copy, Debug)]
pub struct NapiThread {
    pid: Pid,
}

// === impl NapiThread ===

impl NapiThread {
    /// Gives the device of the namespace a receiving thread. The device must have exactly one NAPI
    /// instance and no such thread yet: one receive queue, and GRO on (see
    /// [`Lab::queue_at_server`](super::Lab::queue_at_server)). It goes with the device.
    pub fn start(namespace: &Namespace, device: &str) -> Result<Self> {
        // The thread's name holds the device, not the namespace; the new one is found by comparison,
        // so nobody else may make one meanwhile.
        let directory = File::open(sweep::NETNS).context("failed to open the namespace directory")?;
        directory.lock().context("failed to lock the namespace directory")?;
        let before = threads_of(device)?;
        namespace.run(|| set_threaded(device))?;
        let mut started = threads_of(device)?;
        started.retain(|pid| !before.contains(pid));
        match started[..] {
            [pid] => Ok(Self { pid }),
            [] => bail!("{device} got no receiving thread: is GRO on (`ethtool -K {device} gro on`)?"),
            _ => bail!("{device} got {} receiving threads: reduce it to one queue", started.len()),
        }
    }

    /// Binds the thread to one CPU.
    pub fn pin(&self, cpu: usize) -> Result<()> {
        pin(self.pid, cpu)
    }

    /// Lets it go before everything else on its CPU, as the soft interrupt does that receives without it.
    pub fn prioritise(&self) -> Result<()> {
        renice(self.pid, -20)
    }

    /// CPU time it has used, from /proc/PID/schedstat.
    pub fn run_time(&self) -> Result<Duration> {
        let path = format!("/proc/{}/schedstat", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
        nanoseconds.map(Duration::from_nanos).with_context(|| format!("failed to parse {path}: {text:?}"))
    }
}

/// Runs on a thread inside the namespace and gives it a private `/sys`, because a sysfs shows the
/// devices of the namespace that mounted it.
fn set_threaded(device: &str) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("failed to leave the mount namespace")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("failed to make the mounts private")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
        .context("failed to mount a sysfs")?;
    let path = Path::new("/sys/class/net").join(device).join("threaded");
    fs::write(&path, "1").with_context(|| format!("failed to write {}", path.display()))
}

fn threads_of(device: &str) -> Result<Vec<Pid>> {
    let prefix = format!("napi/{device}-");
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").context("failed to list /proc")? {
        let entry = entry.context("failed to list /proc")?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ended meanwhile has no name any more.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with(&prefix) {
            pids.push(Pid::from_raw(pid));
        }
    }
    Ok(pids)
}
