use std::{cell::RefCell, path::PathBuf};

use super::*;
use crate::{
    config::http::{
        self as config, Access, ClientAddress, Compatibility, Domain, EntrySource, Http, Identify, Missing,
        OnFull, RequestMatch, Source, ValuePattern,
    },
    http::{rules::RuleBook, trace::Answered},
};

/// `GET` requests are known by their user, `POST` requests must have one.
fn identifier() -> Identifier {
    let item = |method: &str, missing| Identify {
        matches: RequestMatch { methods: vec![method.to_owned()], ..RequestMatch::default() },
        domain: "api".to_owned(),
        descriptors: vec![vec![EntrySource {
            key: "user".to_owned(),
            source: Source::Header("x-user".to_owned()),
            secret: false,
            missing,
        }]],
        line: 1,
    };
    let config = Http {
        listen: None,
        grpc_listen: None,
        rule_paths: Vec::new(),
        domains: Vec::new(),
        trusted_proxies: Vec::new(),
        client_address: ClientAddress::Peer,
        max_keys: 1,
        on_full: OnFull::Evict,
        identify: vec![item("GET", Missing::Skip), item("POST", Missing::Deny)],
        access: Access::default(),
        answer: config::Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    };
    Identifier::new(&config, [0; 32])
}

fn rule(domain: &str, name: &str) -> Arc<Rule> {
    let rule = config::Rule {
        name: Some(name.to_owned()),
        limit: None,
        shadow: false,
        quota: false,
        replaces: Vec::new(),
        cost: 1,
        overrides: Vec::new(),
        escalate: None,
    };
    let descriptor = config::Descriptor {
        key: name.to_owned(),
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(rule),
        descriptors: Vec::new(),
        line: 1,
    };
    let domain = Domain {
        name: domain.to_owned(),
        file: PathBuf::from("rules.yaml"),
        compatibility: Compatibility::Native,
        descriptors: vec![descriptor],
    };
    Arc::clone(RuleBook::new(&[domain], None).rules().next().unwrap())
}

fn answer(decision: Decision, rule: Option<&Arc<Rule>>, refusal: Option<Refusal>) -> Answer {
    Answer {
        decision,
        rule: rule.cloned(),
        standing: None,
        retry_after: None,
        delay: None,
        statuses: Vec::new(),
        refusal,
    }
}

fn request(t: &str, method: &str, user: Option<&str>) -> String {
    let headers = user.map_or_else(String::new, |user| format!(r#","headers":{{"x-user":"{user}"}}"#));
    format!("{{\"t\":{t},\"request\":{{\"method\":\"{method}\",\"path\":\"/\"{headers}}}}}\n")
}

fn trace(text: &str) -> Trace<&[u8]> {
    Trace::new(PathBuf::from("requests.jsonl"), text.as_bytes())
}

#[test]
fn requests_are_judged_in_the_order_of_the_trace_at_their_own_time() {
    let text = [
        request("20.5", "GET", Some("a")),
        request("1e1", "GET", None),
        request("30", "PUT", None),
        request("31", "POST", None),
        "{\"t\":5,\"domain\":\"other\",\"descriptors\":[{\"entries\":[[\"k\",\"v\"]]}],\"hits\":-3,\"peek\":true}\n"
            .to_owned(),
    ]
    .concat();
    let asked = RefCell::new(Vec::new());
    let mut lines = Vec::new();
    replay(
        &mut trace(&text),
        &identifier(),
        |ask, now| {
            let hits: Vec<_> = ask.descriptors.iter().map(|descriptor| descriptor.hits).collect();
            asked.borrow_mut().push((now.steady, now.utc, ask.domain.to_string(), hits, ask.peek));
            answer(Decision::Allow, None, None)
        },
        |judgement| {
            let line = serde_json::to_string(&Answered::new(&judgement.time, &judgement.answer))?;
            lines.push((line, judgement.unmatched, judgement.no_descriptor));
            Ok(())
        },
    )
    .unwrap();
    let second = 1_000_000_000;
    assert_eq!(
        asked.into_inner(),
        [
            (20_500_000_000, 20_500_000_000, "api".to_owned(), vec![1], false),
            (10 * second, 10 * second, "api".to_owned(), vec![], false),
            (5 * second, 5 * second, "other".to_owned(), vec![-3], true),
        ]
    );
    let nulls = r#""rule":null,"limit":null,"remaining":null,"reset":null,"retry_after":null,"delay":null}"#;
    let expected = [
        ("20.5", "allow", false, false),
        ("1e1", "allow", false, true),
        ("30", "allow", true, false),
        ("31", "deny", false, false),
        ("5", "allow", false, false),
    ];
    let expected = expected.map(|(t, decision, unmatched, no_descriptor)| {
        (format!("{{\"t\":{t},\"decision\":\"{decision}\",{nulls}"), unmatched, no_descriptor)
    });
    assert_eq!(lines, expected);
}

#[test]
fn what_came_before_a_mistake_is_judged() {
    for mistake in ["{\"t\":1}\n", "{\n", "{\"t\":-1,\"request\":{\"method\":\"GET\",\"path\":\"/\"}}\n"] {
        let text = [&request("1", "GET", None), &request("2", "GET", None), mistake].concat();
        let mut judged = 0;
        let outcome = replay(
            &mut trace(&text),
            &identifier(),
            |_, _| answer(Decision::Allow, None, None),
            |_| {
                judged += 1;
                Ok(())
            },
        );
        let message = outcome.unwrap_err().to_string();
        assert!(message.starts_with("requests.jsonl:3:"), "{message}");
        assert_eq!(judged, 2);
    }
}

#[test]
fn requests_are_counted_by_decision_and_rule() {
    let (first, second) = (rule("api", "per-user"), rule("api", "per-address"));
    let late = rule("other", "per-user");
    let mut tally = Tally::new([&first, &second].into_iter());
    let line = |t| trace(&request(t, "GET", None)).next_line().unwrap().unwrap().time;
    let mut count = |t, answer: Answer, unmatched, no_descriptor| {
        tally.count(&Judgement { time: line(t), answer, unmatched, no_descriptor });
    };
    count("10", answer(Decision::Allow, Some(&first), None), false, false);
    count("12.5", answer(Decision::Deny, Some(&first), None), false, false);
    count("3", answer(Decision::Delay, Some(&late), None), false, false);
    count("4", answer(Decision::Shadow, None, None), false, false);
    count("4", answer(Decision::Allow, None, None), true, false);
    count("4", answer(Decision::Allow, None, None), false, true);
    count("4", answer(Decision::Deny, None, Some(Refusal::MissingEntry)), false, false);
    count("4", answer(Decision::Deny, None, Some(Refusal::StoreFull)), false, false);

    assert_eq!(tally.decisions, Decisions { allowed: 3, denied: 3, delayed: 1, shadow: 1 });
    assert_eq!(tally.decisions.total(), 8);
    assert_eq!(tally.no_rule, Decisions { allowed: 2, denied: 2, delayed: 0, shadow: 1 });
    let rules: Vec<_> =
        tally.rules.iter().map(|rule| (&*rule.domain, &*rule.label, rule.decisions.total())).collect();
    assert_eq!(rules, [("api", "per-user", 2), ("api", "per-address", 0), ("other", "per-user", 1)]);
    let special = [tally.unmatched, tally.no_descriptor, tally.missing_entry, tally.store_full];
    assert_eq!(special, [1, 1, 1, 1]);
    assert_eq!(tally.span().to_string(), "9.5");
    assert_eq!(Tally::default().span().to_string(), "0");
}
