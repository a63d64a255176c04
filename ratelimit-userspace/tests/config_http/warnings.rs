//! What is allowed but probably not meant.

use ratelimit::config::diagnostic::{Code, Severity};

use crate::fixture::{Files, RULES, main};

/// Exactly these warnings, at the marks.
#[track_caller]
fn warned(files: &[(&str, &str)], codes: &[Code]) -> Vec<String> {
    let (directory, places) = Files::new(files);
    let found = directory.warnings();
    let wanted: Vec<_> = places
        .into_iter()
        .zip(codes)
        .map(|((file, line, column), code)| (file, line, column, *code))
        .collect();
    assert_eq!(directory.places(&found), wanted, "{files:?}\n{found:#?}");
    assert_eq!(codes.len(), wanted.len(), "a mark for each code");
    for warning in &found {
        assert_eq!(warning.severity, Severity::Warning);
        assert!(warning.expected.is_some(), "{warning:#?}");
    }
    found.into_iter().map(|warning| warning.message).collect()
}

#[track_caller]
fn section_warned(keys: &str, codes: &[Code]) -> Vec<String> {
    warned(&[("main.yaml", &main(keys)), ("rules.d/api.yaml", RULES)], codes)
}

#[track_caller]
fn rules_warned(rules: &str, codes: &[Code]) -> Vec<String> {
    warned(&[("main.yaml", &main("")), ("rules.d/api.yaml", rules)], codes)
}

/// One descriptor.
#[track_caller]
fn descriptor_warned(descriptor: &str, codes: &[Code]) -> Vec<String> {
    rules_warned(&format!("domain: api\ndescriptors:\n  - {{ key: a, {descriptor} }}\n"), codes)
}

#[test]
fn a_header_that_nobody_may_send() {
    section_warned("client_address: «x-forwarded-for", &[Code::NoTrustedProxies]);
    section_warned("client_address: «forwarded\n  trusted_proxies: []", &[Code::NoTrustedProxies]);
    section_warned("client_address: peer", &[]);
    section_warned("client_address: forwarded\n  trusted_proxies: 10.0.0.0/8", &[]);
}

#[test]
fn requests_that_may_end_with_no_descriptor() {
    let descriptors = |text: &str, mark: &str, codes: &[Code]| {
        section_warned(&format!("identify: {mark}{{ domain: api, descriptors: {text} }}"), codes);
    };
    for text in [
        "[[{ key: k, header: x }]]",
        "[[client_ip, { key: k, cookie: x }], [{ key: k, query: x }]]",
        "[[{ key: r, path_template: \"/u/{id}\" }]]",
        "[[{ key: v, api_version: path }]]",
    ] {
        descriptors(text, "«", &[Code::NoDescriptor]);
    }
    for text in [
        "[[{ key: k, header: x }], [client_ip]]",
        "[[{ key: k, header: x, missing: empty }]]",
        "[[{ key: k, header: x, missing: deny }]]",
        "[[method, host, path, { key: all, value: x }]]",
    ] {
        descriptors(text, "", &[]);
    }
}

#[test]
fn an_item_behind_a_wider_one_never_matches() {
    let items = |first: &str, second: &str| {
        format!(
            "identify:\n    - {{ domain: api, {first} descriptors: [[path]] }}\n    - «{{ domain: api, {second} descriptors: [[path]] }}"
        )
    };
    for (first, second) in [
        ("", "match: { path: /a },"),
        ("", ""),
        ("match: {},", "match: { method: GET },"),
        ("match: { path: \"/**\" },", "match: { path: /a, host: a.example },"),
        (
            "match: { path: [/a, /b], method: [GET, POST] },",
            "match: { path: /a, method: GET, host: x.example },",
        ),
    ] {
        section_warned(&items(first, second), &[Code::NeverMatches]);
    }
    for (first, second) in [
        ("match: { path: /a },", ""),
        ("match: { path: \"/**\", method: GET },", "match: { path: /a },"),
        ("match: { path: /a, method: GET },", "match: { path: /a, method: [GET, POST] },"),
        ("match: { host: a.example },", "match: { path: /a },"),
    ] {
        section_warned(&items(first, second).replace('«', ""), &[]);
    }
}

#[test]
fn a_wildcard_for_values_that_are_secret() {
    let rule = "rate_limit: { unit: day, requests_per_unit: 5 }";
    let check = |descriptor: &str, secret: bool, codes: &[Code]| {
        let mark = if codes.is_empty() { "" } else { "«" };
        let keys = format!(
            "identify: {mark}{{ domain: api, descriptors: [[path, {{ key: k, header: x, secret: {secret}, missing: empty }}]] }}"
        );
        let rules =
            format!("domain: api\ndescriptors: {{ key: path, descriptors: [{{ key: k, {descriptor} }}] }}\n");
        warned(&[("main.yaml", &main(&keys)), ("rules.d/api.yaml", &rules)], codes)
    };
    let messages = check(&format!("value: \"test-*\", {rule}"), true, &[Code::NeverMatches]);
    assert!(messages[0].contains("`test-*` at line 2 of"), "{}", messages[0]);
    check(
        &format!("{rule}, overrides: [{{ value: \"test-*\", unlimited: true }}]"),
        true,
        &[Code::NeverMatches],
    );
    check(&format!("value: \"test-*\", {rule}"), false, &[]);
    check(&format!("value: \"*\", {rule}"), true, &[]);
    check(&format!("value: test-1, {rule}"), true, &[]);
}

#[test]
fn what_counting_as_envoy_does_costs() {
    let main = "http: { rules: { path: «r, compatibility: envoy } }\n";
    let messages = warned(&[("main.yaml", main), ("r/a.yaml", RULES)], &[Code::EnvoyCompatibility]);
    for words in ["twice a limit", "charged to every counter", "first in the file"] {
        assert!(messages[0].contains(words), "{}", messages[0]);
    }
}

#[test]
fn a_domain_without_rules() {
    rules_warned("domain: «api\n", &[Code::NoRules]);
    rules_warned("domain: «api\ndescriptors: []\n", &[Code::NoRules]);
    rules_warned("domain: «api\ndescriptors: [{ key: a, descriptors: [{ key: b }] }]\n", &[Code::NoRules]);
}

#[test]
fn the_edge_of_a_fixed_window() {
    let fixed = "unit: minute, requests_per_unit: 60, algorithm: ";
    let messages =
        descriptor_warned(&format!("rate_limit: {{ {fixed} «fixed_window }}"), &[Code::WindowEdge]);
    assert!(messages[0].contains("120"), "{}", messages[0]);
    // An override that inherits it is not another one.
    descriptor_warned(
        &format!("rate_limit: {{ {fixed} «fixed_window }}, overrides: [{{ tier: x, requests_per_unit: 9 }}]"),
        &[Code::WindowEdge],
    );
    descriptor_warned("rate_limit: { unit: minute, requests_per_unit: 0, algorithm: fixed_window }", &[]);
}

#[test]
fn a_log_of_many_hits() {
    let log = |limit: &str| {
        format!("rate_limit: {{ unit: day, algorithm: sliding_log, requests_per_unit: {limit} }}")
    };
    descriptor_warned(&log("99999"), &[]);
    let messages = descriptor_warned(&log("«100000"), &[Code::LargeLog]);
    assert!(messages[0].contains("1.6 MB"), "{}", messages[0]);
    let messages = descriptor_warned(&log("«18446744073709551615"), &[Code::LargeLog]);
    assert!(messages[0].contains("TB"), "{}", messages[0]);
    descriptor_warned(
        &format!("{}, overrides: [{{ tier: x, requests_per_unit: «1000000 }}]", log("5")),
        &[Code::LargeLog],
    );
}

#[test]
fn settings_that_change_nothing() {
    let rule = "rate_limit: { unit: day, requests_per_unit: 5 }";
    descriptor_warned(&format!("{rule}, «detailed_metric: true"), &[Code::NoEffect]);
    descriptor_warned(&format!("{rule}, «value_to_metric: true"), &[Code::NoEffect]);
    // Once a file.
    descriptor_warned(
        &format!("{rule}, «detailed_metric: true, descriptors: [{{ key: b, value_to_metric: true }}]"),
        &[Code::NoEffect],
    );
    descriptor_warned(&format!("{rule}, detailed_metric: false"), &[]);
    descriptor_warned("«shadow_mode: true, rate_limit: { unlimited: true }", &[Code::NoEffect]);
    descriptor_warned("«quota_mode: true, rate_limit: { unlimited: true }", &[Code::NoEffect]);
    descriptor_warned(&format!("«shadow_mode: true, descriptors: [{{ key: b, {rule} }}]"), &[Code::NoEffect]);
    descriptor_warned(&format!("{rule}, value: x, «share_threshold: true"), &[Code::NoEffect]);
    descriptor_warned(&format!("{rule}, value: \"x*\", share_threshold: true"), &[]);
    descriptor_warned(&format!("{rule}, shadow_mode: true, quota_mode: true, share_threshold: true"), &[]);
    descriptor_warned(
        "shadow_mode: true, rate_limit: { unlimited: true }, overrides: [{ tier: x, unit: day, requests_per_unit: 1 }]",
        &[],
    );
}

#[test]
fn a_star_that_is_no_wildcard() {
    let rule = "rate_limit: { unit: day, requests_per_unit: 5 }";
    descriptor_warned(&format!("value: «\"a*b\", {rule}"), &[Code::LiteralWildcard]);
    descriptor_warned(&format!("value: «\"a**\", {rule}"), &[Code::LiteralWildcard]);
    descriptor_warned(&format!("value: \"a*\", {rule}"), &[]);
    descriptor_warned(
        &format!("{rule}, overrides: [{{ value: «\"*b\", unlimited: true }}]"),
        &[Code::LiteralWildcard],
    );
}

#[test]
fn an_override_for_values_of_another_descriptor() {
    let rule = "rate_limit: { unit: day, requests_per_unit: 5 }";
    let over = |value: &str, over: &str| {
        format!("value: {value}, {rule}, overrides: [{{ value: {over}, unlimited: true }}]")
    };
    for (value, other) in [("x", "«y"), ("\"x*\"", "«y"), ("\"x*\"", "«\"y*\""), ("x", "«\"xy*\"")] {
        descriptor_warned(&over(value, other), &[Code::NeverMatches]);
    }
    for (value, other) in
        [("x", "x"), ("\"x*\"", "xy"), ("\"x*\"", "\"*\""), ("\"x*\"", "\"xy*\""), ("xy", "\"x*\"")]
    {
        descriptor_warned(&over(value, other), &[]);
    }
}

#[test]
fn a_cost_above_the_limit() {
    let rule = |keys: &str| format!("rate_limit: {{ unit: day, {keys} }}");
    descriptor_warned(&rule("requests_per_unit: 5, «cost: 6"), &[Code::NeverPasses]);
    descriptor_warned(
        &rule("requests_per_unit: 50, algorithm: token_bucket, burst: 5, «cost: 6"),
        &[Code::NeverPasses],
    );
    descriptor_warned(&rule("requests_per_unit: 5, cost: 5"), &[]);
    descriptor_warned(&rule("requests_per_unit: 0, cost: 5"), &[]);
    descriptor_warned(&rule("requests_per_unit: 10, cost: 11, enforcement: soft"), &[]);
}
