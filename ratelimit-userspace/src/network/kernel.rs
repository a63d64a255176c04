//! What the kernel and this process must bring before anything is loaded: Linux 6.1, its type
//! information, the capabilities of a BPF loader, and a BPF file system under the pin directory.
//!
//! Every check only looks. What is missing comes back as a [`Lacking`] that says what to do about it.

use std::path::{Path, PathBuf};

use rustix::{
    fs::statfs,
    system::uname,
    thread::{CapabilitySet, capabilities},
};

/// The oldest kernel that is supported, as (major, minor).
pub const MINIMUM: (u32, u32) = (6, 1);

/// Type information of the running kernel (`CONFIG_DEBUG_INFO_BTF`).
const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;

/// What this host or this process lacks. The command line exits with 3 on any of them.
#[derive(Debug, thiserror::Error)]
pub enum Lacking {
    /// The kernel is older than [`MINIMUM`].
    #[error(
        "Linux {release} is too old: ratelimit needs 6.1 or later (BPF links for XDP, programs for \
         multi-buffer frames and atomic compare-and-swap are missing or incomplete before it); boot a \
         newer kernel"
    )]
    Kernel {
        /// As `uname -r` says it.
        release: String,
    },
    /// The kernel was built without type information.
    #[error(
        "the kernel has no type information: {VMLINUX_BTF} is missing; boot a kernel that was built with \
         CONFIG_DEBUG_INFO_BTF=y, as those of the usual distributions are"
    )]
    TypeInformation,
    /// The process lacks capabilities.
    #[error(
        "missing {missing}: loading and attaching an XDP program needs CAP_BPF, CAP_NET_ADMIN and \
         CAP_PERFMON; run as root, or under systemd with AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON"
    )]
    Capabilities {
        /// Their names.
        missing: String,
    },
    /// The pin directory is not on a BPF file system.
    #[error(
        "{} is not on a BPF file system, so nothing could outlive this process; {advice}", path.display()
    )]
    FileSystem {
        /// The pin directory.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
    },
}

/// Checks the kernel and this thread's capabilities: all that loading a program needs.
pub fn check() -> Result<(), Lacking> {
    let release = uname().release().to_string_lossy().into_owned();
    check_release(&release)?;
    check_capabilities()?;
    check_type_information()
}

/// Everything that is lacking, where [`check`] and [`check_file_system`] end at the first.
pub fn lacking(pin_dir: &Path) -> Vec<Lacking> {
    let release = uname().release().to_string_lossy().into_owned();
    let checks =
        [check_release(&release), check_type_information(), check_file_system(pin_dir), check_capabilities()];
    checks.into_iter().filter_map(Result::err).collect()
}

/// Checks that `path`, or its nearest ancestor that exists, is on a BPF file system.
pub fn check_file_system(path: &Path) -> Result<(), Lacking> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or_else(|| Path::new("/"));
    // The magic is a 32-bit number in a field whose width depends on the architecture.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "32 bits by definition")]
    if statfs(existing).is_ok_and(|status| status.f_type as u32 == BPF_FS_MAGIC) {
        return Ok(());
    }
    let advice = if path.starts_with("/sys/fs/bpf") {
        "mount one first: mount -t bpf bpf /sys/fs/bpf (where the host has one, `ip netns exec` hides it: use \
         nsenter --net=/run/netns/NAME)"
    } else {
        "choose a directory below /sys/fs/bpf, or below one that you made and mounted: mkdir DIR && mount -t \
         bpf bpf DIR"
    };
    Err(Lacking::FileSystem { path: path.to_owned(), advice })
}

fn check_release(release: &str) -> Result<(), Lacking> {
    // A release that does not start with two numbers is not refused on a guess: the loader will tell.
    match version(release) {
        Some(found) if found < MINIMUM => Err(Lacking::Kernel { release: release.to_owned() }),
        _ => Ok(()),
    }
}

fn check_type_information() -> Result<(), Lacking> {
    if Path::new(VMLINUX_BTF).exists() { Ok(()) } else { Err(Lacking::TypeInformation) }
}

/// The first two numbers of a release such as `6.1.0-18-amd64` or `6.12-rc3`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn check_capabilities() -> Result<(), Lacking> {
    // Without capget (a seccomp filter, say) the kernel's own answer to bpf(2) has to do.
    let Ok(sets) = capabilities(None) else { return Ok(()) };
    match missing_capabilities(sets.effective) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Lacking::Capabilities { missing: missing.join(", ") }),
    }
}

/// `CAP_SYS_ADMIN` implies `CAP_BPF` and `CAP_PERFMON` (`bpf_capable` and `perfmon_capable` of the kernel's
/// `linux/capability.h`), not `CAP_NET_ADMIN`. Without `CAP_PERFMON` the verifier refuses the program: it
/// then takes speculative execution for real.
fn missing_capabilities(effective: CapabilitySet) -> Vec<&'static str> {
    let needed = [
        ("CAP_BPF", CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_PERFMON", CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
    ];
    needed.into_iter().filter(|(_, any)| !effective.intersects(*any)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_below_6_1_are_refused() {
        for old in ["5.10.0-28-amd64", "5.15.153.1-microsoft-standard", "4.19", "6.0.19"] {
            let error = check_release(old).expect_err(old).to_string();
            assert!(error.contains(old) && error.contains("6.1"), "{error}");
        }
        for fine in ["6.1.0-18-amd64", "6.1", "6.12-rc3", "6.18.44", "7.0.0", "10.0"] {
            assert!(check_release(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn an_unusual_release_is_left_to_the_loader() {
        assert!(check_release("custom").is_ok());
        assert_eq!(version("custom"), None);
    }

    #[test]
    fn capabilities_are_named_one_by_one() {
        let without = |present| missing_capabilities(present);
        assert_eq!(without(CapabilitySet::empty()), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(without(CapabilitySet::SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(without(CapabilitySet::BPF | CapabilitySet::NET_ADMIN), ["CAP_PERFMON"]);
        assert!(without(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN).is_empty());
        assert!(without(CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON).is_empty());
    }

    #[test]
    fn nobody_is_told_to_mount_over_a_directory_in_use() {
        let error = check_file_system(Path::new("/proc/ratelimit")).expect_err("/proc").to_string();
        assert!(
            error.contains("mkdir DIR && mount -t bpf bpf DIR") && !error.contains("bpf /proc"),
            "{error}"
        );
    }
}
