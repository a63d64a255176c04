//! `ratelimit check` as its callers see it.

use std::{
    fs::File,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn check(arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(env!("CARGO_BIN_EXE_ratelimit"))
        .arg("check")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// The exit code and the one JSON value on standard output.
fn json(file: &str) -> (Option<i32>, Value) {
    let Output { status, stdout, stderr } = check(&["--json", file]);
    assert_eq!(String::from_utf8(stderr).unwrap(), "");
    (status.code(), serde_json::from_slice(&stdout).unwrap())
}

#[test]
fn a_valid_file() {
    let output = check(&["examples/rules.yaml"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "examples/rules.yaml: valid: 7 rules, 1 interface, 1 denied prefix, 0 warnings\n");
    assert_eq!(output.stderr, b"");
    let (code, report) = json("examples/rules.yaml");
    assert_eq!((code, report.to_string().as_str()), (Some(0), r#"{"errors":[],"valid":true,"warnings":[]}"#));
}

#[test]
fn limits_on_requests_alone() {
    let output = check(&["examples/http.yaml"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "examples/http.yaml: valid: 6 http rules, 2 domains, 0 warnings\n");
}

#[test]
fn a_mistake_in_a_rule_file_has_its_place_there() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("main.yaml", "http: { rules: api.yaml }\n");
    write(
        "api.yaml",
        "domain: api\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, requests_per_unti: 5 }\n",
    );
    let (code, report) = json(directory.path().join("main.yaml").to_str().unwrap());
    assert_eq!(code, Some(1));
    let error = &report["errors"][0];
    assert_eq!((&error["line"], &error["column"]), (&Value::from(4), &Value::from(30)));
    assert_eq!(error["nearest"], "requests_per_unit");
    assert!(error["file"].as_str().unwrap().ends_with("/api.yaml"));
}

#[test]
fn warnings_leave_a_file_valid() {
    let (code, report) = json("tests/config/example.yaml");
    assert_eq!((code, &report["valid"]), (Some(0), &Value::Bool(true)));
    assert_eq!(report["warnings"][0]["code"], "catch_all");
    let output = check(&["tests/config/example.yaml"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("tests/config/example.yaml:21:7: warning: "), "{text}");
}

#[test]
fn what_can_lock_others_out_is_warned_of() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "interfaces: { name: \"eth*\" }\nnetwork:\n  management: { prefix: 0.0.0.0/0, ports: 22 }\n  rules:\n    - name: dns\n      match: { protocol: udp, destination_port: 53 }\n      limits: { per: rule, rate: 1k/s }\n      block: { after: 1000, within: 10s, for: 10m }\n";
    std::fs::write(&file, text).unwrap();
    let (code, report) = json(file.path().to_str().unwrap());
    assert_eq!((code, &report["valid"]), (Some(0), &Value::Bool(true)));
    let warnings = report["warnings"].as_array().unwrap();
    let found: Vec<_> = warnings
        .iter()
        .map(|found| (found["code"].as_str().unwrap(), found["line"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("wide_management", 3), ("spoofed_block", 8), ("shared_block", 8)]);
}

#[test]
fn an_invalid_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, "interfaces: { name: a }\nnetwork:\n  mode: monitr\n  rulse: []\n").unwrap();
    let file = path.to_str().unwrap();
    let (code, report) = json(file);
    assert_eq!((code, &report["valid"]), (Some(1), &Value::Bool(false)));
    let errors = report["errors"].as_array().unwrap();
    let found: Vec<_> =
        errors.iter().map(|error| (&error["line"], &error["column"], &error["nearest"])).collect();
    assert_eq!(
        found,
        [
            (&Value::from(3), &Value::from(9), &Value::from("monitor")),
            (&Value::from(4), &Value::from(3), &Value::from("rules")),
        ]
    );
    let output = check(&[file]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{file}: invalid: 2 errors, 0 warnings\n"));
    assert!(String::from_utf8(output.stderr).unwrap().contains(&format!("{file}:3:9: error: ")));
}

#[test]
fn a_file_that_cannot_be_read() {
    let (code, report) = json("tests/config/none.yaml");
    assert_eq!((code, &report["valid"]), (Some(2), &Value::Bool(false)));
    let error = &report["errors"][0];
    assert_eq!((&error["code"], &error["line"]), (&Value::from("unreadable_file"), &Value::Null));
    assert_eq!(check(&["tests/config/none.yaml"]).status.code(), Some(2));
    assert_eq!(check(&["tests"]).status.code(), Some(2));
    assert_eq!(check(&[]).status.code(), Some(2));
    assert_eq!(check(&["--frobnicate", "examples/rules.yaml"]).status.code(), Some(2));
}

#[test]
fn the_exit_code_tells_the_outcome_when_nobody_reads_the_output() {
    let invalid = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&invalid, "network: { ruls: [] }").unwrap();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let gone = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    for (out, err) in [(gone(), Stdio::null()), (Stdio::null(), gone()), (Stdio::null(), full())] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_ratelimit"));
        let status = check.arg("check").arg(invalid.path()).stdout(out).stderr(err).status().unwrap();
        assert_eq!(status.code(), Some(1));
    }
}
