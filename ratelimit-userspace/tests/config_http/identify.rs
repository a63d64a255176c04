//! `identify`: which requests, and where the values of their descriptors come from.

use ipnet::IpNet;
use ratelimit::config::{
    diagnostic::{Code, MAX_LISTED_PER_LIST_FILE},
    http::{ApiVersion, EntrySource, Missing, RequestMatch, Source},
};

use crate::fixture::{Files, RULES, item, item_refused, main, refused, section_refused};

fn entry(text: &str) -> EntrySource {
    item(&format!("descriptors: [[{text}]]")).descriptors.remove(0).remove(0)
}

#[track_caller]
fn entry_refused(text: &str, code: Code, nearest: Option<&str>) {
    item_refused(&format!("descriptors: [[{text}]]"), code, nearest);
}

fn client(ipv4_prefix: u8, ipv6_prefix: u8) -> Source {
    Source::ClientIp { ipv4_prefix, ipv6_prefix }
}

#[test]
fn every_source() {
    let text = str::to_owned;
    let template = |capture: Option<&str>| Source::PathTemplate {
        template: text("/u/{id}/p/{n}"),
        capture: capture.map(text),
    };
    for (written, key, source) in [
        ("client_ip", "client_ip", client(32, 64)),
        ("method", "method", Source::Method),
        ("host", "host", Source::Host),
        ("path", "path", Source::Path),
        ("{ key: client_ip }", "client_ip", client(32, 64)),
        ("{ key: client_ip, ipv6_prefix: 56 }", "client_ip", client(32, 56)),
        ("{ key: net, client_ip: true, ipv4_prefix: 24 }", "net", client(24, 64)),
        ("{ key: net, client_ip: { ipv4_prefix: 24, ipv6_prefix: 48 } }", "net", client(24, 48)),
        ("{ key: net, client_ip: { ipv4_prefix: 1 }, ipv6_prefix: 128 }", "net", client(1, 128)),
        ("{ key: client_ip, header: X-Real-IP }", "client_ip", Source::Header(text("x-real-ip"))),
        ("{ key: k, cookie: session_id }", "k", Source::Cookie(text("session_id"))),
        ("{ key: k, query: \"api key\" }", "k", Source::Query(text("api key"))),
        ("{ key: verb, method: true }", "verb", Source::Method),
        ("{ key: site, host: true }", "site", Source::Host),
        ("{ key: p, path: true }", "p", Source::Path),
        ("{ key: route, path_template: \"/u/{id}/p/{n}\" }", "route", template(None)),
        ("{ key: user, path_template: \"/u/{id}/p/{n}\", capture: id }", "user", template(Some("id"))),
        ("{ key: v, api_version: path }", "v", Source::ApiVersion(ApiVersion::Path)),
        ("{ key: v, api_version: accept }", "v", Source::ApiVersion(ApiVersion::Accept)),
        (
            "{ key: v, api_version: { header: X-Version } }",
            "v",
            Source::ApiVersion(ApiVersion::Header(text("x-version"))),
        ),
        ("{ key: all, value: 1 }", "all", Source::Constant(text("1"))),
        ("{ key: all, value: \"\" }", "all", Source::Constant(text(""))),
    ] {
        let wanted = EntrySource { key: text(key), source, secret: false, missing: Missing::Skip };
        assert_eq!(entry(written), wanted, "{written}");
    }
    let found = entry("{ key: k, header: authorization, secret: true, missing: deny }");
    assert_eq!((found.secret, found.missing), (true, Missing::Deny));
    assert_eq!(entry("{ key: path, missing: empty }").missing, Missing::Empty);
}

#[test]
fn sources_that_make_no_sense() {
    entry_refused("«cilent_ip", Code::BadValue, Some("client_ip"));
    entry_refused("«api_key", Code::BadValue, None);
    entry_refused("«[client_ip]", Code::BadType, None);
    entry_refused("«{ header: x-api-key }", Code::MissingKey, None);
    entry_refused("«{ key: api_key }", Code::MissingKey, None);
    entry_refused("{ key: k, «heder: x }", Code::UnknownKey, Some("header"));
    entry_refused("{ key: k, header: x, «cookie: y }", Code::Conflict, None);
    entry_refused("{ key: k, header: «\"x key\" }", Code::BadName, None);
    entry_refused("{ key: k, header: «\"x-key:\" }", Code::BadName, Some("x-key"));
    entry_refused("{ key: k, header: «\"\" }", Code::BadName, None);
    entry_refused("{ key: k, cookie: «\"a;b\" }", Code::BadName, None);
    entry_refused("{ key: k, query: «\"\" }", Code::BadName, None);
    entry_refused("{ key: k, method: «false }", Code::BadValue, None);
    entry_refused("{ key: k, client_ip: «32 }", Code::BadValue, None);
    entry_refused("{ key: client_ip, ipv4_prefix: «33 }", Code::OutOfRange, None);
    entry_refused("{ key: n, client_ip: { ipv6_prefix: «0 } }", Code::OutOfRange, None);
    entry_refused("{ key: n, client_ip: { ipv6_prefix: 48 }, «ipv6_prefix: 56 }", Code::Conflict, None);
    entry_refused("{ key: n, header: x, «ipv4_prefix: 24 }", Code::Conflict, None);
    entry_refused("{ key: n, header: x, «by: y }", Code::Conflict, None);
    entry_refused("{ key: n, path: true, «capture: id }", Code::Conflict, None);
    entry_refused("{ key: v, api_version: «header }", Code::BadValue, None);
    entry_refused("{ key: v, api_version: «{} }", Code::MissingKey, None);
    entry_refused("{ key: k, header: x, missing: «skp }", Code::BadValue, Some("skip"));
    entry_refused("{ key: k, header: x, secret: «1 }", Code::BadValue, Some("true"));
    entry_refused("{ key: «\"\", header: x }", Code::BadName, None);
}

#[test]
fn templates() {
    let template = |template: &str, code, nearest| {
        entry_refused(&format!("{{ key: r, path_template: «\"{template}\" }}"), code, nearest);
    };
    template("", Code::BadValue, None);
    template("api/{id}", Code::BadValue, Some("/api/{id}"));
    template("/api/x{id}", Code::BadValue, None);
    template("/api/{id}.json", Code::BadValue, None);
    template("/api/{}", Code::BadValue, None);
    template("/api/{a-b}", Code::BadValue, None);
    template("/api/{id", Code::BadValue, None);
    template("/api/{id}/{id}", Code::BadValue, None);
    template("/api/{id}?x=1", Code::BadValue, Some("/api/{id}"));
    entry_refused("{ key: r, path_template: \"/u/{id}\", capture: «ids }", Code::BadValue, Some("id"));
    entry_refused("{ key: r, path_template: \"/u/{id}\", capture: «\"{id}\" }", Code::BadValue, Some("id"));
    entry_refused("{ key: r, path_template: \"/u\", capture: «id }", Code::BadValue, None);
    assert!(matches!(entry("{ key: r, path_template: \"/\" }").source, Source::PathTemplate { .. }));
}

#[test]
fn which_requests() {
    let matches = |text: &str| item(&format!("match: {text}, descriptors: [[path]]")).matches;
    assert_eq!(item("descriptors: [[path]]").matches, RequestMatch::default());
    assert_eq!(matches("{}"), RequestMatch::default());
    let found =
        matches("{ path: \"/a/*/b/**\", method: PURGE, host: [\"*.Example.ORG\", \"[::1]\", localhost] }");
    assert_eq!(found.paths, ["/a/*/b/**"]);
    assert_eq!(found.methods, ["PURGE"]);
    assert_eq!(found.hosts, ["*.example.org", "[::1]", "localhost"]);
    let refused = |text: &str, code, nearest| {
        item_refused(&format!("match: {{ {text} }}, descriptors: [[path]]"), code, nearest);
    };
    refused("path: «\"api/**\"", Code::BadValue, Some("/api/**"));
    refused("path: «\"/a**\"", Code::BadValue, None);
    refused("path: «\"/a/***\"", Code::BadValue, None);
    refused("path: [/a, «\"/a?b=*\"]", Code::BadValue, Some("/a"));
    refused("«path: []", Code::EmptyList, None);
    refused("method: «get", Code::BadValue, Some("GET"));
    refused("method: «\"GET POST\"", Code::BadValue, None);
    refused("host: «example.org:443", Code::BadValue, Some("example.org"));
    refused("host: «\"https://example.org/\"", Code::BadValue, Some("example.org"));
    refused("host: «\"a.*.org\"", Code::BadValue, None);
    refused("host: «\"*\"", Code::BadValue, None);
    refused("host: «münchen.example", Code::BadValue, None);
    refused("host: «\"[::1\"", Code::BadValue, None);
    refused("«paths: /a", Code::UnknownKey, Some("path"));
}

#[test]
fn items() {
    section_refused("identify: [«{ descriptors: [[path]] }]", Code::MissingKey, None);
    section_refused("identify: [«{ domain: api }]", Code::MissingKey, None);
    section_refused("identify: [{ domain: «apl, descriptors: [[path]] }]", Code::BadValue, Some("api"));
    section_refused(
        "identify: [{ domain: api, «descriptor: [[path]] }]",
        Code::UnknownKey,
        Some("descriptors"),
    );
    item_refused("«descriptors: []", Code::EmptyList, None);
    item_refused("descriptors: [«[]]", Code::EmptyList, None);
    item_refused("descriptors: [«client_ip]", Code::BadType, None);
    item_refused("descriptors: «client_ip", Code::BadType, None);
    item_refused(&format!("descriptors: [«[{}]]", "path, ".repeat(17)), Code::TooMany, None);
    // A domain whose file has mistakes exists; one whose file cannot be understood may exist.
    let keys = "identify: { domain: api, descriptors: [[path]] }";
    refused(&[("main.yaml", &main(keys)), ("rules.d/a.yaml", "domain: api\n«x: 1\n")], &[Code::UnknownKey]);
    refused(&[("main.yaml", &main(keys)), ("rules.d/a.yaml", "«@\n")], &[Code::Syntax]);
}

fn with_file(keys: &str, name: &str, content: &str) -> Files {
    Files::new(&[("main.yaml", &main(keys)), ("rules.d/api.yaml", RULES), (name, content)]).0
}

#[test]
fn prefix_files() {
    let keys = "identify: { domain: api, descriptors: [[{ key: region, network: nets.txt }]] }";
    let content = "# networks\n\n  2001:db8::/32   eu # v6\n192.0.2.0/24\toffice\r\n192.0.2.7 eu\n::ffff:10.0.0.0/104 lab#1\n";
    let files = with_file(keys, "nets.txt", content);
    let identify = files.http().identify.remove(0);
    let Source::Network(labels) = &identify.descriptors[0][0].source else { panic!("{identify:?}") };
    assert_eq!(labels.file, files.path("nets.txt"));
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    let wanted = [
        (net("10.0.0.0/8"), "lab#1"),
        (net("192.0.2.0/24"), "office"),
        (net("192.0.2.7/32"), "eu"),
        (net("2001:db8::/32"), "eu"),
    ];
    let found: Vec<_> = labels.prefixes.iter().map(|(prefix, label)| (*prefix, &**label)).collect();
    assert_eq!(found, wanted);

    let content = "192.0.2.0/24 a\n«10.0.0.1/8 b\n  «10.0.0.0/8\n«10.0.0.0/8 a b\n«192.0.2.0/24 c\n«x y\n";
    let codes = [Code::BadAddress, Code::BadValue, Code::BadValue, Code::DuplicateName, Code::BadAddress];
    let errors =
        refused(&[("main.yaml", &main(keys)), ("rules.d/api.yaml", RULES), ("nets.txt", content)], &codes);
    assert_eq!(errors[0].nearest.as_deref(), Some("10.0.0.0/8"));
    assert!(errors[3].message.contains("line 1"), "{}", errors[3].message);
}

#[test]
fn map_files() {
    let keys = "identify: { domain: api, descriptors: [[{ key: tier, map: tiers.txt, by: user }], [{ key: user, header: x-user }]] }";
    let files = with_file(keys, "tiers.txt", "zoe gold\n# all others have none\nadam basic\nZoe gold\n");
    let identify = files.http().identify.remove(0);
    let Source::Mapped { by, labels } = &identify.descriptors[0][0].source else { panic!("{identify:?}") };
    let found: Vec<_> = labels.values.iter().map(|(value, label)| (value.as_str(), &**label)).collect();
    assert_eq!((by.as_str(), found), ("user", vec![("Zoe", "gold"), ("adam", "basic"), ("zoe", "gold")]));

    let listed = |content: &str, codes: &[Code]| {
        refused(&[("main.yaml", &main(keys)), ("rules.d/api.yaml", RULES), ("tiers.txt", content)], codes)
    };
    listed("a b\n«a c\n", &[Code::DuplicateName]);
    listed("«a\n", &[Code::BadValue]);
    listed(&format!("«a {}\n", "l".repeat(256)), &[Code::BadName]);
    let many = with_file(keys, "tiers.txt", &"one\n".repeat(MAX_LISTED_PER_LIST_FILE + 3)).errors();
    assert_eq!(many.len(), MAX_LISTED_PER_LIST_FILE + 1);
    assert!(many.last().unwrap().message.starts_with("3 more"), "{}", many.last().unwrap().message);
}

#[test]
fn files_and_entries_that_are_not_there() {
    entry_refused("{ key: n, network: «none.txt }", Code::UnreadableFile, None);
    entry_refused("{ key: n, network: «. }", Code::UnreadableFile, None);
    entry_refused("{ key: n, network: «\"\" }", Code::BadValue, None);
    entry_refused("{ key: t, map: «none.txt, by: path }, path", Code::UnreadableFile, None);
    let by = |entries: &str, code, nearest| {
        let keys = format!("identify: {{ domain: api, descriptors: [[{entries}]] }}");
        let files =
            [("main.yaml", main(&keys)), ("rules.d/api.yaml", RULES.to_owned()), ("m.txt", String::new())];
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let errors = refused(&files, &[code]);
        assert_eq!(errors[0].nearest.as_deref(), nearest, "{errors:#?}");
    };
    by("«{ key: t, map: m.txt }", Code::MissingKey, None);
    by("{ key: t, map: m.txt, by: «usr }, { key: user, header: x }", Code::BadValue, Some("user"));
    by("{ key: t, map: m.txt, by: «t }", Code::Conflict, None);
    // What is mapped may be mapped again.
    let keys = "identify: { domain: api, descriptors: [[{ key: t, map: m.txt, by: u }, { key: u, map: m.txt, by: path }, path]] }";
    assert_eq!(with_file(keys, "m.txt", "").http().identify[0].descriptors[0].len(), 3);
}

#[test]
fn entries_that_are_mapped_in_a_circle_have_no_value() {
    let keys = "identify: { domain: api, descriptors: [[{ key: a, map: m.txt, by: «b }, { key: b, map: m.txt, by: «a }]] }";
    refused(
        &[("main.yaml", &main(keys)), ("rules.d/api.yaml", RULES), ("m.txt", "")],
        &[Code::Conflict, Code::Conflict],
    );
}
