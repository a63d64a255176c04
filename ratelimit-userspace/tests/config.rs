//! The rules file as a whole: what it means, what it is refused for, and that nothing makes it panic.

use std::{
    fmt::Write as _,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use proptest::prelude::*;
use ratelimit::config::{
    self, Failure, Loaded, MAX_DENY_ENTRIES,
    diagnostic::{Code, Diagnostic, MAX_LISTED, MAX_LISTED_PER_LIST_FILE},
    policy::{
        Admin, AttachMode, Blocks, Bucket, Config, Interface, Limit, Match, Network, OnStop, Per, Rule,
        Sources, TcpFlags, Unit, WhenFull,
    },
};
use ratelimit_common::gcra::Rate;

const SECOND: u64 = 1_000_000_000;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn limit(per: Per, unit: Unit, units: u64, burst: u64) -> Limit {
    Limit { per, unit, bucket: Some(Bucket { rate: Rate { units, nanos: SECOND }, burst }) }
}

fn errors(outcome: Result<Loaded, Failure>) -> Vec<Diagnostic> {
    match outcome {
        Err(Failure::Invalid { errors, .. }) => errors,
        other => panic!("{other:?} is not invalid"),
    }
}

/// A rules file beside deny files, in a directory of its own.
fn with_files(rules: &str, files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let path = directory.path().join("rules.yaml");
    fs::write(&path, rules).unwrap();
    (directory, path)
}

#[test]
fn every_value_of_the_example_is_read() {
    let path = fixture("tests/config/example.yaml");
    let Loaded { config, warnings } = config::load(&path).unwrap();
    let any = Match::default();
    let port = |port: RangeInclusive<u16>| port;
    let network = Network {
        monitor: false,
        on_stop: OnStop::Keep,
        sources: Sources { ipv4_prefix: 32, ipv6_prefix: 64, capacity: 1_048_576, when_full: WhenFull::Pass },
        malformed_pass: false,
        allow: vec![net("192.0.2.0/24"), net("2001:db8:1::/48")],
        deny: vec![
            net("198.51.100.0/24"),
            net("192.0.2.7/32"),
            net("2001:db8:bad::/48"),
            net("198.51.100.0/24"),
        ],
        rules: vec![
            Rule {
                name: "handshakes".to_owned(),
                matches: Match {
                    protocol: Some(vec![6]),
                    tcp_flags: Some(vec![TcpFlags { set: 0x02, clear: 0x10 }]),
                    ..any.clone()
                },
                limits: vec![limit(Per::Source, Unit::Packets, 50, 100)],
                count_only: false,
                block: None,
                for_clients: false,
                line: 12,
            },
            Rule {
                name: "dns".to_owned(),
                matches: Match {
                    protocol: Some(vec![17]),
                    destination_port: Some(vec![port(53..=53), port(853..=853), port(5000..=5010)]),
                    destination: Some(vec![net("203.0.113.5/32")]),
                    ..any.clone()
                },
                limits: vec![
                    limit(Per::Source, Unit::Packets, 200, 400),
                    limit(Per::Prefix { ipv4_prefix: 24, ipv6_prefix: 48 }, Unit::Packets, 5000, 5000),
                    limit(Per::Rule, Unit::Bytes, 125_000_000, 10_000_000),
                ],
                count_only: false,
                block: None,
                for_clients: false,
                line: 15,
            },
            Rule {
                name: "rest".to_owned(),
                matches: any,
                limits: vec![
                    limit(Per::Source, Unit::Packets, 10_000, 20_000),
                    limit(Per::Source, Unit::Bytes, 25_000_000, 25_000_000),
                ],
                count_only: false,
                block: None,
                for_clients: false,
                line: 21,
            },
        ],
        deny_files: vec![fixture("tests/config/drop.txt")],
        management: vec![],
        blocks: Blocks::default(),
        next: None,
    };
    let interfaces = vec![Interface { name: "eth0".to_owned(), mode: AttachMode::Auto }];
    assert_eq!(config, Config { interfaces, network: Some(network), http: None, admin: Admin::default() });
    let codes: Vec<_> = warnings.iter().map(|warning| (warning.code, warning.line, warning.column)).collect();
    assert_eq!(codes, [(Code::CatchAll, Some(21), Some(7))]);
}

#[test]
fn the_example_configuration_is_valid_and_harmless() {
    let Loaded { config, warnings } = config::load(&fixture("examples/rules.yaml")).unwrap();
    assert_eq!(warnings, []);
    assert!(config.network.unwrap().monitor);
}

#[test]
fn what_is_left_out_has_its_default() {
    let text =
        b"interfaces: { name: lan }\nnetwork:\n  rules: { name: a, limits: { per: rule, rate: 90/m } }\n";
    let Loaded { config, .. } = config::parse(text, Path::new("r.yaml")).unwrap();
    assert_eq!(config.interfaces, [Interface { name: "lan".to_owned(), mode: AttachMode::Auto }]);
    let network = config.network.unwrap();
    assert_eq!((network.monitor, network.on_stop, network.malformed_pass), (false, OnStop::Keep, false));
    assert_eq!(network.sources, Sources::default());
    assert_eq!((network.allow, network.deny, network.deny_files), (vec![], vec![], vec![]));
    assert_eq!((network.management, network.blocks.capacity, network.next), (vec![], 1 << 20, None));
    let rule = &network.rules[0];
    assert_eq!((&rule.matches, rule.count_only, rule.block), (&Match::default(), false, None));
    // One second's rate, rounded down.
    assert_eq!(rule.limits[0].bucket.unwrap().burst, 1);
    let nothing = config::parse(b"{}", Path::new("r.yaml")).unwrap();
    assert_eq!(
        nothing.config,
        Config { interfaces: vec![], network: None, http: None, admin: Admin::default() }
    );
}

#[test]
fn a_file_that_cannot_be_read_is_told_apart_from_an_invalid_one() {
    let Err(Failure::Unreadable(error)) = config::load(Path::new("/no/such/rules.yaml")) else {
        panic!("it was read")
    };
    assert_eq!((error.code, error.line, error.column), (Code::UnreadableFile, None, None));
    assert_eq!(error.file, "/no/such/rules.yaml");
    assert!(matches!(config::load(Path::new("/")), Err(Failure::Unreadable(_))));
}

#[test]
fn diagnostics_serialise_to_the_documented_keys() {
    let errors = errors(config::parse(b"netwrok: {}\n", Path::new("r.yaml")));
    let json = serde_json::to_string(&errors).unwrap();
    let wanted = concat!(
        r#"[{"file":"r.yaml","line":1,"column":1,"code":"unknown_key","#,
        r#""message":"the file has no key `netwrok`","expected":"interfaces, network, http, admin","nearest":"network"}]"#
    );
    assert_eq!(json, wanted);
}

#[test]
fn people_see_the_line_and_a_caret() {
    let errors = errors(config::parse(b"network:\n  malformed: dorp\n", Path::new("r.yaml")));
    let wanted = "\
r.yaml:2:14: error: `dorp` is not possible here
  did you mean `drop`?
  expected: drop or pass
    |   malformed: dorp
    |              ^";
    assert_eq!(errors[0].to_string(), wanted);
}

#[test]
fn text_of_the_file_cannot_steer_the_terminal() {
    let errors = errors(config::parse(
        b"network: { mode: \"\\e[31m\\u202e\" } # \xe2\x80\xae",
        Path::new("r\x1b.yaml"),
    ));
    let text = errors[0].to_string();
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
}

#[test]
fn anchors_stand_for_what_they_name() {
    let text = b"network:\n  rules:\n    - { name: a, limits: &l [ { per: rule, rate: 5/s } ] }\n    - { name: b, match: { vlan: 7 }, limits: *l }\n";
    let network = config::parse(text, Path::new("r.yaml")).unwrap().config.network.unwrap();
    assert_eq!(network.rules[0].limits, network.rules[1].limits);
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..9 {
        let previous = format!("*x{}, ", level - 1).repeat(10);
        writeln!(text, "x{level}: &x{level} [{previous}]").unwrap();
    }
    let errors = errors(config::parse(text.as_bytes(), Path::new("r.yaml")));
    assert!(errors.iter().any(|error| error.code == Code::TooLarge), "{errors:?}");
}

#[test]
fn nesting_is_bounded() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
        let errors = errors(config::parse(text.as_bytes(), Path::new("r.yaml")));
        assert_eq!(errors[0].code, Code::Syntax);
    }
}

#[test]
fn more_errors_than_are_listed_are_counted() {
    let text = format!("network: {{ deny: [{}] }}\n", "x, ".repeat(MAX_LISTED + 50));
    let errors = errors(config::parse(text.as_bytes(), Path::new("r.yaml")));
    assert_eq!(errors.len(), MAX_LISTED + 1);
    let last = errors.last().unwrap();
    assert_eq!((last.code, last.line), (Code::MoreErrors, None));
    assert!(last.message.starts_with("50 more"), "{}", last.message);
}

#[test]
fn bad_lines_of_a_deny_file_have_their_own_place() {
    let content = b"\xef\xbb\xbf192.0.2.1\r\n\n  # nothing\n 10.0.0.1/8 # host bits\n\tfe80::1%eth0\n\xff\xff\n2001:db8::/129\n";
    let (directory, path) = with_files("network: { deny_files: drop.txt }\n", &[("drop.txt", content)]);
    let errors = errors(config::load(&path));
    let file = directory.path().join("drop.txt").display().to_string();
    let found: Vec<_> = errors
        .iter()
        .map(|error| (error.file.as_str(), error.line, error.column, error.code, error.nearest.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            (file.as_str(), Some(4), Some(2), Code::BadAddress, Some("10.0.0.0/8")),
            (file.as_str(), Some(5), Some(2), Code::BadAddress, Some("fe80::1")),
            (file.as_str(), Some(6), Some(1), Code::InvalidUtf8, None),
            (file.as_str(), Some(7), Some(1), Code::BadAddress, None),
        ]
    );
}

#[test]
fn a_deny_file_that_cannot_be_read_is_named_where_it_is_listed() {
    let (_directory, path) =
        with_files("network:\n  deny_files: [none.txt, good.txt, .]\n", &[("good.txt", b"")]);
    let errors = errors(config::load(&path));
    let found: Vec<_> = errors.iter().map(|error| (error.code, error.line, error.column)).collect();
    assert_eq!(found, [(Code::UnreadableFile, Some(2), Some(16)), (Code::UnreadableFile, Some(2), Some(36))]);
    assert_eq!(errors[0].file, path.display().to_string());
}

#[test]
fn a_deny_file_full_of_nonsense_is_summed_up() {
    let content = "nonsense\n".repeat(MAX_LISTED_PER_LIST_FILE + 7);
    let (_directory, path) =
        with_files("network: { deny_files: drop.txt }\n", &[("drop.txt", content.as_bytes())]);
    let errors = errors(config::load(&path));
    assert_eq!(errors.len(), MAX_LISTED_PER_LIST_FILE + 1);
    assert_eq!(errors.last().unwrap().code, Code::MoreErrors);
    assert!(errors.last().unwrap().message.starts_with("7 more"));
}

#[test]
fn a_million_entries_are_the_limit() {
    let mut content = String::new();
    for number in 0..u32::try_from(MAX_DENY_ENTRIES).unwrap() {
        let [_, b, c, d] = number.to_be_bytes();
        writeln!(content, "10.{b}.{c}.{d}").unwrap();
    }
    let (directory, path) =
        with_files("network: { deny_files: drop.txt }\n", &[("drop.txt", content.as_bytes())]);
    let network = config::load(&path).unwrap().config.network.unwrap();
    assert_eq!(network.deny.len(), MAX_DENY_ENTRIES);
    assert_eq!(network.deny[MAX_DENY_ENTRIES - 1], net("10.15.66.63/32"));

    fs::write(&path, "network: { deny: 192.0.2.0/24, deny_files: drop.txt }\n").unwrap();
    let errors = errors(config::load(&path));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].file, directory.path().join("drop.txt").display().to_string());
    assert_eq!((errors[0].code, errors[0].line), (Code::TooMany, Some(1_000_000)));
    assert!(errors[0].message.contains("1000000"), "{}", errors[0].message);
}

/// Pieces of rules files, so that random files get past the first look.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "interfaces:",
            "network:",
            "rules:",
            "match:",
            "limits:",
            "per:",
            "rate:",
            "burst:",
            "bandwidth:",
            "name:",
            "management:",
            "prefix:",
            "ports:",
            "block:",
            "after:",
            "within:",
            "for:",
            "next:",
            "admin:",
            "listen:",
            "\"eth*\"",
            "\"eth[\"",
            "10s",
            "127.0.0.1:9100",
            "sources:",
            "allow:",
            "protocol:",
            "icmp_type:",
            "tcp_flags:",
            "length:",
            "source:",
            "vlan:",
            "fragment:",
            " ",
            "\n",
            "\n  ",
            "\n    - ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            "&a ",
            "*a",
            "!x ",
            "? ",
            ": ",
            "|",
            "'",
            "\"",
            "source",
            "rule",
            "50/s",
            "0/s",
            "10MB",
            "1Gbit/s",
            "99999999999999999999",
            "18446744073709551615G/s",
            "1.5",
            "-1",
            "tcp",
            "icmp",
            "syn,!ack",
            "0-65535",
            "65535-",
            "::/0",
            "0.0.0.0/0",
            "::ffff:1.2.3.4/96",
            "2001:db8::",
            "---\n",
            "#",
            "\u{feff}",
            "ä",
            "\t",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = config::parse(&bytes, Path::new("r.yaml"));
    }

    #[test]
    fn no_pieces_make_it_panic(pieces in prop::collection::vec(piece(), 0..64)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn no_change_to_a_valid_file_makes_it_panic(
        at in any::<prop::sample::Index>(), cut in 0_usize..40, put in piece(),
    ) {
        let mut bytes = fs::read(fixture("examples/rules.yaml")).unwrap();
        let at = at.index(bytes.len());
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, put.bytes());
        check(&bytes);
    }
}

/// An invalid file has at least one error, and every place lies in the file.
fn check(bytes: &[u8]) {
    let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).count();
    if let Err(failure) = config::parse(bytes, Path::new("r.yaml")) {
        let Failure::Invalid { errors, .. } = &failure else { panic!("{failure}") };
        assert!(!errors.is_empty());
        for error in errors {
            assert!(
                error.file != "r.yaml" || error.line.is_none_or(|line| line as usize <= lines + 1),
                "{error}"
            );
            assert!(!error.message.is_empty());
        }
    }
}
