use serde_json::{Value, json};

use super::*;
use crate::http::serve::fixture::Bed;

fn user(name: &str) -> Value {
    json!({ "domain": "api", "descriptors": [{ "entries": [{ "key": "user", "value": name }] }] })
}

#[tokio::test]
async fn the_answer_has_the_names_of_the_protobuf() {
    let bed = Bed::new();
    let told = bed.post("/json", &user("u1")).await;
    assert_eq!((told.status.as_u16(), told.header("content-type")), (200, Some("application/json")));
    let answer = told.json();
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(
        answer["statuses"],
        json!([{
            "code": "OK",
            "currentLimit": { "name": "per-user", "requestsPerUnit": 3, "unit": "MINUTE" },
            "limitRemaining": 2,
            "durationUntilReset": "60s",
        }])
    );
    let headers = answer["responseHeadersToAdd"].as_array().unwrap();
    assert!(headers.contains(&json!({ "key": "x-ratelimit-remaining", "value": "2" })), "{headers:?}");
}

#[tokio::test]
async fn over_the_limit_the_status_is_429() {
    let bed = Bed::new();
    for _ in 0..3 {
        assert_eq!(bed.post("/json", &user("u1")).await.status, 200);
    }
    let told = bed.post("/json", &user("u1")).await;
    assert_eq!(told.status, 429);
    let answer = told.json();
    assert_eq!(
        (&answer["overallCode"], &answer["statuses"][0]["code"]),
        (&json!("OVER_LIMIT"), &json!("OVER_LIMIT"))
    );
}

#[tokio::test]
async fn what_no_rule_limits_is_ok() {
    let question = json!({ "domain": "none", "descriptors": [{ "entries": [{ "key": "perday" }] }] });
    let told = Bed::new().post("/json", &question).await;
    assert_eq!((told.status.as_u16(), &told.json()["overallCode"]), (200, &json!("OK")));
    assert_eq!(told.json()["statuses"][0]["code"], "OK");
}

#[tokio::test]
async fn hits_may_be_anything_that_protobufs_write() {
    for (hits, remaining) in [(json!(2), 1), (json!("2"), 1), (json!(0), 2), (Value::Null, 2)] {
        for name in ["hitsAddend", "hits_addend"] {
            let bed = Bed::new();
            let mut question = user("u1");
            question[name] = hits.clone();
            let told = bed.post("/json", &question).await.json();
            assert_eq!(told["statuses"][0]["limitRemaining"], remaining, "{name}: {hits}");
        }
    }
    let bed = Bed::new();
    let mut peek = user("u1");
    peek["descriptors"][0]["hitsAddend"] = json!(0);
    assert_eq!(
        bed.post("/json", &peek).await.json()["statuses"][0]["limitRemaining"],
        3,
        "0 of a descriptor reads"
    );
}

#[tokio::test]
async fn limits_of_ones_own_and_refunds_need_the_write_right() {
    let bed = Bed::with(|config| config.access.allow_from = vec!["192.0.2.0/24".parse().unwrap()]);
    let from_afar = async |question: &Value| {
        bed.ask_from("192.0.2.9", http::Request::post("/json"), question.to_string()).await
    };
    let mut limited = user("u1");
    limited["descriptors"][0]["limit"] = json!({ "requestsPerUnit": 7, "unit": "HOUR" });
    from_afar(&limited).await.is_problem(403, "write right");
    let told = bed.post("/json", &limited).await.json();
    assert_eq!(told["statuses"][0]["currentLimit"]["requestsPerUnit"], 7);
    assert_eq!(told["statuses"][0]["currentLimit"]["unit"], "HOUR");
    limited["descriptors"][0]["limit"]["unit"] = json!(3);
    assert_eq!(bed.post("/json", &limited).await.json()["statuses"][0]["currentLimit"]["unit"], "HOUR");

    let mut refund = user("u2");
    refund["descriptors"][0]["isNegativeHits"] = json!(true);
    from_afar(&refund).await.is_problem(403, "write right");
    assert_eq!(bed.post("/json", &refund).await.status, 200);
}

#[tokio::test]
async fn a_bad_message_is_a_bad_request() {
    let bed = Bed::new();
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "{\"domain\":\"\"}",
        r#"{"domain":"api"}"#,
        r#"{"domain":"api","descriptors":[]}"#,
        r#"{"domain":"api","descriptors":[{"entries":["user"]}]}"#,
        r#"{"domain":"api","descriptors":[{}],"unknown":1}"#,
        r#"{"domain":"api","descriptors":[{}],"hitsAddend":-1}"#,
        r#"{"domain":"api","descriptors":[{}],"hitsAddend":1.5}"#,
        r#"{"domain":"api","descriptors":[{}],"hitsAddend":"x"}"#,
        r#"{"domain":"api","descriptors":[{"limit":{"requestsPerUnit":1,"unit":"FORTNIGHT"}}]}"#,
        r#"{"domain":"api","descriptors":[{"limit":{"requestsPerUnit":1,"unit":0}}]}"#,
        r#"{"domain":"api","descriptors":[{"limit":{"requestsPerUnit":1,"unit":99}}]}"#,
        r#"{"domain":"api","descriptors":[{"limit":{"requestsPerUnit":1,"unit":-99999999999}}]}"#,
    ] {
        let told = bed.ask_from("127.0.0.1", http::Request::post("/json"), body).await;
        told.is_problem(400, "");
    }
    let long = " ".repeat(MESSAGE + 1);
    bed.ask_from("127.0.0.1", http::Request::post("/json"), long).await.is_problem(413, "65536 bytes");
}

#[test]
fn durations_have_as_many_digits_as_they_need() {
    for (seconds, nanos, text) in [
        (26, 0, "26s"),
        (0, 500_000_000, "0.500s"),
        (1, 250_000, "1.000250s"),
        (1, 1, "1.000000001s"),
        (i64::MAX, 999_999_999, "9223372036854775807.999999999s"),
    ] {
        assert_eq!(duration(&Duration { seconds, nanos }), text);
    }
}
