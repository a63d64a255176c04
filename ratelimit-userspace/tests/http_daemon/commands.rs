//! What the command line says of a daemon, and without one.

use std::fs;

use serde_json::Value;

use super::daemon::{Files, program};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn explain_tells_what_the_daemon_has_counted() {
    let files = Files::with_limit(3);
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 2), 2);
    let main = format!("http: {{ listen: \"{}\", rules: rules.d }}\n", daemon.address());
    let asker = Files::new(&main, &super::limit(3));
    let arguments = ["--domain", "api", "--descriptor", "client_ip=192.0.2.1"];
    let output = asker.run("explain", &arguments);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for words in
        ["rule per-address (api/client_ip): at most 3 at once", "2 used, 1 of 3 left", "decision: allow"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let output = asker.run("explain", &[&arguments[..], &["--json"]].concat());
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained["counted"], "daemon");
    assert_eq!(explained["descriptors"][0]["counter"]["used"], 2);
    assert_eq!(daemon.passed("192.0.2.1", 3), 1, "explaining charges nothing");

    let output = asker.run("reset", &[&arguments[..], &["--json"]].concat());
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "{\"reset\":true}\n"));
    assert_eq!(daemon.passed("192.0.2.1", 5), 3);
    let output = asker.run("reset", &["--domain", "api", "--descriptor", "no_such_key=1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn explain_goes_by_the_file_where_no_daemon_answers() {
    let main = "http:
  listen: 127.0.0.1:1
  rules: rules.d
  identify:
    - match: { path: \"/api/**\" }
      domain: api
      descriptors: [[client_ip]]
";
    let files = Files::new(main, &super::limit(3));
    let output = files.run("explain", &["--request", "GET /api/x?y=1", "--peer", "192.0.2.1"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for words in ["client_ip=192.0.2.1", "0 used, 3 of 3 left", "No daemon answers"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let output = files.run("explain", &["--request", "GET /other", "--peer", "192.0.2.1"]);
    assert!(text(&output.stdout).contains("no item of `identify`"), "{}", text(&output.stdout));
    let output = files.run("explain", &["--request", "GET"]);
    assert_eq!(output.status.code(), Some(1));
    let output = files.run("reset", &["--domain", "api", "--descriptor", "client_ip=192.0.2.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no daemon answers at 127.0.0.1:1"), "{}", text(&output.stderr));
}

#[test]
fn explain_tells_of_a_rule_that_another_replaces() {
    let rules = "domain: api
descriptors:
  - key: client_ip
    rate_limit: { name: base, requests_per_unit: 1, unit: hour }
  - key: partner
    rate_limit: { requests_per_unit: 9, unit: hour, replaces: [{ name: base }] }
";
    let files = Files::new("http: { listen: \"127.0.0.1:1\", rules: rules.d }\n", rules);
    let descriptors = ["--domain", "api", "--descriptor", "client_ip=192.0.2.1", "--descriptor", "partner=p"];
    let output = files.run("explain", &descriptors);
    let said = text(&output.stdout);
    assert!(said.contains("client_ip=192.0.2.1\n  rule base does not apply: another replaces it"), "{said}");
    assert!(said.contains("replaces base"), "{said}");
}

#[test]
fn a_trace_is_judged_on_its_own_clock() {
    let files = Files::with_limit(1);
    let line = |t: &str| {
        format!(r#"{{"t":{t},"domain":"api","descriptors":[{{"entries":[["client_ip","192.0.2.1"]]}}]}}"#)
    };
    let trace = files.path("trace.jsonl");
    fs::write(&trace, [line("0"), line("1.5"), line("3.6e3")].join("\n")).unwrap();
    let output = files.run("replay", &[trace.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[1],
        r#"{"t":1.5,"decision":"deny","rule":"per-address","limit":1,"remaining":0,"reset":3598.5,"retry_after":3599,"delay":null}"#
    );
    assert!(lines[2].starts_with(r#"{"t":3.6e3,"decision":"allow""#), "{said}");
}

#[test]
fn a_mistake_in_a_rule_file_is_found_by_check() {
    let files = Files::with_limit(1);
    files.write_rules(&super::limit(1).replace("unit: hour", "windw: 1h"));
    let output = program().arg("check").arg(files.path("rules.yaml")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("api.yaml:4:") && said.contains("did you mean `window`?"), "{said}");
}
