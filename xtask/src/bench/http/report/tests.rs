use anyhow::anyhow;
use serde_json::json;

use super::{
    super::row::{PerDecision, PerKey, PerRequest, Resident},
    *,
};

fn decision(contender: Contender, algorithm: Algorithm, ns_per_decision: f64) -> Row {
    let case = Keyed { contender, algorithm, keys: KEYS };
    Row::Decision { case, outcome: Outcome::Measured(PerDecision { ns_per_decision, runs: 5, spread: 0.1 }) }
}

fn rules(contender: Contender, rules: u32, ns_per_decision: f64) -> Row {
    let case = Ruled { contender, rules };
    Row::Rules { case, outcome: Outcome::Measured(PerDecision { ns_per_decision, runs: 5, spread: 0.1 }) }
}

fn request(endpoint: Endpoint, contender: Contender, cpu_ns_per_request: f64) -> Row {
    let case = Served { endpoint, contender };
    Row::Request { case, outcome: Outcome::Measured(PerRequest { cpu_ns_per_request, runs: 5, spread: 0.1 }) }
}

#[test]
fn rows_have_the_documented_form() {
    let key = Keyed { contender: Contender::Governor, algorithm: Algorithm::TokenBucket, keys: KEYS };
    let rows = [
        decision(Contender::Ratelimit, Algorithm::SlidingWindow, 120.5),
        Row::KeyMemory { case: key, outcome: Outcome::Measured(PerKey { bytes_per_key: 99.5 }) },
        rules(Contender::Limitador, 1_000, 9_000.0),
        request(Endpoint::Grpc, Contender::Reference, 8_000.0),
        Row::IdleConnections {
            connections: CONNECTIONS,
            outcome: Err(anyhow!("not enough files").context("failed to open")).into(),
        },
    ];
    let expected = json!([
        {
            "bench": "decision", "contender": "ratelimit", "algorithm": "sliding_window", "keys": 1_000_000,
            "ns_per_decision": 120.5, "runs": 5, "spread": 0.1
        },
        {
            "bench": "key_memory", "contender": "governor", "algorithm": "token_bucket", "keys": 1_000_000,
            "bytes_per_key": 99.5
        },
        {
            "bench": "rules", "contender": "limitador", "rules": 1000,
            "ns_per_decision": 9000.0, "runs": 5, "spread": 0.1
        },
        {
            "bench": "request", "endpoint": "grpc", "contender": "reference",
            "cpu_ns_per_request": 8000.0, "runs": 5, "spread": 0.1
        },
        {
            "bench": "idle_connections", "connections": 10_000,
            "skipped": "failed to open: not enough files"
        },
    ]);
    assert_eq!(serde_json::to_value(rows).unwrap(), expected);
}

#[test]
fn a_goal_without_its_figures_is_not_met() {
    let goals = Report::default().goals();
    assert!(goals.iter().all(|goal| !goal.met()));
    assert_eq!(goals.len(), 8);
}

#[test]
fn goals_compare_like_with_like() {
    let rows = vec![
        decision(Contender::Ratelimit, Algorithm::TokenBucket, 90.0),
        decision(Contender::Ratelimit, Algorithm::SlidingWindow, 135.0),
        decision(Contender::Governor, Algorithm::TokenBucket, 100.0),
        rules(Contender::Ratelimit, 1, 40.0),
        rules(Contender::Ratelimit, 1_000, 50.0),
        rules(Contender::Limitador, 1_000, 5_000.0),
        request(Endpoint::Check, Contender::Ratelimit, 10_000.0),
        request(Endpoint::Check, Contender::Reference, 9_000.0),
        request(Endpoint::Grpc, Contender::Ratelimit, 10_000.0),
        request(Endpoint::Grpc, Contender::Reference, 8_000.0),
        Row::IdleConnections {
            connections: CONNECTIONS,
            outcome: Outcome::Measured(Resident { rss_bytes: 150 << 20 }),
        },
    ];
    let report = Report { rows };
    let goals = report.goals();
    let goal = |what: &str| {
        let goal = goals.iter().find(|goal| goal.what.contains(what)).unwrap();
        (goal.figure, goal.met())
    };
    assert_eq!(goal("governor"), (Some(0.9), true));
    assert_eq!(goal("sliding window / token bucket"), (Some(1.5), false));
    assert_eq!(goal("1000 rules"), (Some(1.25), true));
    assert_eq!(goal("check"), (Some(0.9), true));
    assert_eq!(goal("gRPC"), (Some(0.8), false));
    assert_eq!(goal("idle"), (Some(150.0), true));
    assert_eq!(goal("bytes a key"), (None, false));
}

#[test]
fn contenders_report_in_the_terms_of_the_rows() {
    let keyed: Keyed =
        serde_json::from_value(json!({ "contender": "governor", "algorithm": "token_bucket", "keys": 7 }))
            .unwrap();
    assert_eq!(keyed, Keyed { contender: Contender::Governor, algorithm: Algorithm::TokenBucket, keys: 7 });
    let ruled: Ruled = serde_json::from_value(json!({ "contender": "limitador", "rules": 1000 })).unwrap();
    assert_eq!(ruled, Ruled { contender: Contender::Limitador, rules: 1_000 });
}
