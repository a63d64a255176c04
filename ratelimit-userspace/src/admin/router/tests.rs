use http::{HeaderMap, header};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::admin::{
    access::Origin,
    command::Reloaded,
    fixture::{BLOCKED, Fake, ROOM, UNBLOCKABLE},
    schema::{Trial, What},
};

/// The router over a fake daemon, asked over the Unix socket.
struct Bed {
    fake: Fake,
    router: Router,
    origin: Origin,
}

struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Bed {
    fn new() -> Self {
        let fake = Fake::new();
        let router = router(Api::new(fake.handle.clone()));
        Self { fake, router, origin: Origin::Unix(None) }
    }

    async fn ask(&self, method: &str, target: &str, body: impl Into<Body>) -> Told {
        let request = Request::builder().method(method).uri(target).header(header::HOST, "localhost");
        let request = request.extension(self.origin).body(body.into()).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Told { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, target: &str) -> Told {
        self.ask("GET", target, "").await
    }
}

impl Told {
    /// The JSON of an answer with this status.
    fn json(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// A problem of this status and kind, with these words in it.
    fn is_problem(&self, status: u16, kind: Option<&str>, words: &str) {
        let json = self.json(status);
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!((&json["status"], json["type"].as_str()), (&json!(status), kind), "{json}");
        assert!(json["title"].is_string());
        let detail = json["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{words:?} is not in {detail:?}");
    }
}

// === changes ===

#[tokio::test]
async fn a_reload_tells_what_became_of_it() {
    let bed = Bed::new();
    let told = bed.ask("POST", "/v1/reload", "").await.json(200);
    assert_eq!(told, json!({ "changed": true, "rules": 3, "warnings": ["a warning"], "milliseconds": 12 }));
    bed.ask("POST", "/v1/reload?force=true", "").await.json(200);
    assert_eq!(bed.fake.told(), ["reload force=false", "reload force=true"]);
    bed.ask("POST", "/v1/reload?froce=true", "").await.is_problem(400, None, "froce");
    assert!(bed.fake.told().is_empty());
}

#[tokio::test]
async fn a_text_is_applied_and_confirmed_or_rolled_back() {
    let bed = Bed::new();
    let told = bed.ask("POST", "/v1/apply?confirm=1m", "network: {}").await.json(200);
    assert_eq!(told["id"], "trial-1");
    assert_eq!(told["deadline"], "2027-01-15T08:01:00Z");
    assert_eq!(bed.ask("POST", "/v1/apply/trial-1/confirm", "").await.status, StatusCode::OK);
    assert_eq!(bed.ask("POST", "/v1/apply/trial-1/rollback", "").await.status, StatusCode::OK);
    let unknown = bed.ask("POST", "/v1/apply/other/confirm", "").await;
    unknown.is_problem(404, Some("urn:ratelimit:not-found"), "no trial other");
    let expected = [
        "apply 11 bytes confirm=Some(60s) force=false",
        "confirm trial-1",
        "rollback trial-1",
        "confirm other",
    ];
    assert_eq!(bed.fake.told(), expected);
}

#[tokio::test]
async fn what_the_daemon_refuses_is_a_problem_of_its_kind() {
    let bed = Bed::new();
    let told = bed.ask("POST", "/v1/apply", "bad: yes").await;
    told.is_problem(422, Some("urn:ratelimit:invalid"), "rules.yaml:1:1: error: unknown key `bad`");
    let told = bed.ask("POST", "/v1/apply", "deny: everything").await;
    told.is_problem(409, Some("urn:ratelimit:locked-out"), "your own connection");
    bed.ask("POST", "/v1/apply?force=true", "deny: everything").await.json(200);
    let told = bed.ask("POST", "/v1/apply?confirm=0s", "network: {}").await;
    told.is_problem(422, Some("urn:ratelimit:invalid"), "no time to confirm");
    let told = bed.ask("POST", "/v1/apply?confirm=soon", "network: {}").await;
    told.is_problem(400, None, "no duration such as");
    let told = bed.ask("POST", "/v1/apply", &b"name: \xff"[..]).await;
    told.is_problem(422, Some("urn:ratelimit:invalid"), "not UTF-8 from byte 6 on");
}

#[tokio::test]
async fn the_mode_is_set() {
    let bed = Bed::new();
    let told = bed.ask("PUT", "/v1/mode", r#"{"mode":"monitor"}"#).await.json(200);
    assert_eq!(told, json!({ "mode": "monitor", "changed": true }));
    let told = bed.ask("PUT", "/v1/mode", r#"{"mode":"enforce","force":true}"#).await.json(200);
    assert_eq!(told, json!({ "mode": "enforce", "changed": false }));
    assert_eq!(bed.fake.told(), ["monitor=true force=false", "monitor=false force=true"]);
    bed.ask("PUT", "/v1/mode", r#"{"mode":"off"}"#).await.is_problem(400, None, "unknown variant `off`");
    bed.ask("PUT", "/v1/mode", "").await.is_problem(400, None, "the body");
}

#[tokio::test]
async fn a_daemon_that_stops_says_so() {
    let (commands, inbox) = tokio::sync::mpsc::channel(1);
    drop(inbox);
    let handle = Handle::new(StateDir::new("/nonexistent"), commands);
    let bed = Bed { router: router(Api::new(handle)), ..Bed::new() };
    bed.ask("POST", "/v1/reload", "").await.is_problem(500, Some("urn:ratelimit:failed"), "is stopping");
}

// === blocks ===

#[tokio::test]
async fn a_source_is_blocked_in_its_one_form() {
    let bed = Bed::new();
    let body = r#"{"for":"10m","reason":"abuse"}"#;
    let told = bed.ask("PUT", "/v1/blocks/::ffff:198.51.100.7", body).await.json(201);
    assert_eq!((&told["prefix"], &told["added"]), (&json!("198.51.100.7/32"), &json!(true)));
    assert!(told["until"].is_string());
    let told = bed.ask("PUT", "/v1/blocks/192.0.2.1", "").await.json(200);
    assert_eq!(told, json!({ "prefix": BLOCKED, "until": null, "added": false }));
    for target in ["/v1/blocks/2001:db8::%2F32", "/v1/blocks/2001:db8::/32"] {
        assert_eq!(bed.ask("PUT", target, "").await.json(201)["prefix"], "2001:db8::/32");
    }
    let expected = [
        "block 198.51.100.7/32 Some(600s) \"abuse\" force=false",
        "block 192.0.2.1/32 None \"\" force=false",
        "block 2001:db8::/32 None \"\" force=false",
        "block 2001:db8::/32 None \"\" force=false",
    ];
    assert_eq!(bed.fake.told(), expected);
}

#[tokio::test]
async fn what_cannot_be_blocked_is_told() {
    let bed = Bed::new();
    let invalid = Some("urn:ratelimit:invalid");
    let cases = [
        ("fe80::1%25eth0", "", 422, invalid, "did you mean `fe80::1`?"),
        ("192.0.2.1/24", "", 422, invalid, "did you mean `192.0.2.0/24`?"),
        ("192.0.2.7", r#"{"for":"0s"}"#, 422, invalid, "a block of no time"),
        ("192.0.2.7", r#"{"fro":"1m"}"#, 400, None, "unknown field `fro`"),
        ("192.0.2.7", "{", 400, None, "the body"),
        ("0.0.0.0/0", "", 409, Some("urn:ratelimit:locked-out"), "your own connection"),
        (UNBLOCKABLE, "", 422, invalid, "it cannot be blocked"),
    ];
    for (prefix, body, status, kind, words) in cases {
        bed.ask("PUT", &format!("/v1/blocks/{prefix}"), body).await.is_problem(status, kind, words);
    }
    bed.ask("PUT", "/v1/blocks/0.0.0.0/0", r#"{"force":true}"#).await.json(201);
}

#[tokio::test]
async fn a_block_is_ended() {
    let bed = Bed::new();
    for target in ["/v1/blocks/192.0.2.1", "/v1/blocks/192.0.2.1/32", "/v1/blocks/192.0.2.1%2F32"] {
        assert_eq!(bed.ask("DELETE", target, "").await.status, StatusCode::NO_CONTENT, "{target}");
    }
    let told = bed.ask("DELETE", "/v1/blocks/192.0.2.0/24", "").await;
    told.is_problem(404, Some("urn:ratelimit:not-found"), "192.0.2.0/24 is not blocked");
    bed.ask("DELETE", "/v1/blocks/nobody", "").await.is_problem(422, Some("urn:ratelimit:invalid"), "nobody");
}

#[tokio::test]
async fn a_list_is_blocked_and_told_line_by_line() {
    let bed = Bed::new();
    let list = "# a list\n192.0.2.1\nnonsense\n192.0.2.66\n198.51.100.0/24\n";
    let told = bed.ask("POST", "/v1/blocks?for=1h&reason=list", list).await.json(200);
    assert_eq!(
        told,
        json!({ "added": 1, "replaced": 1, "failed": 2, "errors": [
            { "line": 3, "entry": "nonsense", "message": "`nonsense` is neither an address nor a prefix; \
                                                          expected: an address or a prefix" },
            { "line": 4, "entry": UNBLOCKABLE, "message": "it cannot be blocked" },
        ] })
    );
    assert_eq!(bed.fake.told(), ["block 3 force=false"]);
    bed.ask("POST", "/v1/blocks?for=1h&reason=list&force=true", "192.0.2.7").await.json(200);
    assert_eq!(bed.fake.told(), ["block 192.0.2.7/32 Some(3600s) \"list\" force=true"]);
}

#[tokio::test]
async fn a_list_that_does_not_fit_changes_nothing() {
    let bed = Bed::new();
    let list: Vec<String> = (0..=ROOM).map(|number| format!("198.51.{number}.1\n")).collect();
    let full = Some("urn:ratelimit:full");
    bed.ask("POST", "/v1/blocks", list.concat()).await.is_problem(507, full, "no room for so many blocks");
    let told = bed.ask("POST", &format!("/v1/blocks?reason={}", "x".repeat(121)), "192.0.2.7").await;
    told.is_problem(422, Some("urn:ratelimit:invalid"), "121 bytes");
}

// === what is told ===

#[tokio::test]
async fn a_status_without_pins_is_told_with_what_the_daemon_knows() {
    let bed = Bed::new();
    let status = bed.get("/v1/status").await.json(200);
    assert_eq!(
        (&status["policy"], &status["daemon"], &status["trial"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(status["interfaces"], json!([]));
    assert_eq!(status["reloads"]["last_ok"], true);

    bed.fake.handle.reload_failed("SIGHUP", "rules.yaml:1:1: error");
    let deadline = std::time::UNIX_EPOCH + std::time::Duration::from_hours(500_000);
    bed.fake.handle.set_trial(Some(Trial { id: "trial-1".to_owned(), deadline }));
    let status = bed.get("/v1/status").await.json(200);
    assert_eq!(status["trial"], json!({ "id": "trial-1", "deadline": "2027-01-15T08:00:00Z" }));
    let reloads = &status["reloads"];
    assert_eq!((&reloads["failed"], &reloads["last_ok"]), (&json!(1), &json!(false)));
    assert_eq!(reloads["error"], "rules.yaml:1:1: error");

    let reloaded = Reloaded { changed: true, rules: 1, warnings: Vec::new(), milliseconds: 5 };
    bed.fake.handle.reload_succeeded("SIGHUP", &reloaded);
    let reloads = &bed.get("/v1/status").await.json(200)["reloads"];
    assert_eq!((&reloads["succeeded"], &reloads["last_ok"]), (&json!(1), &json!(true)));
    assert_eq!(reloads["error"], Value::Null);
}

#[tokio::test]
async fn what_needs_a_policy_says_that_there_is_none() {
    let bed = Bed::new();
    for target in ["/v1/rules", "/v1/counters", "/v1/sources", "/v1/sources/192.0.2.1", "/v1/blocks"] {
        let told = bed.get(target).await;
        told.is_problem(404, Some("urn:ratelimit:not-found"), "no policy is in force");
    }
    bed.get("/v1/sources/nobody").await.is_problem(
        422,
        Some("urn:ratelimit:invalid"),
        "\"nobody\" is no address",
    );
    bed.get("/v1/sources?by=size").await.is_problem(400, None, "size");
    bed.get("/v1/blocks?prefix=x").await.is_problem(422, Some("urn:ratelimit:invalid"), "`x`");
}

#[tokio::test]
async fn the_configuration_in_force_is_told() {
    let told = Bed::new().get("/v1/config").await.json(200);
    assert_eq!(
        told,
        json!({ "path": "/etc/ratelimit/rules.yaml", "applied": false, "text": "network: {}\n" })
    );
}

#[tokio::test]
async fn recent_events_are_told_as_json() {
    let bed = Bed::new();
    for trial in ["a", "b", "c"] {
        bed.fake.handle.publish(What::Confirmed { trial: trial.to_owned() });
    }
    let told = bed.get("/v1/events?limit=2").await.json(200);
    let events = told["events"].as_array().unwrap();
    let trials: Vec<&str> = events.iter().map(|event| event["trial"].as_str().unwrap()).collect();
    assert_eq!(trials, ["b", "c"]);
    assert!(events[0]["id"].as_u64() < events[1]["id"].as_u64());
    assert_eq!(events[1]["type"], "confirmed");
}

#[tokio::test]
async fn events_are_sent_as_they_happen_until_the_daemon_ends() {
    let bed = Bed::new();
    bed.fake.handle.publish(What::Confirmed { trial: "before".to_owned() });
    let asked = async {
        let told = bed.get("/v1/events?after=0").await;
        assert_eq!(told.headers[header::CONTENT_TYPE], "text/event-stream");
        told.body
    };
    let happens = async {
        tokio::task::yield_now().await;
        bed.fake.handle.publish(What::Stopping);
        bed.fake.handle.events().close();
    };
    let (text, ()) = tokio::join!(asked, happens);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8, "{text}");
    assert!(lines[0].starts_with("id: ") && lines[2].starts_with("data: {"), "{text}");
    assert_eq!((lines[1], lines[3], lines[5]), ("event: confirmed", "", "event: stopping"));
}

#[tokio::test]
async fn listeners_are_bounded() {
    let bed = Bed::new();
    let listen = || {
        let request = Request::get("/v1/events").header(header::HOST, "localhost").extension(bed.origin);
        bed.router.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    let mut listeners = Vec::new();
    for _ in 0..MAX_LISTENERS {
        listeners.push(listen().await.unwrap());
    }
    assert_eq!(listen().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    listeners.pop();
    assert_eq!(listen().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn health_is_told() {
    let bed = Bed::new();
    assert_eq!(bed.get("/healthz").await.body, "ok\n");
    bed.get("/readyz").await.is_problem(503, None, "no policy is in force yet");
}

#[tokio::test]
async fn metrics_are_told_without_a_policy() {
    let told = Bed::new().get("/metrics").await;
    assert!(told.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert!(told.body.contains("ratelimit_last_reload_ok 1\n"), "{}", told.body);
    assert!(told.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn other_paths_and_methods_are_problems() {
    let bed = Bed::new();
    bed.get("/v2/status").await.is_problem(404, None, "nothing at this path");
    bed.ask("DELETE", "/v1/status", "").await.is_problem(405, None, "no such method");
    bed.get("/v1/blocks/%FF").await.is_problem(405, None, "no such method");
    bed.ask("DELETE", "/v1/blocks/%FF", "").await.is_problem(400, None, "UTF-8");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let bed = Bed::new();
    let told = bed.ask("PUT", "/v1/mode", "x".repeat(MAX_BODY + 1)).await;
    told.is_problem(413, None, "at most 1048576 bytes");
    assert!(bed.fake.told().is_empty());
}

// === the description ===

/// Where it stands in the documentation.
fn documented() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json")
}

#[test]
fn the_documentation_holds_the_description() {
    let description = description();
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(documented(), &description).unwrap();
    }
    let documented = std::fs::read_to_string(documented()).unwrap_or_default();
    assert!(
        documented == description,
        "docs/openapi.json is not what the daemon serves; this writes it:\n  UPDATE_OPENAPI=1 cargo test -p \
         ratelimit-userspace --lib the_documentation_holds_the_description"
    );
}

#[test]
fn every_operation_is_described() {
    let description: Value = serde_json::from_str(&description()).unwrap();
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1."));
    let paths = description["paths"].as_object().unwrap();
    let operations: Vec<_> = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |(method, it)| (path, method, it)))
        .collect();
    assert_eq!(operations.len(), 22);
    for (path, method, operation) in operations {
        assert!(operation["summary"].is_string(), "{method} {path}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(response["description"].is_string(), "{method} {path} {status}");
        }
        let fails = !["/healthz", "/openapi.json"].contains(&path.as_str());
        assert_eq!(operation["responses"]["default"].is_object(), fails, "{method} {path}");
    }
}

/// Every `$ref` leads somewhere.
#[test]
fn the_description_is_complete() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let description: Value = serde_json::from_str(&description()).unwrap();
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{reference}");
    }
}
