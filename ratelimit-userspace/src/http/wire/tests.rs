use super::*;

fn question(text: &str) -> Result<Question, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Why a question of descriptors is refused; no identifier is needed for that.
fn refusal(text: &str) -> QuestionError {
    let Question { domain, descriptors, hits, peek, .. } = question(text).unwrap();
    ask(domain.unwrap(), descriptors.unwrap(), hits.unwrap_or(1), peek).unwrap_err()
}

#[test]
fn descriptors_say_how_often_they_count() {
    let text = r#"{"domain":"api","descriptors":[
        {"entries":[["client_ip","192.0.2.1"],["user",""]]},
        {"entries":[["user","7"]],"hits":-3},
        {"entries":[["user","8"]],"hits":0}],"hits":5}"#;
    let Question { domain, descriptors, hits, peek, .. } = question(text).unwrap();
    let asked = ask(domain.unwrap(), descriptors.unwrap(), hits.unwrap(), peek).unwrap();
    assert_eq!(asked.domain, "api");
    assert!(!asked.peek);
    let hits: Vec<_> = asked.descriptors.iter().map(|descriptor| descriptor.hits).collect();
    assert_eq!(hits, [5, -3, 0]);
    let entries: Vec<_> =
        asked.descriptors[0].entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
    assert_eq!(entries, [("client_ip", "192.0.2.1"), ("user", "")]);
}

#[test]
fn what_cannot_be_decided_is_refused() {
    assert_eq!(refusal(r#"{"domain":"api","descriptors":[]}"#), QuestionError::NoDescriptors);
    assert_eq!(
        refusal(r#"{"domain":"api","descriptors":[{"entries":[["a","b"]]},{"entries":[]}]}"#),
        QuestionError::NoEntries(2)
    );
    assert_eq!(
        refusal(r#"{"domain":"api","descriptors":[{"entries":[["","b"]]}]}"#),
        QuestionError::EmptyKey(1)
    );
}

#[test]
fn what_has_another_shape_is_no_question() {
    let cases = [
        (r#"{"domian":"api"}"#, "unknown field `domian`"),
        (r#"{"domain":"api","domain":"b"}"#, "duplicate field `domain`"),
        (r#"{"descriptors":[{"entries":[["a"]]}]}"#, "invalid length 1"),
        (r#"{"descriptors":[{"entries":[["a","b","c"]]}]}"#, "trailing characters"),
        (r#"{"descriptors":[{"entries":[["a",1]]}]}"#, "invalid type: integer `1`, expected a string"),
        (r#"{"descriptors":[{"entries":[["a","b"]],"hits":1.5}]}"#, "expected i64"),
        (r#"{"descriptors":[{"entries":[["a","b"]],"hits":9223372036854775808}]}"#, "expected i64"),
        (r#"{"descriptors":[{"entries":[["a","b"]],"cost":1}]}"#, "unknown field `cost`"),
        (r#"{"descriptors":[{"hits":1}]}"#, "missing field `entries`"),
        (r#"{"request":{"method":"GET"}}"#, "missing field `path`"),
        (r#"{"request":{"method":"GET","path":"/","peer":"fe80::1%eth0"}}"#, "invalid IP address syntax"),
        (r#"{"request":{"method":"GET","path":"/","header":{}}}"#, "unknown field `header`"),
        (
            r#"{"request":{"method":"GET","path":"/","headers":{"a b":"c"}}}"#,
            "\"a b\" is no name of a header",
        ),
        (
            r#"{"request":{"method":"GET","path":"/","headers":{"a":"c\u0000"}}}"#,
            "the value of \"a\" has control characters",
        ),
        (
            r#"{"request":{"method":"GET","path":"/","headers":{"a":1}}}"#,
            "a header's value is a string or a list of strings",
        ),
    ];
    for (text, message) in cases {
        let error = question(text).unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn a_request_has_headers_of_one_or_several_lines() {
    let text = r#"{"peek":true,"hits":2,"request":{"method":"GET","path":"/v1/x?y=1","peer":"192.0.2.1",
        "host":"example.com","headers":{"X-Api-Key":"k","cookie":["a=1","b=2"],"COOKIE":"c=3"}}}"#;
    let Question { request, hits, peek, .. } = question(text).unwrap();
    assert_eq!((hits, peek), (Some(2), true));
    let request = identify::Request::from(request.unwrap());
    assert_eq!((&*request.method, &*request.target), ("GET", "/v1/x?y=1"));
    assert_eq!(request.host.as_deref(), Some("example.com"));
    assert_eq!(request.peer, Some(IpAddr::from([192, 0, 2, 1])));
    assert_eq!(request.headers["x-api-key"], "k");
    let cookies: Vec<_> = request.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2", "c=3"]);
}

#[test]
fn an_answer_has_a_number_where_there_is_one() {
    let answer = Answer {
        decision: "deny",
        rule: Some("per-address"),
        limit: Some(60),
        remaining: Some(0),
        reset: Some(Seconds(12_500_000_000)),
        retry_after: Some(13),
        delay: None,
    };
    let expected = r#"{"decision":"deny","rule":"per-address","limit":60,"remaining":0,"reset":12.5,"retry_after":13,"delay":null}"#;
    assert_eq!(serde_json::to_string(&answer).unwrap(), expected);
}

#[test]
fn seconds_are_exact_and_short() {
    let cases = [
        (0, "0"),
        (1, "0.000000001"),
        (12_500_000_000, "12.5"),
        (30_000_000_000, "30"),
        (1_000_000_010, "1.00000001"),
        (u64::MAX, "18446744073.709551615"),
    ];
    for (nanos, text) in cases {
        assert_eq!(Seconds(nanos).to_string(), text);
        assert_eq!(serde_json::to_string(&Seconds(nanos)).unwrap(), text);
    }
}
