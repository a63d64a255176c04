//! Every kind of mistake, with its code and its exact place. `«` marks the place and is not in the file.

use std::path::Path;

use ratelimit::config::{
    self, Failure,
    diagnostic::{Code, Diagnostic},
};

/// Line and column.
type Place = (Option<u32>, Option<u32>);

/// Cuts the marks out of a text and says where they were.
fn marked(text: &str) -> (String, Vec<Place>) {
    let (mut clean, mut places, mut line, mut column) = (String::new(), Vec::new(), 1, 1);
    for character in text.chars() {
        match character {
            '«' => places.push((Some(line), Some(column))),
            '\n' => {
                clean.push('\n');
                (line, column) = (line + 1, 1);
            }
            _ => {
                clean.push(character);
                column += 1;
            }
        }
    }
    (clean, places)
}

fn errors(text: &str) -> Vec<Diagnostic> {
    match config::parse(text.as_bytes(), Path::new("r.yaml")) {
        Err(Failure::Invalid { errors, .. }) => errors,
        other => panic!("{text}\nis not invalid: {other:?}"),
    }
}

/// Exactly these errors, at the marks.
#[track_caller]
fn refused(text: &str, codes: &[Code]) -> Vec<Diagnostic> {
    let (clean, places) = marked(text);
    let found = errors(&clean);
    let found_at: Vec<_> = found.iter().map(|error| (error.code, (error.line, error.column))).collect();
    let wanted: Vec<_> = codes.iter().copied().zip(places.iter().copied()).collect();
    assert_eq!(codes.len(), places.len(), "a mark for each code");
    assert_eq!(found_at, wanted, "{clean}\n{found:#?}");
    for error in &found {
        assert!(error.file == "r.yaml" && !error.message.is_empty());
    }
    found
}

/// One error, and what was probably meant.
#[track_caller]
fn refused_for(text: &str, code: Code, nearest: Option<&str>) {
    let found = refused(text, &[code]);
    assert_eq!(found[0].nearest.as_deref(), nearest, "{text}\n{found:#?}");
    if !matches!(code, Code::Syntax | Code::InvalidUtf8) {
        assert!(found[0].expected.is_some(), "{text}\n{found:#?}");
    }
}

#[track_caller]
fn match_refused(conditions: &str, code: Code, nearest: Option<&str>) {
    let text = format!(
        "network:\n  rules:\n    - name: a\n      match: {conditions}\n      limits: {{ per: rule, rate: 1/s }}\n"
    );
    refused_for(&text, code, nearest);
}

#[track_caller]
fn limit_refused(limit: &str, code: Code, nearest: Option<&str>) {
    refused_for(&format!("network:\n  rules:\n    - name: a\n      limits: [ {limit} ]\n"), code, nearest);
}

#[test]
fn files_that_are_no_settings() {
    refused("«", &[Code::EmptyFile]);
    refused("«# only a comment\n", &[Code::EmptyFile]);
    refused("«---\n...\n", &[Code::EmptyFile]);
    refused("«- a\n", &[Code::BadType]);
    refused("«text\n", &[Code::BadType]);
    refused("network: {}\n«---\nnetwork: {}\n", &[Code::MultipleDocuments]);
    refused("network: {}\n«@: 1\n", &[Code::Syntax]);
    refused("network: { «? [a] : b }\n".replace("«? ", "? «").as_str(), &[Code::Unsupported]);
    refused("network: «!!map {}\n", &[Code::Unsupported]);
    refused("network: «*nothing\n", &[Code::UnknownAlias]);
    refused("network: &n { rules: [«*n] }\n", &[Code::UnknownAlias]);
    let Err(Failure::Invalid { errors, .. }) =
        config::parse(b"network:\n  mode: \xff\n", Path::new("r.yaml"))
    else {
        panic!("it is valid")
    };
    assert_eq!((errors[0].code, errors[0].line, errors[0].column), (Code::InvalidUtf8, Some(2), Some(9)));
}

#[test]
fn keys() {
    refused_for("interfaces: { name: a }\n«netwrok: {}\n", Code::UnknownKey, Some("network"));
    for section in ["proxy", "management"] {
        refused_for(&format!("«{section}: {{}}\n"), Code::UnknownKey, None);
    }
    refused_for("«admn: {}\n", Code::UnknownKey, Some("admin"));
    refused_for("interfaces: { name: a, «modes: auto }\n", Code::UnknownKey, Some("mode"));
    refused_for("network: { «deny_file: x }\n", Code::UnknownKey, Some("deny_files"));
    refused_for("network: { sources: { «Capacity: 1024 } }\n", Code::UnknownKey, Some("capacity"));
    refused_for("network: { sources: { «<<: {} } }\n", Code::UnknownKey, None);
    match_refused("{ «port: 53 }", Code::UnknownKey, Some("source_port"));
    match_refused("{ «tcp-flags: syn }", Code::UnknownKey, Some("tcp_flags"));
    // What is misspelt is not also missing.
    limit_refused("{ per: rule, «rte: 1/s }", Code::UnknownKey, Some("rate"));
    limit_refused("{ «pre: rule, rate: 1/s }", Code::UnknownKey, Some("per"));
    limit_refused(
        "{ per: { ipv4_prefix: 24, «ipv6prefix: 48 }, rate: 1/s }",
        Code::UnknownKey,
        Some("ipv6_prefix"),
    );
    refused_for("network: {}\n«network: {}\n", Code::DuplicateKey, None);
    refused_for("network: { mode: monitor, «\"mode\": enforce }\n", Code::DuplicateKey, None);
    limit_refused("{ per: rule, rate: 1/s, «rate: 2/s }", Code::DuplicateKey, None);
    refused_for("interfaces: [«{ mode: auto }]\n", Code::MissingKey, None);
    refused_for("network: { rules: [«{ name: a }] }\n", Code::MissingKey, None);
    refused_for("network: { rules: [«{ limits: { per: rule, rate: 1/s } }] }\n", Code::MissingKey, None);
    limit_refused("«{ per: rule }", Code::MissingKey, None);
    limit_refused("«{ rate: 1/s }", Code::MissingKey, None);
    limit_refused("{ per: «{ ipv4_prefix: 24 }, rate: 1/s }", Code::MissingKey, None);
    limit_refused("{ per: rule, rate: 1/s, «bandwidth: 1Mbit/s }", Code::Conflict, None);
    for key in ["interfaces", "network"] {
        refused_for(&format!("«{key}:\n"), Code::MissingValue, None);
    }
    refused_for("network: { «rules: ~ }\n", Code::MissingValue, None);
}

#[test]
fn types() {
    refused("interfaces: «eth0\n", &[Code::BadType]);
    refused("network: «[]\n", &[Code::BadType]);
    refused("network: { mode: «[enforce] }\n", &[Code::BadType]);
    refused("network: { sources: «32 }\n", &[Code::BadType]);
    refused("network: { allow: [«[10.0.0.0/8]] }\n", &[Code::BadType]);
    // Without quotes this is a mapping.
    refused("network: { allow: [«2001:db8::] }\n", &[Code::BadType]);
    refused("network: { allow: [«null] }\n", &[Code::BadType]);
    refused("interfaces: { name: «{ a: b } }\n", &[Code::BadType]);
    limit_refused("{ per: «[source], rate: 1/s }", Code::BadType, None);
}

#[test]
fn words() {
    refused_for("network: { mode: «enforced }\n", Code::BadValue, Some("enforce"));
    refused_for("network: { mode: «Monitor }\n", Code::BadValue, Some("monitor"));
    refused_for("network: { mode: «true }\n", Code::BadValue, None);
    refused_for("network: { on_stop: «dettach }\n", Code::BadValue, Some("detach"));
    refused_for("network: { malformed: «\"\" }\n", Code::BadValue, None);
    refused_for("network: { sources: { when_full: «shares } }\n", Code::BadValue, Some("share"));
    refused_for("interfaces: { name: a, mode: «skb }\n", Code::BadValue, None);
    limit_refused("{ per: «sources, rate: 1/s }", Code::BadValue, Some("source"));
    limit_refused(
        "{ per: «prefix, rate: 1/s }",
        Code::BadValue,
        Some("{ ipv4_prefix: 24, ipv6_prefix: 48 }"),
    );
    refused_for(
        "network: { rules: { name: a, action: «counted, limits: { per: rule, rate: 1/s } } }\n",
        Code::BadValue,
        Some("count"),
    );
}

#[test]
fn numbers() {
    let sources = |text: &str, code, nearest| {
        refused_for(&format!("network:\n  sources: {{ {text} }}\n"), code, nearest);
    };
    sources("ipv4_prefix: «0", Code::OutOfRange, None);
    sources("ipv4_prefix: «33", Code::OutOfRange, None);
    sources("ipv6_prefix: «129", Code::OutOfRange, None);
    sources("capacity: «1023", Code::OutOfRange, None);
    sources("capacity: «16777217", Code::OutOfRange, None);
    sources("capacity: «99999999999999999999", Code::OutOfRange, None);
    sources("capacity: «-1", Code::OutOfRange, None);
    sources("capacity: «1e6", Code::BadValue, None);
    sources("capacity: «0x1000", Code::BadValue, None);
    sources("capacity: «4096.0", Code::BadValue, None);
    sources("capacity: «1_000_000", Code::BadValue, None);
    sources("capacity: «+4096", Code::BadValue, None);
    sources("capacity: «true", Code::BadValue, None);
    sources("capacity: «.inf", Code::BadValue, None);
    sources("capacity: «04096", Code::BadValue, Some("4096"));
}

#[test]
fn names() {
    let interface =
        |name: &str| refused_for(&format!("interfaces: {{ name: «{name} }}\n"), Code::BadName, None);
    for name in ["sixteen-bytes-xx", "a/b", "\"a b\"", "a:b", "\"\"", ".", "..", "\"a\\tb\"", "ääääääää"]
    {
        interface(name);
    }
    refused_for("interfaces: [{ name: a }, { name: b }, { name: «a }]\n", Code::DuplicateName, None);
    let rule = |name: &str| {
        let text = format!("network: {{ rules: {{ name: «{name}, limits: {{ per: rule, rate: 1/s }} }} }}\n");
        refused_for(&text, Code::BadName, None);
    };
    for name in ["\"a b\"", "\"\"", "-a", "_a", "a{b", "é", &"a".repeat(64)] {
        rule(&name.replace('{', "\\"));
    }
    let twice = "network:\n  rules:\n    - { name: a, limits: { per: rule, rate: 1/s } }\n    - { name: «a, match: { vlan: 1 }, limits: { per: rule, rate: 1/s } }\n";
    refused_for(twice, Code::DuplicateName, None);
}

#[test]
fn addresses() {
    let deny = |text: &str, nearest: Option<&str>| {
        refused_for(&format!("network: {{ deny: [«{text}] }}\n"), Code::BadAddress, nearest);
    };
    deny("192.0.2.1/24", Some("192.0.2.0/24"));
    deny("\"2001:db8::1/32\"", Some("2001:db8::/32"));
    deny("192.0.2.0/33", None);
    deny("\"2001:db8::/129\"", None);
    deny("192.0.2.0/-1", None);
    deny("192.0.2.0/024", None);
    deny("192.0.2.0/", None);
    deny("192.0.2.0/24/24", None);
    deny("192.0.2.0/255.255.255.0", None);
    deny("192.0.02.1", Some("192.0.2.1"));
    deny("192.0.2", None);
    deny("192.0.2.256", None);
    deny("fe80::1%eth0", Some("fe80::1"));
    deny("\"[2001:db8::1]\"", Some("2001:db8::1"));
    deny("\"192.0.2.0 / 24\"", Some("192.0.2.0/24"));
    deny("\" 192.0.2.1\"", Some("192.0.2.1"));
    deny("192.0.2.1:80", None);
    deny("example.org", None);
    deny("\"\"", None);
    // Part IPv4, part not.
    deny("\"::ffff:0.0.0.0/90\"", None);
    deny("\"::ffff:192.0.2.1/120\"", Some("192.0.2.0/24"));
    match_refused("{ source: «10.0.0.1/8 }", Code::BadAddress, Some("10.0.0.0/8"));
    match_refused("{ destination: [10.0.0.0/8, «10.0.0.0/40] }", Code::BadAddress, None);
}

#[test]
fn conditions() {
    match_refused("{ protocol: «tpc }", Code::BadValue, Some("tcp"));
    match_refused("{ protocol: «TCP }", Code::BadValue, Some("tcp"));
    match_refused("{ protocol: [tcp, «256] }", Code::BadValue, None);
    match_refused("{ protocol: «-1 }", Code::BadValue, None);
    match_refused("{ protocol: «1e1 }", Code::BadValue, None);
    match_refused("{ destination_port: «65536 }", Code::OutOfRange, None);
    match_refused(
        "{ destination_port: [53, \"«5010-5000\"] }".replace("\"«", "«\"").as_str(),
        Code::ReversedRange,
        Some("5000-5010"),
    );
    match_refused("{ source_port: «1-2-3 }", Code::BadValue, None);
    match_refused("{ source_port: «http }", Code::BadValue, None);
    match_refused("{ source_port: «\"1 - 2\" }", Code::BadValue, None);
    match_refused("{ «source_port: [] }", Code::EmptyList, None);
    match_refused("{ tcp_flags: «sny }", Code::BadValue, Some("syn"));
    match_refused("{ tcp_flags: «\"syn,!syn\" }", Code::BadValue, None);
    match_refused("{ tcp_flags: «\"syn,\" }", Code::BadValue, None);
    match_refused("{ fragment: «frist }", Code::BadValue, Some("first"));
    match_refused("{ vlan: «4095 }", Code::OutOfRange, None);
    match_refused("{ vlan: «untaged }", Code::BadValue, Some("untagged"));
    match_refused("{ length: «-64 }", Code::OutOfRange, Some("0-64"));
    match_refused("{ length: «70000 }", Code::OutOfRange, None);
    match_refused("{ length: «\"128-64\" }", Code::ReversedRange, Some("64-128"));
    match_refused("{ «icmp_type: 8 }", Code::Conflict, None);
    match_refused("{ protocol: udp, «icmp_type: echo-request }", Code::Conflict, None);
    match_refused("{ protocol: icmp, icmp_type: «packet-too-big }", Code::BadValue, None);
    match_refused("{ protocol: icmpv6, icmp_type: «echo-requst }", Code::BadValue, Some("echo-request"));
    match_refused("{ protocol: icmp, icmp_type: «256 }", Code::BadValue, None);
    match_refused("{ protocol: udp, «tcp_flags: syn }", Code::NeverMatches, None);
    match_refused("{ protocol: [icmp, gre], «destination_port: 53 }", Code::NeverMatches, None);
    // A YAML tag.
    let found = errors(
        "network: { rules: { name: a, match: { tcp_flags: !ack }, limits: { per: rule, rate: 1/s } } }\n",
    );
    assert_eq!(found[0].code, Code::Unsupported);
}

#[test]
fn rates() {
    for (rate, nearest) in [
        ("50", None),
        ("50/", None),
        ("/s", None),
        ("50/min", Some("50/m")),
        ("50/Minute", Some("50/m")),
        ("50/seconds", Some("50/s")),
        ("50/w", None),
        ("50/0s", None),
        ("\"50 / s\"", Some("50/s")),
        ("1_000/s", Some("1000/s")),
        ("50pps", Some("50/s")),
        ("10K/s", Some("10k/s")),
        ("10Mi/s", Some("10M/s")),
        ("10T/s", None),
        ("-1/s", None),
        ("1.7/s", None),
        ("1.0001k/s", None),
        ("1e3/s", None),
        ("0x10/s", None),
        ("007/s", None),
        ("100000001/s", None),
        ("101M/s", None),
        ("4294967296/s", None),
        ("18446744073709551616/s", None),
        ("18446744073709551615G/d", None),
        ("1Mbit/s", None),
        ("true", None),
        ("\"\"", None),
    ] {
        limit_refused(&format!("{{ per: rule, rate: «{rate} }}"), Code::BadRate, nearest);
    }
    for (bandwidth, nearest) in [
        ("1Mbps", Some("1Mbit/s")),
        ("1Mbit", None),
        ("1MBit/s", Some("1Mbit/s")),
        ("1mbit/s", Some("1Mbit/s")),
        ("1Kbit/s", Some("1kbit/s")),
        ("1Mibit/s", Some("1Mbit/s")),
        ("1Mbit/m", None),
        ("1Mb/s", Some("1Mbit/s")),
        ("\"1 Gbit / s\"", Some("1Gbit/s")),
        ("1MB/s", None),
        ("1Tbit/s", None),
        ("401Gbit/s", None),
        ("400000000001bit/s", None),
        ("1.5bit/s", None),
        ("-1Mbit/s", None),
        ("1000000", None),
        ("50/s", None),
    ] {
        limit_refused(&format!("{{ per: rule, bandwidth: «{bandwidth} }}"), Code::BadRate, nearest);
    }
}

#[test]
fn bursts() {
    for (rate, burst, nearest) in [
        ("rate: 50/s", "0", None),
        ("rate: 50/s", "-1", None),
        ("rate: 50/s", "1.5", None),
        ("rate: 50/s", "1e3", None),
        ("rate: 50/s", "10MB", None),
        ("rate: 50/s", "10Ki", Some("10k")),
        ("rate: 50/s", "all", None),
        // 90 days and one packet.
        ("rate: 1/d", "91", None),
        ("rate: 50/s", "1000000000", None),
        ("rate: 50/s", "18446744073709551615", None),
        ("rate: 50/s", "18446744073709551616", None),
        ("rate: 1M/s", "999", Some("1000")),
        ("rate: 100M/s", "99999", Some("100000")),
        ("bandwidth: 1Mbit/s", "0B", None),
        ("bandwidth: 1Mbit/s", "1513B", Some("1514B")),
        ("bandwidth: 1Mbit/s", "100000", Some("100000B")),
        ("bandwidth: 1Mbit/s", "10MiB", Some("10MB")),
        ("bandwidth: 1Mbit/s", "10Mb", Some("10MB")),
        ("bandwidth: 1Mbit/s", "\"10 MB\"", Some("10MB")),
        ("bandwidth: 1Mbit/s", "10TB", None),
        ("bandwidth: 1Mbit/s", "1.0001kB", None),
        // A thousandth of a second at 400 Gbit/s is 50 MB.
        ("bandwidth: 400Gbit/s", "49999999B", Some("50000000B")),
        // A byte a second takes more than 90 days for 8 MB.
        ("bandwidth: 8bit/s", "8MB", None),
    ] {
        limit_refused(&format!("{{ per: rule, {rate}, burst: «{burst} }}"), Code::BadBurst, nearest);
    }
    limit_refused("{ per: rule, rate: 0/s, «burst: 1 }", Code::BadBurst, None);
    limit_refused("{ per: rule, bandwidth: 0Gbit/s, «burst: 10MB }", Code::BadBurst, None);
}

#[test]
fn lists() {
    refused_for("«interfaces: []\n", Code::EmptyList, None);
    refused_for("network: { rules: { name: a, «limits: [] } }\n", Code::EmptyList, None);
    let limit = "{ per: rule, rate: 1/s }";
    let five = format!(
        "network: {{ rules: {{ name: a, limits: [{}«{limit}] }} }}\n",
        format!("{limit}, ").repeat(4)
    );
    refused_for(&five, Code::TooMany, None);
    let rules = |count: usize, mark: &str| {
        let rule = |n: usize| {
            format!(
                "    - {}{{ name: r{n}, match: {{ vlan: {n} }}, limits: {limit} }}\n",
                if n == 64 { mark } else { "" }
            )
        };
        format!("network:\n  rules:\n{}", (0..count).map(rule).collect::<Vec<_>>().concat())
    };
    assert!(config::parse(rules(64, "").as_bytes(), Path::new("r.yaml")).is_ok());
    refused_for(&rules(65, "«"), Code::TooMany, None);
    // Nine rules, one for each bit of the port, make 512 sets of ports.
    let by_bit = |bit: u32| {
        let ports: Vec<_> =
            (0..512_u32).filter(|port| port >> bit & 1 == 1).map(|port| port.to_string()).collect();
        format!(
            "    - {{ name: b{bit}, match: {{ source_port: [{}] }}, limits: {limit} }}\n",
            ports.join(", ")
        )
    };
    let many = |bits: u32| (0..bits).map(by_bit).collect::<Vec<_>>().concat();
    assert!(
        config::parse(format!("network:\n  rules:\n{}", many(8)).as_bytes(), Path::new("r.yaml")).is_ok()
    );
    refused_for(&format!("network:\n  «rules:\n{}", many(9)), Code::TooMany, None);
    refused_for("network: { deny_files: [«\"\"] }\n", Code::BadValue, None);
}

#[test]
fn management() {
    let entry = |text: &str, code, nearest| {
        refused_for(&format!("network:\n  management: [ {text} ]\n"), code, nearest);
    };
    entry("«{ prefix: 192.0.2.0/24 }", Code::MissingKey, None);
    entry("«{ ports: 22 }", Code::MissingKey, None);
    entry("«192.0.2.0/24", Code::BadType, None);
    entry("{ prefix: 192.0.2.0/24, «port: 22 }", Code::UnknownKey, Some("ports"));
    entry("{ «prefixes: 192.0.2.0/24, ports: 22 }", Code::UnknownKey, Some("prefix"));
    entry("{ prefix: «192.0.2.1/24, ports: 22 }", Code::BadAddress, Some("192.0.2.0/24"));
    entry("{ prefix: [192.0.2.0/24, «fe80::1%eth0], ports: 22 }", Code::BadAddress, Some("fe80::1"));
    entry("{ «prefix: [], ports: 22 }", Code::EmptyList, None);
    entry("{ prefix: 192.0.2.0/24, «ports: [] }", Code::EmptyList, None);
    entry("{ prefix: 192.0.2.0/24, «ports: }", Code::MissingValue, None);
    entry("{ prefix: 192.0.2.0/24, ports: «ssh }", Code::BadValue, None);
    entry("{ prefix: 192.0.2.0/24, ports: [22, «65536] }", Code::OutOfRange, None);
    entry("{ prefix: 192.0.2.0/24, ports: «\"23-22\" }", Code::ReversedRange, Some("22-23"));
    let many = |count: u32, mark: &str| {
        let prefix = |n| format!("{}192.0.2.{n}", if n == 64 { mark } else { "" });
        let prefixes = (0..count).map(prefix).collect::<Vec<_>>().join(", ");
        format!("network:\n  management: {{ prefix: [ {prefixes} ], ports: 22 }}\n")
    };
    assert!(config::parse(many(64, "").as_bytes(), Path::new("r.yaml")).is_ok());
    refused_for(&many(65, "«"), Code::TooMany, None);
}

#[test]
fn blocks() {
    refused_for("network: { blocks: { capacity: «1023 } }\n", Code::OutOfRange, None);
    refused_for("network: { blocks: { capacity: «4194305 } }\n", Code::OutOfRange, None);
    refused_for("network: { blocks: { «capcity: 4096 } }\n", Code::UnknownKey, Some("capacity"));
    refused_for("network: { blocks: «4096 }\n", Code::BadType, None);
    refused_for("network: { next: «other }\n", Code::BadValue, None);
    refused_for("network: { next: «\"\" }\n", Code::BadValue, None);
    refused_for("network: { next: «[/sys/fs/bpf/a] }\n", Code::BadType, None);
    let block = |text: &str, code, nearest| {
        refused_for(
            &format!(
                "network:\n  rules:\n    - name: a\n      limits: {{ per: rule, rate: 1/s }}\n      block: {text}\n"
            ),
            code,
            nearest,
        );
    };
    block("«{ within: 10s, for: 10m }", Code::MissingKey, None);
    block("«{ after: 10, for: 10m }", Code::MissingKey, None);
    block("«{ after: 10, within: 10s }", Code::MissingKey, None);
    block("{ after: 10, «whithin: 10s, for: 10m }", Code::UnknownKey, Some("within"));
    block("«1000", Code::BadType, None);
    block("{ after: «0, within: 10s, for: 10m }", Code::OutOfRange, None);
    block("{ after: «4294967296, within: 10s, for: 10m }", Code::OutOfRange, None);
    block("{ after: «1k, within: 10s, for: 10m }", Code::BadValue, None);
    block("{ after: 10, within: «999ms, for: 10m }", Code::OutOfRange, None);
    block("{ after: 10, within: «25h, for: 10m }", Code::OutOfRange, None);
    block("{ after: 10, within: «10, for: 10m }", Code::BadValue, Some("10s"));
    block("{ after: 10, within: 10s, for: «500ms }", Code::OutOfRange, None);
    block("{ after: 10, within: 10s, for: «366d }", Code::OutOfRange, None);
    block("{ after: 10, within: 10s, for: «\"1.5h\" }", Code::BadValue, Some("90m"));
    block("{ after: 10, within: 10s, for: «forever }", Code::BadValue, None);
}

#[test]
fn interfaces() {
    for (name, nearest) in [
        ("\"eth[\"", None),
        ("\"eth[0-9\"", None),
        ("\"eth[]\"", None),
        ("\"eth[9-0]\"", None),
        ("\"eth[ä]\"", None),
        ("\"eth *\"", None),
        ("\"a/*\"", None),
        ("\"????????????????\"", None),
        ("\"a*234567890123456\"", None),
    ] {
        refused_for(&format!("interfaces: {{ name: «{name} }}\n"), Code::BadName, nearest);
    }
    let pair = |a: &str, b: &str, code| {
        refused_for(&format!("interfaces: [{{ name: \"{a}\" }}, {{ name: «\"{b}\" }}]\n"), code, None);
    };
    pair("eth*", "eth*", Code::DuplicateName);
    pair("eth*", "eth0", Code::Conflict);
    pair("eth0", "eth?", Code::Conflict);
    pair("eth*", "*0", Code::Conflict);
    pair("eth[0-4]", "eth[4-9]", Code::Conflict);
    for (a, b) in [("eth*", "en*"), ("eth[0-3]", "eth[4-9]"), ("l*", "lo"), ("eth?", "eth10")] {
        let text = format!("interfaces: [{{ name: \"{a}\" }}, {{ name: \"{b}\" }}]\n");
        assert!(config::parse(text.as_bytes(), Path::new("r.yaml")).is_ok(), "{text}");
    }
    // The mode of an entry beside it does not matter, and every later one is pointed out.
    refused(
        "interfaces: [{ name: \"e*\" }, { name: «eth0, mode: native }, { name: wan }, { name: «\"*1\" }]\n",
        &[Code::Conflict, Code::Conflict],
    );
    let many = |count: usize| {
        let name = |n| format!("{{ name: {}\"i{n}x*\" }}", if n == 64 { "«" } else { "" });
        format!("interfaces: [{}]\n", (0..count).map(name).collect::<Vec<_>>().join(", "))
    };
    assert!(config::parse(many(64).as_bytes(), Path::new("r.yaml")).is_ok());
    refused_for(&many(65), Code::TooMany, None);
}

#[test]
fn all_mistakes_are_found_in_one_run() {
    use Code as C;

    let text = "\
interfaces:
  - { name: eth0, «mod: auto }
  - name: «eth0
«netwrk: {}
network:
  mode: «enforced
  sources: { capacity: «1e3, ipv4_prefix: «33 }
  deny: [«192.0.2.1/24, «fe80::1%eth0, 192.0.2.0/24]
  deny_files: «nope.txt
  «allow:
  rules:
    - name: «\"bad name\"
      match: { protocol: [«tpc], tcp_flags: syn, destination_port: «\"20-10\" }
      limits: [ { per: source, «rte: 50/s, burst: 100 } ]
    - name: b
      match: { protocol: udp, «tcp_flags: syn, «icmp_type: 8 }
      limits: [ { per: source, rate: «50/min, burst: «0 }, { per: «prefix, bandwidth: «1Tbit/s, burst: «10MiB } ]
    - name: «b
      limits: { per: source, rate: 1M/s, burst: «5 }
";
    refused(
        text,
        &[
            C::UnknownKey,
            C::DuplicateName,
            C::UnknownKey,
            C::BadValue,
            C::BadValue,
            C::OutOfRange,
            C::BadAddress,
            C::BadAddress,
            C::UnreadableFile,
            C::MissingValue,
            C::BadName,
            C::BadValue,
            C::ReversedRange,
            C::UnknownKey,
            C::NeverMatches,
            C::Conflict,
            C::BadRate,
            C::BadBurst,
            C::BadValue,
            C::BadRate,
            C::BadBurst,
            C::DuplicateName,
            C::BadBurst,
        ],
    );
}

#[test]
fn columns_count_characters() {
    refused(
        "interfaces: { name: a } # ä\nnetwork: { deny: [\"«x\"] }\n".replace("\"«", "«\"").as_str(),
        &[Code::BadAddress],
    );
    refused(
        "network: { \"möde\": 1, «mode: x }\n"
            .replace("\"möde\": 1", "«\"möde\": 1")
            .replace("«mode: x", "mode: «x")
            .as_str(),
        &[Code::UnknownKey, Code::BadValue],
    );
    refused("network:\r\n  mode: «x\r\n", &[Code::BadValue]);
    refused("\u{feff}network: { mode: «x }\n".replace('\u{feff}', "").as_str(), &[Code::BadValue]);
}
