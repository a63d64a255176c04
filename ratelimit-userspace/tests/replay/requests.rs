//! Traces of requests, which need no privilege.

use std::{fmt::Write as _, fs, path::PathBuf};

use tempfile::TempDir;

use super::recording::Outcome;

/// A rules file with an `http:` section, a rule file and a trace.
struct Requests {
    directory: TempDir,
}

const CONFIG: &str = "http:
  rules: rules.d
  trusted_proxies: [10.0.0.0/8]
  client_address: x-forwarded-for
  identify:
    - match: { path: '/api/**' }
      domain: api
      descriptors:
        - [client_ip]
        - [{ key: api_key, header: x-api-key, secret: true }]
    - match: { path: /admin }
      domain: api
      descriptors:
        - [{ key: admin, header: x-admin, missing: deny }]
    - match: { path: /none }
      domain: api
      descriptors:
        - [{ key: user, header: x-user }]
";

const RULES: &str = "domain: api
descriptors:
  - key: client_ip
    rate_limit: { name: per-address, requests_per_unit: 3, unit: minute, algorithm: fixed_window }
  - key: api_key
    rate_limit: { name: per-key, requests_per_unit: 1, unit: minute, algorithm: fixed_window }
    overrides: [{ value: partner-1, requests_per_unit: 2 }]
  - key: bucket
    rate_limit: { name: bucket, requests_per_unit: 10, unit: second, algorithm: token_bucket, burst: 10 }
  - key: queue
    rate_limit: { requests_per_unit: 4, unit: second, algorithm: leaky_bucket, burst: 3, on_limit: delay }
";

// === impl Requests ===

impl Requests {
    fn new(trace: &str) -> Self {
        let requests = Self { directory: tempfile::tempdir().expect("a directory") };
        fs::create_dir(requests.path("rules.d")).expect("it can be made");
        for (name, text) in [("rules.yaml", CONFIG), ("rules.d/api.yaml", RULES), ("requests.jsonl", trace)] {
            fs::write(requests.path(name), text).expect("it can be written");
        }
        requests
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let (trace, rules) = (self.path("requests.jsonl"), self.path("rules.yaml"));
        let (trace, rules) = (trace.display().to_string(), rules.display().to_string());
        Outcome::of(&[&[trace.as_str(), "--config", rules.as_str()], arguments].concat())
    }

    /// The answers; the run must succeed.
    fn answers(&self) -> Vec<String> {
        let Outcome { code, out, err } = self.run(&["--json"]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        out.lines().map(ToOwned::to_owned).collect()
    }
}

fn answers(trace: &str) -> Vec<String> {
    Requests::new(trace).answers()
}

fn descriptor(t: &str, key: &str, hits: i64) -> String {
    let entries = format!(r#"[["{key}","x"]]"#);
    format!("{{\"t\":{t},\"domain\":\"api\",\"descriptors\":[{{\"entries\":{entries},\"hits\":{hits}}}]}}\n")
}

fn request(t: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let headers: Vec<_> = headers.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
    let headers = headers.join(",");
    format!(
        "{{\"t\":{t},\"request\":{{\"method\":\"GET\",\"path\":\"{path}\",\"peer\":\"10.0.0.1\",\
         \"headers\":{{{headers}}}}}}}\n"
    )
}

/// The decision and the rule of an answer.
fn decision(answer: &str) -> (String, Option<String>) {
    let answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
    let text = |key: &str| answer[key].as_str().map(ToOwned::to_owned);
    (text("decision").expect("a decision"), text("rule"))
}

#[test]
fn a_bucket_of_ten_lets_ten_of_fifteen_pass_at_once() {
    let answers = answers(&descriptor("0", "bucket", 1).repeat(15));
    assert_eq!(answers.len(), 15);
    for (index, answer) in answers[..10].iter().enumerate() {
        let reset = if index == 9 { "1".to_owned() } else { format!("0.{}", index + 1) };
        assert_eq!(
            *answer,
            format!(
                "{{\"t\":0,\"decision\":\"allow\",\"rule\":\"bucket\",\"limit\":10,\"remaining\":{},\
                 \"reset\":{reset},\"retry_after\":null,\"delay\":null}}",
                9 - index
            )
        );
    }
    let denied = r#"{"t":0,"decision":"deny","rule":"bucket","limit":10,"remaining":0,"reset":1,"retry_after":1,"delay":null}"#;
    assert!(answers[10..].iter().all(|answer| answer == denied), "{answers:?}");
}

#[test]
fn hits_read_and_refund() {
    let hits =
        [("0", 10), ("0", 0), ("0", 1), ("0", -4), ("0", 4), ("0.30", 3), ("0.30", 1), ("0.3e0", -100)];
    let trace = hits.map(|(t, hits)| descriptor(t, "bucket", hits)).concat();
    let decisions: Vec<_> = answers(&trace).iter().map(|answer| decision(answer).0).collect();
    assert_eq!(decisions, ["allow", "allow", "deny", "allow", "allow", "allow", "deny", "allow"]);
}

#[test]
fn what_is_shaped_has_a_delay() {
    let answers = answers(&descriptor("5", "queue", 1).repeat(4));
    let delays: Vec<_> = answers
        .iter()
        .map(|answer| {
            let answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
            (answer["decision"].to_string(), answer["delay"].to_string())
        })
        .collect();
    let expected = [("\"allow\"", "null"), ("\"delay\"", "0.25"), ("\"delay\"", "0.5"), ("\"deny\"", "null")];
    assert_eq!(delays, expected.map(|(decision, delay)| (decision.to_owned(), delay.to_owned())));
}

#[test]
fn requests_are_who_their_headers_say() {
    let client = ("x-forwarded-for", "198.51.100.1, 203.0.113.7");
    let other = ("x-forwarded-for", "203.0.113.8");
    let mut trace = String::new();
    // The same address three times, under several spellings of the path, then another one.
    for path in ["/api/x", "//api/./y?z", "/%61pi", "/api"] {
        trace += &request("60", path, &[client]);
    }
    trace += &request("60.5", "/api", &[other]);
    // Keys of one request each, and one that has a rule of its own.
    for key in ["a", "a", "b", "partner-1", "partner-1", "partner-1"] {
        let address = format!("2001:db8:0:{}::1", trace.len());
        trace += &request("61", "/api", &[("x-forwarded-for", &address), ("x-api-key", key)]);
    }
    let per_key = || Some("per-key".to_owned());
    let per_address = || Some("per-address".to_owned());
    let found: Vec<_> = answers(&trace).iter().map(|answer| decision(answer)).collect();
    assert_eq!(found[..3], vec![("allow".to_owned(), per_address()); 3]);
    assert_eq!(found[3], ("deny".to_owned(), per_address()));
    assert_eq!(found[4], ("allow".to_owned(), per_address()));
    let decisions = ["allow", "deny", "allow", "allow", "allow", "deny"];
    assert_eq!(found[5..], decisions.map(|decision| (decision.to_owned(), per_key())));
}

#[test]
fn what_has_no_rule_passes_and_what_must_have_a_value_does_not() {
    let trace = [
        request("1", "/elsewhere", &[]),
        request("1", "/none", &[]),
        request("1", "/admin", &[]),
        request("1", "/admin", &[("x-admin", "a")]),
        descriptor("1", "unknown", 1),
    ]
    .concat();
    let found: Vec<_> = answers(&trace).iter().map(|answer| decision(answer)).collect();
    assert_eq!(found, ["allow", "allow", "deny", "allow", "allow"].map(|one| (one.to_owned(), None)));
}

#[test]
fn people_get_a_summary_by_decision_and_rule() {
    let client = ("x-forwarded-for", "203.0.113.7");
    let mut trace = request("100", "/api", &[client]).repeat(4);
    trace += &request("112.5", "/elsewhere", &[]);
    trace += &request("90", "/none", &[]);
    trace += &request("90", "/admin", &[]);
    trace += &descriptor("100", "queue", 1).repeat(2);
    let Outcome { code, out, err } = Requests::new(&trace).run(&[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let expected = "\
9 requests in 22.5 s: 6 allowed, 2 denied, 1 delayed, 0 that shadow rules would have denied

RULE         DOMAIN  ALLOWED  DENIED  DELAYED  SHADOW
per-address  api           3       1        0       0
per-key      api           0       0        0       0
bucket       api           0       0        0       0
api/queue    api           1       0        1       0
(no rule)                  2       1        0       0

Requests that match no item of `identify`, so nothing limits them: 1.

Requests that end with no descriptor, so nothing limits them: 1.

Requests that are denied because an entry with `missing: deny` has no value: 1.
";
    assert_eq!(out, expected);
}

#[test]
fn a_mistake_is_named_by_its_line_and_all_before_it_is_answered() {
    let good = descriptor("1", "bucket", 1).repeat(2);
    for (bad, named) in [
        ("{\"t\":1,\"domian\":\"api\"}", ":4:15: unknown field `domian`"),
        ("{\"t\":-1,\"domain\":\"api\"}", ":4: `t` is negative"),
        ("{\"t\":1,\"domain\":\"api\"}", ":4: there is neither `descriptors` nor `request`"),
        ("not JSON", ":4:"),
    ] {
        let requests = Requests::new(&format!("{good}\n{bad}\n{good}"));
        let outcome = requests.run(&["--json"]);
        assert_eq!((outcome.code, outcome.out.lines().count()), (Some(1), 2), "{bad}: {}", outcome.err);
        let place = format!("error: {}{named}", requests.path("requests.jsonl").display());
        assert!(outcome.err.starts_with(&place) && outcome.err.lines().count() == 1, "{}", outcome.err);
        let outcome = requests.run(&[]);
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.out.starts_with("2 requests in 0 s: 2 allowed"), "{}", outcome.out);
    }
}

#[test]
fn an_empty_trace_is_answered_by_nothing() {
    assert!(answers("\n").is_empty());
}

#[test]
fn a_trace_wants_an_http_section() {
    let requests = Requests::new(&descriptor("1", "bucket", 1));
    fs::write(
        requests.path("rules.yaml"),
        "network: { rules: [{ name: all, limits: { per: source, rate: 1/s } }] }\n",
    )
    .expect("it can be written");
    let outcome = requests.run(&["--json"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
    assert!(outcome.err.contains("http:") && outcome.err.contains("requests.jsonl"), "{}", outcome.err);
}

#[test]
fn time_may_step_back() {
    let mut trace = String::new();
    for t in ["1000", "10", "0", "1000.5", "5"] {
        write!(trace, "{}", descriptor(t, "bucket", 1)).expect("text");
    }
    let found: Vec<_> = answers(&trace).iter().map(|answer| decision(answer).0).collect();
    assert_eq!(found, vec!["allow"; 5]);
}

#[test]
fn two_runs_agree_to_the_byte() {
    let mut trace = String::new();
    for index in 0..300 {
        let address = format!("192.0.2.{}", index % 7);
        trace += &request(&format!("{}.25", index / 9), "/api", &[("x-forwarded-for", &address)]);
    }
    let requests = Requests::new(&trace);
    assert_eq!(requests.answers(), requests.answers());
}
