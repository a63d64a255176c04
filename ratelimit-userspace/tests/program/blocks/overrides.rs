//! Clients that are put under a rule for a time.

use std::{path::Path, sync::atomic::Ordering::SeqCst, time::Duration};

use ipnet::IpNet;
use ratelimit::network::{
    blocks::Now,
    compile::{RuleDescription, Slots},
    description::Description,
    overrides::Overrides,
};
use ratelimit_common::policy::stage;

use super::host::Host;
use crate::{
    frame::{ACK, tcp, udp},
    limiter::SECOND,
};

/// One rule for everybody, and behind it one for TCP that lets a packet a day pass.
const RULES: &str = "rules: [{ name: all, limits: { per: source, rate: 1000/s } }, \
     { name: tight, match: { protocol: tcp }, limits: { per: source, rate: 1/d, burst: 1 } }]";

fn host() -> Host {
    Host::with_stages(RULES, stage::OVERRIDES)
}

/// The overrides, while `rules` are said to be in force.
fn open(host: &Host, rules: Vec<RuleDescription>) -> Overrides {
    let description =
        Description::new(Path::new("rules.yaml"), &[], &host.network, rules, Slots::default(), 7);
    let pin = host.state.state().join("policy");
    let _ = std::fs::remove_file(&pin);
    description.pin(&pin).expect("nothing is there");
    let clock = host.clock.clone();
    let now = move || Now { monotonic: clock.load(SeqCst), wall: std::time::UNIX_EPOCH };
    Overrides::open_with(&host.state, now).unwrap_or_else(|error| panic!("{error}"))
}

fn net(text: &str) -> IpNet {
    super::host::net(text)
}

fn put(overrides: &mut Overrides, client: &str, seconds: u64) {
    assert!(overrides.put(net(client), "tight", Duration::from_secs(seconds)).expect("there is room"));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_client_meets_its_rule_before_all_others_until_the_time_is_over() {
    let mut host = host();
    let mut overrides = open(&host, host.compiled.descriptions.clone());
    let (client, other) = (tcp("192.0.2.1", ACK), tcp("192.0.2.2", ACK));
    assert_eq!(host.limiter.passing(&client.clone(), 5, host.now()), 5);
    put(&mut overrides, "192.0.2.1", 60);
    let rule = |host: &mut Host, packet: &crate::frame::Packet| {
        let now = host.now();
        let index = host.limiter.frame(&packet.frame(), now).rule.expect("a rule");
        host.compiled.descriptions[index].name.clone()
    };
    assert_eq!(rule(&mut host, &client), "tight");
    assert_eq!(host.say(&client), "drop limited");
    assert_eq!(rule(&mut host, &other), "all", "nobody else is under it");
    assert_eq!(rule(&mut host, &udp("192.0.2.1")), "all", "what the rule is not about is not under it");
    let found = overrides.find("192.0.2.1".parse().unwrap()).expect("it can be read").expect("it is there");
    assert_eq!((found.rule.as_str(), found.client, found.index), ("tight", net("192.0.2.1"), 1));
    host.at(1059 * SECOND);
    assert_eq!(rule(&mut host, &client), "tight");
    host.at(1061 * SECOND);
    assert_eq!(rule(&mut host, &client), "all");
    assert_eq!(overrides.find("192.0.2.1".parse().unwrap()).expect("it can be read"), None);
    overrides.sweep().expect("it can be swept");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_network_of_ipv6_is_one_client() {
    let mut host = host();
    let mut overrides = open(&host, host.compiled.descriptions.clone());
    put(&mut overrides, "2001:db8:1:2::/64", 60);
    for (source, said) in [
        ("2001:db8:1:2::1", ["pass within_limit", "drop limited"]),
        ("2001:db8:1:2:ffff::2", ["drop limited", "drop limited"]),
        ("2001:db8:1:3::1", ["pass within_limit", "pass within_limit"]),
    ] {
        let packet = tcp(source, ACK);
        assert_eq!([host.say(&packet), host.say(&packet)], said, "{source}");
    }
    assert!(overrides.remove("2001:db8:1:2::77".parse().unwrap()).expect("it can be removed"));
    assert!(!overrides.remove("2001:db8:1:2::77".parse().unwrap()).expect("it is gone"));
    assert_eq!(host.say(&tcp("2001:db8:1:2::1", ACK)), "pass within_limit");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_rule_that_stands_elsewhere_is_found_again_and_one_that_is_gone_is_not_mistaken() {
    let mut host = host();
    let client = tcp("192.0.2.1", ACK);
    let right = host.compiled.descriptions.clone();
    // Another policy is said to be in force, with the rules the other way about.
    let mut overrides = open(&host, right.iter().rev().cloned().collect());
    put(&mut overrides, "192.0.2.1", 60);
    let met = |host: &mut Host| {
        let now = host.now();
        host.limiter.frame(&client.frame(), now).rule
    };
    assert_eq!(met(&mut host), Some(0), "the rule at that index is another");
    let mut overrides = open(&host, right.clone());
    overrides.follow(&host.state).expect("they can be written");
    assert_eq!(met(&mut host), Some(1));
    let mut overrides = open(&host, right[..1].to_vec());
    overrides.follow(&host.state).expect("they can be written");
    assert_eq!(met(&mut host), Some(0));
    let mut overrides = open(&host, right);
    overrides.follow(&host.state).expect("they can be written");
    assert_eq!(met(&mut host), Some(0), "it is forgotten");
    assert!(!overrides.put(net("192.0.2.1"), "other", Duration::from_secs(1)).expect("it can be asked"));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn lists_and_blocks_come_before() {
    let mut host = Host::with_stages(&format!("allow: [192.0.2.1], {RULES}"), stage::OVERRIDES);
    let mut overrides = open(&host, host.compiled.descriptions.clone());
    for client in ["192.0.2.1", "192.0.2.2"] {
        put(&mut overrides, client, 60);
    }
    host.block("192.0.2.2", 60);
    assert_eq!(host.say(&tcp("192.0.2.1", ACK)), "pass allowed");
    assert_eq!(host.say(&tcp("192.0.2.2", ACK)), "drop blocked");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_client_is_released_by_itself_or_by_any_of_its_addresses() {
    let host = host();
    let mut overrides = open(&host, host.compiled.descriptions.clone());
    for (put_under, released, is_released) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.0/24", false),
        ("2001:db8:1:2::/64", "2001:db8:1:2::/64", true),
        ("2001:db8:1:2::/64", "2001:db8:1:2::9", true),
        ("2001:db8:1:2::/64", "2001:db8:1::/48", false),
    ] {
        put(&mut overrides, put_under, 60);
        assert_eq!(overrides.release(net(released)).expect("it can be removed"), is_released, "{released}");
    }
}
