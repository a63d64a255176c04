use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::{config::http::Access as AccessConfig, http::serve::fixture::Bed};

const QUESTION: &str = r#"{"domain":"api","descriptors":[{"entries":[["user","u1"]]}]}"#;

fn check() -> http::request::Builder {
    Request::post("/v1/check")
}

#[tokio::test]
async fn health_is_anybodys() {
    let bed = Bed::new();
    let get = async |path| bed.ask_from("192.0.2.9", Request::get(path), "").await;
    assert_eq!(get("/healthz").await.status, 200);
    get("/readyz").await.is_problem(503, "not in force yet");
    bed.front.set_ready(true);
    assert_eq!(get("/readyz").await.status, 200);
    bed.front.set_ready(false);
    assert_eq!(get("/readyz").await.status, 503);
    assert_eq!(get("/healthz").await.status, 200);
}

#[tokio::test]
async fn other_paths_and_methods_are_problems() {
    let bed = Bed::new();
    let ask = async |request| bed.ask_from("127.0.0.1", request, "").await;
    ask(Request::get("/")).await.is_problem(404, "nothing");
    ask(Request::get("/v1/check")).await.is_problem(405, "method");
    ask(Request::put("/v1/counters")).await.is_problem(405, "method");
}

#[tokio::test]
async fn every_path_that_decides_asks_who_asks() {
    let bed = Bed::new();
    for (method, path) in [
        ("POST", "/v1/check"),
        ("POST", "/v1/reserve"),
        ("POST", "/v1/commit"),
        ("GET", "/v1/counters"),
        ("DELETE", "/v1/counters"),
        ("GET", "/auth/nginx"),
        ("GET", "/auth/traefik"),
        ("GET", "/auth/caddy"),
        ("GET", "/auth/envoy/"),
        ("GET", "/auth/envoy/x"),
        ("POST", "/json"),
    ] {
        let request = Request::builder().method(method).uri(path);
        // nginx would take 403 for a refusal of its client.
        let status = if path == "/auth/nginx" { 400 } else { 403 };
        bed.ask_from("192.0.2.9", request, "").await.is_problem(status, "allow_from");
        let nobody = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(bed.router.clone(), nobody).await.unwrap();
        assert_eq!(answer.status(), 500, "{path}: who asks must be known");
    }
}

#[tokio::test]
async fn tokens_are_read_anew_on_reload() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let access = AccessConfig { token_file: Some(path.clone()), ..AccessConfig::default() };
    let bed = Bed::with(|config| config.access = access.clone());
    let ask = async |token: &str| {
        let request = check().header("authorization", format!("Bearer {token}"));
        bed.ask_from("192.0.2.9", request, QUESTION).await
    };
    assert_eq!(ask("first").await.status, 200);
    let refused = ask("second").await;
    refused.is_problem(401, "Bearer");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));

    let config = Http { access, ..fixture::config() };
    let identifier = Arc::new(Identifier::new(&config, [7; 32]));
    std::fs::write(&path, "second\n").unwrap();
    bed.front.put(Front::prepare(&config, Arc::clone(&identifier)).unwrap());
    assert_eq!(ask("second").await.status, 200);
    assert_eq!(ask("first").await.status, 401);

    std::fs::remove_file(&path).unwrap();
    Front::prepare(&config, identifier).unwrap_err();
    assert_eq!(ask("second").await.status, 200, "what was in force stays");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let bed = Bed::new();
    let large = " ".repeat(body::MAX_BODY + 1);
    bed.ask_from("127.0.0.1", check(), large.clone()).await.is_problem(413, "1048576 bytes");
    let untold = stream::iter([Ok::<_, io::Error>(Bytes::from(large))]);
    bed.ask_from("127.0.0.1", check(), Body::from_stream(untold)).await.is_problem(413, "1048576 bytes");
    let endless = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(&[b' '; 4096])));
    bed.ask_from("127.0.0.1", check(), Body::from_stream(endless)).await.is_problem(413, "1048576 bytes");
    let padded = format!("{QUESTION}{}", " ".repeat(body::MAX_BODY - QUESTION.len()));
    assert_eq!(bed.ask_from("127.0.0.1", check(), padded).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let bed = Bed::new();
    let begun = Instant::now();
    let body = || Body::from_stream(stream::pending::<io::Result<Bytes>>());
    bed.ask_from("127.0.0.1", check(), body()).await.is_problem(408, "10 seconds");
    let late = begun.elapsed().checked_sub(body::BODY_TIMEOUT).expect("not before its time");
    assert!(late < std::time::Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn slow_large_bodies_do_not_hold_up_small_ones() {
    let bed = Arc::new(Bed::new());
    let slow: Vec<_> = (0..2 * body::MAX_LARGE)
        .map(|_| {
            let bed = Arc::clone(&bed);
            let body = Body::from_stream(stream::pending::<io::Result<Bytes>>());
            tokio::spawn(async move { bed.ask_from("127.0.0.1", check(), body).await.status.as_u16() })
        })
        .collect();
    tokio::time::sleep(body::BODY_TIMEOUT / 2).await;
    assert_eq!(bed.front.large_bodies.available_permits(), 0);
    assert_eq!(bed.ask_from("127.0.0.1", check(), QUESTION).await.status, 200);
    for task in slow {
        assert_eq!(task.await.unwrap(), 408);
    }
    assert_eq!(bed.front.large_bodies.available_permits(), body::MAX_LARGE);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_told() {
    let bed = Bed::new();
    let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(io::Error::other("gone"))]);
    bed.ask_from("127.0.0.1", check(), Body::from_stream(broken)).await.is_problem(400, "broke off");
}

#[tokio::test]
async fn shadow_never_shows_to_clients() {
    let bed = Bed::new();
    let question = json!({ "domain": "api", "descriptors": [{ "entries": [["trial", "x"]] }] });
    let told = bed.post("/v1/check", &question).await;
    assert_eq!((told.status.as_u16(), &told.json()["decision"]), (200, &json!("shadow")));
    assert!(told.headers.keys().all(|name| !name.as_str().contains("ratelimit")), "{told:?}");
}
