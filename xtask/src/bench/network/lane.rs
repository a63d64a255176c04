//! One contender with a wire of its own.
//!
//! All lanes stand at the same time and share only the sending namespace, so that runs of different
//! contenders can be interleaved without tearing anything down between them.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{sender::Sender, shield::Shield};
use crate::lab::{Interface, Link, Namespace, NapiThread};

/// A contender behind its wire, with a receiving thread whose run time is what a packet costs.
#[derive(Debug)]
pub(super) struct Lane {
    /// The wire.
    pub(super) link: Link,
    /// What stands before the device.
    pub(super) shield: Shield,
    thread: NapiThread,
    devices: File,
    snmp: File,
    namespace: Namespace,
}

/// The receiving side at one instant, counted from when it was made.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Run time of the receiving thread.
    cpu: Duration,
    /// Packets that it has taken from the wire.
    packets: u64,
    /// Packets that were let through, as far as the IP layer's hand-over to a protocol.
    delivered: u64,
}

/// What happened between two readings.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    cpu: Duration,
    packets: u64,
    delivered: u64,
}

/// Share of the packets that may come through: every one of them costs more than one that is shed. (A full
/// nftables set lets about one in a hundred through.)
const MAX_DELIVERED: f64 = 0.02;
/// Share at which a contender has met every source.
const WARM: f64 = 0.002;

/// How long the receiver may take to empty the wire after the last packet was sent. The ring holds 256.
const DRAIN: Duration = Duration::from_millis(20);

// === impl Lane ===

impl Lane {
    /// Builds link number `number` from `sender` to a namespace of its own, the receiver bound to CPU
    /// `cpu`, with whatever `shield` puts before it.
    pub(super) fn new(
        sender: &Namespace,
        number: u8,
        cpu: usize,
        shield: impl FnOnce(&Namespace, &Interface) -> Result<Shield>,
    ) -> Result<Self> {
        let namespace = Namespace::new("bench")?;
        let link = Link::new(sender, &namespace, number)?;
        let Interface { device, .. } = &link.server;
        // Without GRO a veth that has no program has no NAPI either, and takes no redirected frames.
        namespace.ethtool(&["-K", device, "gro", "on"])?;
        let shield = shield(&namespace, &link.server)?;
        let thread = NapiThread::start(&namespace, device)?;
        thread.pin(cpu)?;
        let [devices, snmp] = [open_net(&namespace, "dev")?, open_net(&namespace, "snmp")?];
        Ok(Self { link, shield, thread, devices, snmp, namespace })
    }

    /// Lets every source use up what it may send, so that nothing is left to pass.
    pub(super) fn warm_up(&self, sender: &Sender<'_>) -> Result<()> {
        /// One is enough unless packets get lost.
        const SWEEPS: u32 = 5;
        const PROBE: Duration = Duration::from_millis(100);

        let mut share = 1.0;
        for _ in 0..SWEEPS {
            sender.sweep()?;
            share = self.traffic(sender, PROBE)?.delivered_share();
            if share <= WARM {
                return Ok(());
            }
        }
        if share <= MAX_DELIVERED {
            return Ok(());
        }
        bail!("still lets {:.2}% of the packets through after {SWEEPS} from each source", share * 100.0)
    }

    /// CPU nanoseconds a shed packet, over `window`.
    pub(super) fn cost(&self, sender: &Sender<'_>, window: Duration) -> Result<f64> {
        // The caches still hold another contender's table.
        sender.flood(window / 8)?;
        thread::sleep(DRAIN);
        let traffic = self.traffic(sender, window)?;
        let share = traffic.delivered_share();
        ensure!(share <= MAX_DELIVERED, "lets {:.2}% of the packets through", share * 100.0);
        Ok(traffic.cost())
    }

    /// Reads, sends, reads: the receiver rests at both readings, so they are exact.
    fn traffic(&self, sender: &Sender<'_>, window: Duration) -> Result<Traffic> {
        let before = self.read()?;
        sender.flood(window)?;
        thread::sleep(DRAIN);
        let after = self.read()?;
        let traffic = Traffic {
            cpu: after.cpu.saturating_sub(before.cpu),
            packets: after.packets - before.packets,
            delivered: after.delivered - before.delivered,
        };
        ensure!(traffic.packets > 0, "no packet arrived at {}", self.namespace.name());
        Ok(traffic)
    }

    fn read(&self) -> Result<Reading> {
        let delivered = delivered(&read_again(&self.snmp)?).context("/proc/net/snmp shows no InDelivers")?;
        Ok(Reading { cpu: self.thread.run_time()?, packets: self.packets()?, delivered })
    }

    fn packets(&self) -> Result<u64> {
        let Interface { device, .. } = &self.link.server;
        packets(&read_again(&self.devices)?, device)
            .with_context(|| format!("/proc/net/dev shows no packets of {device}"))
    }
}

/// A file below /proc/net shows the namespace of the thread that opened it, whoever reads it.
fn open_net(namespace: &Namespace, name: &str) -> Result<File> {
    let path = format!("/proc/thread-self/net/{name}");
    namespace.run(|| File::open(&path)).with_context(|| format!("failed to open {path}"))
}

fn read_again(mut file: &File) -> Result<String> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).context("failed to read below /proc/net")?;
    Ok(text)
}

/// What the NAPI of the veth has taken from its ring, whether or not a program is attached: that is what
/// the driver reports as received.
fn packets(devices: &str, device: &str) -> Option<u64> {
    let line = devices.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// `/proc/net/snmp` has for each protocol a line of names and one of values.
fn delivered(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Ip: "));
    let column = lines.next()?.split(' ').position(|name| name == "InDelivers")?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

// === impl Traffic ===

impl Traffic {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 packets")]
    fn delivered_share(self) -> f64 {
        self.delivered as f64 / self.packets as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 packets")]
    fn cost(self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.packets as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_found_by_name() {
        let devices = "Inter-|   Receive\n face |bytes    packets errs\n\
                       eth10: 9 8 7\n  eth1: 1200   17    0\n    lo: 0 0 0\n";
        assert_eq!(packets(devices, "eth1"), Some(17));
        assert_eq!(packets(devices, "eth2"), None);

        let snmp = "Ip: Forwarding InReceives InDelivers\nIp: 2 40 5\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(delivered(snmp), Some(5));
        assert_eq!(delivered("Icmp: InMsgs\nIcmp: 9\n"), None);
    }
}
