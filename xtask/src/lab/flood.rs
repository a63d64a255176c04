//! Raw frames onto a wire, many and bounded.

use std::{
    io::IoSlice,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockType, bind, sendmmsg, socket,
    },
};

use super::{Namespace, pin_thread};

/// Frames handed to the kernel in one call.
const BATCH: usize = 64;
/// How long a paced flood sleeps when it is ahead of its rate.
const PAUSE: Duration = Duration::from_micros(200);

/// What a flood sends. It ends at the first bound it meets.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sent in this order, over and over.
    pub frames: Vec<Vec<u8>>,
    /// The longest it may last.
    pub duration: Duration,
    /// The most frames it may send.
    pub packets: Option<u64>,
    /// The most frames a second; without, as fast as the CPU allows.
    pub rate: Option<u64>,
    /// The CPU its thread is bound to.
    pub cpu: Option<usize>,
}

/// A running flood; dropping it stops it.
#[derive(Debug)]
pub struct Flood {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    offered: AtomicU64,
}

// === impl Flood ===

impl Flood {
    /// Starts sending from a device of the namespace.
    pub fn start(namespace: &Namespace, device: &str, plan: Plan) -> Result<Self> {
        ensure!(!plan.frames.is_empty(), "a flood needs at least one frame");
        let socket = namespace.run(|| open(device))?;
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                plan.cpu.map_or(Ok(()), pin_thread)?;
                send(&socket, &plan, &shared)
            }
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Frames put on the wire so far, those included that the receiving queue had no room for.
    pub fn offered(&self) -> u64 {
        self.shared.offered.load(Ordering::Relaxed)
    }

    /// Whether it has met a bound or failed.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until it meets a bound; returns the frames offered.
    pub fn wait(mut self) -> Result<u64> {
        self.join()
    }

    /// Ends it now; returns the frames offered.
    pub fn stop(mut self) -> Result<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(&mut self) -> Result<u64> {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the sender does not panic").context("the flood broke off")?;
        }
        Ok(self.offered())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A packet socket that sends from the device and, bound to no protocol, receives nothing.
fn open(device: &str) -> Result<OwnedFd> {
    let address: LinkAddr = getifaddrs()
        .context("failed to list the interfaces")?
        .filter(|entry| entry.interface_name == device)
        .find_map(|entry| entry.address.as_ref().and_then(|address| address.as_link_addr()).copied())
        .with_context(|| format!("failed to find {device}"))?;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
        .context("failed to open a packet socket (it needs CAP_NET_RAW)")?;
    bind(socket.as_raw_fd(), &address)
        .with_context(|| format!("failed to bind a packet socket to {device}"))?;
    Ok(socket)
}

fn send(socket: &OwnedFd, plan: &Plan, shared: &Shared) -> Result<()> {
    let slices: Vec<[IoSlice<'_>; 1]> = plan.frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    let begin = Instant::now();
    let limit = plan.packets.unwrap_or(u64::MAX);
    let (mut offered, mut next) = (0_u64, 0);
    while offered < limit && !shared.stop.load(Ordering::Relaxed) {
        let elapsed = begin.elapsed();
        if elapsed >= plan.duration {
            break;
        }
        let due = plan.rate.map_or(limit, |rate| limit.min(due(rate, elapsed)));
        if offered >= due {
            thread::sleep(PAUSE);
            continue;
        }
        let batch = usize::try_from(due - offered).unwrap_or(BATCH).min(BATCH).min(slices.len() - next);
        let sent = send_batch(socket, &mut headers, &slices[next..next + batch])?;
        next = (next + sent) % slices.len();
        offered += sent as u64;
        shared.offered.store(offered, Ordering::Relaxed);
    }
    Ok(())
}

/// Frames due after this time; never less than one, so that a slow flood starts at once.
fn due(rate: u64, elapsed: Duration) -> u64 {
    let due = u128::from(rate) * elapsed.as_nanos() / 1_000_000_000;
    u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1)
}

/// Returns how many frames the kernel took or threw away.
fn send_batch<'a>(
    socket: &OwnedFd,
    headers: &'a mut MultiHeaders<LinkAddr>,
    slices: &'a [[IoSlice<'a>; 1]],
) -> Result<usize> {
    const NO_ADDRESS: [Option<LinkAddr>; BATCH] = [None; BATCH];
    match sendmmsg(socket.as_raw_fd(), headers, slices, NO_ADDRESS, [], MsgFlags::empty()) {
        Ok(results) => Ok(results.count()),
        // The receiving queue is full: that frame is lost, as it would be on a wire.
        Err(Errno::ENOBUFS) => Ok(1),
        Err(Errno::EINTR | Errno::EAGAIN) => Ok(0),
        Err(error) => Err(error).context("failed to send raw frames (is the device up?)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_flood_starts_at_once_and_keeps_its_rate() {
        assert_eq!(due(10, Duration::ZERO), 1);
        assert_eq!(due(10, Duration::from_secs(1)), 11);
        assert_eq!(due(u64::MAX, Duration::from_mins(1)), u64::MAX);
    }
}
