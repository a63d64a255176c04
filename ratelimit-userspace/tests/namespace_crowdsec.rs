//! Decisions of a `CrowdSec` local API become blocks, and end with them. The API is a small server that answers as
//! the real one documents. In real network namespaces, through the `ratelimit` binary. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_crowdsec -- --include-ignored
//! ```

#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_lifecycle/host.rs"]
mod host;

use std::{
    collections::VecDeque,
    fs,
    net::Ipv4Addr,
    process::Output,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    routing::get,
};
use host::{Daemon, Host};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime};

/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);
const PORT: u16 = 8080;
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The API, and what it was asked.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<Talk>>);

#[derive(Default)]
struct Talk {
    /// What it answers next; when there is nothing, that nothing is new.
    answers: VecDeque<(StatusCode, String)>,
    /// Its questions so far.
    questions: Vec<String>,
}

// === impl Api ===

impl Api {
    /// Serves in the namespace of a host until the test ends.
    fn serve(host: &Host) -> Self {
        let api = Self::default();
        let router = Router::new().route("/v1/decisions/stream", get(answer)).with_state(api.clone());
        let (ready, told) = std::sync::mpsc::channel();
        let serving = host.lab.server.spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await.expect("a port");
                ready.send(()).expect("the test waits");
                axum::serve(listener, router).await.expect("it serves");
            });
        });
        drop(serving);
        told.recv().expect("it listens");
        api
    }

    /// Answers so, and waits until the question after that, so that the answer was taken.
    fn tell(&self, status: StatusCode, body: &str) {
        let before = {
            let mut talk = self.0.lock().unwrap();
            talk.answers.push_back((status, body.to_owned()));
            talk.questions.len()
        };
        eventually("it asks again", || (self.0.lock().unwrap().questions.len() >= before + 2).then_some(()));
    }

    fn last_question(&self) -> String {
        self.0.lock().unwrap().questions.last().cloned().unwrap_or_default()
    }
}

async fn answer(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> (StatusCode, String) {
    if headers.get("x-api-key").is_none_or(|key| key != KEY) {
        return (StatusCode::FORBIDDEN, r#"{"message":"access forbidden"}"#.to_owned());
    }
    let mut talk = api.0.lock().unwrap();
    talk.questions.push(query.unwrap_or_default());
    let nothing = || (StatusCode::OK, r#"{"deleted":null,"new":null}"#.to_owned());
    talk.answers.pop_front().unwrap_or_else(nothing)
}

fn decision(id: i64, value: &str, duration: &str) -> Value {
    let scope = if value.contains('/') { "Range" } else { "Ip" };
    json!({
        "id": id, "origin": "crowdsec", "type": "ban", "scope": scope, "value": value,
        "duration": duration, "scenario": "crowdsecurity/ssh-bf",
    })
}

fn new(decisions: &[Value]) -> String {
    json!({ "new": decisions, "deleted": null }).to_string()
}

fn deleted(decisions: &[Value]) -> String {
    json!({ "new": null, "deleted": decisions }).to_string()
}

fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn start(host: &Host) -> Daemon {
    let key = host.file("crowdsec.key");
    fs::write(&key, KEY).expect("a key");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&key, mode).expect("it is ours");
    host.start(&format!(
        "interfaces: [{{ name: eth0 }}]\nnetwork:\n  sources: {{ capacity: 1024 }}\n  blocks:\n    crowdsec: {{ url: \
         \"http://127.0.0.1:{PORT}/\", api_key_file: crowdsec.key, every: 1s }}\n"
    ))
}

fn tell(host: &Host, arguments: &[&str]) -> String {
    let socket = host.file("admin.sock");
    let socket = ["--admin-socket", socket.to_str().expect("text")];
    let Output { status, stdout, stderr } = host.verb(&[arguments, &socket].concat());
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// Who is blocked and why, sorted.
fn blocks(host: &Host) -> Vec<String> {
    let blocks: Value = serde_json::from_str(&tell(host, &["blocks", "--json"])).expect("JSON");
    let blocks = blocks["blocks"].as_array().expect("a list").iter();
    let mut blocks: Vec<_> = blocks
        .map(|block| {
            format!("{} {}", block["prefix"].as_str().expect("text"), block["reason"].as_str().expect("text"))
        })
        .collect();
    blocks.sort();
    blocks
}

const REASON: &str = "crowdsec: crowdsecurity/ssh-bf";

#[test]
#[ignore = "requires root: network namespaces"]
fn what_is_decided_is_blocked_as_long_as_it_stands() {
    let host = Host::new("crowdsec");
    let api = Api::serve(&host);
    let _daemon = start(&host);
    let [short, long] = [decision(1, "10.128.0.1", "59m59.4s"), decision(2, "10.128.0.1", "3h59m49.4s")];
    let elsewhere = json!({
        "id": 9, "origin": "lists", "type": "ban", "scope": "Country", "value": "XX", "duration": "1h", "scenario": "x",
    });
    let range = decision(3, "198.51.100.0/24", "1h");
    api.tell(StatusCode::OK, &new(&[short.clone(), long.clone(), range, elsewhere]));
    assert_eq!(blocks(&host), [format!("10.128.0.1/32 {REASON}"), format!("198.51.100.0/24 {REASON}")]);
    // It is shed.
    host.flood(10);
    eventually("its packets are shed", || {
        let counters: Value = serde_json::from_str(&tell(&host, &["counters", "--json"])).expect("JSON");
        let reasons = counters["reasons"].as_array().expect("a list").clone();
        let blocked = reasons.into_iter().find(|reason| reason["reason"] == "blocked")?;
        (blocked["shed"]["packets"] == 10).then_some(())
    });
    // One of two is deleted, then the other.
    api.tell(StatusCode::OK, &deleted(&[long]));
    assert_eq!(blocks(&host).len(), 2);
    api.tell(StatusCode::OK, &deleted(&[short]));
    assert_eq!(blocks(&host), [format!("198.51.100.0/24 {REASON}")]);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn blocks_of_others_are_left_alone_and_come_first() {
    let host = Host::new("crowdsec-others");
    let api = Api::serve(&host);
    let _daemon = start(&host);
    tell(&host, &["block", "10.128.0.1", "--reason", "by hand"]);
    let first = decision(1, "10.128.0.1", "4h");
    api.tell(StatusCode::OK, &new(&[first.clone(), decision(2, "10.128.0.2", "4h")]));
    assert_eq!(blocks(&host), ["10.128.0.1/32 by hand".to_owned(), format!("10.128.0.2/32 {REASON}")]);
    api.tell(StatusCode::OK, &deleted(&[first]));
    assert_eq!(blocks(&host).len(), 2, "a deletion only ends what was decided");
    // Who is unblocked by hand stays so until something new is decided.
    tell(&host, &["unblock", "10.128.0.2"]);
    api.tell(StatusCode::OK, &new(&[decision(2, "10.128.0.2", "3h")]));
    assert_eq!(blocks(&host), ["10.128.0.1/32 by hand"]);
    api.tell(StatusCode::OK, &new(&[decision(3, "10.128.0.2", "3h")]));
    assert_eq!(blocks(&host).len(), 2);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn after_an_error_or_a_restart_everything_is_asked_for_again() {
    let host = Host::new("crowdsec-again");
    let api = Api::serve(&host);
    let daemon = start(&host);
    let both = [decision(1, "10.128.0.1", "4h"), decision(2, "10.128.0.2", "4h")];
    api.tell(StatusCode::OK, &new(&both));
    assert_eq!(api.last_question(), "startup=false&dedup=false");
    // The second question finds an error, so the third is for everything; what is not in it is gone.
    api.tell(StatusCode::INTERNAL_SERVER_ERROR, "");
    assert_eq!(api.last_question(), "startup=true&dedup=false");
    daemon.tells("answered with 500");
    eventually("nothing stands", || blocks(&host).is_empty().then_some(()));
    api.tell(StatusCode::OK, "no JSON");
    api.tell(StatusCode::OK, &new(&both));
    assert_eq!(blocks(&host).len(), 2);
    daemon.terminate();
    // Meanwhile one was taken back.
    api.0.lock().unwrap().answers.push_back((StatusCode::OK, new(&both[1..])));
    let _daemon = start(&host);
    let left = [format!("10.128.0.2/32 {REASON}")];
    eventually("the other is gone", || (blocks(&host) == left).then_some(()));
}
