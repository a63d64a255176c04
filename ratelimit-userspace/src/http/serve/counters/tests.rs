use http::Request;
use serde_json::json;

use super::*;
use crate::http::serve::fixture::{Bed, Told};

const U1: &str = "/v1/counters?domain=api&key=user&value=u1";

async fn get(bed: &Bed, path: &str) -> Told {
    bed.ask_from("127.0.0.1", Request::get(path), "").await
}

async fn delete(bed: &Bed, path: &str) -> Told {
    bed.ask_from("127.0.0.1", Request::delete(path), "").await
}

async fn charge(bed: &Bed, user: &str) -> Told {
    bed.post("/v1/check", &json!({ "domain": "api", "descriptors": [{ "entries": [["user", user]] }] })).await
}

#[tokio::test]
async fn a_counter_can_be_looked_at_and_reset() {
    let bed = Bed::new();
    for user in ["u1", "u1", "u2"] {
        charge(&bed, user).await;
    }
    bed.pass(10);
    let counter = get(&bed, U1).await.json();
    assert_eq!(
        (&counter["limit"], &counter["remaining"], &counter["used"], &counter["reset"]),
        (&json!(3), &json!(1), &json!(2), &json!(50))
    );
    assert!(counter["rule"].as_str().unwrap().contains("user"), "{counter}");
    assert!(!counter["identity"].as_str().unwrap().is_empty());
    assert_eq!(get(&bed, U1).await.json(), counter, "looking changes nothing");
    assert_eq!(delete(&bed, U1).await.json(), json!({ "reset": true }));
    assert_eq!(delete(&bed, U1).await.json(), json!({ "reset": false }));
    let after = get(&bed, U1).await.json();
    assert_eq!(
        (&after["remaining"], &after["used"], &after["identity"]),
        (&json!(3), &json!(0), &counter["identity"])
    );
    assert_eq!(get(&bed, "/v1/counters?domain=api&key=user&value=u2").await.json()["used"], 1);
}

#[tokio::test]
async fn what_no_rule_counts_is_not_found() {
    let bed = Bed::new();
    for query in ["domain=none&key=user&value=u1", "domain=api&key=none", "domain=api&key=user&value=a&key=b"]
    {
        get(&bed, &format!("/v1/counters?{query}")).await.is_problem(404, "no rule");
        delete(&bed, &format!("/v1/counters?{query}")).await.is_problem(404, "no rule");
    }
}

#[tokio::test]
async fn resetting_needs_the_write_right() {
    let bed = Bed::with(|config| config.access.allow_from = vec!["192.0.2.0/24".parse().unwrap()]);
    charge(&bed, "u1").await;
    let from = async |request| bed.ask_from("192.0.2.9", request, "").await;
    assert_eq!(from(Request::get(U1)).await.json()["used"], 1);
    from(Request::delete(U1)).await.is_problem(403, "write right");
    assert_eq!(get(&bed, U1).await.json()["used"], 1);
}

#[test]
fn entries_are_pairs_in_order_and_decoded() {
    let ask = parse("domain=a%20b&key=x&value=1%262&key=bare&key=y&value=%C3%A9").unwrap();
    assert_eq!(ask.domain, "a b");
    let entries = &ask.descriptors[0].entries;
    let entries: Vec<(&str, &str)> = entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
    assert_eq!(entries, [("x", "1&2"), ("bare", ""), ("y", "é")]);
}

#[test]
fn mistakes_are_told() {
    for (query, words) in [
        ("", "`domain` is missing"),
        ("key=a", "`domain` is missing"),
        ("domain=a", "no entry"),
        ("domain=a&domain=b&key=x", "twice"),
        ("domain=a&value=1", "`key` before it"),
        ("domain=a&key=x&value=1&value=2", "`key` before it"),
        ("domain=a&key=&value=1", "empty"),
        ("domain=a&entry=x", "\"entry\""),
    ] {
        let problem = parse(query).unwrap_err();
        assert!(problem.detail().contains(words), "{query}: {}", problem.detail());
    }
}
