//! What a flood gains from the end of the daemon: nothing.

use std::{fs, net::IpAddr, process::Stdio, thread, time::Instant};

use nix::sys::signal::Signal;
use xtask::lab::{Flood, Plan, Process, frame};

use crate::{
    PATIENCE,
    client::{PORT, Sink},
    eventually,
    host::Host,
    ledger::{Ledger, unjudged},
    policy,
};

/// The one rule of these tests, with this limit for each source.
fn datagrams(limit: &str) -> String {
    format!(
        "rules: [{{ name: datagrams, match: {{ protocol: udp }}, limits: [{{ per: source, {limit} }}] }}]"
    )
}

fn flood(host: &Host) -> Flood {
    let source = frame::sources_v4(1).next().expect("a source");
    let frames = vec![host.lab.route_v4().udp(source, 4000, PORT, b"x")];
    let plan = Plan { frames, duration: 2 * PATIENCE, packets: None, rate: Some(20_000), cpu: None };
    host.lab.flood(plan).expect("a flood")
}

fn sink(host: &Host) -> Sink {
    Sink::new(host, IpAddr::from(host.lab.link.server.ipv4))
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_daemon_killed_again_and_again_lets_nothing_slip() {
    const RATE: u64 = 500;
    const BURST: u64 = 50;
    let host = Host::new("killed");
    let rules = policy("native", &datagrams(&format!("rate: {RATE}/s, burst: {BURST}")));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.yaml");
    fs::write(&file, &rules).expect("a rules file");
    let start = || {
        let mut command = host.lab.server.command(env!("CARGO_BIN_EXE_ratelimit"));
        command.arg("daemon").arg("--config").arg(&file).arg("--pin-dir").arg(host.pin_dir());
        Process::spawn(command.stderr(Stdio::null())).expect("it starts")
    };
    let begin = Instant::now();
    let mut daemon = host.start(&rules);
    let takes = begin.elapsed();
    let before = unjudged(&host);
    let sink = sink(&host);
    let begin = Instant::now();
    let flood = flood(&host);
    let mut ledger = Ledger::read(&host);
    let mut check = || {
        let now = Ledger::read(&host);
        now.follows(&ledger);
        ledger = now;
        assert_eq!(host.interfaces()[0].1, "native");
    };
    for _ in 0..4 {
        daemon.kill();
        check();
        // Starts that get less or more far.
        for delay in (0..8).map(|step| takes * step / 8) {
            let daemon = start();
            thread::sleep(delay);
            daemon.signal(Signal::SIGKILL).expect("it runs");
            daemon.wait(PATIENCE).expect("it ends");
            check();
        }
        daemon = host.start(&rules);
        check();
    }
    flood.stop().expect("it leaves");
    let arrived = sink.arrived();
    assert_eq!(unjudged(&host), before, "no frame passed beside the program");
    let (passed, shed) = Ledger::read(&host).packets("datagrams");
    let most = u128::from(RATE) * begin.elapsed().as_nanos() / 1_000_000_000 + u128::from(BURST) + 1;
    assert!(u128::from(passed) <= most, "{passed} passed, at most {most}");
    assert!(arrived <= passed, "{arrived} arrived, {passed} passed");
    assert!(arrived > 2 * BURST && shed > passed, "{arrived} arrived, {passed} passed, {shed} shed");
    drop(daemon);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn detachment_under_a_flood_lets_it_in_and_leaves_nothing() {
    let host = Host::new("detached");
    let rules = policy("native", &datagrams("rate: 1/h, burst: 5"));
    let daemon = host.start(&rules);
    let sink = sink(&host);
    let _flood = flood(&host);
    daemon.kill();
    eventually("much is shed", || (Ledger::read(&host).packets("datagrams").1 > 1000).then_some(()));
    let status = host.status();
    assert!(status["daemon"].is_null());
    assert_eq!(status["interfaces"][0]["current"], true);
    assert_eq!(Ledger::read(&host).packets("datagrams").0, 5);
    assert_eq!(sink.arrived(), 5);

    let output = host.verb(&["detach"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the flood arrives", || (sink.arrived() > 1000).then_some(()));
    assert_eq!(host.xdp_on("eth0"), "");
    assert!(!host.pin_dir().exists(), "nothing is pinned");
}
