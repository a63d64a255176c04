use http::Request;
use serde_json::{Value, json};

use super::*;
use crate::http::serve::fixture::{Bed, Told};

fn user(name: &str) -> Value {
    json!({ "domain": "api", "descriptors": [{ "entries": [["user", name]] }] })
}

fn with(mut question: Value, name: &str, value: Value) -> Value {
    question[name] = value;
    question
}

async fn from_afar(bed: &Bed, question: &Value) -> Told {
    bed.ask_from("192.0.2.9", Request::post("/v1/check"), question.to_string()).await
}

#[tokio::test]
async fn a_question_is_answered_with_the_numbers_and_the_fields() {
    let bed = Bed::new();
    let told = bed.post("/v1/check", &user("u1")).await;
    assert_eq!(told.status, 200);
    assert_eq!(told.header("content-type"), Some("application/json"));
    assert_eq!(
        told.json(),
        json!({
            "decision": "allow", "rule": "per-user", "limit": 3, "remaining": 2, "reset": 60,
            "retry_after": null, "delay": null,
            "statuses": [{
                "rule": "per-user", "allowed": true, "limit": 3, "remaining": 2, "reset": 60,
                "retry_after": null, "soft_over": false,
            }],
        })
    );
    assert_eq!(told.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(told.header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(told.header("ratelimit-policy"), Some("\"per-user\";q=3;w=60"));
    assert_eq!(told.header("ratelimit"), Some("\"per-user\";r=2;t=60"));
    assert_eq!(told.header("retry-after"), None);
}

#[tokio::test]
async fn a_denial_has_status_429_and_says_when_to_retry() {
    let bed = Bed::new();
    for _ in 0..3 {
        assert_eq!(bed.post("/v1/check", &user("u1")).await.status, 200);
    }
    bed.pass(18);
    let told = bed.post("/v1/check", &user("u1")).await;
    assert_eq!(told.status, 429);
    let answer = told.json();
    assert_eq!((&answer["decision"], &answer["retry_after"]), (&json!("deny"), &json!(42)));
    assert_eq!(answer["statuses"][0]["allowed"], false);
    assert_eq!(told.header("retry-after"), Some("42"));
    assert_eq!(told.header("x-ratelimit-retry-after"), Some("42"));
    assert_eq!(bed.post("/v1/check", &user("u2")).await.status, 200, "others are counted apart");
    bed.pass(42);
    assert_eq!(bed.post("/v1/check", &user("u1")).await.status, 200);
}

#[tokio::test]
async fn what_never_passes_has_no_retry_after() {
    let question = json!({ "domain": "api", "descriptors": [{ "entries": [["blocked", "x"]] }] });
    let told = Bed::new().post("/v1/check", &question).await;
    assert_eq!((told.status.as_u16(), told.header("retry-after")), (429, None));
}

#[tokio::test]
async fn a_peek_charges_nothing() {
    let bed = Bed::new();
    for _ in 0..5 {
        let told = bed.post("/v1/check", &with(user("u1"), "peek", json!(true))).await;
        assert_eq!(told.json()["decision"], "allow");
    }
    assert_eq!(bed.post("/v1/check", &with(user("u1"), "hits", json!(3))).await.json()["remaining"], 0);
    assert_eq!(bed.post("/v1/check", &with(user("u1"), "peek", json!(true))).await.status, 429);
}

#[tokio::test]
async fn a_request_is_identified() {
    let bed = Bed::new();
    let ask = |peer: &str, forwarded: &str| {
        let headers = json!({ "X-Forwarded-For": forwarded });
        json!({ "request": { "method": "GET", "path": "/x", "peer": peer, "headers": headers } })
    };
    for _ in 0..2 {
        assert_eq!(bed.post("/v1/check", &ask("127.0.0.1", "192.0.2.1")).await.status, 200);
    }
    let told = bed.post("/v1/check", &ask("127.0.0.1", "192.0.2.1")).await;
    assert_eq!((told.status.as_u16(), &told.json()["rule"]), (429, &json!("per-client_ip")));
    assert_eq!(bed.post("/v1/check", &ask("127.0.0.1", "192.0.2.2")).await.status, 200);
    let forged = bed.post("/v1/check", &ask("192.0.2.1", "198.51.100.1")).await;
    assert_eq!(forged.status, 429, "what a peer that is no proxy says of its address is not believed");
}

#[tokio::test]
async fn a_request_that_must_be_refused_is() {
    let question = json!({ "request": { "method": "GET", "path": "/keyed", "peer": "192.0.2.1" } });
    let told = Bed::new().post("/v1/check", &question).await;
    assert_eq!((told.status.as_u16(), &told.json()["decision"]), (429, &json!("deny")));
}

#[tokio::test]
async fn a_batch_is_decided_item_by_item_in_order() {
    let bed = Bed::new();
    let batch: Vec<Value> = ["a", "b", "a", "a", "a", "b"].into_iter().map(user).collect();
    let told = bed.post("/v1/check", &json!(batch)).await;
    assert_eq!(told.status, 200, "whatever the answers are");
    let answers = told.json();
    let answers: Vec<(&str, u64)> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| (answer["decision"].as_str().unwrap(), answer["remaining"].as_u64().unwrap()))
        .collect();
    let expected = [("allow", 2), ("allow", 2), ("allow", 1), ("allow", 0), ("deny", 0), ("allow", 1)];
    assert_eq!(answers, expected);
    assert_eq!(told.header("x-ratelimit-limit"), None, "no fields are right for all of them");
    assert_eq!(bed.post("/v1/check", &json!([])).await.json(), json!([]));
}

#[tokio::test]
async fn a_mistake_in_a_batch_charges_nothing() {
    let bed = Bed::new();
    let told = bed.post("/v1/check", &json!([user("u1"), user("u1"), { "domain": "api" }])).await;
    told.is_problem(400, "question 2 (counted from 0)");
    assert_eq!(bed.post("/v1/check", &user("u1")).await.json()["remaining"], 2);
}

#[tokio::test]
async fn batches_are_bounded() {
    let bed = Bed::new();
    let batch = |count| Value::Array(vec![user("u1"); count]);
    let told = bed.post("/v1/check", &batch(MAX_BATCH)).await;
    assert_eq!(told.json().as_array().unwrap().len(), MAX_BATCH);
    bed.post("/v1/check", &batch(MAX_BATCH + 1)).await.is_problem(400, "at most 1000");
}

#[tokio::test]
async fn descriptors_are_bounded() {
    let bed = Bed::new();
    let question = |count| {
        let descriptor = json!({ "entries": [["user", "u1"]], "hits": 0 });
        json!({ "domain": "api", "descriptors": vec![descriptor; count] })
    };
    assert_eq!(bed.post("/v1/check", &question(MAX_DESCRIPTORS)).await.status, 200);
    bed.post("/v1/check", &question(MAX_DESCRIPTORS + 1)).await.is_problem(400, "at most 64 descriptors");
    let within_a_batch = json!([question(MAX_DESCRIPTORS + 1)]);
    bed.post("/v1/check", &within_a_batch).await.is_problem(400, "at most 64 descriptors");
}

#[tokio::test]
async fn refunds_need_the_write_right() {
    let bed = Bed::with(|config| config.access.allow_from = vec!["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(from_afar(&bed, &with(user("u1"), "hits", json!(3))).await.status, 200);
    let mut of_a_descriptor = user("u1");
    of_a_descriptor["descriptors"][0]["hits"] = json!(-1);
    for refund in [with(user("u1"), "hits", json!(-1)), of_a_descriptor] {
        from_afar(&bed, &refund).await.is_problem(403, "write right");
        from_afar(&bed, &json!([user("u9"), refund])).await.is_problem(403, "write right");
        let told = bed.post("/v1/check", &refund).await;
        assert_eq!((told.status.as_u16(), &told.json()["decision"]), (200, &json!("allow")));
    }
    assert_eq!(bed.post("/v1/check", &with(user("u1"), "hits", json!(0))).await.json()["remaining"], 2);
}

#[tokio::test]
async fn strangers_are_turned_away_before_their_body_is_read() {
    let bed = Bed::new();
    from_afar(&bed, &user("u1")).await.is_problem(403, "allow_from");
    let unread = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let body = axum::body::Body::from_stream(unread);
    let told = bed.ask_from("192.0.2.9", Request::post("/v1/check"), body).await;
    told.is_problem(403, "allow_from");
}

#[tokio::test]
async fn what_is_no_question_is_told_where_it_goes_wrong() {
    let bed = Bed::new();
    for (body, words) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("null", "line 1"),
        ("\"text\"", "line 1"),
        ("[1]", "line 1"),
        ("[{}", "EOF"),
        ("{}", "neither"),
        (r#"{"domian":"api"}"#, "domian"),
        (r#"{"domain":"api","descriptors":[{"entries":[["user"]]}]}"#, "line 1"),
        (r#"{"domain":"api","descriptors":[{"entries":[["user","u"]],"hits":1.5}]}"#, "1.5"),
        (r#"{"domain":"api","descriptors":[]}"#, "empty"),
        ("\u{feff}{}", "line 1"),
    ] {
        let told = bed.ask_from("127.0.0.1", Request::post("/v1/check"), body).await;
        told.is_problem(400, words);
    }
    let not_text = bed.ask_from("127.0.0.1", Request::post("/v1/check"), &b"\xff\xfe"[..]).await;
    not_text.is_problem(400, "line 1");
    let deep = "[".repeat(100_000);
    bed.ask_from("127.0.0.1", Request::post("/v1/check"), deep).await.is_problem(400, "line 1");
}

#[tokio::test]
async fn hostile_numbers_are_answered() {
    let bed = Bed::new();
    for hits in [i64::MAX, i64::MIN, -1, 0] {
        let told = bed.post("/v1/check", &with(user("u1"), "hits", json!(hits))).await;
        let expected = if hits > 0 { 429 } else { 200 };
        assert_eq!(told.status.as_u16(), expected, "{hits}: {}", told.body);
    }
}

#[tokio::test]
async fn the_last_unit_is_won_once() {
    let bed = Arc::new(Bed::new());
    bed.post("/v1/check", &with(user("u1"), "hits", json!(2))).await;
    let tasks = (0..200).map(|_| {
        let bed = Arc::clone(&bed);
        tokio::spawn(async move { bed.post("/v1/check", &user("u1")).await.status.as_u16() })
    });
    let mut passed = 0;
    for task in tasks.collect::<Vec<_>>() {
        passed += usize::from(task.await.unwrap() == 200);
    }
    assert_eq!(passed, 1);
}
