//! Who stands where, and what one phase measures.

use std::{
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    RECEIVING_CPU,
    client::{self, Client, Experience},
    report::View,
    server,
    shield::Shield,
};
use crate::lab::{Flood, Lab, NapiThread, Plan, frame, prioritise_thread};

/// Printed before the first phase.
pub(super) const STORY: &str = "\
A web server stands behind one end of a veth pair, on a CPU of its own. From the other end 2,000 made-up
addresses send it TCP handshakes they never finish and stray UDP datagrams, up to 900,000 packets a second,
while one honest client opens 20 connections a second and asks for a page of 64 KiB on each.";

/// Where the attacker and the honest client run.
const SENDING_CPU: usize = 0;
const PORT: u16 = 80;
const SOURCES: u32 = 2_000;
/// Packets a second, if the sending CPU manages that many: above what a CPU can take through the network
/// stack, below what one can shed.
const RATE: u64 = 1_200_000;
/// Every so many frames of the flood one is UDP.
const UDP_EVERY: usize = 4;
/// Time between the start of a flood and that of what is measured under it, for queues to fill and first
/// bursts to be spent.
const SETTLE: Duration = Duration::from_millis(500);

/// The scene with everything that outlives a phase.
#[derive(Debug)]
pub(super) struct Scene {
    /// The wire; the server's end is what is protected.
    pub(super) lab: Lab,
    receiver: NapiThread,
    address: SocketAddr,
    frames: Vec<Vec<u8>>,
}

/// One phase.
#[derive(Debug)]
pub(super) struct Phase {
    /// What is different about it.
    pub(super) title: &'static str,
    /// What the honest client saw.
    pub(super) honest: Experience,
    /// Frames put on the wire.
    pub(super) offered: u64,
    /// Frames taken off it; the others found the queue full.
    pub(super) received: u64,
    /// Run time of the thread that took them off.
    pub(super) cpu: Duration,
    /// How long the flood lasted, or the phase if there was none.
    pub(super) elapsed: Duration,
}

/// The server's side of the wire at one instant.
struct Reading {
    at: Instant,
    cpu: Duration,
    frames: u64,
}

// === impl Scene ===

impl Scene {
    pub(super) fn new() -> Result<Self> {
        let cpus = thread::available_parallelism().context("failed to count the CPUs")?.get();
        ensure!(cpus > RECEIVING_CPU, "the demo needs two CPUs, one for each side; here is {cpus}");
        prioritise_thread()?;
        let lab = Lab::new("demo")?;
        lab.queue_at_server()?;
        let receiver = NapiThread::start(&lab.server, &lab.link.server.device)?;
        receiver.pin(RECEIVING_CPU)?;
        receiver.prioritise()?;
        let address = SocketAddr::from((lab.link.server.ipv4, PORT));
        server::start(&lab.server, address, RECEIVING_CPU)?;
        let frames = flood_frames(&lab);
        Ok(Self { lab, receiver, address, frames })
    }

    /// Runs the honest client for `duration`, under a flood or not.
    pub(super) fn measure(
        &self,
        title: &'static str,
        duration: Duration,
        flooded: bool,
        shield: Option<&Shield>,
        view: &View,
    ) -> Result<Phase> {
        let before = self.read()?;
        let flood = flooded.then(|| self.flood(duration)).transpose()?;
        if flooded {
            thread::sleep(SETTLE);
        }
        let client = Client::start(&self.lab.client, self.address, SENDING_CPU)?;
        let begin = Instant::now();
        while let Some(left) = duration.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
            let offered = flood.as_ref().map(|flood| (flood.offered(), before.at.elapsed()));
            let shed = shield.map(Shield::shed).transpose()?;
            view.show(title, left, offered, shed, &client.experience());
            thread::sleep(left.min(view.interval()));
        }
        // The last answers are waited for under the flood too.
        let honest = client.finish();
        let offered = flood.map_or(Ok(0), Flood::stop)?;
        let after = self.read()?;
        Ok(Phase {
            title,
            honest,
            offered,
            received: after.frames - before.frames,
            cpu: after.cpu.saturating_sub(before.cpu),
            elapsed: after.at - before.at,
        })
    }

    fn flood(&self, duration: Duration) -> Result<Flood> {
        self.lab.flood(Plan {
            frames: self.frames.clone(),
            // Only a bound: the phase ends it when the client has its last answer.
            duration: duration + SETTLE + client::TIMEOUT * 2,
            packets: None,
            rate: Some(RATE),
            cpu: Some(SENDING_CPU),
        })
    }

    fn read(&self) -> Result<Reading> {
        let device = &self.lab.link.server.device;
        // /proc/net would show the namespace of the process, not that of the thread.
        let table = self
            .lab
            .server
            .run(|| fs::read_to_string("/proc/thread-self/net/dev"))
            .context("failed to read the interface counters")?;
        let frames = received(&table, device).with_context(|| format!("no {device} in:\n{table}"))?;
        Ok(Reading { at: Instant::now(), cpu: self.receiver.run_time()?, frames })
    }
}

/// Received packets of a device, from the table of /proc/net/dev: `device: bytes packets ...`.
fn received(table: &str, device: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == device).then(|| counters.split_whitespace().nth(1)?.parse().ok()).flatten()
    })
}

fn flood_frames(lab: &Lab) -> Vec<Vec<u8>> {
    let route = lab.route_v4();
    // Every source sends both kinds: `UDP_EVERY` frames of each.
    (0..UDP_EVERY)
        .flat_map(|round| {
            frame::sources_v4(SOURCES).enumerate().map(move |(number, source)| (round, number, source))
        })
        .map(|(round, number, source)| {
            let port = 1024 + u16::try_from(round).unwrap_or(0);
            if (number + round) % UDP_EVERY == 0 {
                route.udp(source, port, PORT, &[0; 18])
            } else {
                route.syn(source, port, PORT, 1)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_packets_are_the_second_column() {
        let table = "Inter-| Receive\n face |bytes packets errs\n  eth0: 840      14    0\n    lo:0 0 0\n";
        assert_eq!(received(table, "eth0"), Some(14));
        assert_eq!(received(table, "lo"), Some(0));
        assert_eq!(received(table, "eth"), None);
    }
}
