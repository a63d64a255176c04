//! The kernel and this process.

use std::{path::Path, thread};

use rustix::system::uname;

use super::read;
use crate::network::{
    doctor::facts::{Host, Lack, Unseen},
    kernel::{self, Lacking},
};

pub(super) fn look(pin_dir: &Path, unseen: &mut Vec<Unseen>) -> Host {
    let mut lacking = Vec::new();
    let mut missing_capabilities = None;
    for lack in kernel::lacking(pin_dir) {
        let (what, remedy) = match lack {
            Lacking::Kernel { release } => (
                format!("Linux {release} is too old: ratelimit needs 6.1 or later"),
                "boot a newer kernel".to_owned(),
            ),
            Lacking::TypeInformation => (
                "the kernel has no type information (/sys/kernel/btf/vmlinux)".to_owned(),
                "boot a kernel that was built with CONFIG_DEBUG_INFO_BTF=y".to_owned(),
            ),
            Lacking::FileSystem { path, advice } => (
                format!(
                    "{} is not on a BPF file system, so nothing could outlive the daemon",
                    path.display()
                ),
                advice.to_owned(),
            ),
            Lacking::Capabilities { missing } => {
                missing_capabilities = Some(missing);
                continue;
            }
        };
        lacking.push(Lack { what, remedy });
    }
    let mut setting = |path: &str| read(path, unseen).and_then(|text| text.parse().ok());
    let (jit, statistics) =
        (setting("/proc/sys/net/core/bpf_jit_enable"), setting("/proc/sys/kernel/bpf_stats_enabled"));
    Host {
        release: uname().release().to_string_lossy().into_owned(),
        lacking,
        jit,
        // Only root may read it, and it matters little.
        jit_harden: read("/proc/sys/net/core/bpf_jit_harden", &mut Vec::new()).and_then(|it| it.parse().ok()),
        statistics,
        cpus: online(unseen),
        memory_available: read("/proc/meminfo", unseen).and_then(|text| available(&text)),
        missing_capabilities,
    }
}

/// CPUs that are online: those that packets can arrive at, also where this process may not run.
fn online(unseen: &mut Vec<Unseen>) -> usize {
    let listed = read("/sys/devices/system/cpu/online", unseen).map(|text| cpus(&text).count());
    listed.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// The CPUs of a list such as `0-3,8`.
pub(super) fn cpus(list: &str) -> impl Iterator<Item = u32> {
    list.split(',')
        .filter_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.trim().parse().ok()?..=to.trim().parse().ok()?)
        })
        .flatten()
}

/// Bytes that are available, in the text of /proc/meminfo.
pub(super) fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
