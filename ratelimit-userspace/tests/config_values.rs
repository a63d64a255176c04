//! What single values mean.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use ratelimit::config::{
    self,
    policy::{
        Block, Bucket, FragmentKind, IcmpType, Interface, Limit, Management, Match, Network, Per, TcpFlags,
        Unit, Vlan,
    },
};
use ratelimit_common::gcra::{self, Rate};

const SECOND: u64 = 1_000_000_000;

#[track_caller]
fn network(settings: &str) -> Network {
    let text = format!("network: {settings}\n");
    let loaded = config::parse(text.as_bytes(), Path::new("r.yaml"));
    loaded.unwrap_or_else(|failure| panic!("{text}\n{failure}")).config.network.unwrap()
}

#[track_caller]
fn matches(conditions: &str) -> Match {
    let settings =
        format!("{{ rules: {{ name: a, match: {conditions}, limits: {{ per: rule, rate: 1/s }} }} }}");
    network(&settings).rules.remove(0).matches
}

#[track_caller]
fn limit(limit: &str) -> Limit {
    network(&format!("{{ rules: {{ name: a, limits: {limit} }} }}")).rules[0].limits[0]
}

#[test]
fn rates_and_bandwidths() {
    for (text, unit, units, nanos, burst) in [
        ("rate: 1/d", Unit::Packets, 1, 86_400 * SECOND, 1),
        ("rate: 1/day, burst: 90", Unit::Packets, 1, 86_400 * SECOND, 90),
        ("rate: 50/s", Unit::Packets, 50, SECOND, 50),
        ("rate: \"50/second\"", Unit::Packets, 50, SECOND, 50),
        ("rate: 90/m", Unit::Packets, 90, 60 * SECOND, 1),
        ("rate: 1/minute", Unit::Packets, 1, 60 * SECOND, 1),
        ("rate: 7200/h", Unit::Packets, 7200, 3600 * SECOND, 2),
        ("rate: 1/hour", Unit::Packets, 1, 3600 * SECOND, 1),
        ("rate: 10k/s, burst: 2k", Unit::Packets, 10_000, SECOND, 2000),
        ("rate: 1.5M/s", Unit::Packets, 1_500_000, SECOND, 1_500_000),
        ("rate: 100M/s", Unit::Packets, 100_000_000, SECOND, 100_000_000),
        ("rate: 4294967296/d", Unit::Packets, 4_294_967_296, 86_400 * SECOND, 49_710),
        ("rate: 8640G/d", Unit::Packets, 8_640_000_000_000, 86_400 * SECOND, 100_000_000),
        ("bandwidth: 8bit/s", Unit::Bytes, 1, SECOND, 1514),
        ("bandwidth: 1bit/s", Unit::Bytes, 1, 8 * SECOND, 1514),
        ("bandwidth: 100kbit/s", Unit::Bytes, 12_500, SECOND, 12_500),
        ("bandwidth: 10kbit/s", Unit::Bytes, 1250, SECOND, 1514),
        ("bandwidth: 1.5Gbit/s", Unit::Bytes, 187_500_000, SECOND, 187_500_000),
        ("bandwidth: 400Gbit/s, burst: 50MB", Unit::Bytes, 50_000_000_000, SECOND, 50_000_000),
        ("bandwidth: 1Mbit/s, burst: 1.6kB", Unit::Bytes, 125_000, SECOND, 1600),
        ("bandwidth: 1Gbit/s, burst: 1GB", Unit::Bytes, 125_000_000, SECOND, 1_000_000_000),
    ] {
        let found = limit(&format!("{{ per: source, {text} }}"));
        let wanted = Bucket { rate: Rate { units, nanos }, burst };
        assert_eq!(found, Limit { per: Per::Source, unit, bucket: Some(wanted) }, "{text}");
        let held = match unit {
            Unit::Packets => gcra::Limit::packets(wanted.rate, burst),
            Unit::Bytes => gcra::Limit::bytes(wanted.rate, burst),
        };
        assert!(held.is_ok(), "{text}: {held:?}");
    }
}

#[test]
fn a_rate_of_zero_blocks() {
    for (text, unit) in [
        ("rate: 0/s", Unit::Packets),
        ("rate: 0/day", Unit::Packets),
        ("bandwidth: 0bit/s", Unit::Bytes),
        ("bandwidth: 0Gbit/s", Unit::Bytes),
    ] {
        assert_eq!(limit(&format!("{{ per: rule, {text} }}")), Limit { per: Per::Rule, unit, bucket: None });
    }
}

#[test]
fn prefixes_longer_than_those_of_sources_are_fine() {
    let found = limit("{ per: { ipv4_prefix: 1, ipv6_prefix: 128 }, rate: 1/s }");
    assert_eq!(found.per, Per::Prefix { ipv4_prefix: 1, ipv6_prefix: 128 });
}

#[test]
fn addresses_and_prefixes() {
    for (text, wanted) in [
        ("192.0.2.1", "192.0.2.1/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("\"::/0\"", "::/0"),
        ("\"2001:0DB8::0001\"", "2001:db8::1/128"),
        ("\"::ffff:192.0.2.1\"", "192.0.2.1/32"),
        ("\"::ffff:c000:200/120\"", "192.0.2.0/24"),
        ("\"::ffff:0:0/96\"", "0.0.0.0/0"),
        // Compatible addresses (RFC 4291, section 2.5.5.1) are IPv6.
        ("\"::192.0.2.1\"", "::c000:201/128"),
    ] {
        let wanted: IpNet = wanted.parse().unwrap();
        assert_eq!(network(&format!("{{ deny: {text} }}")).deny, [wanted], "{text}");
        assert_eq!(network(&format!("{{ allow: [{text}] }}")).allow, [wanted], "{text}");
        assert_eq!(matches(&format!("{{ source: {text} }}")).source, Some(vec![wanted]), "{text}");
    }
    assert_eq!(network("{ allow: [], deny: [], deny_files: [], rules: [] }").deny, []);
}

#[test]
fn ports_and_lengths() {
    let range = |range: RangeInclusive<u16>| range;
    assert_eq!(
        matches("{ source_port: [0, \"65535\", 100-200, \"7-7\"] }").source_port,
        Some(vec![range(0..=0), range(65_535..=65_535), range(100..=200), range(7..=7)])
    );
    assert_eq!(
        matches("{ length: [64, 100-200, 1500-] }").length,
        Some(vec![64..=64, 100..=200, 1500..=65_535])
    );
}

#[test]
fn tcp_flags() {
    for (text, set, clear) in [
        ("syn", 0x02, 0x10),
        ("syn-ack", 0x12, 0),
        ("ack", 0x10, 0),
        ("fin", 0x01, 0),
        ("rst", 0x04, 0),
        ("psh", 0x08, 0),
        ("urg", 0x20, 0),
        ("ece", 0x40, 0),
        ("cwr", 0x80, 0),
        ("null", 0, 0x3f),
        ("xmas", 0x29, 0),
        ("syn,!ack", 0x02, 0x10),
        ("ack, !syn, !rst", 0x10, 0x06),
        ("!ack", 0, 0x10),
        ("syn,fin", 0x03, 0),
    ] {
        assert_eq!(
            matches(&format!("{{ tcp_flags: \"{text}\" }}")).tcp_flags,
            Some(vec![TcpFlags { set, clear }]),
            "{text}"
        );
    }
}

#[test]
fn protocols_and_icmp_types() {
    use IcmpType::{V4, V6};
    assert_eq!(
        matches("{ protocol: [tcp, udp, icmp, icmpv6, sctp, gre, 0, 255] }").protocol,
        Some(vec![6, 17, 1, 58, 132, 47, 0, 255])
    );
    for (text, wanted) in [
        ("protocol: icmp, icmp_type: 8", vec![V4(8)]),
        ("protocol: icmp, icmp_type: [echo-reply, echo-request]", vec![V4(0), V4(8)]),
        ("protocol: icmpv6, icmp_type: echo-request", vec![V6(128)]),
        ("protocol: 58, icmp_type: [nd-router-advert, 255]", vec![V6(134), V6(255)]),
        ("protocol: [icmp, icmpv6], icmp_type: echo-request", vec![V4(8), V6(128)]),
        ("protocol: [icmp, icmpv6], icmp_type: packet-too-big", vec![V6(2)]),
        ("protocol: [icmp, icmpv6], icmp_type: 3", vec![V4(3), V6(3)]),
    ] {
        assert_eq!(matches(&format!("{{ {text} }}")).icmp_type, Some(wanted), "{text}");
    }
}

#[test]
fn fragments_and_vlans() {
    use FragmentKind::{First, Later, None};
    assert_eq!(matches("{ fragment: none }").fragment, Some(vec![None]));
    assert_eq!(matches("{ fragment: any }").fragment, Some(vec![First, Later]));
    assert_eq!(matches("{ fragment: [later, first] }").fragment, Some(vec![Later, First]));
    assert_eq!(
        matches("{ vlan: [0, 4094, untagged] }").vlan,
        Some(vec![Vlan::Id(0), Vlan::Id(4094), Vlan::Untagged])
    );
}

#[test]
fn settings() {
    let found = network(
        "{ mode: monitor, on_stop: detach, malformed: pass, sources: { ipv4_prefix: 24, ipv6_prefix: 48, capacity: \"1024\", when_full: share } }",
    );
    assert!(found.monitor && found.malformed_pass);
    assert_eq!(found.on_stop, config::policy::OnStop::Detach);
    assert_eq!(
        (found.sources.ipv4_prefix, found.sources.ipv6_prefix, found.sources.capacity),
        (24, 48, 1024)
    );
    assert_eq!(found.sources.when_full, config::policy::WhenFull::Share);
    let rule =
        &network("{ rules: { name: A-1.b_c, action: count, limits: { per: rule, rate: 1/s } } }").rules[0];
    assert!(rule.count_only);
    assert_eq!(rule.name, "A-1.b_c");
}

#[test]
fn management_has_an_entry_for_each_prefix() {
    let found = network(
        "{ management: [{ prefix: [192.0.2.0/24, \"::ffff:198.51.100.7\"], ports: [22, \"9000-9010\"] }, \
         { prefix: \"2001:db8::/48\", ports: 0 }] }",
    );
    let entry = |prefix: &str, ports: &[RangeInclusive<u16>]| Management {
        prefix: prefix.parse::<IpNet>().unwrap(),
        ports: ports.to_vec(),
    };
    assert_eq!(
        found.management,
        [
            entry("192.0.2.0/24", &[22..=22, 9000..=9010]),
            entry("198.51.100.7/32", &[22..=22, 9000..=9010]),
            entry("2001:db8::/48", &[0..=0]),
        ]
    );
    assert_eq!(network("{ management: [] }").management, []);
    let single = network("{ management: { prefix: 192.0.2.1, ports: 22 } }").management;
    assert_eq!(single, [entry("192.0.2.1/32", &[22..=22])]);
}

#[test]
fn blocks_and_the_next_program() {
    let found = network("{ blocks: { capacity: 1024 }, next: /sys/fs/bpf/other }");
    assert_eq!((found.blocks.capacity, found.next), (1024, Some(PathBuf::from("/sys/fs/bpf/other"))));
    assert_eq!(network("{ blocks: { capacity: 4194304 } }").blocks.capacity, 1 << 22);
    assert_eq!(network("{ blocks: {} }").blocks.capacity, 1 << 20);
}

#[test]
fn a_rule_blocks_when_it_says() {
    let block = |text: &str| {
        let settings =
            format!("{{ rules: {{ name: a, limits: {{ per: source, rate: 1/s }}, block: {text} }} }}");
        network(&settings).rules[0].block
    };
    for (text, after, within, duration) in [
        ("{ after: 1000, within: 10s, for: 10m }", 1000, 10_000, 600),
        ("{ after: 1, within: 1s, for: 1s }", 1, 1000, 1),
        ("{ after: 4294967295, within: 1d, for: 365d }", u32::MAX, 86_400_000, 365 * 86_400),
        ("{ after: 7, within: 1500ms, for: 52w }", 7, 1500, 364 * 86_400),
    ] {
        let wanted =
            Block { after, within: Duration::from_millis(within), duration: Duration::from_secs(duration) };
        assert_eq!(block(text), Some(wanted), "{text}");
    }
}

#[test]
fn an_interface_is_a_name_or_a_pattern() {
    let interfaces = |list: &str| -> Vec<Interface> {
        let text = format!("interfaces: {list}\n");
        let loaded = config::parse(text.as_bytes(), Path::new("r.yaml"));
        loaded.unwrap_or_else(|failure| panic!("{text}\n{failure}")).config.interfaces
    };
    let found =
        interfaces("[{ name: \"eth*\" }, { name: \"en[0-9]?\" }, { name: wan, mode: native }, { name: lo }]");
    let patterns: Vec<_> = found.iter().map(Interface::is_pattern).collect();
    assert_eq!(patterns, [true, true, false, false]);
    for (index, yes, no) in [
        (0, &["eth", "eth0", "eth10.100"][..], &["veth0", "lo"][..]),
        (1, &["en0s", "en99"], &["en0", "ens0", "en00s"]),
        (2, &["wan"], &["wan0", "wa"]),
        (3, &["lo"], &["lo0"]),
    ] {
        assert!(yes.iter().all(|name| found[index].matches(name)), "{index}");
        assert!(!no.iter().any(|name| found[index].matches(name)), "{index}");
    }
    // Fifteen bytes are for names: a pattern may take more to write.
    assert!(interfaces("{ name: \"enp[0-9]s[0-9]f[0-9]\" }")[0].matches("enp3s0f1"));
    // Stars mean everything but the loopback interface, which takes its name.
    let all = interfaces("[{ name: \"*\" }, { name: lo }]");
    assert_eq!((all[0].matches("eth0"), all[0].matches("lo"), all[1].matches("lo")), (true, false, true));
}
