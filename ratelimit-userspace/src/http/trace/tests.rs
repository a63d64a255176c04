use std::net::IpAddr;

use super::*;
use crate::http::ask::{Decision, Standing};

fn trace(text: &str) -> Trace<&[u8]> {
    Trace::new(PathBuf::from("requests.jsonl"), text.as_bytes())
}

fn lines(text: &str) -> Vec<Line> {
    let mut trace = trace(text);
    std::iter::from_fn(|| trace.next_line().unwrap()).collect()
}

/// The message for the first line that cannot be read.
fn error(text: &str) -> String {
    let mut trace = trace(text);
    loop {
        match trace.next_line() {
            Ok(line) => assert!(line.is_some(), "{text} should be refused"),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn both_kinds_of_lines_are_read() {
    let text = concat!(
        r#"{"t":12.5,"domain":"api","descriptors":[{"entries":[["client_ip","192.0.2.1"]],"hits":-2},{"entries":[["a","b"],["c","d"]]}]}"#,
        "\r\n\n",
        r#"{"request":{"method":"GET","path":"/v1/x","peer":"192.0.2.1","headers":{"x-api-key":"k"}},"t":3e0,"hits":0}"#,
    );
    let [first, second] = <[Line; 2]>::try_from(lines(text)).unwrap();
    assert_eq!(first.time.nanos(), 12_500_000_000);
    assert_eq!(first.question.domain.as_deref(), Some("api"));
    let descriptors = first.question.descriptors.unwrap();
    assert_eq!(descriptors[0].hits, Some(-2));
    assert_eq!(descriptors[0].entries, [("client_ip".to_owned(), "192.0.2.1".to_owned())]);
    assert_eq!((descriptors[1].hits, descriptors[1].entries.len()), (None, 2));

    assert_eq!(second.time.nanos(), 3_000_000_000);
    assert_eq!(second.question.hits, Some(0));
    let request = second.question.request.unwrap();
    assert_eq!((&*request.method, &*request.path), ("GET", "/v1/x"));
    assert_eq!(request.peer, Some(IpAddr::from([192, 0, 2, 1])));
    assert_eq!(request.headers["x-api-key"], "k");
}

#[test]
fn an_empty_trace_has_no_lines() {
    assert!(lines("").is_empty());
    assert!(lines("\n \r\n\t\n").is_empty());
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let good = "{\"t\":1,\"domain\":\"a\",\"descriptors\":[{\"entries\":[[\"a\",\"b\"]]}]}\n";
    let cases = [
        ("\u{0}junk", "requests.jsonl:1:1: expected value"),
        ("[]", "requests.jsonl:1:"),
        ("{\"t\":1", "requests.jsonl:1:6: EOF while parsing an object"),
        ("{\"t\":1} {}", "requests.jsonl:1:9: trailing characters"),
        ("{\"domain\":\"a\"}", "requests.jsonl:1:14: missing field `t`"),
        ("{\"t\":1,\"time\":2}", "requests.jsonl:1:13: unknown field `time`"),
        ("{\"t\":1,\"t\":2}", "requests.jsonl:1:10: duplicate field `t`"),
        ("{\"t\":1,\"hits\":1.0}", "invalid type: floating point `1.0`, expected i64"),
        ("{\"t\":-1,\"hits\":1}", "requests.jsonl:1: `t` is negative"),
        ("{\"t\":1e20,\"hits\":1}", "requests.jsonl:1: `t` is too large"),
        ("{\"t\":\"1\",\"hits\":1}", "requests.jsonl:1: `t` is not a number"),
    ];
    for (text, message) in cases {
        let found = error(text);
        assert!(found.contains(message), "{text}: {found}");
        let third = error(&format!("{good}\n{text}"));
        assert!(third.starts_with("requests.jsonl:3:"), "{text}: {third}");
    }
}

#[test]
fn a_line_is_bounded() {
    let endless = format!("{{\"t\":1,\"domain\":\"{}", "a".repeat(MAX_LINE_BYTES));
    assert_eq!(error(&endless), "requests.jsonl:1: the line is longer than 1 MiB");
    let longest = format!("{}{{\"t\":7}}", " ".repeat(MAX_LINE_BYTES - 7));
    assert_eq!(lines(&longest)[0].time.nanos(), 7_000_000_000);
}

#[test]
fn a_question_that_cannot_be_decided_is_named_by_its_line() {
    let mut trace = trace("\n{\"t\":1}");
    trace.next_line().unwrap();
    let message = trace.undecidable(&QuestionError::Nothing).to_string();
    assert!(message.starts_with("requests.jsonl:2: there is neither"), "{message}");
}

#[test]
fn an_answer_repeats_the_time_as_it_was_written() {
    let answer = ask::Answer {
        decision: Decision::Delay,
        rule: None,
        standing: Some(Standing { limit: 10, remaining: 3, reset: 30_000_000_000 }),
        retry_after: None,
        delay: Some(1),
        statuses: Vec::new(),
        refusal: None,
    };
    for t in ["12.50", "1.25E+1", "0.000000000100", "18446744073.709551615"] {
        let line = &lines(&format!("{{\"t\": {t} ,\"hits\":1}}"))[0];
        assert_eq!(
            serde_json::to_string(&Answered::new(&line.time, &answer)).unwrap(),
            format!(
                "{{\"t\":{t},\"decision\":\"delay\",\"rule\":null,\"limit\":10,\"remaining\":3,\"reset\":30,\
                 \"retry_after\":null,\"delay\":0.000000001}}"
            )
        );
    }
}
