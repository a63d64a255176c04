use std::{path::PathBuf, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::config::http::{
    Access, Answer as AnswerForm, ApiVersion, ClientAddress, NetworkLabels, OnFull, Source, ValueLabels,
};

pub(super) const KEY: [u8; 32] = [7; 32];

pub(super) fn config(identify: Vec<Identify>) -> Http {
    Http {
        listen: None,
        grpc_listen: None,
        rule_paths: Vec::new(),
        domains: Vec::new(),
        trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        client_address: ClientAddress::XForwardedFor,
        max_keys: 1000,
        on_full: OnFull::Evict,
        identify,
        access: Access::default(),
        answer: AnswerForm { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    }
}

pub(super) fn item(domain: &str, matches: RequestMatch, descriptors: Vec<Vec<EntrySource>>) -> Identify {
    Identify { matches, domain: domain.to_owned(), descriptors, line: 1 }
}

pub(super) fn entry(key: &str, source: Source) -> EntrySource {
    EntrySource { key: key.to_owned(), source, secret: false, missing: Missing::Skip }
}

fn client_ip() -> EntrySource {
    entry("client_ip", Source::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 })
}

pub(super) fn header(name: &str) -> Source {
    Source::Header(name.to_owned())
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Request {
    let headers = headers.iter().map(|(name, value)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    Request {
        method: method.to_owned(),
        target: target.to_owned(),
        host: None,
        headers: headers.collect(),
        peer: Some(IpAddr::from([203, 0, 113, 7])),
    }
}

/// The descriptors of a request as text: `key=value` joined by `,`.
fn descriptors(identity: Identity) -> Vec<String> {
    let Identity::Ask(ask) = identity else { panic!("{identity:?}") };
    let text = |descriptor: &Descriptor<'_>| {
        let entries = descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
        entries.collect::<Vec<_>>().join(",")
    };
    ask.descriptors.iter().map(text).collect()
}

/// The value of one source for a request.
fn value(source: Source, request: &Request) -> Option<String> {
    let config = config(vec![item("api", RequestMatch::default(), vec![vec![entry("key", source)]])]);
    let found = descriptors(Identifier::new(&config, KEY).identify(request, 1));
    found.first().map(|descriptor| descriptor.strip_prefix("key=").unwrap().to_owned())
}

#[test]
fn the_first_item_that_matches_decides() {
    let only = |paths: &[&str], methods: &[&str], hosts: &[&str]| {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        RequestMatch { paths: owned(paths), methods: owned(methods), hosts: owned(hosts) }
    };
    let entries = || vec![vec![client_ip()]];
    let identifier = Identifier::new(
        &config(vec![
            item("posts", only(&["/api/**", "/v2/*"], &["POST", "PUT"], &[]), entries()),
            item("admin", only(&[], &[], &["admin.example.com", "*.admin.example.com"]), entries()),
            item("api", only(&["/api/**"], &[], &[]), entries()),
        ]),
        KEY,
    );
    let domain = |request: &Request| match identifier.identify(request, 1) {
        Identity::Ask(ask) => Some(ask.domain.into_owned()),
        Identity::Unmatched => None,
        Identity::Refused(refusal) => panic!("{refusal:?}"),
    };
    let cases = [
        (request("POST", "/api/x", &[]), Some("posts")),
        (request("POST", "/%61pi//x/../y?z", &[]), Some("posts")),
        (request("PUT", "/v2/x", &[]), Some("posts")),
        (request("post", "/api/x", &[]), Some("api")),
        (request("GET", "/api", &[]), Some("api")),
        (request("GET", "/x/../api", &[]), Some("api")),
        (request("GET", "/v2/x", &[]), None),
        (request("GET", "/", &[("host", "Admin.Example.com:8443")]), Some("admin")),
        (request("GET", "/", &[("host", "a.b.admin.example.com.")]), Some("admin")),
        (request("GET", "https://admin.example.com/", &[("host", "www.example.com")]), Some("admin")),
        (request("GET", "/", &[("host", "example.com")]), None),
        (Request { host: Some("ADMIN.example.com".to_owned()), ..request("GET", "/", &[]) }, Some("admin")),
        (request("OPTIONS", "*", &[]), None),
    ];
    for (request, expected) in cases {
        assert_eq!(domain(&request).as_deref(), expected, "{request:?}");
    }
}

#[test]
fn a_host_is_read_without_user_port_and_case() {
    let with = |host: &str| value(Source::Host, &request("GET", "/", &[("host", host)]));
    let cases = [
        ("example.com", Some("example.com")),
        ("EXAMPLE.com:80", Some("example.com")),
        ("example.com.", Some("example.com")),
        ("example.com.:80", Some("example.com")),
        ("user:password@example.com:80", Some("example.com")),
        ("192.0.2.1:80", Some("192.0.2.1")),
        ("[2001:DB8::1]:80", Some("[2001:db8::1]")),
        ("[2001:db8::1]", Some("[2001:db8::1]")),
        ("", None),
        (":80", None),
    ];
    for (host, expected) in cases {
        assert_eq!(with(host).as_deref(), expected, "{host}");
    }
    assert_eq!(value(Source::Host, &request("GET", "/", &[])), None);
}

#[test]
fn clients_of_ipv6_are_networks_and_mapped_addresses_are_ipv4() {
    let of = |peer: &str| {
        let request = Request { peer: Some(peer.parse().unwrap()), ..request("GET", "/", &[]) };
        value(Source::ClientIp { ipv4_prefix: 32, ipv6_prefix: 64 }, &request).unwrap()
    };
    assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::"));
    assert_eq!(of("::ffff:1.2.3.4"), "1.2.3.4");
    assert_eq!(of("::ffff:102:304"), "1.2.3.4");
    assert_eq!(of("2001:db8::1.2.3.4"), "2001:db8::/64");
}

#[test]
fn a_client_behind_trusted_proxies_is_found() {
    let config = config(vec![item("api", RequestMatch::default(), vec![vec![client_ip()]])]);
    let identifier = Identifier::new(&config, KEY);
    let mut request = request("GET", "/", &[("x-forwarded-for", "198.51.100.1, 203.0.113.9, 10.0.0.1")]);
    assert_eq!(identifier.client(&request), request.peer);
    request.peer = Some(IpAddr::from([10, 0, 0, 2]));
    assert_eq!(identifier.client(&request), Some(IpAddr::from([203, 0, 113, 9])));
    assert_eq!(descriptors(identifier.identify(&request, 1)), ["client_ip=203.0.113.9"]);
    request.peer = None;
    assert_eq!(descriptors(identifier.identify(&request, 1)), ["client_ip=203.0.113.9"]);
    request.headers.clear();
    assert_eq!(identifier.client(&request), None);
    assert_eq!(descriptors(identifier.identify(&request, 1)), [""; 0]);
}

#[test]
fn each_source_has_its_value() {
    let request = request(
        "GET",
        "/api/V1/v2/users/%41%2f?q=a%20b&q=c&e=&%6b=v+w#f",
        &[
            ("x-api-key", "a"),
            ("X-API-KEY", "b"),
            ("x-empty", ""),
            ("cookie", "one=1; session=\"abc\"; two = 2"),
            ("cookie", "session=other; three=%33"),
            ("accept", "text/html, application/vnd.example.v7+json"),
            ("x-version", "2024-10-01"),
        ],
    );
    let template = |template: &str, capture: Option<&str>| Source::PathTemplate {
        template: template.to_owned(),
        capture: capture.map(str::to_owned),
    };
    let cases = [
        (header("x-api-key"), Some("a, b")),
        (header("X-Api-Key"), Some("a, b")),
        (header("x-empty"), Some("")),
        (header("x-none"), None),
        (header("no such name"), None),
        (Source::Cookie("session".to_owned()), Some("abc")),
        (Source::Cookie("two".to_owned()), Some("2")),
        (Source::Cookie("three".to_owned()), Some("%33")),
        (Source::Cookie("Session".to_owned()), None),
        (Source::Query("q".to_owned()), Some("a b")),
        (Source::Query("e".to_owned()), Some("")),
        (Source::Query("k".to_owned()), Some("v w")),
        (Source::Query("f".to_owned()), None),
        (Source::Method, Some("GET")),
        (Source::Path, Some("/api/V1/v2/users/A%2F")),
        (template("/api/{a}/{b}/users/{id}", None), Some("/api/{a}/{b}/users/{id}")),
        (template("/api/{a}/{b}/users/{id}", Some("id")), Some("A%2F")),
        (template("/api/{a}", None), None),
        (Source::ApiVersion(ApiVersion::Path), Some("v2")),
        (Source::ApiVersion(ApiVersion::Header("x-version".to_owned())), Some("2024-10-01")),
        (Source::ApiVersion(ApiVersion::Accept), Some("v7")),
        (Source::Constant("all".to_owned()), Some("all")),
    ];
    for (source, expected) in cases {
        assert_eq!(value(source.clone(), &request).as_deref(), expected, "{source:?}");
    }
}

#[test]
fn a_network_has_the_label_of_its_longest_prefix() {
    let label = |prefix: &str, label: &str| (prefix.parse().unwrap(), Arc::from(label));
    let labels = Arc::new(NetworkLabels {
        file: PathBuf::from("networks.txt"),
        prefixes: vec![
            label("203.0.0.0/8", "region"),
            label("203.0.113.0/24", "office"),
            label("2001:db8::/32", "lab"),
        ],
    });
    let of = |peer: &str| {
        let request = Request { peer: Some(peer.parse().unwrap()), ..request("GET", "/", &[]) };
        value(Source::Network(Arc::clone(&labels)), &request)
    };
    assert_eq!(of("203.0.113.7").as_deref(), Some("office"));
    assert_eq!(of("203.9.9.9").as_deref(), Some("region"));
    assert_eq!(of("2001:db8:1::1").as_deref(), Some("lab"));
    assert_eq!(of("::ffff:203.0.113.7").as_deref(), Some("office"));
    assert_eq!(of("192.0.2.1"), None);
}

fn labels(values: &[(&str, &str)]) -> Arc<ValueLabels> {
    let values = values.iter().map(|&(value, label)| (value.to_owned(), Arc::from(label))).collect();
    Arc::new(ValueLabels { file: PathBuf::from("tiers.txt"), values })
}

fn mapped(key: &str, by: &str, values: &[(&str, &str)]) -> EntrySource {
    entry(key, Source::Mapped { by: by.to_owned(), labels: labels(values) })
}

#[test]
fn a_label_is_found_by_the_raw_value_of_a_secret() {
    let api_key = EntrySource { secret: true, ..entry("api_key", header("x-api-key")) };
    let tier = mapped("tier", "api_key", &[("k1", "gold"), ("k2", "silver")]);
    let network = mapped("plan", "tier", &[("gold", "yearly")]);
    let config = config(vec![item(
        "api",
        RequestMatch::default(),
        vec![vec![tier.clone()], vec![network], vec![api_key, tier]],
    )]);
    let identifier = Identifier::new(&config, KEY);
    let of = |key: &str| descriptors(identifier.identify(&request("GET", "/", &[("x-api-key", key)]), 1));
    let hidden = |key: &str| Keyed::new(KEY).secret(key.as_bytes());
    assert_eq!(
        of("k1"),
        ["tier=gold".to_owned(), "plan=yearly".to_owned(), format!("api_key={},tier=gold", hidden("k1"))]
    );
    assert_eq!(of("k2"), ["tier=silver".to_owned(), format!("api_key={},tier=silver", hidden("k2"))]);
    assert_eq!(of("k3"), [""; 0]);
}

#[test]
fn labels_in_a_circle_have_no_value() {
    let config = config(vec![item(
        "api",
        RequestMatch::default(),
        vec![
            vec![mapped("a", "b", &[("x", "x")])],
            vec![mapped("b", "a", &[("x", "x")])],
            vec![mapped("c", "c", &[("x", "x")])],
            vec![mapped("d", "nowhere", &[("x", "x")])],
        ],
    )]);
    assert_eq!(descriptors(Identifier::new(&config, KEY).identify(&request("GET", "/", &[]), 1)), [""; 0]);
}

#[test]
fn a_secret_shows_nowhere() {
    let secret = |source| EntrySource { secret: true, ..entry("key", source) };
    let config = config(vec![item(
        "api",
        RequestMatch::default(),
        vec![
            vec![secret(header("x-api-key"))],
            vec![secret(Source::Cookie("session".to_owned()))],
            vec![secret(Source::Query("token".to_owned()))],
        ],
    )]);
    let identifier = Identifier::new(&config, KEY);
    let raw = "s3cr3t-0123456789";
    let cookie = format!("session={raw}");
    let request =
        request("GET", &format!("/?token={raw}"), &[("x-api-key", raw), ("cookie", cookie.as_str())]);
    let identity = identifier.identify(&request, 1);
    let shown = format!("{identity:?} {identifier:?}");
    assert!(!shown.contains("s3cr3t"), "{shown}");
    let found = descriptors(identity);
    assert_eq!(found.len(), 3);
    for descriptor in found {
        assert_eq!(descriptor, format!("key={}", Keyed::new(KEY).secret(raw.as_bytes())));
    }
}

#[test]
fn a_missing_source_skips_fills_or_refuses() {
    let missing = |missing| EntrySource { missing, ..entry("user", header("x-user")) };
    let identify = |descriptors: Vec<Vec<EntrySource>>, headers: &[(&str, &str)]| {
        let config = config(vec![item("api", RequestMatch::default(), descriptors)]);
        Identifier::new(&config, KEY).identify(&request("GET", "/", headers), 1)
    };
    let with = |kind| vec![vec![client_ip()], vec![client_ip(), missing(kind)]];
    let known = ["client_ip=203.0.113.7", "client_ip=203.0.113.7,user=u"];
    for kind in [Missing::Skip, Missing::Empty, Missing::Deny] {
        assert_eq!(descriptors(identify(with(kind), &[("x-user", "u")])), known);
    }
    assert_eq!(descriptors(identify(with(Missing::Skip), &[])), ["client_ip=203.0.113.7"]);
    assert_eq!(
        descriptors(identify(with(Missing::Empty), &[])),
        ["client_ip=203.0.113.7", "client_ip=203.0.113.7,user="]
    );
    assert!(matches!(identify(with(Missing::Deny), &[]), Identity::Refused(Refusal::MissingEntry)));
    // One that is left out for another reason refuses all the same.
    let both = vec![vec![missing(Missing::Skip), missing(Missing::Deny)]];
    assert!(matches!(identify(both, &[]), Identity::Refused(Refusal::MissingEntry)));
    // An empty header is there.
    assert_eq!(descriptors(identify(vec![vec![missing(Missing::Deny)]], &[("x-user", "")])), ["user="]);
}

#[test]
fn a_missing_secret_is_empty_and_not_the_mac_of_nothing() {
    let secret = EntrySource { secret: true, missing: Missing::Empty, ..entry("key", header("x-api-key")) };
    let config = config(vec![item("api", RequestMatch::default(), vec![vec![secret]])]);
    let identifier = Identifier::new(&config, KEY);
    assert_eq!(descriptors(identifier.identify(&request("GET", "/", &[]), 1)), ["key="]);
    let empty = descriptors(identifier.identify(&request("GET", "/", &[("x-api-key", "")]), 1));
    assert_eq!(empty, [format!("key={}", Keyed::new(KEY).secret(b""))]);
}

#[test]
fn a_request_may_end_with_no_descriptor() {
    let config =
        config(vec![item("api", RequestMatch::default(), vec![vec![entry("user", header("x-user"))]])]);
    let identity = Identifier::new(&config, KEY).identify(&request("GET", "/", &[]), 1);
    let ask = identity.into_ask().unwrap();
    assert_eq!((&*ask.domain, ask.descriptors.len()), ("api", 0));
}

#[test]
fn hits_are_those_of_the_question() {
    let config =
        config(vec![item("api", RequestMatch::default(), vec![vec![client_ip()], vec![client_ip()]])]);
    for hits in [i64::MIN, -1, 0, 1, i64::MAX] {
        let ask = Identifier::new(&config, KEY).identify(&request("GET", "/", &[]), hits).into_ask().unwrap();
        assert_eq!(ask.descriptors.iter().map(|one| one.hits).collect::<Vec<_>>(), [hits, hits]);
        assert!(!ask.peek);
    }
}

#[test]
fn what_needs_no_decision_is_answered() {
    let allowed = Identity::Unmatched.into_ask().unwrap_err();
    assert_eq!((allowed.decision, allowed.refusal), (Decision::Allow, None));
    let denied = Identity::Refused(Refusal::MissingEntry).into_ask().unwrap_err();
    assert_eq!((denied.decision, denied.refusal), (Decision::Deny, Some(Refusal::MissingEntry)));
    assert_eq!((denied.standing, denied.retry_after), (None, None));
}

#[test]
fn values_that_differ_stay_different() {
    let delimiters = ["1_b_2", "1", ":|{}%", "%3A", "a\tb", "", "\u{e9}", "a, b"];
    let long = ["x".repeat(8192), "x".repeat(8193), format!("{}y", "x".repeat(8192)), "x".repeat(9000)];
    let latin = [b"\xe9".as_slice(), b"\xe8", b"\xe9\xe9"];
    let texts = delimiters.iter().map(|text| text.as_bytes()).chain(long.iter().map(String::as_bytes));
    let mut seen = std::collections::HashSet::new();
    for bytes in texts.chain(latin) {
        let mut request = request("GET", "/", &[]);
        request.headers.insert("x-user", HeaderValue::from_bytes(bytes).unwrap());
        let value = value(header("x-user"), &request).unwrap();
        assert!(value.len() <= 8192);
        assert!(seen.insert(value), "{bytes:?}");
    }
    // A header cannot hold NUL, but a query can.
    let nul = value(Source::Query("q".to_owned()), &request("GET", "/?q=a%00b", &[]));
    assert_eq!(nul.as_deref(), Some("a\0b"));
}

#[test]
fn the_operator_is_told_once_of_a_proxy_that_nobody_trusts() {
    let told = |identifier: &Identifier| identifier.warned.load(Ordering::Relaxed);
    let alone =
        Http { trusted_proxies: Vec::new(), client_address: ClientAddress::Peer, ..config(Vec::new()) };
    let identifier = Identifier::new(&alone, KEY);
    identifier.identify(&request("GET", "/", &[]), 1);
    assert!(!told(&identifier));
    identifier.identify(&request("GET", "/", &[("x-forwarded-for", "198.51.100.1")]), 1);
    assert!(told(&identifier));
    let trusting = Identifier::new(&config(Vec::new()), KEY);
    trusting.identify(&request("GET", "/", &[("x-forwarded-for", "198.51.100.1")]), 1);
    assert!(!told(&trusting));
}

#[test]
fn thousands_of_header_lines_take_little_time() {
    let line = HeaderValue::from_static("a=b; c");
    let mut request = request("GET", "/", &[]);
    for name in ["x-user", "cookie", "accept", "x-forwarded-for", "host"] {
        for _ in 0..6000 {
            request.headers.append(name, line.clone());
        }
    }
    assert_eq!(value(header("x-user"), &request).unwrap().len(), "hmac:".len() + 32);
    assert_eq!(value(Source::Cookie("d".to_owned()), &request), None);
    assert_eq!(value(Source::ApiVersion(ApiVersion::Accept), &request), None);
}

/// An item that asks for everything.
fn everything() -> Http {
    let all = [
        Source::ClientIp { ipv4_prefix: 24, ipv6_prefix: 48 },
        header("x-user"),
        Source::Cookie("a".to_owned()),
        Source::Query("a".to_owned()),
        Source::Method,
        Source::Host,
        Source::Path,
        Source::PathTemplate { template: "/{a}".to_owned(), capture: Some("a".to_owned()) },
        Source::ApiVersion(ApiVersion::Path),
        Source::ApiVersion(ApiVersion::Accept),
    ];
    let entries =
        all.into_iter().map(|source| EntrySource { missing: Missing::Empty, ..entry("key", source) });
    let matches = RequestMatch { paths: vec!["/**".to_owned()], ..RequestMatch::default() };
    Http {
        trusted_proxies: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        ..config(vec![item("api", matches, vec![entries.collect()])])
    }
}

fn line() -> impl Strategy<Value = HeaderValue> {
    let bytes = vec(any::<u8>(), 0..60);
    let text = "([a=;,\"\\\\:./v1\\[\\]% ]|for=|10\\.0\\.0\\.1|::1){0,20}".prop_map(String::into_bytes);
    prop_oneof![bytes, text].prop_filter_map("a header's value", |bytes| HeaderValue::from_bytes(&bytes).ok())
}

proptest! {
    #[test]
    fn any_request_can_be_identified(
        method in "\\PC{0,10}",
        target in "(\\PC|[/.%?#&=@:*]|http://){0,30}",
        host in proptest::option::of("(\\PC|[:@.\\[\\]]){0,20}"),
        lines in vec((proptest::sample::select(&["x-user", "cookie", "accept", "x-forwarded-for", "forwarded", "host"][..]), line()), 0..8),
        peer: Option<IpAddr>,
        source in proptest::sample::select(vec![ClientAddress::Peer, ClientAddress::XForwardedFor, ClientAddress::Forwarded]),
    ) {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(name, line);
        }
        let request = Request { method, target, host, headers, peer };
        let identifier = Identifier::new(&Http { client_address: source, ..everything() }, KEY);
        if let Identity::Ask(ask) = identifier.identify(&request, 1) {
            prop_assert_eq!(ask.descriptors.len(), 1);
            prop_assert_eq!(ask.descriptors[0].entries.len(), 10);
        }
    }
}

#[test]
fn a_question_of_a_request_is_identified() {
    use crate::http::wire::{Question, QuestionError};

    let config = config(vec![item(
        "api",
        RequestMatch { paths: vec!["/v1/*".to_owned()], ..RequestMatch::default() },
        vec![vec![client_ip(), entry("api_key", header("x-api-key"))]],
    )]);
    let identifier = Identifier::new(&config, KEY);
    let ask = |text: &str| serde_json::from_str::<Question>(text).unwrap().identify(&identifier);
    let request =
        r#""request":{"method":"GET","path":"/v1/x","peer":"192.0.2.1","headers":{"x-api-key":"k"}}"#;

    let asked = ask(&format!("{{{request}}}")).unwrap().into_ask().unwrap();
    assert_eq!((&*asked.domain, asked.peek, asked.descriptors[0].hits), ("api", false, 1));
    assert_eq!(asked.descriptors[0].entries[1].value, "k");
    let asked = ask(&format!("{{{request},\"hits\":-2,\"peek\":true}}")).unwrap().into_ask().unwrap();
    assert_eq!((asked.peek, asked.descriptors[0].hits), (true, -2));
    let elsewhere = ask(r#"{"request":{"method":"GET","path":"/v2/x"}}"#).unwrap();
    assert!(matches!(elsewhere, Identity::Unmatched));

    let refused = [
        ("{}".to_owned(), QuestionError::Nothing),
        (r#"{"domain":"api"}"#.to_owned(), QuestionError::Nothing),
        (format!(r#"{{"descriptors":[],{request}}}"#), QuestionError::Both),
        (format!(r#"{{"domain":"api",{request}}}"#), QuestionError::DomainOfRequest),
        (r#"{"descriptors":[{"entries":[["a","b"]]}]}"#.to_owned(), QuestionError::NoDomain),
        (r#"{"domain":"","descriptors":[{"entries":[["a","b"]]}]}"#.to_owned(), QuestionError::NoDomain),
    ];
    for (text, error) in refused {
        assert_eq!(ask(&text).unwrap_err(), error, "{text}");
    }
}
