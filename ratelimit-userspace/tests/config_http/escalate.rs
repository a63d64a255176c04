//! `escalate` of a rule, and what it needs of the rest of the files.

use std::time::Duration;

use ratelimit::config::{
    diagnostic::Code,
    http::{Domain, Escalate},
};

use crate::fixture::{Files, refused};

const NETWORK: &str = "interfaces: [{ name: eth0 }]\nnetwork: { mode: enforce }\n";
const IDENTIFY: &str = "  identify: { domain: api, descriptors: [[client_ip]] }\n";

/// A rules file with limits on packets and on requests, and these keys of `http`.
fn main(network: &str, http: &str) -> String {
    format!("{network}http:\n  rules: rules.d\n{http}")
}

/// A rule file with this `escalate`.
fn rules(escalate: &str) -> String {
    format!(
        "domain: api\ndescriptors:\n  - key: client_ip\n    rate_limit: {{ unit: minute, \
         requests_per_unit: 9, {escalate} }}\n"
    )
}

fn escalate(keys: &str) -> Escalate {
    let files = Files::new(&[
        ("main.yaml", &main(NETWORK, IDENTIFY)),
        ("rules.d/api.yaml", &rules(&format!("escalate: {{ {keys} }}"))),
    ]);
    let http = files.0.http();
    http.domains.iter().find_map(|domain| domain.escalating().next().cloned()).expect("it escalates")
}

#[track_caller]
fn keys_refused(keys: &str, code: Code) {
    let rules = rules(&format!("escalate: {{ {keys} }}"));
    refused(&[("main.yaml", &main(NETWORK, IDENTIFY)), ("rules.d/api.yaml", &rules)], &[code]);
}

#[track_caller]
fn files_refused(main: &str, rules: &str) -> String {
    refused(&[("main.yaml", main), ("rules.d/api.yaml", rules)], &[Code::Conflict]).remove(0).message
}

#[test]
fn everything_that_is_written_is_taken() {
    let minutes = Duration::from_mins;
    let all = escalate("after: 50, within: 2m, block: 5m, factor: 3, max: 1h");
    assert_eq!(
        (all.after, all.within, all.block, all.factor, all.max),
        (50, minutes(2), minutes(5), 3, minutes(60))
    );
}

#[test]
fn what_is_left_out_has_its_default() {
    let short = escalate("after: 20, block: 10m");
    let day = Duration::from_hours(24);
    assert_eq!((short.within, short.factor, short.max), (Duration::from_mins(1), 2, day));
    let week = escalate("after: 20, block: 7d");
    assert_eq!(week.max, 7 * day, "what lasts longer at first than the default is the longest");
}

#[test]
fn keys_that_are_wrong_are_refused_where_they_stand() {
    for (keys, code) in [
        ("after: «0, block: 10m", Code::OutOfRange),
        ("after: «65536, block: 10m", Code::OutOfRange),
        ("after: «often, block: 10m", Code::BadValue),
        ("after: 20, block: «10", Code::BadValue),
        ("after: 20, block: «0s", Code::OutOfRange),
        ("after: 20, block: «500ms", Code::OutOfRange),
        ("after: 20, block: «366d", Code::OutOfRange),
        ("after: 20, within: «2d, block: 10m", Code::OutOfRange),
        ("after: 20, within: «100ms, block: 10m", Code::OutOfRange),
        ("after: 20, block: 10m, factor: «0", Code::OutOfRange),
        ("after: 20, block: 10m, factor: «1.5", Code::BadValue),
        ("after: 20, block: 10m, max: «9m", Code::OutOfRange),
        ("after: 20, block: 10m, identities: «1", Code::OutOfRange),
        ("after: 20, block: 10m, identities: «9", Code::OutOfRange),
        ("after: 20, block: 10m, shed: «-tight", Code::BadName),
        ("after: 20, block: 10m, «scope: fleet", Code::UnknownKey),
        ("after: 20, block: 10m, «blocks: 1m", Code::UnknownKey),
    ] {
        keys_refused(keys, code);
    }
    let missing = |keys: &str| rules(&format!("escalate: «{{ {keys} }}"));
    for keys in ["after: 20", "block: 10m"] {
        let files = [("main.yaml", &*main(NETWORK, IDENTIFY)), ("rules.d/api.yaml", &missing(keys))];
        refused(&files, &[Code::MissingKey]);
    }
    refused(
        &[("main.yaml", &main(NETWORK, IDENTIFY)), ("rules.d/api.yaml", &rules("escalate: «true"))],
        &[Code::BadType],
    );
}

#[test]
fn a_misspelt_key_shows_what_was_meant() {
    let rules = rules("«escalte: { after: 20, block: 10m }");
    let files = [("main.yaml", &*main(NETWORK, IDENTIFY)), ("rules.d/api.yaml", &rules)];
    let errors = refused(&files, &[Code::UnknownKey]);
    assert_eq!(errors[0].nearest.as_deref(), Some("escalate"));
}

const MARKED: &str = "«escalate: { after: 20, block: 10m }";

#[test]
fn packets_must_be_limited() {
    let message = files_refused(&main("", IDENTIFY), &rules(MARKED));
    assert!(message.contains("no `network:` section"), "{message}");
}

#[test]
fn clients_must_be_known() {
    let message = files_refused(&main(NETWORK, ""), &rules(MARKED).replace("client_ip", "user"));
    assert!(message.contains("address of the client"), "{message}");
    for key in ["client_ip", "remote_address"] {
        let rules = rules(&MARKED[2..]).replace("client_ip", key);
        let files = Files::new(&[("main.yaml", &main(NETWORK, "")), ("rules.d/api.yaml", &rules)]);
        assert!(files.0.http().domains.iter().any(Domain::escalates), "{key}");
    }
}

#[test]
fn clients_behind_a_proxy_elsewhere_send_no_packets_here() {
    for proxies in ["10.0.0.0/8", "[127.0.0.1, 192.0.2.7]", "0.0.0.0/0", "126.0.0.0/7"] {
        let http = format!("{IDENTIFY}  client_address: x-forwarded-for\n  trusted_proxies: {proxies}\n");
        let message = files_refused(&main(NETWORK, &http), &rules(MARKED));
        assert!(message.contains("do not arrive here"), "{message}");
    }
    let http =
        format!("{IDENTIFY}  client_address: x-forwarded-for\n  trusted_proxies: [127.0.0.0/8, ::1]\n");
    let rules = rules(&MARKED[2..]);
    let files = Files::new(&[("main.yaml", &main(NETWORK, &http)), ("rules.d/api.yaml", &rules)]);
    assert!(files.0.load().is_ok());
}

/// A rules file with two rules on packets, of which the second is never the first to match.
fn with_rules(action: &str) -> String {
    let network = format!(
        "interfaces: [{{ name: eth0 }}]\nnetwork:\n  rules:\n    - {{ name: all, match: {{ protocol: tcp, \
         source_port: 1-1000 }}, limits: {{ per: source, rate: 1/s }} }}\n    - {{ name: tight, {action}match: {{ \
         protocol: tcp, source_port: 1-1000 }}, limits: {{ per: source, rate: 1/m }} }}\n"
    );
    main(&network, IDENTIFY)
}

#[test]
fn a_rule_for_clients_may_stand_behind_one_that_matches_all_it_does() {
    let load = |shed: &str| {
        let rules = rules(&format!("escalate: {{ after: 20, block: 10m{shed} }}"));
        Files::new(&[("main.yaml", &with_rules("")), ("rules.d/api.yaml", &rules)]).0.load().unwrap()
    };
    let with = load(", shed: tight, identities: 3");
    let escalate = with.config.http.as_ref().unwrap().domains[0].escalating().next().unwrap();
    assert_eq!((escalate.shed.as_deref(), escalate.identities), (Some("tight"), 3));
    let for_clients =
        with.config.network.unwrap().rules.iter().map(|rule| rule.for_clients).collect::<Vec<_>>();
    assert_eq!(for_clients, [false, true]);
    assert_eq!(with.warnings, []);
    let without: Vec<_> = load("").warnings.into_iter().map(|warning| warning.code).collect();
    assert_eq!(without, [Code::NeverMatches]);
}

#[test]
fn a_rule_for_clients_must_be_one_that_sheds() {
    let shed = |name: &str| rules(&format!("«escalate: {{ after: 20, block: 10m, shed: {name} }}"));
    let main = with_rules("");
    let errors = refused(&[("main.yaml", &main), ("rules.d/api.yaml", &shed("tigth"))], &[Code::BadValue]);
    assert_eq!(errors[0].nearest.as_deref(), Some("tight"));
    let message = files_refused(&with_rules("action: count, "), &shed("tight"));
    assert!(message.contains("only counts"), "{message}");
}

#[test]
fn rules_that_never_deny_never_escalate() {
    let main = main(NETWORK, IDENTIFY);
    for rules in [
        rules(&MARKED[2..]).replace("    rate_limit", "    shadow_mode: true\n    rate_limit"),
        rules(&MARKED[2..]).replace("unit: minute, requests_per_unit: 9", "unlimited: true"),
    ] {
        let files = Files::new(&[("main.yaml", &main), ("rules.d/api.yaml", &rules)]);
        let codes: Vec<_> = files.0.warnings().into_iter().map(|warning| warning.code).collect();
        assert_eq!(codes, [Code::NoEffect], "{rules}");
    }
}

#[test]
fn the_format_of_envoy_has_no_such_key() {
    let main =
        main(NETWORK, IDENTIFY).replace("rules: rules.d", "rules: { path: rules.d, compatibility: envoy }");
    refused(&[("main.yaml", &main), ("rules.d/api.yaml", &rules(MARKED))], &[Code::UnknownKey]);
}
