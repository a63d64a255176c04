//! Which rule files are read, and what stands in them besides limits.

use std::{fmt::Write as _, os::unix::fs::symlink};

use ratelimit::config::{
    self,
    diagnostic::Code,
    http::{Algorithm, Compatibility, ValuePattern, Window},
};

use crate::fixture::{Files, RULES, domain, refused, rules_refused, stored};

fn named(name: &str) -> String {
    RULES.replace("domain: api", &format!("domain: {name}"))
}

fn names(files: &Files) -> Vec<String> {
    files.http().domains.into_iter().map(|domain| domain.name).collect()
}

#[test]
fn the_files_of_a_directory_are_read_by_name() {
    let (files, _) = Files::new(&[
        ("main.yaml", "http: { rules: rules }\n"),
        ("rules/b.yml", &named("second")),
        ("rules/a.yaml", &named("first")),
        ("rules/.c.yaml", "not read"),
        ("rules/readme.md", "not read"),
        ("rules/a.yaml.bak", "not read"),
        ("rules/below/d.yaml", "not read"),
        ("rules/below.yaml/e.yaml", "not read"),
    ]);
    assert_eq!(names(&files), ["first", "second"]);
    let http = files.http();
    assert_eq!(http.rule_paths, [files.path("rules")]);
    assert_eq!(http.domains[0].file, files.path("rules/a.yaml"));
}

#[test]
fn a_kubernetes_volume_is_read_once() {
    let (files, _) =
        Files::new(&[("main.yaml", "http: { rules: rules }\n"), ("rules/..2024_01_01/api.yaml", RULES)]);
    symlink("..2024_01_01", files.path("rules/..data")).unwrap();
    symlink("..data/api.yaml", files.path("rules/api.yaml")).unwrap();
    assert_eq!(names(&files), ["api"]);
}

#[test]
fn files_and_directories_can_be_listed() {
    use Compatibility::{Envoy, Native};

    let main = "http:\n  rules:\n    - more\n    - one.conf\n    - { path: old, compatibility: envoy }\n    - { path: new }\n";
    let (files, _) = Files::new(&[
        ("main.yaml", main),
        ("more/a.yaml", &named("a")),
        ("one.conf", &named("b")),
        ("old/c.yaml", &named("c")),
        ("new/d.yaml", &named("d")),
    ]);
    let domains = files.http().domains;
    let found: Vec<_> = domains.iter().map(|domain| (domain.name.as_str(), domain.compatibility)).collect();
    assert_eq!(found, [("a", Native), ("b", Native), ("c", Envoy), ("d", Native)]);
}

#[test]
fn everything_that_is_read_can_be_watched() {
    let keys = "identify: { domain: api, descriptors: [[{ key: n, network: nets.txt }, { key: t, map: tiers.txt, by: n }, { key: n2, network: nets.txt }]] }";
    let (files, _) = Files::new(&[
        ("main.yaml", &format!("http:\n  rules: [rules.d, one.yaml]\n  {keys}\n")),
        ("rules.d/api.yaml", RULES),
        ("one.yaml", &named("one")),
        ("nets.txt", "192.0.2.0/24 lab\n"),
        ("tiers.txt", "lab gold\n"),
    ]);
    let http = files.http();
    let wanted = ["nets.txt", "one.yaml", "rules.d", "tiers.txt"].map(|name| files.path(name));
    assert_eq!(http.files(), wanted);
}

#[test]
fn rules_that_cannot_be_found() {
    refused(&[("main.yaml", "http: { rules: «none }\n")], &[Code::UnreadableFile]);
    refused(&[("main.yaml", "http: { rules: «empty }\n"), ("empty/.a.yaml", RULES)], &[Code::EmptyList]);
    refused(&[("main.yaml", "http: { «rules: [] }\n")], &[Code::EmptyList]);
    refused(&[("main.yaml", "http: { «rules: }\n")], &[Code::MissingValue]);
    refused(&[("main.yaml", "http: { rules: «\"\" }\n")], &[Code::BadValue]);
    refused(&[("main.yaml", "http: { rules: [[«a]] }\n".replace("[«a]", "«[a]").as_str())], &[Code::BadType]);
    let listed = |entry: &str, code| {
        refused(&[("main.yaml", &format!("http: {{ rules: [{entry}] }}\n")), ("r/a.yaml", RULES)], &[code])
    };
    listed("«{ compatibility: envoy }", Code::MissingKey);
    listed("{ path: r, compatibility: «lyft }", Code::BadValue);
    let errors = listed("{ path: r, «compatability: envoy }", Code::UnknownKey);
    assert_eq!(errors[0].nearest.as_deref(), Some("compatibility"));
    listed("r, «r/a.yaml", Code::DuplicateName);
    listed("r, { path: «r }", Code::DuplicateName);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let (files, _) = Files::new(&[("main.yaml", "http: { rules: r }\n"), ("r/a.yaml", RULES)]);
    symlink("nowhere", files.path("r/b.yaml")).unwrap();
    assert_eq!(files.places(&files.errors()), [("r/b.yaml".to_owned(), None, None, Code::UnreadableFile)]);
    let (files, _) = Files::new(&[("main.yaml", "http: { rules: /dev/zero }\n")]);
    assert_eq!(files.errors()[0].code, Code::UnreadableFile);
}

#[test]
fn domains() {
    rules_refused("«{}\n", Code::MissingKey, None);
    rules_refused("«# nothing\n", Code::EmptyFile, None);
    rules_refused("«", Code::EmptyFile, None);
    rules_refused("«- domain: api\n", Code::BadType, None);
    rules_refused("domain: a\n«---\ndomain: b\n", Code::MultipleDocuments, None);
    rules_refused("domain: «\"\"\n", Code::BadName, None);
    rules_refused("domain: «\"a\\tb\"\n", Code::BadName, None);
    rules_refused("«domian: api\n", Code::UnknownKey, Some("domain"));
    rules_refused("domain: api\n«domain: api\n", Code::DuplicateKey, None);
    rules_refused("domain: api\n«descriptors:\n", Code::MissingValue, None);
    rules_refused("domain: api\ndescriptors: [«client_ip]\n", Code::BadType, None);
    let twice = [
        ("main.yaml", "http: { rules: r }\n"),
        ("r/a.yaml", "# \ndomain: api\n"),
        ("r/b.yaml", "domain: «api\n"),
    ];
    let errors = refused(&twice, &[Code::DuplicateName]);
    assert!(errors[0].message.contains("a.yaml already, at line 2, column 9"), "{}", errors[0].message);
}

#[test]
fn descriptors() {
    use ValuePattern::{Any, Exact, Prefix};

    let tree = |tree: &str| format!("domain: api\ndescriptors:\n  - {tree}\n");
    let refused = |text: &str, code, nearest| rules_refused(&tree(text), code, nearest);
    refused("«{ value: v }", Code::MissingKey, None);
    refused("{ key: «\"\" }", Code::BadName, None);
    refused("{ «ky: a }", Code::UnknownKey, Some("key"));
    refused("{ key: a, «rate_limits: {} }", Code::UnknownKey, Some("rate_limit"));
    refused("{ key: a, «rate_limit: }", Code::MissingValue, None);
    refused("{ key: a, rate_limit: «5 }", Code::BadType, None);
    refused("{ key: a, value: «[b] }", Code::BadType, None);
    refused("{ key: a, shadow_mode: «yes }", Code::BadValue, Some("true"));
    refused("{ key: a, «shadow_mode: }", Code::MissingValue, None);
    refused("{ key: a, descriptors: [{ key: b, «shadow: true }] }", Code::UnknownKey, Some("shadow_mode"));
    refused("{ key: a, «overrides: [] }", Code::Conflict, None);
    refused("{ key: a }\n  - { key: b }\n  - { key: «a }", Code::DuplicateName, None);
    refused("{ key: a }\n  - { key: a, «vlaue: x }", Code::UnknownKey, Some("value"));
    refused("{ key: a, value: \"x*\" }\n  - { key: «a, value: \"x*\" }", Code::DuplicateName, None);
    refused(
        "{ key: a, descriptors: [{ key: b, value: 1 }, { key: «b, value: \"1\" }] }",
        Code::DuplicateName,
        None,
    );
    // The same text in key and value is not the same descriptor, and neither is another level's.
    let found = domain(&tree(
        "{ key: a, value: b, rate_limit: { unit: day, requests_per_unit: 1 } }\n  - { key: a_b }\n  \
         - { key: a, descriptors: { key: a } }\n  - { key: a, value: \"b*\" }\n  - { key: a, value: \"\" }",
    ));
    let values: Vec<_> = found.descriptors.iter().map(|descriptor| descriptor.value.clone()).collect();
    let text = str::to_owned;
    assert_eq!(values, [Exact(text("b")), Any, Any, Prefix(text("b")), Exact(text(""))]);
    assert_eq!(found.descriptors[2].line, 5);
}

#[test]
fn rules_that_replace_others() {
    let rule = |rest: &str| format!("rate_limit: {{ unit: day, requests_per_unit: 1, {rest} }}");
    let both = |first: &str, second: &str| {
        format!(
            "domain: api\ndescriptors:\n  - {{ key: a, {} }}\n  - {{ key: b, {} }}\n",
            rule(first),
            rule(second)
        )
    };
    let found = domain(&both("name: x", "replaces: [{ name: x }]"));
    assert_eq!(found.descriptors[1].rule.as_ref().unwrap().replaces, ["x"]);
    // The replaced rule may come later, and several may have one name.
    domain(&both("replaces: { name: x }, name: y", "name: x"));
    domain(&both("name: x", "name: x"));
    rules_refused(&both("name: first", "replaces: [{ name: «frist }]"), Code::BadValue, Some("first"));
    rules_refused(&both("replaces: [{ name: «x }]", "cost: 1"), Code::BadValue, None);
    rules_refused(&both("name: x, replaces: [{ name: «x }]", "cost: 1"), Code::Conflict, None);
    rules_refused(&both("name: x", "replaces: [{ name: «\"\" }]"), Code::BadName, None);
    rules_refused(&both("name: x", "replaces: [«{}]"), Code::MissingKey, None);
    rules_refused(&both("name: x", "replaces: [«x]"), Code::BadType, None);
    // A name that cannot be read may be the one that is meant.
    for first in [
        "{ key: a, «rate_limt: { name: x } }",
        "{ key: a, «descriptor: [] }",
        "{ key: a, «rate_limit: }",
        "«x",
    ] {
        let text = format!(
            "domain: api\ndescriptors:\n  - {first}\n  - {{ key: b, {} }}\n",
            rule("replaces: { name: x }")
        );
        let (files, places) = Files::new(&[("main.yaml", "http: { rules: r }\n"), ("r/a.yaml", &text)]);
        let found: Vec<_> = files
            .places(&files.errors())
            .into_iter()
            .map(|(file, line, column, _)| (file, line, column))
            .collect();
        assert_eq!(found, places, "{text}");
    }
    rules_refused(&both("name: «\"\"", "replaces: [{ name: x }]"), Code::BadName, None);
}

#[test]
fn files_in_the_style_of_upstream() {
    let (files, _) = Files::new(&[("main.yaml", "")]);
    let load = |compatibility: &str| {
        let text = format!(
            "http: {{ rules: [{{ path: {}, compatibility: {compatibility} }}] }}\n",
            stored("upstream").display()
        );
        config::parse(text.as_bytes(), &files.path("main.yaml")).unwrap()
    };
    for (name, compatibility, algorithm, count_denied) in [
        ("native", Compatibility::Native, Algorithm::SlidingWindow { round_up: false }, false),
        ("envoy", Compatibility::Envoy, Algorithm::EnvoyWindow, true),
    ] {
        let [sent, read]: [_; 2] = load(name).config.http.unwrap().domains.try_into().unwrap();
        let (files, messages) = (sent, read);
        assert_eq!((files.name.as_str(), files.compatibility), ("files", compatibility));
        let values: Vec<_> = files.descriptors.iter().map(|found| found.value.clone()).collect();
        let prefix = |text: &str| ValuePattern::Prefix(text.to_owned());
        let logo = ValuePattern::Exact("public/logo.svg".to_owned());
        assert_eq!(values, [prefix("public/"), logo, prefix(""), ValuePattern::Any]);
        assert!(files.descriptors[0].share_threshold);
        let rules: Vec<_> = files.descriptors.iter().map(|found| found.rule.clone().unwrap()).collect();
        assert_eq!(
            (rules[0].name.as_deref(), &rules[1].replaces),
            (Some("public"), &vec!["public".to_owned()])
        );
        assert!(rules[2].quota);
        for (rule, days) in rules[2..].iter().zip([7, 365]) {
            let limit = rule.limit.as_ref().unwrap();
            assert_eq!(limit.window, Window::Fixed((days * 86_400_000_000_000).try_into().unwrap()));
            assert_eq!((limit.algorithm, limit.count_denied), (algorithm, count_denied));
        }

        assert_eq!((messages.name.as_str(), messages.rule_count()), ("messages", 5));
        let advertisement = &messages.descriptors[0];
        assert!(advertisement.rule.is_none());
        let blocked = &advertisement.descriptors[1];
        assert_eq!(blocked.value, ValuePattern::Exact("5550100".to_owned()));
        assert_eq!(blocked.rule.as_ref().unwrap().limit.as_ref().unwrap().units, 0);
        let [urgent, trial] = messages.descriptors[1].descriptors.as_slice() else { panic!("{messages:?}") };
        assert_eq!(urgent.value, ValuePattern::Exact("true".to_owned()));
        assert_eq!(urgent.rule.as_ref().unwrap().limit, None);
        assert!(trial.rule.as_ref().unwrap().shadow);
    }
}

#[test]
fn envoy_has_the_keys_of_envoy_alone() {
    let refused_key = |rules: &str, nearest: Option<&str>| {
        let main = "http: { rules: { path: r, compatibility: envoy } }\n";
        let errors = refused(&[("main.yaml", main), ("r/a.yaml", rules)], &[Code::UnknownKey]);
        assert_eq!(errors[0].nearest.as_deref(), nearest);
    };
    let rule = |rest: &str| {
        format!(
            "domain: a\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: day, requests_per_unit: 1, {rest} }}\n"
        )
    };
    refused_key(&rule("«algorithm: token_bucket"), None);
    refused_key(&rule("«burst: 5"), None);
    refused_key(&rule("«cost: 5"), None);
    refused_key(&format!("{}    «overrides: []\n", rule("name: x")), None);
    let main = "http: { rules: { path: r, compatibility: envoy } }\n";
    let rules =
        "domain: a\ndescriptors:\n  - key: a\n    value: \"\"\n    rate_limit: «{ requests_per_unit: 1 }\n";
    refused(&[("main.yaml", main), ("r/a.yaml", rules)], &[Code::MissingKey]);
    // An empty value is none, as upstream has it.
    let (files, _) = Files::new(&[("main.yaml", main), ("r/a.yaml", &rules.replace("«{", "{ unit: day,"))]);
    assert_eq!(files.http().domains[0].descriptors[0].value, ValuePattern::Any);
}

#[test]
fn anchors_stand_for_what_they_name() {
    let found = domain(
        "domain: api\ndescriptors:\n  - { key: a, rate_limit: &l { unit: day, requests_per_unit: 7 } }\n  - { key: b, rate_limit: *l }\n",
    );
    assert_eq!(found.descriptors[0].rule, found.descriptors[1].rule);
}

#[test]
fn bombs_of_aliases_are_refused() {
    let mut text = "domain: api\nd0: &d0 [{ key: a }]\n".to_owned();
    for level in 1..9 {
        let many = format!("{{ key: a, descriptors: *d{} }}, ", level - 1).repeat(10);
        writeln!(text, "d{level}: &d{level} [{many}]").unwrap();
    }
    let errors = Files::rules(&text).errors();
    assert!(errors.iter().any(|error| error.code == Code::TooLarge), "{errors:?}");
}

#[test]
fn a_tree_of_aliases_is_no_deeper_than_one_that_is_written() {
    let mut text = "domain: api\nd0: &d0 [{ key: a }]\n".to_owned();
    for level in 1..400 {
        writeln!(text, "d{level}: &d{level} [{{ key: a, descriptors: *d{} }}]", level - 1).unwrap();
    }
    text.push_str("descriptors: *d399\n");
    let errors = Files::rules(&text).errors();
    assert!(errors.iter().any(|error| error.code == Code::TooLarge), "{errors:?}");
    let level = "[{ key: a, descriptors: ";
    let deep = |levels: usize| {
        format!("domain: api\ndescriptors: {}[]{}\n", level.repeat(levels), "}]".repeat(levels))
    };
    assert_eq!(domain(&deep(14)).rule_count(), 0);
    assert_eq!(Files::rules(&deep(40)).errors()[0].code, Code::Syntax);
}
