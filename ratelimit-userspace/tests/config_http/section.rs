//! The keys of the `http` section.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use ipnet::IpNet;
use ratelimit::config::{
    self,
    diagnostic::Code,
    http::{
        Access, Algorithm, Align, Answer, ClientAddress, Compatibility, Descriptor, Domain, EntrySource,
        Http, Identify, Limit, Listen, Missing, OnFull, Override, RequestMatch, Rule, Source, ValuePattern,
        Window,
    },
};

use crate::fixture::{Files, RULES, http, main, refused, section_refused, stored};

const SECOND: u64 = 1_000_000_000;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn limit(units: u64, seconds: u64, algorithm: Algorithm) -> Arc<Limit> {
    Arc::new(Limit {
        units,
        window: Window::Fixed((seconds * SECOND).try_into().unwrap()),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    })
}

fn rule(name: Option<&str>, limit: Arc<Limit>, overrides: Vec<Override>) -> Rule {
    Rule {
        name: name.map(str::to_owned),
        limit: Some(limit),
        shadow: false,
        quota: false,
        replaces: Vec::new(),
        cost: 1,
        overrides,
        escalate: None,
    }
}

fn descriptor(key: &str, rule: Rule, line: u32) -> Descriptor {
    let key = key.to_owned();
    Descriptor {
        key,
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(rule),
        descriptors: vec![],
        line,
    }
}

fn entry(key: &str, source: Source, secret: bool) -> EntrySource {
    EntrySource { key: key.to_owned(), source, secret, missing: Missing::Skip }
}

#[test]
fn every_value_of_the_example_is_read() {
    let loaded = config::load(&stored("example.yaml")).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!((loaded.config.interfaces, loaded.config.network), (vec![], None));
    let bucket = Algorithm::TokenBucket { burst: 200, interval: false };
    let partner = Override {
        value: Some(ValuePattern::Exact("partner-1".to_owned())),
        tier: None,
        limit: Some(limit(10_000, 30, bucket)),
    };
    let gold = Override { value: None, tier: Some("gold".to_owned()), limit: Some(limit(5000, 30, bucket)) };
    let window = Algorithm::SlidingWindow { round_up: false };
    let domain = Domain {
        name: "api".to_owned(),
        file: stored("rules.d/api.yaml"),
        compatibility: Compatibility::Native,
        descriptors: vec![
            descriptor("client_ip", rule(Some("per-address"), limit(60, 60, window), vec![]), 3),
            descriptor("api_key", rule(None, limit(1000, 30, bucket), vec![partner, gold]), 5),
        ],
    };
    let client_ip = || entry("client_ip", Source::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 }, false);
    let template = Source::PathTemplate { template: "/api/users/{id}".to_owned(), capture: None };
    let item = Identify {
        matches: RequestMatch {
            paths: vec!["/api/**".to_owned()],
            methods: vec!["GET".to_owned(), "POST".to_owned()],
            hosts: vec![],
        },
        domain: "api".to_owned(),
        descriptors: vec![
            vec![client_ip()],
            vec![client_ip(), entry("route", template, false)],
            vec![entry("api_key", Source::Header("x-api-key".to_owned()), true)],
        ],
        line: 9,
    };
    let wanted = Http {
        listen: Some(Listen::Tcp("127.0.0.1:8081".parse().unwrap())),
        grpc_listen: Some(Listen::Tcp("127.0.0.1:8082".parse().unwrap())),
        rule_paths: vec![stored("rules.d")],
        domains: vec![domain],
        trusted_proxies: vec![net("10.0.0.0/8"), net("fd00::/8")],
        client_address: ClientAddress::XForwardedFor,
        max_keys: 1_000_000,
        on_full: OnFull::Evict,
        identify: vec![item],
        access: Access::default(),
        answer: Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    };
    assert_eq!(loaded.config.http, Some(wanted));
}

#[test]
fn the_example_configuration_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/http.yaml");
    let loaded = config::load(&path).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.config.http.unwrap().domains.len(), 2);
}

#[test]
fn the_examples_of_the_documentation_are_valid() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/http-rules.md")).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let [section, rules, identify, escalate, network, rule_file]: [&str; 6] =
        blocks.collect::<Vec<_>>().try_into().unwrap();
    let (files, _) = Files::new(&[
        ("main.yaml", &format!("{section}{identify}")),
        ("more.yaml", &format!("http:\n{rules}")),
        (
            "escalate.yaml",
            &format!("interfaces: {{ name: eth0 }}\n{network}http: {{ rules: escalate.d/api.yaml }}\n"),
        ),
        (
            "escalate.d/api.yaml",
            &format!("domain: api\ndescriptors:\n{}", escalate.replace("max: 24h", "max: 24h, shed: tight")),
        ),
        ("rules.d/api.yaml", rule_file),
        ("envoy.d/old.yaml", &RULES.replace("domain: api", "domain: old")),
        ("tiers.txt", "key-4711 gold\n"),
        ("regions.txt", "192.0.2.0/24 eu\n"),
    ]);
    assert_eq!(files.warnings(), []);
    assert_eq!(config::load(&files.path("more.yaml")).unwrap().config.http.unwrap().domains.len(), 2);
    let loaded = config::load(&files.path("escalate.yaml")).unwrap();
    assert!(loaded.config.http.unwrap().domains[0].escalates());
    assert_eq!(loaded.warnings, []);
}

#[test]
fn what_is_left_out_has_its_default() {
    let found = http("");
    assert_eq!((found.listen, found.grpc_listen, found.state_dir), (None, None, None));
    assert_eq!((found.client_address, found.on_full), (ClientAddress::Peer, OnFull::Evict));
    assert_eq!((found.max_keys, found.access), (1_000_000, Access::default()));
    assert_eq!((found.trusted_proxies, found.identify), (vec![], vec![]));
}

#[test]
fn settings() {
    let found = http(
        "client_address: forwarded\n  trusted_proxies: 192.0.2.1\n  max_keys: 100000000\n  on_full: deny\n  \
         allow_from: []\n  state_dir: state\n  answer: { headers: ratelimit, text: \"No.\" }",
    );
    assert_eq!(found.client_address, ClientAddress::Forwarded);
    assert_eq!(found.trusted_proxies, [net("192.0.2.1/32")]);
    assert_eq!((found.max_keys, found.on_full), (100_000_000, OnFull::Deny));
    assert!(found.state_dir.unwrap().ends_with("state"));
    let answer = Answer { x_ratelimit: false, retry_after: false, ietf: true, text: Some("No.".to_owned()) };
    assert_eq!(found.answer, answer);
    let silent = http("answer: { headers: [] }").answer;
    assert_eq!((silent.x_ratelimit, silent.retry_after, silent.ietf), (false, false, false));
    assert_eq!(http("on_full: allow\n  max_keys: 1").on_full, OnFull::Allow);
}

#[test]
fn listeners() {
    let found = http("listen: \"[::1]:0\"\n  grpc_listen: \"[::ffff:127.0.0.1]:8081\"");
    assert_eq!(found.listen, Some(Listen::Tcp("[::1]:0".parse().unwrap())));
    let files = Files::section("listen: unix:run/check.sock\n  grpc_listen: unix:/run/grpc.sock");
    let found = files.http();
    assert_eq!(found.listen, Some(Listen::Unix(files.path("run/check.sock"))));
    assert_eq!(found.grpc_listen, Some(Listen::Unix("/run/grpc.sock".into())));
    // Two listeners on any free port are two.
    http("listen: 127.0.0.1:0\n  grpc_listen: 127.0.0.1:0");

    for (text, nearest) in [
        ("8081", Some("127.0.0.1:8081")),
        (":8081", Some("127.0.0.1:8081")),
        ("localhost:8081", Some("127.0.0.1:8081")),
        ("\"*:8081\"", Some("0.0.0.0:8081")),
        ("\"::1:8081\"", Some("[::1]:8081")),
        ("/run/check.sock", Some("unix:/run/check.sock")),
        ("127.0.0.1", None),
        ("127.0.0.1:65536", None),
        ("example.org:80", None),
        ("\"[fe80::1%1]:80\"", None),
    ] {
        section_refused(&format!("listen: «{text}"), Code::BadAddress, nearest);
    }
    section_refused("listen: «\"unix:\"", Code::BadValue, None);
    section_refused(&format!("listen: «unix:/{}", "s".repeat(107)), Code::BadValue, None);
    section_refused("listen: 127.0.0.1:1\n  grpc_listen: «127.0.0.1:1", Code::Conflict, None);
    section_refused("listen: unix:a\n  grpc_listen: «unix:a", Code::Conflict, None);
}

#[test]
fn a_listener_for_other_hosts_needs_to_know_who_may_ask() {
    section_refused("listen: «0.0.0.0:8081", Code::MissingKey, None);
    section_refused("listen: 127.0.0.1:1\n  grpc_listen: «\"[::]:8081\"", Code::MissingKey, None);
    section_refused("listen: «192.0.2.1:8081\n  allow_from: []", Code::MissingKey, None);
    let found = http("listen: 0.0.0.0:8081\n  allow_from: [10.0.0.0/8]");
    assert_eq!(found.access.allow_from, [net("10.0.0.0/8")]);
    // What is misspelt or wrong is not also missing.
    section_refused("listen: 0.0.0.0:8081\n  «alow_from: [10.0.0.0/8]", Code::UnknownKey, Some("allow_from"));
    section_refused("listen: 0.0.0.0:8081\n  token_file: «none", Code::UnreadableFile, None);
}

#[test]
fn tokens_are_checked_and_not_kept() {
    let with = |token: &str, mode| {
        let files = Files::section("listen: 0.0.0.0:8081\n  token_file: token");
        fs::write(files.path("token"), token).unwrap();
        fs::set_permissions(files.path("token"), fs::Permissions::from_mode(mode)).unwrap();
        files
    };
    let good = with("0123456789abcdef\n", 0o640);
    assert_eq!(good.http().access.token_file, Some(good.path("token")));
    assert!(!format!("{:?}", good.http()).contains("0123456789abcdef"));
    for (token, mode, code) in [
        ("0123456789abcdef", 0o644, Code::ExposedToken),
        ("0123456789abcdef", 0o602, Code::ExposedToken),
        ("0123456789abcde", 0o600, Code::BadValue),
        ("", 0o600, Code::BadValue),
        ("0123456789abcdef 0123456789abcdef", 0o600, Code::BadValue),
        ("0123456789abcdef\n0123456789abcdef", 0o600, Code::BadValue),
        ("0123456789abcdéf0", 0o600, Code::BadValue),
        (&"x".repeat(5000), 0o600, Code::BadValue),
    ] {
        let files = with(token, mode);
        let errors = files.errors();
        assert_eq!(files.places(&errors), [("main.yaml".to_owned(), Some(4), Some(15), code)], "{token}");
        assert!(token.is_empty() || !errors[0].to_string().contains(token));
    }
    let exposed = with("0123456789abcdef", 0o644);
    let expected = format!("chmod o= {}", exposed.path("token").display());
    assert_eq!(exposed.errors()[0].expected.as_deref(), Some(expected.as_str()));
    let one = Files::section("token_file: token\n  write_token_file: token");
    fs::write(one.path("token"), "0123456789abcdef").unwrap();
    fs::set_permissions(one.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(one.places(&one.errors()), [("main.yaml".to_owned(), Some(4), Some(3), Code::Conflict)]);
    section_refused("write_token_file: «.", Code::UnreadableFile, None);
}

#[test]
fn values_that_cannot_be() {
    section_refused("«max_key: 5", Code::UnknownKey, Some("max_keys"));
    section_refused("«backend: memroy", Code::UnknownKey, None);
    section_refused("on_full: «evic", Code::BadValue, Some("evict"));
    section_refused("client_address: «X-Forwarded-For", Code::BadValue, Some("x-forwarded-for"));
    section_refused("client_address: «x-real-ip", Code::BadValue, None);
    section_refused("max_keys: «0", Code::OutOfRange, None);
    section_refused("max_keys: «100000001", Code::OutOfRange, None);
    section_refused("max_keys: «1e6", Code::BadValue, None);
    section_refused("trusted_proxies: [«10.0.0.1/8]", Code::BadAddress, Some("10.0.0.0/8"));
    section_refused("allow_from: «host.example", Code::BadAddress, None);
    section_refused("state_dir: «main.yaml", Code::BadValue, None);
    section_refused("answer: { headers: [«retry_after] }", Code::BadValue, Some("retry-after"));
    section_refused("answer: { text: «\"\" }", Code::BadValue, None);
    section_refused("«answer:", Code::MissingValue, None);
    section_refused("identify: «api", Code::BadType, None);
    refused(&[("main.yaml", "http: «{ listen: 127.0.0.1:1 }\n")], &[Code::MissingKey]);
    refused(&[("main.yaml", "http: { «ruls: rules.d }\n"), ("rules.d/api.yaml", RULES)], &[Code::UnknownKey]);
    refused(&[("main.yaml", "«http:\n")], &[Code::MissingValue]);
}

#[test]
fn all_mistakes_are_found_in_one_run() {
    let keys =
        "listen: «8081\n  on_full: «drop\n  identify:\n    - { domain: «apy, descriptors: [[client_ip]] }";
    let rules = "domain: api\ndescriptors:\n  - key: a\n    rate_limit: { unit: «minuet, requests_per_unit: «-1, \
                 «windw: 3s }\n  - key: b\n    rate_limit: { unit: day, requests_per_unit: «1.7 }\n";
    let codes = [
        Code::BadAddress,
        Code::BadValue,
        Code::BadValue,
        Code::BadValue,
        Code::OutOfRange,
        Code::UnknownKey,
        Code::BadValue,
    ];
    let errors = refused(&[("main.yaml", &main(keys)), ("rules.d/api.yaml", rules)], &codes);
    assert_eq!(errors[2].nearest.as_deref(), Some("api"));
    assert_eq!(errors[5].nearest.as_deref(), Some("window"));
    let shown = errors[3].to_string();
    assert!(shown.contains("rules.d/api.yaml:4:25: error: "), "{shown}");
    assert!(shown.contains("    |     rate_limit: { unit: minuet, "), "{shown}");
}
