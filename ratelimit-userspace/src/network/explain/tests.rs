use std::time::{Duration, SystemTime};

use ratelimit_common::{gcra::TICK_SHIFT, policy::listed};

use super::*;
use crate::network::in_force::ip;
use crate::{
    config::policy::{Management, Match, Network, TcpFlags},
    network::{
        blocks::Origin,
        buckets::tests::{Memory, address},
        compile::tests::{network, rule},
    },
};

const START: u64 = 7_200_000_000_000 << TICK_SHIFT;

fn ssh_and_syn() -> Network {
    let ssh = Match { protocol: Some(vec![6]), destination_port: Some(vec![22..=22]), ..Match::default() };
    let syn = TcpFlags { set: 0x02, clear: 0x10 };
    let syn = Match { protocol: Some(vec![6]), tcp_flags: Some(vec![syn]), ..Match::default() };
    network(vec![rule("ssh", ssh), rule("syn", syn)])
}

fn policy(network: Network) -> Policy {
    Policy::of_file(network, None).expect("a policy")
}

fn ask(source: &str, packet: Unclear) -> Question {
    packet.clear(source.parse().expect("an address")).expect("a packet")
}

fn syn_to(port: u16) -> Unclear {
    Unclear { flags: Some(0x02), destination_port: Some(port), ..Unclear::default() }
}

fn block(prefix: &str) -> Block {
    Block {
        prefix: prefix.parse().expect("a prefix"),
        until: Some(SystemTime::now() + Duration::from_mins(9)),
        since: SystemTime::now(),
        reason: "scanning".to_owned(),
        origin: Origin::Rule("syn".to_owned()),
    }
}

fn explained(policy: &Policy, question: &Question, surroundings: &Surroundings) -> Explanation {
    explain::<&Memory>(policy, question, surroundings, None)
}

/// The stage that decides, its reason, and whether the packet passes.
fn decided(
    policy: &Policy,
    question: &Question,
    bits: u32,
    blocks: Vec<Block>,
) -> (&'static str, &'static str, Action) {
    let surroundings = Surroundings { listed: Listed { bits, ..Listed::default() }, blocks, under: None };
    let Explanation { stages, verdict, rules, .. } = explained(policy, question, &surroundings);
    let last = stages.last().expect("stages");
    assert!(stages.iter().rev().skip(1).all(|stage| !stage.decides), "{stages:?}");
    assert_eq!(last.decides, rules.is_empty(), "{stages:?} {rules:?}");
    (if last.decides { last.stage } else { "rules" }, verdict.reason, verdict.verdict)
}

#[test]
fn the_rule_and_what_it_lacks_are_told() {
    let question = ask("192.0.2.7", syn_to(443));
    let explanation = explained(&policy(ssh_and_syn()), &question, &Surroundings::default());
    assert_eq!(explanation.packet, "tcp 192.0.2.7:40000 -> port 443, flags syn, 64 bytes");
    let stages: Vec<_> = explanation.stages.iter().map(|stage| stage.stage).collect();
    assert_eq!(stages, ["allow", "management", "deny", "blocked", "neighbour"]);
    let steps: Vec<_> =
        explanation.rules.iter().map(|step| (step.rule.as_str(), step.matches, step.why.as_str())).collect();
    assert_eq!(
        steps,
        [
            ("ssh", false, "it wants destination port 22; the packet has 443"),
            ("syn", true, "protocol tcp, tcp flags syn+!ack"),
        ]
    );
    let Verdict { verdict, reason, rule, limit } = explanation.verdict;
    assert_eq!((verdict, reason, rule.as_deref(), limit), (Action::Pass, "within_limit", Some("syn"), None));
    assert_eq!(explanation.limits.len(), 1);
    assert_eq!((explanation.limits[0].left, explanation.limits[0].admits), (100, true));
}

#[test]
fn a_packet_that_meets_no_rule_lacks_something_of_each() {
    let question = ask("192.0.2.7", Unclear { protocol: Some(17), ..Unclear::default() });
    let explanation = explained(&policy(ssh_and_syn()), &question, &Surroundings::default());
    assert_eq!(explanation.rules.len(), 2);
    assert!(explanation.rules.iter().all(|step| !step.matches && step.why.contains("wants protocol tcp")));
    assert_eq!((explanation.verdict.reason, explanation.limits.len()), ("no_rule", 0));
}

#[test]
fn stages_decide_in_the_order_of_the_program() {
    let mut network = ssh_and_syn();
    let prefix = "192.0.2.0/24".parse().expect("a prefix");
    network.management = vec![Management { prefix, ports: vec![443..=443] }];
    let policy = policy(network);
    let (managed, other) = (ask("192.0.2.7", syn_to(443)), ask("192.0.2.7", syn_to(80)));
    let (allow, deny) = (listed::ALLOW, listed::DENY);
    let blocks = || vec![block("192.0.2.7/32")];
    let pass = Action::Pass;
    assert_eq!(decided(&policy, &managed, allow | deny, blocks()), ("allow", "allowed", pass));
    assert_eq!(decided(&policy, &managed, deny, blocks()), ("management", "management", pass));
    assert_eq!(decided(&policy, &other, deny, blocks()), ("deny", "denied", Action::Shed));
    assert_eq!(decided(&policy, &other, 0, blocks()), ("blocked", "blocked", Action::Shed));
    assert_eq!(decided(&policy, &other, 0, Vec::new()), ("rules", "within_limit", pass));
}

#[test]
fn a_block_is_told_with_its_end_its_maker_and_its_reason() {
    let surroundings = Surroundings { blocks: vec![block("192.0.2.0/24")], ..Surroundings::default() };
    let question = ask("192.0.2.7", syn_to(80));
    let stages = explained(&policy(ssh_and_syn()), &question, &surroundings).stages;
    let why = &stages.last().expect("a stage").why;
    assert!(
        why.starts_with("192.0.2.0/24 is blocked for another ")
            && why.ends_with(", by the rule `syn`: scanning"),
        "{why}"
    );
}

#[test]
fn only_its_own_address_stops_neighbour_discovery() {
    let policy = policy(ssh_and_syn());
    let solicitation = Unclear { icmp_type: Some(135), ..Unclear::default() };
    let question = ask("2001:db8::7", solicitation);
    let pass = Action::Pass;
    let neighbour = ("neighbour", "neighbour", pass);
    assert_eq!(decided(&policy, &question, 0, Vec::new()), neighbour);
    assert_eq!(decided(&policy, &question, listed::DENY, vec![block("2001:db8::/32")]), neighbour);
    let exact = listed::DENY | listed::DENY_EXACT;
    assert_eq!(decided(&policy, &question, exact, Vec::new()), ("deny", "denied", Action::Shed));
    assert_eq!(
        decided(&policy, &question, 0, vec![block("2001:db8::7/128")]),
        ("blocked", "blocked", Action::Shed)
    );
    assert!(question.assumed_by(&policy).iter().any(|words| words.contains("hop limit")));
}

#[test]
fn an_empty_bucket_sheds_or_would_shed() {
    let mut network = ssh_and_syn();
    let question = ask("192.0.2.7", syn_to(80));
    let memory = Memory::new();
    let sent = policy(network.clone());
    assert_eq!(memory.send(&sent.compiled.rules[1], "192.0.2.7", 64, START, 200), 100);
    let verdict = |network: Network| {
        let buckets = memory.at(START);
        explain(&policy(network), &question, &Surroundings::default(), Some(&buckets))
    };
    let shed = verdict(network.clone());
    assert_eq!((shed.verdict.verdict, shed.verdict.reason), (Action::Shed, "limited"));
    assert_eq!(shed.verdict.limit, Some(1));
    assert_eq!(shed.limits[0].wait.as_deref(), Some("20ms"));
    network.rules[1].count_only = true;
    assert_eq!(verdict(network.clone()).verdict.verdict, Action::WouldShed);
    network.rules[1].count_only = false;
    network.monitor = true;
    assert_eq!(verdict(network.clone()).verdict.verdict, Action::WouldShed);
    network.rules[1].limits[0].bucket = None;
    assert_eq!(verdict(network).verdict.reason, "zero_rate");
}

#[test]
fn what_is_not_said_is_assumed_and_told_only_where_it_matters() {
    let policy = policy(ssh_and_syn());
    let assumed = |packet: Unclear| ask("192.0.2.7", packet).assumed_by(&policy);
    let tcp = || Unclear { protocol: Some(6), ..Unclear::default() };
    assert_eq!(assumed(tcp()), ["destination port 0", "the flag ack alone: data of a connection"]);
    assert!(assumed(syn_to(22)).is_empty());
    assert!(assumed(Unclear { protocol: Some(47), ..Unclear::default() }).is_empty());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |packet: Unclear| packet.clear(ip(&address("192.0.2.7"))).expect_err("no such packet");
    assert!(refused(Unclear::default()).contains("--protocol"));
    let udp = || Unclear { protocol: Some(17), ..Unclear::default() };
    assert_eq!(refused(Unclear { flags: Some(2), ..udp() }), "udp packets have no TCP flags");
    assert_eq!(refused(Unclear { icmp_type: Some(8), ..udp() }), "udp packets have no ICMP type");
    let gre = Unclear { protocol: Some(47), destination_port: Some(1), ..Unclear::default() };
    assert_eq!(refused(gre), "gre packets have no ports");
    let later = Unclear {
        fragment: Some(ratelimit_common::packet::Fragment::Later),
        destination_port: Some(53),
        ..udp()
    };
    assert_eq!(refused(later), "later fragments have no ports");
    let other = Unclear { destination: Some("2001:db8::1".parse().expect("an address")), ..udp() };
    assert!(refused(other).contains("different families"));
}

#[test]
fn the_protocol_follows_from_flags_and_types() {
    let protocol = |source: &str, packet: Unclear| ask(source, packet).packet.protocol;
    assert_eq!(protocol("192.0.2.7", syn_to(1)), 6);
    let echo = || Unclear { icmp_type: Some(8), ..Unclear::default() };
    assert_eq!((protocol("192.0.2.7", echo()), protocol("2001:db8::7", echo())), (1, 58));
}

#[test]
fn packets_read_in_one_line() {
    let cases = [
        (
            "192.0.2.7",
            Unclear { icmp_type: Some(8), ..Unclear::default() },
            "icmp 192.0.2.7, type 8, 64 bytes",
        ),
        (
            "2001:db8::7",
            Unclear {
                destination: Some("2001:db8::1".parse().expect("an address")),
                vlan: Some(7),
                length: Some(1514),
                ..syn_to(443)
            },
            "tcp [2001:db8::7]:40000 -> [2001:db8::1]:443, flags syn, vlan 7, 1514 bytes",
        ),
        (
            "192.0.2.7",
            Unclear {
                protocol: Some(17),
                fragment: Some(ratelimit_common::packet::Fragment::Later),
                ..Unclear::default()
            },
            "udp 192.0.2.7, a later fragment, 64 bytes",
        ),
    ];
    for (source, packet, words) in cases {
        let Question { packet, length, .. } = ask(source, packet);
        assert_eq!(describe(&packet, length), words);
    }
}
