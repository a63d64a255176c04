//! Honest clients beside spoofed floods.

use std::{net::IpAddr, thread, time::Duration};

use xtask::lab::{Plan, frame};

use crate::{
    PATIENCE,
    client::{PORT, Ping, families},
    eventually,
    host::Host,
    ledger::{Ledger, unjudged},
    policy,
};

const SOURCES: u32 = 1000;
const BURST: u64 = 8;
/// What the flood offers for each of its sources.
const OFFERED: u64 = 5 * BURST;

fn spoofed(host: &Host) -> Vec<Vec<u8>> {
    let (v4, v6) = (host.lab.route_v4(), host.lab.route_v6());
    let pairs = frame::sources_v4(SOURCES).zip(frame::sources_v6(SOURCES));
    pairs.flat_map(|(a, b)| [v4.udp(a, 4000, PORT, b"x"), v6.udp(b, 4000, PORT, b"x")]).collect()
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_client_within_its_limit_loses_nothing_beside_a_spoofed_flood() {
    let host = Host::new("flood");
    let rule = format!(
        "rules: [{{ name: all, match: {{ protocol: [udp, icmp, icmpv6] }}, limits: [{{ per: source, rate: 1/h, burst: {BURST} }}] }}]"
    );
    let _daemon = host.start(&policy("native", &rule));
    let before = unjudged(&host);

    let frames = spoofed(&host);
    let packets = Some(frames.len() as u64 * OFFERED);
    let flood = host
        .lab
        .flood(Plan { frames, duration: PATIENCE, packets, rate: Some(20_000), cpu: None })
        .expect("a flood");
    eventually("the flood is shed", || (Ledger::read(&host).packets("all").1 > 0).then_some(()));
    let asked = families(&host).map(|(from, to): (IpAddr, IpAddr)| {
        let mut ping = Ping::new(&host, from, to);
        for _ in 0..BURST {
            assert!(!flood.is_finished(), "the flood ended too early to prove anything");
            ping.ask();
            assert!(ping.answered(PATIENCE));
            thread::sleep(Duration::from_millis(50));
        }
        BURST
    });
    let offered = flood.wait().expect("it leaves");
    assert_eq!(unjudged(&host), before);
    let ledger = Ledger::read(&host);
    let (passed, shed) = ledger.packets("all");
    assert_eq!(passed, u64::from(2 * SOURCES) * BURST + asked.iter().sum::<u64>());
    assert!(passed + shed <= offered + asked.iter().sum::<u64>());
    assert_eq!(ledger.event("live_evicted"), 0);
}
