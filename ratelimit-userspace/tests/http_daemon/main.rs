//! The daemon with an `http:` section alone, as an ordinary process without any privilege.

mod commands;
mod daemon;
mod reload;
mod restart;

use std::{fs, os::unix::fs::PermissionsExt as _, thread};

use http::{Method, StatusCode};
use ratelimit::config::http::Listen;

use self::daemon::{Files, eventually, limit, program, question};

#[test]
fn it_decides_and_says_where_the_client_stands() {
    let daemon = Files::with_limit(2).start();
    let (status, answer) = daemon.check("192.0.2.1");
    assert_eq!((status, &answer["remaining"], &answer["limit"]), (200, &1.into(), &2.into()));
    assert_eq!(daemon.check("192.0.2.1").0, 200);
    let (status, answer) = daemon.check("192.0.2.1");
    assert_eq!((status, &answer["decision"], &answer["rule"]), (429, &"deny".into(), &"per-address".into()));
    assert!(answer["retry_after"].as_u64().is_some_and(|seconds| (1..=1800).contains(&seconds)), "{answer}");
    assert_eq!(daemon.check("192.0.2.2").0, 200);
    for target in ["/healthz", "/readyz"] {
        assert_eq!(daemon.get(target).0, StatusCode::OK, "{target}");
    }
    assert!(daemon.stop().0.success());
}

#[test]
fn metrics_have_series_for_rules_and_none_for_clients() {
    let daemon = Files::with_limit(1).start();
    for client in 0..50 {
        daemon.check(&format!("192.0.2.{client}"));
        daemon.check(&format!("192.0.2.{client}"));
    }
    let (status, text) = daemon.get("/metrics");
    assert_eq!(status, StatusCode::OK);
    assert!(
        text.contains(r#"ratelimit_http_rule_denied_total{domain="api",rule="api/client_ip"} 50"#),
        "{text}"
    );
    assert!(!text.contains("192.0.2."), "{text}");
}

#[test]
fn the_last_unit_is_taken_once() {
    let daemon = Files::with_limit(1).start();
    let passed: usize = thread::scope(|scope| {
        let asks: Vec<_> = (0..200).map(|_| scope.spawn(|| daemon.passed("192.0.2.1", 1))).collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).sum()
    });
    assert_eq!(passed, 1);
}

#[test]
fn a_flood_of_clients_does_not_make_it_forget_one_that_is_denied() {
    let main = "http: { listen: \"127.0.0.1:0\", rules: rules.d, max_keys: 1000 }\n";
    let daemon = Files::new(main, &limit(10)).start();
    assert_eq!(daemon.passed("192.0.2.1", 12), 10);
    for batch in 0..10 {
        let questions: Vec<String> = (0..500)
            .map(|client| question(&format!("10.{batch}.{}.{}", client / 250, client % 250)))
            .collect();
        let (status, _) = daemon.send(Method::POST, "/v1/check", format!("[{}]", questions.join(",")));
        assert_eq!(status, StatusCode::OK);
    }
    assert_eq!(daemon.passed("192.0.2.1", 1), 0);
    let (_, text) = daemon.get("/metrics");
    let keys = text.lines().find(|line| line.starts_with("ratelimit_http_counters ")).unwrap();
    assert_eq!(keys, "ratelimit_http_counters 1000");
}

#[test]
fn it_listens_on_a_socket_that_goes_with_it() {
    let files = Files::new("", &limit(1));
    let socket = files.path("check.sock");
    let main = format!("http: {{ listen: \"unix:{}\", rules: rules.d }}\n", socket.display());
    fs::write(files.path("rules.yaml"), main).unwrap();
    let daemon = files.start();
    assert_eq!(daemon.address(), &Listen::Unix(socket.clone()));
    assert_eq!(daemon.passed("192.0.2.1", 3), 1);
    daemon.stop();
    assert!(!socket.exists());
}

#[test]
fn an_address_that_is_taken_is_named() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    let other = Files::new(
        &format!("http: {{ listen: \"{}\", rules: rules.d, state_dir: state }}\n", daemon.address()),
        &limit(1),
    );
    let output = other.run("daemon", &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&daemon.address().to_string()), "{text}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let files = Files::with_limit(1);
    files.start().stop();
    let key = files.path("state/http.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = files.run("daemon", &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("chmod 600"), "{text}");
}

#[test]
fn a_secret_is_seen_nowhere() {
    const SECRET: &str = "s3cr3t-k3y-0123456789";
    let main = "http:
  listen: 127.0.0.1:0
  rules: rules.d
  state_dir: state
  identify:
    - domain: api
      descriptors: [[{ key: api_key, header: x-api-key, secret: true }]]
";
    let rules =
        "domain: api\ndescriptors:\n  - key: api_key\n    rate_limit: { requests_per_unit: 1, unit: hour }\n";
    let files = Files::new(main, rules);
    let daemon = files.start();
    let request = format!(
        r#"{{"request":{{"method":"GET","path":"/","peer":"192.0.2.1","headers":{{"x-api-key":"{SECRET}"}}}}}}"#
    );
    let ask = |target: &str| daemon.send(Method::POST, target, request.clone());
    let statuses = [(); 3].map(|()| ask("/v1/check").0.as_u16());
    assert_eq!(statuses, [200, 429, 429]);
    eventually("the denial is logged", || daemon.logged("over limit"));
    let mut seen = vec![ask("/v1/check").1, ask("/v1/explain").1, daemon.get("/metrics").1];
    seen.push(daemon.stop().1);
    for entry in fs::read_dir(files.path("state")).unwrap() {
        seen.push(String::from_utf8_lossy(&fs::read(entry.unwrap().path()).unwrap()).into_owned());
    }
    assert_eq!(seen.len(), 6, "the key and the counters are kept");
    for text in seen {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn the_examples_are_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/http.yaml");
    let output = program().args(["check", directory]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
