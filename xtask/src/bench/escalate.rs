//! `cargo xtask bench escalate`: how soon a client that is denied too often is shed in XDP, and what its requests
//! cost before and after.
//!
//! **Latency.** A client sends a datagram every 100 µs to a server that sends it back, and asks for a page beside
//! it, request by request. From the moment at which it sends the request that is one too many to that of the first
//! datagram that never came back is the figure. Each run has a client of its own.
//!
//! **Cost.** nginx and the daemon run on the second CPU, where a thread receives for the wire. What all three ran,
//! over the requests that were answered with 429, is the cost of one. What the receiving thread ran, over the
//! frames that it took while a blocked client sent nothing but handshakes, is the cost of a request that is shed:
//! it gets no further than its first segment.

mod report;

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::report::{Report, Request};
use super::report::Settings;
use crate::{
    build,
    hammered::{AFTER, Hammered, LIMIT, RULES, Seen},
    lab::{Lab, NapiThread, Plan, pin_thread},
    workspace::Workspace,
};

/// Escalation: from the request that is one too many to the first packet that is shed, and the CPU time of a
/// client's request before and after. Needs root, two CPUs and nginx.
///
/// Fails if something could not be measured; with --check also if a figure is worse than asked for.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    settings: Settings,
}

/// The client that is on the allow list, so that it is denied for ever.
const ALLOWED: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 250);
const CLIENT_CPU: usize = 0;
const SERVER_CPU: usize = 1;
/// Where datagrams are sent back.
const ECHO: u16 = 7;
/// Between two datagrams.
const GAP: Duration = Duration::from_micros(100);
/// After so long a datagram that has not come back never does.
const LOST: Duration = Duration::from_millis(300);
/// Handshakes a second of the client that is shed: fewer than the thread can take.
const SHED_RATE: u64 = 100_000;

/// Builds, measures, prints the table and writes the JSON.
pub(super) fn run(workspace: &Workspace, Options { settings }: &Options) -> Result<()> {
    let cpus = thread::available_parallelism().context("failed to count the CPUs")?;
    ensure!(cpus.get() > SERVER_CPU, "the benchmark needs two CPUs, one for servers and one for clients");
    build::run(workspace, &build::Options { release: true })?;

    let lab = Lab::new("bench-escalate")?;
    lab.queue_at_server()?;
    lab.client.ethtool(&["-K", &lab.link.client.device, "gro", "on"])?;
    // Else the server's process would do the client's receiving as well.
    NapiThread::start(&lab.client, &lab.link.client.device)?.pin(CLIENT_CPU)?;
    let receiver = NapiThread::start(&lab.server, &lab.link.server.device)?;
    receiver.pin(SERVER_CPU)?;
    let runs = settings.runs();
    let abusers: Vec<_> = (1..=runs).map(abuser).collect();
    let clients: Vec<_> = abusers.iter().copied().chain([ALLOWED]).collect();
    let rules = RULES.replace("network:\n", &format!("network:\n  allow: [{ALLOWED}]\n"));
    let site = Hammered::start(workspace, lab, &rules, &clients, SERVER_CPU)?;
    let (denials, handshakes) = if settings.quick { (500, 20_000) } else { (3_000, 100_000) };

    let mut report = Report::default();
    eprintln!("hammering until it is shed, {runs} runs");
    let latencies: Result<Vec<f64>> = abusers.iter().map(|abuser| latency(&site, *abuser)).collect();
    report.latency(latencies);
    eprintln!("{denials} denied requests, {runs} runs");
    let costs = (0..runs).map(|_| denied(&site, receiver, denials)).collect::<Result<Vec<_>>>();
    report.cost(Request::Denied, costs);
    eprintln!("{handshakes} shed handshakes, {runs} runs");
    let costs = (0..runs).map(|_| shed(&site, receiver, abusers[0], handshakes)).collect::<Result<Vec<_>>>();
    report.cost(Request::Shed, costs);
    settings.conclude(&report)
}

fn abuser(run: u32) -> Ipv4Addr {
    let run = u8::try_from(run).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 88, 0, run)
}

/// Milliseconds from the request that is one too many to the first datagram that does not come back.
fn latency(site: &Hammered, abuser: Ipv4Addr) -> Result<f64> {
    let echo = site.lab.server.run(|| UdpSocket::bind((site.lab.link.server.ipv4, ECHO)))?;
    let stop = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let stop = Arc::clone(&stop);
        move || send_back(&echo, &stop)
    });
    let socket = site.lab.client.run(|| UdpSocket::bind((abuser, 0)))?;
    socket.connect((site.lab.link.server.ipv4, ECHO)).context("failed to reach the echo")?;
    let probing = thread::spawn({
        let stop = Arc::clone(&stop);
        move || probe(&socket, &stop)
    });
    let outcome = one_too_many(site, abuser);
    thread::sleep(LOST);
    stop.store(true, Ordering::Relaxed);
    let probed = probing.join().expect("probing does not panic");
    server.join().expect("sending back does not panic");
    let (asked, (sent, last)) = (outcome?, probed?);
    let first_lost = sent.get(last + 1).context("no datagram was shed")?;
    ensure!(*first_lost > asked, "a datagram was lost before the client was blocked");
    Ok(first_lost.duration_since(asked).as_secs_f64() * 1e3)
}

/// Asks until the client is denied as often as it may be; when it sent that request.
fn one_too_many(site: &Hammered, abuser: Ipv4Addr) -> Result<Instant> {
    let mut denied = 0;
    for _ in 0..LIMIT + AFTER {
        let sent = Instant::now();
        let seen = site.ask(abuser)?;
        denied += u32::from(seen == Seen::Denied);
        // The answer to the last one may be shed already.
        if denied == AFTER || (denied == AFTER - 1 && seen == Seen::Nothing) {
            return Ok(sent);
        }
    }
    anyhow::bail!("{abuser} was denied {denied} times, {AFTER} were expected")
}

fn send_back(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 64];
    let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // Whoever is gone needs no answer.
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// Sends numbered datagrams; when each was sent, and the last number that came back.
fn probe(socket: &UdpSocket, stop: &AtomicBool) -> Result<(Vec<Instant>, usize)> {
    pin_thread(CLIENT_CPU)?;
    socket.set_nonblocking(true).context("failed to probe")?;
    let (mut sent, mut last, mut buffer) = (Vec::new(), None, [0; 8]);
    while !stop.load(Ordering::Relaxed) {
        let number = sent.len() as u64;
        sent.push(Instant::now());
        match socket.send(&number.to_be_bytes()) {
            Ok(_) => {}
            // The queue is full: this one is not on the wire.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(sent.pop()),
            Err(error) => return Err(error).context("failed to probe"),
        }
        while socket.recv(&mut buffer).is_ok() {
            last = last.max(usize::try_from(u64::from_be_bytes(buffer)).ok());
        }
        thread::sleep(GAP);
    }
    Ok((sent, last.context("no datagram came back")?))
}

/// CPU nanoseconds of the server for a request that is denied.
fn denied(site: &Hammered, receiver: NapiThread, requests: u32) -> Result<f64> {
    // Its requests of this minute are used up first.
    site.ask_often(ALLOWED, LIMIT + 1)?;
    let ran = || Ok::<_, anyhow::Error>(site.cpu_time()? + receiver.run_time()?);
    let before = ran()?;
    let seen = site.ask_often(ALLOWED, requests)?;
    let used = ran()?.saturating_sub(before);
    let denied = seen.iter().filter(|seen| **seen == Seen::Denied).count();
    ensure!(seen.len() - denied <= LIMIT as usize, "only {denied} of {requests} requests were denied");
    Ok(per(used, denied))
}

/// CPU nanoseconds of the server for a request that is shed.
fn shed(site: &Hammered, receiver: NapiThread, abuser: Ipv4Addr, handshakes: u64) -> Result<f64> {
    let frames = (1024..2048).map(|port| site.lab.route_v4().syn(abuser.into(), port, 80, 1)).collect();
    let plan = Plan {
        frames,
        duration: Duration::from_secs(30),
        packets: Some(handshakes),
        rate: Some(SHED_RATE),
        cpu: Some(CLIENT_CPU),
    };
    let before = (receiver.run_time()?, blocked(site)?);
    let flood = site.lab.flood(plan)?;
    flood.wait()?;
    let after = (receiver.run_time()?, blocked(site)?);
    let shed = usize::try_from(after.1 - before.1).unwrap_or(usize::MAX);
    ensure!(shed as u64 * 10 >= handshakes * 9, "only {shed} of {handshakes} handshakes were shed");
    Ok(per(after.0.saturating_sub(before.0), shed))
}

/// Packets that were shed for a block so far.
fn blocked(site: &Hammered) -> Result<u64> {
    let counters: serde_json::Value = serde_json::from_str(&site.tell(&["counters", "--json"])?)?;
    let reasons = counters["reasons"].as_array().context("the counters have reasons")?;
    let reason = reasons.iter().find(|reason| reason["reason"] == "blocked");
    reason.and_then(|reason| reason["shed"]["packets"].as_u64()).context("no packets are counted as blocked")
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn per(used: Duration, requests: usize) -> f64 {
    used.as_nanos() as f64 / requests.max(1) as f64
}
