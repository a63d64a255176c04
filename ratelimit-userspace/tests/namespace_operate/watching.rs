//! Events as they happen, and who sent the most.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use xtask::lab::{Flood, Plan, Process};

use crate::{PATIENCE, address, datagrams, host::Host, json, ledger, policy, tell};

/// Who floods, and who sends a little.
const FLOODER: &str = "10.128.0.1";
const OTHER: &str = "10.128.0.9";

/// A running `ratelimit events --follow`.
struct Follower {
    process: Process,
    lines: Receiver<String>,
}

// === impl Follower ===

impl Follower {
    fn start(host: &Host, arguments: &[&str]) -> Self {
        let mut command = host.command("events");
        address(command.arg("--follow").args(arguments), host);
        let process = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let process = process.expect("it runs");
        let stdout = BufReader::new(process.take_stdout().expect("a pipe"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        Self { process, lines }
    }

    /// The next line with these words.
    fn tells(&self, words: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("no line with `{words}`"),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended: {}", self.errors()),
            }
        }
    }

    /// Waits for the end: how it ended, the lines that were not read yet, and what went wrong.
    fn ends(self) -> (ExitStatus, Vec<String>, String) {
        let status = self.process.wait(PATIENCE).expect("it ends");
        (status, self.lines.iter().collect(), self.errors())
    }

    /// What it wrote to standard error until its end.
    fn errors(&self) -> String {
        let mut errors = String::new();
        let mut stderr = self.process.take_stderr().expect("a pipe");
        stderr.read_to_string(&mut errors).expect("text");
        errors
    }
}

fn send(host: &Host, source: &str, packets: Option<u64>, rate: Option<u64>) -> Flood {
    let frames = vec![host.lab.route_v4().udp(source.parse().expect("an address"), 4000, 5000, b"hello")];
    host.lab.flood(Plan { frames, duration: PATIENCE, packets, rate, cpu: None }).expect("a flood")
}

#[test]
#[ignore = "requires root: network namespaces"]
fn events_are_followed_until_ctrl_c_or_the_end_of_the_daemon() {
    let host = Host::new("events");
    let daemon = host.start(&policy(&datagrams(5)));
    let (interrupted, last) = (Follower::start(&host, &[]), Follower::start(&host, &["--json"]));
    let flood = send(&host, FLOODER, None, Some(1000));
    let line = interrupted.tells("  shed  ");
    assert!(line.contains(&format!("udp {FLOODER}:4000 -> ")) && line.contains("limited by udp"), "{line}");
    let event: Value = serde_json::from_str(&last.tells(r#""type":"shed""#)).expect("JSON");
    assert_eq!((&event["source"], &event["rule"]), (&FLOODER.into(), &"udp".into()), "{event}");

    // As `tail -f` does: a shell that runs it in a loop ends that as well.
    interrupted.process.signal(Signal::SIGINT).expect("it runs");
    let (status, lines, errors) = interrupted.ends();
    assert_eq!((status.signal(), errors.as_str()), (Some(Signal::SIGINT as i32), ""));
    assert!(lines.iter().all(|line| line.contains("shed  ") && line.contains(" at eth0: ")), "{lines:?}");

    flood.stop().expect("it leaves");
    assert_eq!(daemon.terminate().0, Some(0));
    let (status, lines, errors) = last.ends();
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
    let mut events = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    assert_eq!(events.next_back().expect("an event")["type"], "stopping");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn sources_name_the_flooder_with_its_packets_within_the_error() {
    let host = Host::new("sources");
    let daemon = host.start(&policy(&datagrams(5)));
    assert!(tell(&host, &["sources"]).contains("no source was seen yet"));
    let counted = |packets: u64| {
        let all = || host.counts("udp").0 + host.counts("udp").1;
        host.comes_to(|| all() == packets, "all are counted");
    };
    send(&host, OTHER, Some(45), Some(1000)).wait().expect("a little");
    counted(45);
    let few = json(&host, &["sources"])["sources"][0]["shed"].clone();
    assert_eq!((&few["packets"], &few["packets_error"]), (&40.into(), &0.into()), "few are exact");
    send(&host, FLOODER, Some(200_000), None).wait().expect("a flood");
    // What the wire had no room for is in neither count.
    host.comes_to(|| host.counts("udp").1 > 1000, "it is shed");
    ledger::unjudged(&host);
    let shed = || json(&host, &["sources", "--by", "shed"])["sources"].clone();
    let check = || {
        let counted = host.counts("udp").1 - 40;
        let sources = shed();
        let (first, second) = (&sources[0], &sources[1]);
        assert_eq!((&first["source"], &second["source"]), (&source(FLOODER), &source(OTHER)), "{sources}");
        let number = |source: &Value, what: &str| source["shed"][what].as_u64().expect("a number");
        assert_eq!(number(second, "packets"), 40);
        // The error holds in 19 of 20 cases; one in a million is off by three times as much.
        let (packets, error) = (number(first, "packets"), number(first, "packets_error"));
        assert!(packets.abs_diff(counted) <= 3 * error, "{packets} ±{error}, and there were {counted}");
    };
    check();
    daemon.kill();
    check();
}

fn source(address: &str) -> Value {
    format!("{address}/32").into()
}
