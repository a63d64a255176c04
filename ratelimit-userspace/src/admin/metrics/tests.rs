use std::time::Duration;

use super::*;
use crate::{
    admin::schema::{AttachWish, BlockTotals, Interface, Policy, SourcesPolicy},
    network::{
        counters::{EventCount, LimitCount, ReasonCount, RuleCount},
        interfaces,
    },
};

fn tally(packets: u64) -> Tally {
    Tally { packets, bytes: packets * 100 }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A host whose rule is called `name`.
fn figures(name: &str) -> Figures {
    let reloads = Reloads {
        succeeded: 3,
        failed: 1,
        last_ok: false,
        last_success: at(1_800_000_000),
        last_failure: None,
        error: None,
    };
    let interface = |name: &str, mode, current| Interface {
        name: name.to_owned(),
        index: 2,
        mode,
        program_id: Some(7),
        current,
        note: None,
    };
    let sources =
        SourcesPolicy { ipv4_prefix: 32, ipv6_prefix: 64, capacity: 1024, when_full: "pass".to_owned() };
    let policy = Policy {
        version: "0.1.0".to_owned(),
        program_id: 7,
        rules_file: "/etc/ratelimit/rules.yaml".into(),
        since: at(1_700_000_000),
        uptime_seconds: 5,
        mode: Mode::Monitor,
        on_stop: "keep".to_owned(),
        malformed: "drop".to_owned(),
        sources,
        allow: 0,
        deny: 0,
        interfaces: vec![AttachWish { name: "eth0".to_owned(), mode: "auto".to_owned() }],
        rules: 1,
        management: Vec::new(),
        blocks_capacity: Some(4096),
        next: None,
    };
    let status = Status {
        pin_dir: "/sys/fs/bpf/ratelimit".to_owned(),
        daemon: None,
        policy: Some(policy),
        interfaces: vec![
            interface("eth0", Some(interfaces::Mode::Native), true),
            interface("gone0", None, false),
        ],
        blocks: Some(BlockTotals { addresses: 5, prefixes: 6, by_rules: 7 }),
        reloads: None,
        trial: None,
    };
    let limit = |shed| LimitCount { limit: "1/s".to_owned(), shed: tally(shed), would_shed: tally(shed + 1) };
    let counters = Counters {
        rules: vec![RuleCount {
            rule: name.to_owned(),
            passed: tally(1),
            limits: vec![limit(10), limit(20)],
        }],
        reasons: vec![ReasonCount {
            reason: "limited".to_owned(),
            passed: tally(0),
            shed: tally(30),
            would_shed: tally(32),
        }],
        events: vec![EventCount { event: "live_evicted".to_owned(), count: 9 }],
    };
    let feed = Feed { standing: 11, ignored: [("scope", 3)].into(), failures: 1 };
    let outcomes = [(Escalated::Blocked, 4), (Escalated::Spared, 2)].into();
    let escalations = Escalations { rules: [("api/client_ip".into(), outcomes)].into(), lost: 8 };
    Figures { status, counters: Some(counters), reloads, escalations, feed: Some(feed) }
}

#[test]
fn everything_is_told_under_its_name() {
    let text = write(figures("web"), None).unwrap();
    let expected = [
        r#"ratelimit_network_rule_packets_total{rule="web",outcome="passed"} 1"#,
        r#"ratelimit_network_rule_packets_total{rule="web",limit="1",outcome="shed"} 10"#,
        r#"ratelimit_network_rule_packets_total{rule="web",limit="2",outcome="would_shed"} 21"#,
        r#"ratelimit_network_rule_bytes_total{rule="web",limit="2",outcome="shed"} 2000"#,
        r#"ratelimit_network_reason_packets_total{reason="limited",outcome="would_shed"} 32"#,
        r#"ratelimit_network_reason_bytes_total{reason="limited",outcome="shed"} 3000"#,
        "ratelimit_network_live_evicted_total 9",
        r#"ratelimit_network_interface_attached{interface="eth0",mode="native"} 1"#,
        r#"ratelimit_network_interface_current{interface="eth0"} 1"#,
        r#"ratelimit_network_interface_current{interface="gone0"} 0"#,
        "ratelimit_network_buckets_max 1024",
        "ratelimit_network_blocked_addresses 5",
        "ratelimit_network_blocked_prefixes 6",
        "ratelimit_network_rule_blocked_sources 7",
        "ratelimit_network_blocks_max 4096",
        "ratelimit_network_monitoring 1",
        "ratelimit_network_policy_start_time_seconds 1700000000",
        r#"ratelimit_escalations_total{rule="api/client_ip",outcome="blocked"} 4"#,
        r#"ratelimit_escalations_total{rule="api/client_ip",outcome="spared"} 2"#,
        r#"ratelimit_escalations_total{rule="api/client_ip",outcome="failed"} 0"#,
        "ratelimit_escalations_lost_total 8",
        "ratelimit_crowdsec_standing 11",
        r#"ratelimit_crowdsec_ignored_total{why="scope"} 3"#,
        "ratelimit_crowdsec_failures_total 1",
        "ratelimit_reloads_total 3",
        "ratelimit_reload_failures_total 1",
        "ratelimit_last_reload_ok 0",
        "ratelimit_last_reload_time_seconds 1800000000",
        concat!("ratelimit_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ];
    for line in expected {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(r#"interface_attached{interface="gone0""#));
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn every_family_is_described_once_and_its_series_stand_together() {
    let text = write(figures("web"), None).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    let mut family = "";
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap();
        } else {
            assert!(line.contains(family), "{line} does not belong to {family}");
        }
    }
}

#[test]
fn names_of_rules_cannot_break_out_of_their_label() {
    let text = write(figures("a\"} 1\nevil{x=\"\\"), None).unwrap();
    let line = r#"ratelimit_network_rule_packets_total{rule="a\"} 1\nevil{x=\"\\",outcome="passed"} 1"#;
    assert!(text.lines().any(|it| it == line), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("evil")));
}

#[test]
fn a_host_without_a_policy_has_the_daemons_numbers() {
    let mut figures = figures("web");
    figures.counters = None;
    figures.status = Status { policy: None, blocks: None, interfaces: Vec::new(), ..figures.status };
    let text = write(figures, None).unwrap();
    assert!(!text.contains("ratelimit_network_rule"), "{text}");
    assert!(text.contains("ratelimit_reloads_total 3\n"));
}
