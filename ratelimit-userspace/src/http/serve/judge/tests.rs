use super::*;
use crate::{
    config::http::Algorithm,
    http::{
        ask::Decision,
        serve::fixture::{answer, limit, policy, rule, status},
    },
};

fn denied(units: u64, retry_after: Option<u64>) -> Answer {
    let rule = rule("daily", policy(limit(units, 60, Algorithm::FixedWindow)));
    answer(Decision::Deny, retry_after, vec![status(&rule, 0, 0)])
}

#[test]
fn a_refusal_says_why_and_when_to_retry() {
    for (answer, words) in [
        (denied(10, Some(1)), "The limit \"daily\" of 10 is used up. Try again in 1 second."),
        (denied(10, Some(90)), "The limit \"daily\" of 10 is used up. Try again in 90 seconds."),
        (denied(10, None), "The limit \"daily\" admits 10 at once, and this request counts as more."),
        (denied(0, None), "The limit \"daily\" admits no requests."),
    ] {
        assert_eq!(explain(&answer), words);
    }
    let full = Answer { refusal: Some(Refusal::StoreFull), ..denied(10, None) };
    assert!(explain(&full).contains("no room"));
}
