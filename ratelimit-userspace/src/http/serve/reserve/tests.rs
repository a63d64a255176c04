use http::Request;
use serde_json::{Value, json};

use super::*;
use crate::http::serve::fixture::Bed;

fn reserve_of(hits: u64) -> Value {
    json!({ "domain": "api", "descriptors": [{ "entries": [["tokens", "k"]] }], "hits": hits, "ttl": 30 })
}

/// What is left of the 100.
async fn remaining(bed: &Bed) -> u64 {
    let question = json!({ "domain": "api", "descriptors": [{ "entries": [["tokens", "k"]] }], "hits": 0 });
    bed.post("/v1/check", &question).await.json()["remaining"].as_u64().unwrap()
}

async fn reserved(bed: &Bed, hits: u64) -> String {
    let told = bed.post("/v1/reserve", &reserve_of(hits)).await;
    assert_eq!(told.status, 200, "{}", told.body);
    told.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_commit_frees_the_rest_and_expiry_frees_all() {
    let bed = Bed::new();
    let first = bed.post("/v1/reserve", &reserve_of(40)).await;
    let answer = first.json();
    assert_eq!(
        (&answer["decision"], &answer["remaining"], &answer["expires_in"]),
        (&json!("allow"), &json!(60), &json!(30))
    );
    assert_eq!(first.header("x-ratelimit-remaining"), Some("60"));
    let id = answer["id"].as_str().unwrap();
    assert_eq!((id.len(), id.parse::<Id>().unwrap().to_string()), (32, id.to_owned()));
    reserved(&bed, 40).await;
    let denied = bed.post("/v1/reserve", &reserve_of(40)).await;
    assert_eq!((denied.status.as_u16(), &denied.json()["id"]), (429, &Value::Null));
    assert_eq!(denied.json()["expires_in"], Value::Null);

    let committed = bed.post("/v1/commit", &json!({ "id": id, "hits": 10 })).await;
    assert_eq!(
        (committed.status.as_u16(), committed.json()),
        (200, json!({ "id": id, "reserved": 40, "committed": 10 }))
    );
    assert_eq!(remaining(&bed).await, 50);
    bed.pass(30);
    assert_eq!(remaining(&bed).await, 90, "the second one expired by itself");
    assert_eq!(reserved(&bed, 90).await.len(), 32);
}

#[tokio::test]
async fn a_tick_gives_back_what_nobody_asks_after() {
    let bed = Bed::new();
    reserved(&bed, 40).await;
    bed.pass(30);
    bed.front.tick();
    assert_eq!(bed.front.reservations.lock().next_expiry(), None);
    assert_eq!(bed.front.next_expiry.load(std::sync::atomic::Ordering::Relaxed), u64::MAX);
}

#[tokio::test]
async fn the_same_commit_again_answers_the_same_and_changes_nothing() {
    let bed = Bed::new();
    let id = reserved(&bed, 40).await;
    let commit = json!({ "id": id, "hits": 10 });
    let first = bed.post("/v1/commit", &commit).await;
    for _ in 0..3 {
        let again = bed.post("/v1/commit", &commit).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    assert_eq!(remaining(&bed).await, 90);
    bed.post("/v1/commit", &json!({ "id": id, "hits": 11 })).await.is_problem(409, "10 hits");
}

#[tokio::test]
async fn an_excess_is_charged_without_denying() {
    let bed = Bed::new();
    let id = reserved(&bed, 40).await;
    let told = bed.post("/v1/commit", &json!({ "id": id, "hits": 1000 })).await;
    assert_eq!(told.json(), json!({ "id": id, "reserved": 40, "committed": 1000 }));
    assert_eq!(remaining(&bed).await, 0);
}

#[tokio::test]
async fn an_id_that_is_not_known_is_not_found() {
    let bed = Bed::new();
    let id = reserved(&bed, 40).await;
    for unknown in ["", "no id", "00000000000000000000000000000000"] {
        bed.post("/v1/commit", &json!({ "id": unknown, "hits": 1 })).await.is_problem(404, "no reservation");
    }
    bed.pass(30);
    bed.post("/v1/commit", &json!({ "id": id, "hits": 1 })).await.is_problem(404, "expired");
}

#[tokio::test]
async fn a_request_can_be_reserved_for() {
    let bed = Bed::new();
    let request = json!({ "method": "GET", "path": "/x", "peer": "192.0.2.1" });
    let told = bed.post("/v1/reserve", &json!({ "request": request, "hits": 2 })).await;
    let answer = told.json();
    assert_eq!(
        (&answer["rule"], &answer["remaining"], &answer["expires_in"]),
        (&json!("per-client_ip"), &json!(0), &json!(60))
    );
    bed.post("/v1/commit", &json!({ "id": answer["id"], "hits": 1 })).await;
    let told = bed.post("/v1/check", &json!({ "request": request })).await;
    assert_eq!((told.status.as_u16(), &told.json()["remaining"]), (200, &json!(0)));
    let keyless = json!({ "method": "GET", "path": "/keyed", "peer": "192.0.2.1" });
    let refused = bed.post("/v1/reserve", &json!({ "request": keyless, "hits": 2 })).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["id"]), (429, &Value::Null));
}

#[tokio::test]
async fn what_nothing_limits_has_an_id_all_the_same() {
    let bed = Bed::with(|config| config.identify.clear());
    let request = json!({ "method": "GET", "path": "/x", "peer": "192.0.2.1" });
    let told = bed.post("/v1/reserve", &json!({ "request": request, "hits": 2 })).await.json();
    assert_eq!(told["decision"], "allow");
    let committed = bed.post("/v1/commit", &json!({ "id": told["id"], "hits": 5 })).await;
    assert_eq!(committed.json()["committed"], 5);
}

#[tokio::test]
async fn who_may_ask_may_reserve_and_who_may_write_may_commit() {
    let bed = Bed::with(|config| config.access.allow_from = vec!["192.0.2.0/24".parse().unwrap()]);
    let told = bed.ask_from("192.0.2.9", Request::post("/v1/reserve"), reserve_of(40).to_string()).await;
    let id = told.json()["id"].clone();
    let commit = json!({ "id": id, "hits": 10 }).to_string();
    let far = bed.ask_from("192.0.2.9", Request::post("/v1/commit"), commit.clone()).await;
    far.is_problem(403, "write right");
    assert_eq!(bed.ask_from("unix", Request::post("/v1/commit"), commit).await.status, 200);
    let stranger =
        bed.ask_from("198.51.100.1", Request::post("/v1/reserve"), reserve_of(1).to_string()).await;
    stranger.is_problem(403, "allow_from");
}

#[tokio::test]
async fn mistakes_are_told() {
    let bed = Bed::new();
    let with = |name: &str, value: Value| {
        let mut question = reserve_of(1);
        question[name] = value;
        question
    };
    for (question, words) in [
        (with("ttl", json!(0)), "`ttl`"),
        (with("ttl", json!(86_401)), "`ttl`"),
        (with("ttl", json!("30s")), "line 1"),
        (with("hits", json!(-1)), "line 1"),
        (with("peek", json!(true)), "peek"),
        (with("descriptors", json!([{ "entries": [["tokens", "k"]], "hits": 3 }])), "give `hits` once"),
        (with("request", json!({ "method": "GET", "path": "/" })), "both"),
    ] {
        bed.post("/v1/reserve", &question).await.is_problem(400, words);
    }
    bed.post("/v1/commit", &json!({ "id": "0" })).await.is_problem(400, "hits");
    bed.post("/v1/commit", &json!({ "id": "0", "hits": -1 })).await.is_problem(400, "line 1");
    assert_eq!(remaining(&bed).await, 100);
}

#[tokio::test]
async fn ids_cannot_be_guessed_from_others() {
    let ids: std::collections::HashSet<Id> = (0..1000).map(|_| random_id()).collect();
    assert_eq!(ids.len(), 1000);
}

#[tokio::test]
async fn where_there_is_no_room_nothing_is_charged() {
    let bed = Bed::new();
    let large = "x".repeat(crate::http::serve::body::MAX_BODY * 9 / 10);
    let question = json!({ "domain": "api", "descriptors": [{ "entries": [["tokens", "k"]] }, { "entries": [["unruled", large]] }], "hits": 1, "ttl": 30 });
    let mut passed = 0;
    let full = loop {
        let told = bed.post("/v1/reserve", &question).await;
        if told.status != 200 {
            break told;
        }
        passed += 1;
    };
    full.is_problem(503, "too many reservations");
    assert_eq!(remaining(&bed).await, 100 - passed);
    bed.pass(30);
    assert_eq!(
        bed.post("/v1/reserve", &question).await.status,
        200,
        "and there is room again when they expire"
    );
}
