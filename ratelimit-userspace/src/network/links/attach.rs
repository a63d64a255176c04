//! One attachment: native, else generic with the reason and a hint, and never by a way that could not be
//! pinned.

use std::{fmt, io};

use aya::programs::{ProgramError, Xdp, XdpMode, links::FdLink, xdp::XdpError};
use rustix::io::Errno;

use crate::{
    config::policy::AttachMode,
    network::interfaces::{self, Interface, Mode},
};

/// `ENOTSUPP`: the kernel's own, which some drivers return in place of `EOPNOTSUPP`.
const ENOTSUPP: i32 = 524;

/// The largest MTU that drivers take which need a frame in one page of 4 KiB: the page less headroom and
/// the trailing `skb_shared_info`, and an Ethernet header with a tag.
const ONE_PAGE_MTU: u32 = 3498;

/// Why the kernel or the driver refused an attachment, and what may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kernel's error number, if it gave one.
    pub errno: Option<i32>,
    /// The kernel's and the driver's words.
    pub reason: String,
    /// What an operator can do, as a phrase with commands.
    pub hint: Option<String>,
}

/// A new attachment. Dropping it detaches, unless it was pinned.
pub(super) struct Attachment {
    pub(super) link: FdLink,
    pub(super) mode: Mode,
    /// Why it is not native although that was tried.
    pub(super) fallback: Option<Refusal>,
}

/// Attaches as `wanted` says; the effective mode is in the answer.
pub(super) fn attach(
    program: &mut Xdp,
    interface: &Interface,
    wanted: AttachMode,
) -> Result<Attachment, Refusal> {
    match wanted {
        AttachMode::Native => exactly(program, interface, Mode::Native).map(Attachment::native),
        AttachMode::Generic => {
            let link = exactly(program, interface, Mode::Generic)?;
            Ok(Attachment { link, mode: Mode::Generic, fallback: None })
        }
        AttachMode::Auto => match exactly(program, interface, Mode::Native) {
            Ok(link) => Ok(Attachment::native(link)),
            Err(refusal) if refusal.allows_generic() => {
                let link = exactly(program, interface, Mode::Generic)?;
                Ok(Attachment { link, mode: Mode::Generic, fallback: Some(refusal) })
            }
            Err(refusal) => Err(refusal),
        },
    }
}

/// Attaches in exactly this mode.
pub(super) fn exactly(program: &mut Xdp, interface: &Interface, mode: Mode) -> Result<FdLink, Refusal> {
    let how = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic => XdpMode::Skb,
        Mode::Offloaded => XdpMode::Hardware,
    };
    let refused = |error: &ProgramError| Refusal::new(error, interface);
    let id = program.attach_to_if_index(interface.index, how).map_err(|error| refused(&error))?;
    let link = program.take_link(id).map_err(|error| refused(&error))?;
    // On EINVAL aya tries once more without a link. If that works, the program is attached in a way that
    // ends with no process and cannot be pinned or swapped: it is taken off again.
    FdLink::try_from(link).map_err(|_| {
        let undone = program
            .fd()
            .map_err(io::Error::other)
            .and_then(|fd| interfaces::detach_without_link(interface.index, mode, raw(fd)));
        Refusal {
            errno: Some(Errno::INVAL.raw_os_error()),
            reason: match undone {
                Ok(()) => "the kernel attaches XDP programs here only without a BPF link".to_owned(),
                Err(error) => format!(
                    "the kernel attaches XDP programs here only without a BPF link, and taking it off \
                     again failed: {error}"
                ),
            },
            hint: hint(Errno::INVAL.raw_os_error(), interface),
        }
    })
}

fn raw(fd: &aya::programs::ProgramFd) -> std::os::fd::RawFd {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    fd.as_fd().as_raw_fd()
}

/// What may help against an error number of an attachment, for this interface.
pub(super) fn hint(errno: i32, interface: &Interface) -> Option<String> {
    let Interface { name, mtu, .. } = interface;
    let smaller_mtu =
        || format!("the MTU of {mtu} may be too large for native XDP: `ip link set dev {name} mtu 1500`");
    let offloads = || {
        format!(
            "receive offloads that merge frames stand in the way in some drivers: `ethtool -K {name} lro \
             off rx-gro-hw off`"
        )
    };
    let queues =
        |setting: &str| format!("native XDP needs transmit queues of its own: `ethtool -L {name} {setting}`");
    let errno = if errno == ENOTSUPP { Errno::OPNOTSUPP } else { Errno::from_raw_os_error(errno) };
    match errno {
        Errno::RANGE | Errno::FBIG | Errno::MSGSIZE => Some(smaller_mtu()),
        Errno::INVAL if *mtu > ONE_PAGE_MTU => Some(smaller_mtu()),
        Errno::INVAL => Some(offloads()),
        Errno::OPNOTSUPP => {
            let obstacle = if *mtu > ONE_PAGE_MTU { smaller_mtu() } else { offloads() };
            Some(format!("the driver has no native XDP, or not as it is set up: {obstacle}"))
        }
        Errno::NOMEM => Some(queues("combined N` with half of the present N")),
        Errno::NOSPC => Some(queues("rx N tx N` with as many receive as transmit queues")),
        Errno::BUSY | Errno::EXIST => Some(format!(
            "another program or mode may be active: `ip -details link show dev {name}` shows it"
        )),
        Errno::PERM | Errno::ACCESS => Some("CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed".to_owned()),
        _ => None,
    }
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn new(error: &ProgramError, interface: &Interface) -> Self {
        let errno = match error {
            ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
            ProgramError::XdpError(XdpError::NetlinkError(error)) => error.raw_os_error(),
            ProgramError::IOError(error) => error.raw_os_error(),
            _ => None,
        };
        // The netlink answer carries the driver's own sentence; the number alone says less.
        let reason = match (errno, error) {
            (Some(errno), ProgramError::XdpError(_)) => {
                format!("{error}: {}", io::Error::from_raw_os_error(errno))
            }
            (Some(errno), _) => io::Error::from_raw_os_error(errno).to_string(),
            (None, _) => error.to_string(),
        };
        Self { errno, reason, hint: errno.and_then(|errno| hint(errno, interface)) }
    }

    /// Whether generic mode may work where native was refused. Privilege, a vanished interface and the
    /// like would refuse it for the same reason.
    pub(super) fn allows_generic(&self) -> bool {
        const DRIVER: [Errno; 9] = [
            Errno::OPNOTSUPP,
            Errno::RANGE,
            Errno::INVAL,
            Errno::NOMEM,
            Errno::NOSPC,
            Errno::BUSY,
            Errno::FBIG,
            Errno::MSGSIZE,
            Errno::NOSYS,
        ];
        self.errno.is_some_and(|errno| {
            errno == ENOTSUPP || DRIVER.iter().any(|driver| driver.raw_os_error() == errno)
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { errno: _, reason, hint } = self;
        f.write_str(reason)?;
        match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

// === impl Attachment ===

impl Attachment {
    fn native(link: FdLink) -> Self {
        Self { link, mode: Mode::Native, fallback: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(mtu: u32) -> Interface {
        Interface { index: 3, name: "eth3".to_owned(), mtu, ..Interface::default() }
    }

    fn refusal(errno: i32) -> Refusal {
        Refusal { errno: Some(errno), reason: String::new(), hint: None }
    }

    /// What drivers are known to answer, and the word that the hint must hold.
    #[test]
    fn each_known_error_has_the_hint_that_helps() {
        let known = [
            (Errno::RANGE, 9000, "mtu 1500"),        // veth, ice: "MTU too large"
            (Errno::OPNOTSUPP, 9000, "mtu 1500"),    // ixgbe, bnxt above a page
            (Errno::INVAL, 9000, "mtu 1500"),        // ixgbevf above a page
            (Errno::OPNOTSUPP, 1500, "lro off"),     // virtio with guest offloads, mlx5 with LRO
            (Errno::INVAL, 1500, "lro off"),         // ixgbe with RSC
            (Errno::NOMEM, 1500, "ethtool -L eth3"), // virtio: "request 5 queues but max is 1"
            (Errno::NOSPC, 1500, "ethtool -L eth3"), // veth: fewer receive than transmit queues
            (Errno::BUSY, 1500, "ip -details link show dev eth3"),
            (Errno::PERM, 1500, "CAP_NET_ADMIN"),
        ];
        for (errno, mtu, word) in known {
            let hint = hint(errno.raw_os_error(), &interface(mtu)).expect("a hint");
            assert!(hint.contains(word), "{errno:?} at MTU {mtu}: {hint}");
        }
        assert!(hint(ENOTSUPP, &interface(1500)).is_some_and(|hint| hint.contains("lro off")));
        assert_eq!(hint(Errno::IO.raw_os_error(), &interface(1500)), None);
    }

    #[test]
    fn only_what_the_driver_refuses_falls_back() {
        for errno in [Errno::OPNOTSUPP, Errno::RANGE, Errno::INVAL, Errno::NOMEM, Errno::BUSY, Errno::NOSPC] {
            assert!(refusal(errno.raw_os_error()).allows_generic(), "{errno:?}");
        }
        assert!(refusal(ENOTSUPP).allows_generic());
        for errno in [Errno::PERM, Errno::NODEV, Errno::EXIST, Errno::BADF] {
            assert!(!refusal(errno.raw_os_error()).allows_generic(), "{errno:?}");
        }
        assert!(!Refusal { errno: None, reason: String::new(), hint: None }.allows_generic());
    }

    #[test]
    fn a_refusal_reads_as_reason_then_hint() {
        let refusal = Refusal { errno: Some(34), reason: "out of range".into(), hint: Some("do so".into()) };
        assert_eq!(refusal.to_string(), "out of range; do so");
    }
}
