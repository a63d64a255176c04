use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use ratelimit_common::{gcra::TICK_SHIFT, policy::listed};

use super::*;
use crate::{
    config::policy::{
        Bucket, FragmentKind, IcmpType, Limit, Management, Match, Network, Per, Rule, TcpFlags, Unit, Vlan,
    },
    network::{
        blocks::Origin,
        buckets::tests::{Memory, address},
        compile::tests::{network, rule},
    },
};

const SECOND: u64 = 1_000_000_000 << TICK_SHIFT;
const START: u64 = 7_200 * SECOND;
const SYN: TcpFlags = TcpFlags { set: 0x02, clear: 0x10 };

fn policy(rules: Vec<Rule>) -> Policy {
    Policy::of_file(network(rules), None).expect("a policy")
}

fn named(name: &str, matches: Match, rate: u64, burst: u64) -> Rule {
    let rate = ratelimit_common::gcra::Rate { units: rate, nanos: 1_000_000_000 };
    let limit = Limit { per: Per::Source, unit: Unit::Packets, bucket: Some(Bucket { rate, burst }) };
    Rule { limits: vec![limit], ..rule(name, matches) }
}

fn to(protocol: u8, ports: &[RangeOfPorts]) -> Match {
    let ports = ports.iter().map(|(from, to)| *from..=*to).collect();
    Match { protocol: Some(vec![protocol]), destination_port: Some(ports), ..Match::default() }
}

type RangeOfPorts = (u16, u16);

/// What the packets of an address meet, by rule; `-` is none.
fn met(policy: &Policy, source: &str) -> Vec<(String, String)> {
    let shown = show::<&Memory>(policy, &address(source), &Listed::default(), &[], None, None);
    let none = (!shown.without_rule.is_empty()).then(|| ("-".to_owned(), shown.without_rule.join("; ")));
    let rules = shown.rules.into_iter().map(|rule| (rule.rule, rule.packets.join("; ")));
    rules.chain(none).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(rule, packets)| ((*rule).to_owned(), (*packets).to_owned())).collect()
}

#[test]
fn packets_are_told_apart_as_the_rules_do() {
    let syn = Match { protocol: Some(vec![6]), tcp_flags: Some(vec![SYN]), ..Match::default() };
    let policy = policy(vec![
        named("ssh", to(6, &[(22, 22)]), 1, 1),
        named("syn", syn, 1, 1),
        named("dns", to(17, &[(53, 53), (5300, 5310)]), 1, 1),
        named("ping", Match { icmp_type: Some(vec![IcmpType::V4(8)]), ..Match::default() }, 1, 1),
        named("tunnels", Match { protocol: Some(vec![47]), ..Match::default() }, 1, 1),
    ]);
    assert_eq!(
        met(&policy, "192.0.2.1"),
        pairs(&[
            ("ssh", "tcp syn to port 22; other tcp to port 22"),
            ("syn", "tcp syn to other ports"),
            ("dns", "udp to ports 53, 5300-5310"),
            ("ping", "icmp type 8"),
            ("tunnels", "gre"),
            ("-", "other tcp to other ports; udp to other ports; other icmp; other protocols"),
        ])
    );
    let v6 = met(&policy, "2001:db8::1");
    assert!(v6.iter().all(|(rule, _)| rule != "ping"), "{v6:?}");
    assert!(v6.iter().any(|(rule, packets)| rule == "-" && packets.contains("icmpv6")), "{v6:?}");
}

#[test]
fn a_catch_all_is_met_by_everything() {
    let all = policy(vec![named("all", Match::default(), 1, 1)]);
    assert_eq!(met(&all, "192.0.2.1"), pairs(&[("all", "tcp; udp; icmp; other protocols")]));
    assert_eq!(met(&policy(Vec::new()), "192.0.2.1"), pairs(&[("-", "tcp; udp; icmp; other protocols")]));
}

#[test]
fn rules_for_other_sources_are_not_met() {
    let from = |prefix: &str| Match {
        source: Some(vec![prefix.parse::<IpNet>().expect("a prefix")]),
        ..Match::default()
    };
    let policy =
        policy(vec![named("guests", from("192.0.2.0/24"), 1, 1), named("v6", from("2001:db8::/32"), 1, 1)]);
    assert_eq!(met(&policy, "192.0.2.1")[0].0, "guests");
    assert_eq!(met(&policy, "2001:db8::1")[0].0, "v6");
    assert_eq!(met(&policy, "198.51.100.1")[0].0, "-");
    assert_eq!(met(&policy, "::ffff:192.0.2.1")[0].0, "guests");
}

/// Rules whose packets are none of the usual ones are found by an example.
#[test]
fn every_rule_that_can_be_met_is_shown() {
    let destination = |prefix: &str| vec![prefix.parse::<IpNet>().expect("a prefix")];
    let unusual = [
        (
            "destination",
            Match {
                destination: Some([destination("2001:db8::/32"), destination("198.51.100.0/24")].concat()),
                ..Match::default()
            },
        ),
        ("source port", Match { source_port: Some(vec![53..=53]), ..Match::default() }),
        ("reset", Match { tcp_flags: Some(vec![TcpFlags { set: 0x04, clear: 0 }]), ..Match::default() }),
        ("first", Match { fragment: Some(vec![FragmentKind::First]), ..Match::default() }),
        ("later", Match { fragment: Some(vec![FragmentKind::Later]), ..Match::default() }),
        ("tagged", Match { vlan: Some(vec![Vlan::Id(7)]), ..Match::default() }),
        ("long", Match { length: Some(vec![1400..=9000]), ..Match::default() }),
    ];
    let rules = unusual.iter().map(|(name, matches)| named(name, matches.clone(), 1, 1)).collect();
    let met = met(&policy(rules), "192.0.2.1");
    for (name, _) in &unusual {
        assert!(met.iter().any(|(rule, packets)| rule == name && !packets.is_empty()), "{name}: {met:?}");
    }
    assert_eq!(met[4].1, "fragment later");
}

#[test]
fn a_rule_that_an_earlier_one_hides_is_not_shown() {
    let all = named("all", Match::default(), 1, 1);
    let hidden = named("hidden", to(6, &[(22, 22)]), 1, 1);
    let met = met(&policy(vec![all, hidden]), "192.0.2.1");
    assert_eq!(met.iter().map(|(rule, _)| rule.as_str()).collect::<Vec<_>>(), ["all"]);
}

#[test]
fn many_ports_are_cut() {
    let ports: Vec<_> = (0..9).map(|n| (n * 10, n * 10)).collect();
    let met = met(&policy(vec![named("few", to(17, &ports), 1, 1)]), "192.0.2.1");
    assert_eq!(met[0].1, "udp to ports 0, 10, 20, 30, 40 and 4 more");
}

#[test]
fn what_is_left_is_that_of_this_address_now() {
    let policy = policy(vec![named("all", Match::default(), 10, 20)]);
    let memory = Memory::new();
    assert_eq!(memory.send(&policy.compiled.rules[0], "192.0.2.1", 64, START, 30), 20);
    let shown = |from: &str, now| {
        let buckets = memory.at(now);
        let shown = show(&policy, &address(from), &Listed::default(), &[], None, Some(&buckets));
        let [rule] = &shown.rules[..] else { panic!("one rule") };
        (rule.limits[0].left, rule.limits[0].of, rule.admits, rule.wait.clone())
    };
    assert_eq!(shown("192.0.2.1", START), (0, 20, false, Some("100ms".to_owned())));
    assert_eq!(shown("192.0.2.1", START + SECOND), (10, 20, true, None));
    assert_eq!(shown("192.0.2.2", START), (20, 20, true, None));
}

#[test]
fn the_wait_is_that_of_the_slowest_limit_and_none_where_nothing_ever_passes() {
    let mut slow = named("all", Match::default(), 10, 10);
    let rate = ratelimit_common::gcra::Rate { units: 1, nanos: 60_000_000_000 };
    slow.limits.push(Limit { per: Per::Rule, unit: Unit::Packets, bucket: Some(Bucket { rate, burst: 10 }) });
    let memory = Memory::new();
    let waits = |rule: Rule| {
        let policy = policy(vec![rule]);
        memory.send(&policy.compiled.rules[0], "192.0.2.1", 64, START, 20);
        let buckets = memory.at(START);
        let shown = show(&policy, &address("192.0.2.1"), &Listed::default(), &[], None, Some(&buckets));
        (shown.rules[0].admits, shown.rules[0].wait.clone())
    };
    assert_eq!(waits(slow.clone()), (false, Some("1m".to_owned())));
    slow.limits.push(Limit { per: Per::Source, unit: Unit::Packets, bucket: None });
    assert_eq!(waits(slow), (false, None));
}

#[test]
fn what_stands_before_the_rules_decides() {
    let policy = policy(vec![named("all", Match::default(), 1, 1)]);
    let block = Block {
        prefix: "192.0.2.0/24".parse().expect("a prefix"),
        until: Some(SystemTime::now() + Duration::from_mins(1)),
        since: SystemTime::now(),
        reason: String::new(),
        origin: Origin::Command,
    };
    let fate = |bits, blocks: &[Block]| {
        let listed = Listed { bits, ..Listed::default() };
        show::<&Memory>(&policy, &address("192.0.2.1"), &listed, blocks, None, None).fate
    };
    let blocks = std::slice::from_ref(&block);
    assert_eq!(fate(0, &[]), Fate::Rules);
    assert_eq!(fate(0, blocks), Fate::Blocked);
    assert_eq!(fate(listed::DENY, blocks), Fate::Denied);
    assert_eq!(fate(listed::DENY | listed::ALLOW, blocks), Fate::Passes);
}

#[test]
fn management_ports_are_those_of_the_address() {
    let network = Network {
        management: vec![
            Management {
                prefix: "192.0.2.0/24".parse().expect("a prefix"),
                ports: vec![22..=22, 8000..=8010],
            },
            Management { prefix: "2001:db8::/32".parse().expect("a prefix"), ports: vec![443..=443] },
        ],
        ..network(Vec::new())
    };
    let policy = Policy::of_file(network, None).expect("a policy");
    let ports =
        |from: &str| show::<&Memory>(&policy, &address(from), &Listed::default(), &[], None, None).management;
    assert_eq!(ports("192.0.2.9"), ["22", "8000-8010"]);
    assert_eq!(ports("2001:db8::1"), ["443"]);
    assert!(ports("198.51.100.1").is_empty());
}
