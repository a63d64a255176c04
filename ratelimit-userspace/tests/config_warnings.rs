//! What is allowed but probably not meant.

use std::path::Path;

use ratelimit::config::{
    self,
    diagnostic::{Code, Diagnostic, Severity},
};

const LIMITS: &str = "limits: { per: rule, rate: 1/s }";

fn warnings(text: &str) -> Vec<Diagnostic> {
    config::parse(text.as_bytes(), Path::new("r.yaml"))
        .unwrap_or_else(|failure| panic!("{text}\n{failure}"))
        .warnings
}

/// The codes and names of rules with conditions; rule `n` stands in line `n + 4`.
#[track_caller]
fn rules_warn(network: &str, matches: &[&str], wanted: &[(Code, usize)]) {
    let rule =
        |(n, conditions): (usize, &&str)| format!("    - {{ name: r{n}, match: {conditions}, {LIMITS} }}\n");
    let rules = matches.iter().enumerate().map(rule).collect::<Vec<_>>().concat();
    let text = format!("interfaces: {{ name: a }}\nnetwork:{network}\n  rules:\n{rules}");
    let found = warnings(&text);
    let places: Vec<_> =
        found.iter().map(|warning| (warning.code, warning.line.map(|line| line as usize - 4))).collect();
    let wanted: Vec<_> = wanted.iter().map(|(code, rule)| (*code, Some(*rule))).collect();
    assert_eq!(places, wanted, "{text}\n{found:#?}");
    for warning in found {
        assert_eq!(warning.severity, Severity::Warning);
        assert!(warning.expected.is_some());
    }
}

#[test]
fn a_rule_behind_a_wider_one_never_matches() {
    for (wide, narrow) in [
        ("{ protocol: tcp }", "{ protocol: 6, destination_port: 22 }"),
        ("{ protocol: tcp, destination_port: 22 }", "{ protocol: tcp, destination_port: 22 }"),
        // The flags imply the protocol.
        ("{ protocol: tcp, length: 0- }", "{ tcp_flags: [syn, \"ack,psh\"] }"),
        ("{ protocol: [tcp, udp, sctp], vlan: untagged }", "{ source_port: 7, vlan: untagged }"),
        ("{ fragment: [none, first] }", "{ destination_port: 53 }"),
        ("{ fragment: any }", "{ fragment: later, protocol: udp }"),
        ("{ tcp_flags: [\"syn,!ack\", \"syn,ack\"] }", "{ tcp_flags: \"syn,fin\" }"),
        ("{ destination_port: [\"0-99\", \"100-200\"] }", "{ destination_port: \"50-150\" }"),
        ("{ source: [10.0.0.0/9, 10.128.0.0/9] }", "{ source: 10.0.0.0/8, protocol: udp }"),
        ("{ source: [10.0.0.0/8, \"2001:db8::/32\"] }", "{ source: [10.1.0.0/16, \"2001:db8:7::1\"] }"),
        ("{ source: [0.0.0.0/0, \"::/0\"], vlan: 7 }", "{ vlan: 7 }"),
        ("{ length: \"64-\" }", "{ length: \"100-200\" }"),
        ("{ protocol: icmp, icmp_type: [8, 0] }", "{ protocol: icmp, icmp_type: echo-request }"),
    ] {
        let replies = "{ source_port: 9, vlan: 9 }";
        rules_warn("", &[replies, wide, "{ vlan: 9, length: 50 }", narrow], &[(Code::NeverMatches, 3)]);
    }
}

#[test]
fn a_rule_that_differs_in_one_condition_is_no_shadow() {
    for (first, second) in [
        ("{ protocol: tcp, vlan: 1 }", "{ protocol: tcp, vlan: [1, 2] }"),
        ("{ destination_port: 22, vlan: 1 }", "{ protocol: tcp, vlan: 1 }"),
        ("{ tcp_flags: syn }", "{ tcp_flags: syn-ack }"),
        ("{ source: 10.0.0.0/9 }", "{ source: 10.0.0.0/8 }"),
        ("{ source: 10.0.0.0/8 }", "{ destination: 10.0.0.0/8 }"),
        ("{ source: 0.0.0.0/0, vlan: 7 }", "{ vlan: 7 }"),
        ("{ vlan: untagged }", "{ vlan: 0 }"),
        ("{ destination_port: \"0-99\" }", "{ destination_port: \"99-100\" }"),
        ("{ protocol: icmp, icmp_type: 1 }", "{ protocol: icmpv6, icmp_type: 1 }"),
        ("{ length: \"64-\" }", "{ length: \"63-64\" }"),
        ("{ fragment: none, vlan: 1 }", "{ destination_port: 7, vlan: 1 }"),
    ] {
        let warned: Vec<_> = warnings_of(first, second);
        assert!(!warned.contains(&Code::NeverMatches), "{first} {second} {warned:?}");
    }
}

fn warnings_of(first: &str, second: &str) -> Vec<Code> {
    let text = format!(
        "interfaces: {{ name: a }}\nnetwork:\n  rules:\n    - {{ name: a, match: {first}, {LIMITS} }}\n    - {{ name: b, match: {second}, {LIMITS} }}\n"
    );
    warnings(&text).into_iter().map(|warning| warning.code).collect()
}

#[test]
fn conditions_that_exclude_each_other_never_match() {
    for conditions in [
        "{ fragment: later, destination_port: 53 }",
        "{ source: 10.0.0.0/8, destination: \"2001:db8::/32\" }",
        "{ length: 0-33 }",
    ] {
        rules_warn("", &[conditions], &[(Code::NeverMatches, 0)]);
    }
    // One of the protocols is idle, the rule is not.
    rules_warn("", &["{ protocol: [icmp, udp], destination_port: 53 }"], &[(Code::NeverMatches, 0)]);
}

#[test]
fn a_rule_for_listed_sources_never_matches() {
    let lists = "\n  allow: 10.0.0.0/9\n  deny: 10.128.0.0/9";
    let text = |source: &str| {
        format!(
            "interfaces: {{ name: a }}\nnetwork:{lists}\n  rules: {{ name: a, match: {{ source: {source} }}, {LIMITS} }}\n"
        )
    };
    let found = warnings(&text("10.0.0.0/8"));
    assert_eq!(found.iter().map(|warning| warning.code).collect::<Vec<_>>(), [Code::NeverMatches]);
    assert_eq!(warnings(&text("[10.0.0.0/8, 11.0.0.1]")), []);
}

#[test]
fn a_rule_that_meets_replies_is_pointed_out() {
    for conditions in [
        "{ vlan: untagged }".to_owned(),
        "{ protocol: tcp }".to_owned(),
        "{ protocol: [udp, icmp] }".to_owned(),
        "{ source: 0.0.0.0/0 }".to_owned(),
        "{ destination_port: \"1024-65535\" }".to_owned(),
        "{ tcp_flags: ack }".to_owned(),
        "{ tcp_flags: syn-ack }".to_owned(),
        "{ fragment: [none, any] }".to_owned(),
    ] {
        rules_warn("", &[&conditions], &[(Code::CatchAll, 0)]);
    }
    for conditions in [
        "{ tcp_flags: syn }",
        "{ protocol: udp, destination_port: 53 }",
        "{ protocol: icmp }",
        "{ source: 10.0.0.0/8 }",
        "{ destination: 203.0.113.5 }",
        "{ fragment: any }",
        "{ source_port: 53 }",
        "{ length: 0-100 }",
    ] {
        rules_warn("", &[conditions], &[]);
    }
    // A rule for replies before it is the cure.
    rules_warn("", &["{ protocol: udp, source_port: 53 }", "{ protocol: udp }"], &[]);
    rules_warn(
        "",
        &["{ protocol: udp }", "{ protocol: udp, source_port: 53 }"],
        &[(Code::CatchAll, 0), (Code::NeverMatches, 1)],
    );
}

#[test]
fn a_limit_beside_a_tighter_one_never_bites() {
    let warn = |limits: &[&str]| -> Vec<usize> {
        let list = limits.iter().map(|limit| format!("        - {limit}\n")).collect::<Vec<_>>().concat();
        let text = format!(
            "interfaces: {{ name: a }}\nnetwork:\n  rules:\n    - name: a\n      match: {{ vlan: 1, length: 0-99 }}\n      limits:\n{list}"
        );
        let found = warnings(&text);
        assert!(found.iter().all(|warning| warning.code == Code::NeverBites), "{found:#?}");
        found.iter().map(|warning| warning.line.unwrap() as usize - 7).collect()
    };
    let tight = "{ per: source, rate: 50/s, burst: 100 }";
    assert_eq!(warn(&["{ per: source, rate: 60/s, burst: 100 }", tight]), [0]);
    assert_eq!(warn(&[tight, "{ per: source, rate: 3000/m, burst: 200 }"]), [1]);
    assert_eq!(warn(&[tight, tight]), [1]);
    assert_eq!(warn(&[tight, "{ per: { ipv4_prefix: 32, ipv6_prefix: 64 }, rate: 50/s, burst: 200 }"]), [1]);
    assert_eq!(warn(&[tight, "{ per: rule, rate: 0/s }"]), [0]);
    assert_eq!(warn(&["{ per: rule, bandwidth: 2Mbit/s }", "{ per: rule, bandwidth: 1Mbit/s }"]), [0]);
    // A higher rate with a lower burst bites first; other buckets and other units are other limits.
    assert_eq!(warn(&[tight, "{ per: source, rate: 60/s, burst: 90 }"]), [0; 0]);
    assert_eq!(warn(&[tight, "{ per: rule, rate: 60/s, burst: 100 }"]), [0; 0]);
    assert_eq!(warn(&[tight, "{ per: source, bandwidth: 1Gbit/s }"]), [0; 0]);
}

#[test]
fn a_policy_without_interfaces_is_for_replay() {
    let found = warnings("network: { mode: monitor }\n");
    let found: Vec<_> = found.iter().map(|warning| (warning.code, warning.line, warning.column)).collect();
    assert_eq!(found, [(Code::NoInterfaces, Some(1), Some(1))]);
    assert_eq!(warnings("interfaces: { name: a }\n"), []);
}

#[test]
fn a_policy_that_stops_everything_is_allowed() {
    rules_warn("\n  deny: [0.0.0.0/0, \"::/0\"]", &["{ vlan: 1, source_port: 7 }"], &[]);
}

/// The codes for a rule with this match, these limits and this block.
fn block_warns(rule: &str) -> Vec<Code> {
    // A port that no reply comes to.
    let text = format!(
        "interfaces: {{ name: a }}\nnetwork:\n  rules:\n    - name: a\n{rule}      block: {{ after: 1000, within: 10s, for: 10m }}\n"
    );
    warnings(&text).into_iter().map(|warning| warning.code).collect()
}

#[test]
fn a_block_for_what_anybody_can_forge_is_pointed_out() {
    let warn = |conditions: &str| {
        block_warns(&format!("      match: {conditions}\n      limits: {{ per: source, rate: 50/s }}\n"))
    };
    for conditions in [
        "{ protocol: udp, destination_port: 53 }",
        "{ protocol: icmp }",
        "{ protocol: tcp, destination_port: 22 }",
        "{ tcp_flags: syn }",
        "{ tcp_flags: syn-ack, destination_port: 22 }",
        "{ tcp_flags: [\"ack,!syn\", rst], destination_port: 22 }",
        "{ tcp_flags: ack, destination_port: 22 }",
        "{ fragment: any }",
        "{ source: 192.0.2.0/24 }",
        "{ destination_port: 22 }",
    ] {
        assert_eq!(warn(conditions), [Code::SpoofedBlock], "{conditions}");
    }
    for conditions in [
        "{ tcp_flags: \"ack,!syn\", destination_port: 22 }",
        "{ protocol: tcp, tcp_flags: [\"psh,ack,!syn\", \"fin,ack,!syn\"], destination_port: 22 }",
    ] {
        assert_eq!(warn(conditions), [], "{conditions}");
    }
}

#[test]
fn a_block_that_never_comes_about_is_pointed_out() {
    let text = |rest: &str| {
        format!(
            "interfaces: {{ name: a }}\nnetwork:\n  rules:\n    - name: a\n      match: {{ tcp_flags: \"ack,!syn\", destination_port: 22 }}\n      limits: {{ per: source, rate: 50/s }}\n{rest}"
        )
    };
    let found = |rest: &str| -> Vec<_> {
        warnings(&text(rest)).iter().map(|found| (found.code, found.line, found.column)).collect()
    };
    let counts = found("      action: count\n      block: { after: 10, within: 10s, for: 10m }\n");
    assert_eq!(counts, [(Code::NeverBlocks, Some(8), Some(7))]);
    // 400 Gbit/s are 595 million of the shortest frames a second.
    let many = |after: u64, within: &str| {
        found(&format!("      block: {{ after: {after}, within: {within}, for: 10m }}\n"))
    };
    assert_eq!(many(4_000_000_000, "5s"), [(Code::NeverBlocks, Some(7), Some(7))]);
    assert_eq!(many(595_238_096, "1s"), [(Code::NeverBlocks, Some(7), Some(7))]);
    assert_eq!(many(595_238_095, "1s"), []);
    assert_eq!(many(4_000_000_000, "10s"), []);
}

#[test]
fn a_block_for_what_others_send_is_pointed_out() {
    let warn = |limits: &str| {
        let conditions = "{ tcp_flags: \"ack,!syn\", destination_port: 22 }";
        block_warns(&format!("      match: {conditions}\n      limits: {limits}\n"))
    };
    assert_eq!(warn("{ per: rule, rate: 50/s }"), [Code::SharedBlock]);
    assert_eq!(warn("{ per: { ipv4_prefix: 24, ipv6_prefix: 48 }, rate: 50/s }"), [Code::SharedBlock]);
    assert_eq!(warn("[{ per: rule, rate: 50/s }, { per: source, rate: 5/s }]"), []);
    // Whoever comes is shed for what it sends itself.
    assert_eq!(warn("{ per: rule, rate: 0/s }"), []);
}

#[test]
fn management_of_the_whole_world_or_of_nobody_is_pointed_out() {
    let warn = |network: &str| -> Vec<_> {
        let text = format!("interfaces: {{ name: a }}\nnetwork: {{ {network} }}\n");
        warnings(&text).iter().map(|found| (found.code, found.column)).collect()
    };
    let entry = |prefix: &str| warn(&format!("management: {{ prefix: {prefix}, ports: 22 }}"));
    for prefix in ["0.0.0.0/0", "128.0.0.0/7", "\"::/0\"", "\"2000::/3\""] {
        assert_eq!(entry(prefix), [(Code::WideManagement, Some(34))], "{prefix}");
    }
    for prefix in ["10.0.0.0/8", "\"fc00::/7\"", "\"fe80::/10\"", "192.0.2.1"] {
        assert_eq!(entry(prefix), [], "{prefix}");
    }
    let beside = |allow: &str| {
        warn(&format!("allow: {allow}, management: {{ prefix: [10.0.0.0/8, 192.0.2.0/24], ports: 22 }}"))
    };
    assert_eq!(beside("[192.0.2.0/25, 192.0.2.128/25]").len(), 1);
    assert_eq!(beside("[192.0.2.0/25, 192.0.2.128/25]")[0].0, Code::NoEffect);
    assert_eq!(beside("[192.0.2.0/25, 11.0.0.0/8]"), []);
}
