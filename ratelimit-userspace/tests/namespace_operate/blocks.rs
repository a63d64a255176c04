//! Blocks by commands and by rules, and how long they last.

use std::{
    fs,
    net::IpAddr,
    time::{Duration, Instant},
};

use serde_json::Value;
use xtask::lab::{Flood, Plan, frame};

use crate::{
    PATIENCE, datagrams, eventually,
    host::Host,
    json,
    ledger::{Ledger, unjudged},
    policy, refusal, run, tell,
};

/// The source of the host's own floods, and the networks that it lies in.
const SOURCE: &str = "10.128.0.1";
const NETWORK: &str = "10.128.0.0/12";

fn blocked(host: &Host) -> u64 {
    Ledger::read(host).reason("blocked").shed.packets
}

/// Sends datagrams and waits until all of them are shed for a block.
fn all_are_shed(host: &Host, packets: u64) {
    let before = blocked(host);
    host.flood(packets);
    eventually("they are shed", || (blocked(host) == before + packets).then_some(()));
}

fn blocks(host: &Host) -> Vec<Value> {
    json(host, &["blocks"])["blocks"].as_array().expect("a list").clone()
}

fn prefixes(host: &Host) -> Vec<String> {
    let mut prefixes: Vec<_> =
        blocks(host).iter().map(|block| block["prefix"].as_str().expect("text").to_owned()).collect();
    prefixes.sort();
    prefixes
}

#[test]
#[ignore = "requires root: network namespaces"]
fn an_address_or_a_network_is_blocked_at_once_and_until_it_is_unblocked() {
    let host = Host::new("blocked");
    let _daemon = host.start(&policy(&datagrams(1000)));
    let before = unjudged(&host);
    assert_eq!(host.send(10, "udp"), (10, 0));
    for block in [SOURCE, NETWORK, "::ffff:10.128.0.1"] {
        tell(&host, &["block", block, "--reason", "too many"]);
        all_are_shed(&host, 10);
        tell(&host, &["unblock", block]);
        let (passed, _) = host.counts("udp");
        assert_eq!(host.send(10, "udp"), (passed + 10, 0), "{block}");
    }
    assert_eq!(blocks(&host), Vec::<Value>::new());
    // By IPv6, an address and another of its network.
    let [one, other] = ["fd00:128:0:7::1", "fd00:128:0:7::2"].map(|text| text.parse::<IpAddr>().unwrap());
    let send = |source| {
        let frames = vec![host.lab.route_v6().udp(source, 4000, 5000, b"x")];
        let plan = Plan { frames, duration: PATIENCE, packets: Some(10), rate: None, cpu: None };
        host.lab.flood(plan).and_then(Flood::wait).expect("a flood");
    };
    let shed = blocked(&host);
    tell(&host, &["block", "fd00:128:0:7::1"]);
    send(one);
    eventually("the address is shed", || (blocked(&host) == shed + 10).then_some(()));
    tell(&host, &["block", "fd00:128:0:7::/64"]);
    send(other);
    eventually("its network is shed", || (blocked(&host) == shed + 20).then_some(()));
    assert_eq!(prefixes(&host), ["fd00:128:0:7::/64", "fd00:128:0:7::1/128"]);
    assert_eq!(unjudged(&host), before);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_block_ends_by_itself_without_a_daemon_and_not_before_its_time() {
    const TIME: Duration = Duration::from_secs(3);
    let host = Host::new("ends");
    let daemon = host.start(&policy(&datagrams(1000)));
    let begun = Instant::now();
    for block in [SOURCE, NETWORK] {
        tell(&host, &["block", block, "--for", "3s"]);
    }
    daemon.kill();
    all_are_shed(&host, 10);
    // Packets of one source, one after the other, until one passes.
    let frames = vec![host.lab.route_v4().udp(SOURCE.parse().unwrap(), 4000, 5000, b"x")];
    let plan = Plan { frames, duration: PATIENCE, packets: None, rate: Some(100), cpu: None };
    let flood = host.lab.flood(plan).expect("a flood");
    eventually("one passes", || (host.counts("udp").0 > 0).then_some(()));
    assert!(begun.elapsed() >= TIME, "it passed after {:?}", begun.elapsed());
    flood.stop().expect("it leaves");
    let shed = blocked(&host);
    let (passed, _) = host.counts("udp");
    assert_eq!(host.send(10, "udp"), (passed + 10, 0));
    assert_eq!(blocked(&host), shed);
    assert_eq!(blocks(&host), Vec::<Value>::new(), "what has ended is not shown");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn blocks_survive_a_restart_a_crash_and_a_reboot() {
    let host = Host::new("lasting");
    let rules = policy(&datagrams(1000));
    let daemon = host.start(&rules);
    tell(&host, &["block", SOURCE, "--for", "1h", "--reason", "for an hour"]);
    tell(&host, &["block", "2001:db8::/32", "192.0.2.7"]);
    let at_first = blocks(&host);
    assert_eq!(at_first.len(), 3);
    let check = |how: &str| {
        all_are_shed(&host, 10);
        let mut now = blocks(&host);
        now.sort_by_key(|block| block["prefix"].to_string());
        let mut before = at_first.clone();
        before.sort_by_key(|block| block["prefix"].to_string());
        for (now, before) in now.iter().zip(&before) {
            assert_eq!(now["prefix"], before["prefix"], "{how}");
            assert_eq!(now["reason"], before["reason"], "{how}");
            assert!(near(&now["until"], &before["until"]), "{how}: {now}, at first {before}");
        }
        assert_eq!(now.len(), 3, "{how}");
    };
    let saved = || fs::read_to_string(host.file("state/blocks.json")).unwrap_or_default();
    eventually("they are kept", || saved().contains("192.0.2.7").then_some(()));

    let (code, log) = daemon.terminate();
    assert_eq!(code, Some(0), "{log}");
    check("without a daemon");
    let daemon = host.start(&rules);
    check("after a restart");
    daemon.kill();
    let daemon = host.start(&rules);
    check("after a crash");

    // What a reboot leaves: nothing in the kernel, and the files.
    daemon.kill();
    assert!(host.verb(&["detach"]).status.success());
    assert!(!host.pin_dir().exists());
    let daemon = host.start(&rules);
    daemon.tells("3 blocks of the last boot are in force again");
    check("after a reboot");
    tell(&host, &["unblock", SOURCE]);
    let (code, log) = daemon.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(host.verb(&["detach"]).status.success());
    let _daemon = host.start(&rules);
    assert_eq!(prefixes(&host), ["192.0.2.7/32", "2001:db8::/32"]);
    assert_eq!(host.send(10, "udp"), (10, 0));
}

/// Whether two times, in RFC 3339, are seconds apart at most; or both are none.
fn near(one: &Value, other: &Value) -> bool {
    let seconds = |value: &Value| {
        value.as_str().map(|text| text.parse::<jiff::Timestamp>().expect("a time").as_second())
    };
    match (seconds(one), seconds(other)) {
        (Some(one), Some(other)) => one.abs_diff(other) <= 5,
        (one, other) => one == other,
    }
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_long_list_makes_the_table_larger_without_a_gap() {
    /// More than the table has room for at first.
    const COUNT: u32 = 40_000;
    let host = Host::new("many");
    let daemon = host.start(&policy(&datagrams(5)));
    let before = unjudged(&host);
    let list = host.file("list");
    let addresses: Vec<String> =
        frame::sources_v4(COUNT).skip(1).map(|address| address.to_string()).collect();
    fs::write(&list, addresses.join("\n")).expect("a list");
    tell(&host, &["block", SOURCE]);

    let source = SOURCE.parse().expect("an address");
    let frames = vec![host.lab.route_v4().udp(source, 4000, 5000, b"x")];
    let plan = Plan { frames, duration: PATIENCE, packets: None, rate: Some(20_000), cpu: None };
    let flood = host.lab.flood(plan).expect("a flood");
    let told = json(&host, &["block", "--file", list.to_str().expect("text")]);
    flood.stop().expect("it leaves");
    assert_eq!((&told["added"], &told["failed"]), (&(COUNT - 1).into(), &0.into()));
    assert_eq!(unjudged(&host), before, "no frame passed beside a program");
    assert_eq!(host.counts("udp"), (0, 0), "the one that was blocked before stayed so");
    assert!(daemon.log().contains("more blocks: enforcing"), "{}", daemon.log());
    assert_eq!(blocks(&host).len(), COUNT as usize);

    let shed = blocked(&host);
    let frames: Vec<_> = frame::sources_v4(COUNT)
        .step_by(40)
        .map(|source| host.lab.route_v4().udp(source, 4000, 5000, b"x"))
        .collect();
    let packets = frames.len() as u64;
    let plan = Plan { frames, duration: PATIENCE, packets: Some(packets), rate: Some(20_000), cpu: None };
    host.lab.flood(plan).and_then(Flood::wait).expect("a flood");
    eventually("all of them are shed", || (blocked(&host) == shed + packets).then_some(()));
    daemon.kill();
    let _daemon = host.start(&policy(&datagrams(5)));
    assert_eq!(blocks(&host).len(), COUNT as usize, "a larger table is adopted like the first");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_list_beyond_the_capacity_is_refused_before_anything_changes() {
    let host = Host::new("capacity");
    let _daemon = host.start(&policy(&format!("blocks: {{ capacity: 2048 }}, {}", datagrams(100))));
    tell(&host, &["block", "192.0.2.1"]);
    let list = host.file("list");
    let addresses: Vec<String> = frame::sources_v4(3000).map(|address| address.to_string()).collect();
    fs::write(&list, addresses.join("\n")).expect("a list");
    let program = host.program_id();
    let why = refusal(&host, &["block", "--file", list.to_str().expect("text")]);
    assert!(why.contains("2048") || why.contains("2,048"), "{why}");
    assert_eq!(prefixes(&host), ["192.0.2.1/32"]);
    assert_eq!(host.program_id(), program);
    assert_eq!(host.send(10, "udp"), (10, 0));
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_block_by_a_rule_goes_with_the_lengths_of_prefixes_that_it_was_made_under() {
    let host = Host::new("lengths");
    let rules = policy(BLOCKING);
    let _daemon = host.start(&rules);
    host.flood(1000);
    eventually("a block", || (!blocks(&host).is_empty()).then_some(()));
    fs::write(host.file("rules.yaml"), rules.replace("capacity: 1024", "capacity: 1024, ipv6_prefix: 56"))
        .expect("a rules file");
    tell(&host, &["reload"]);
    assert_eq!(blocks(&host).len(), 1, "its family's is as before");
    fs::write(host.file("rules.yaml"), rules.replace("capacity: 1024", "capacity: 1024, ipv4_prefix: 24"))
        .expect("a rules file");
    tell(&host, &["reload"]);
    assert_eq!(blocks(&host), Vec::<Value>::new(), "nobody would look for it");
}

/// A rule that blocks whom it sheds a hundred packets of.
const BLOCKING: &str =
    "rules: [{ name: udp, match: { protocol: udp }, limits: [{ per: source, rate: 1/h, burst: 5 }],
    block: { after: 100, within: 10s, for: 10m } }]";

#[test]
#[ignore = "requires root: network namespaces"]
fn a_rule_blocks_who_breaks_it_too_often_and_the_block_outlives_the_daemon() {
    let host = Host::new("offender");
    let daemon = host.start(&policy(BLOCKING));
    assert_eq!(host.send(50, "udp"), (5, 45));
    assert_eq!(blocks(&host), Vec::<Value>::new(), "not often enough");
    host.flood(1000);
    eventually("all are judged", || {
        let (passed, shed) = host.counts("udp");
        (passed + shed + blocked(&host) == 1050).then_some(())
    });
    let [block] = &blocks(&host)[..] else { panic!("one block: {:?}", blocks(&host)) };
    assert_eq!((&block["origin"], &block["rule"]), (&"rule".into(), &"udp".into()), "{block}");
    assert_eq!(block["prefix"], "10.128.0.1/32");
    let (_, shed) = host.counts("udp");
    assert!((70..=130).contains(&shed), "blocked after {shed} shed packets");
    daemon.kill();
    all_are_shed(&host, 10);
    let _daemon = host.start(&policy(BLOCKING));
    all_are_shed(&host, 10);
    tell(&host, &["unblock", SOURCE]);
    let (_, shed) = host.counts("udp");
    assert_eq!(host.send(10, "udp"), (5, shed + 10));
    // Not an address at all.
    assert_eq!(run(&host, &["block", "fe80::1%eth0"]).status.code(), Some(2));
}
