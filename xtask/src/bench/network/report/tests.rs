use anyhow::anyhow;
use serde_json::json;

use super::*;

fn shed(contender: Contender, sources: u32, rules: u32, deny: u32, ns_per_packet: f64) -> Row {
    let case = Shed { contender, sources, rules, deny };
    Row::Shed { case, outcome: Outcome::Measured(Runs { ns_per_packet, runs: 5, spread: 0.1 }) }
}

#[test]
fn rows_have_the_documented_form() {
    let rows = [
        shed(Contender::XdpDrop, 1_000, 1, 0, 100.0),
        Row::Shed {
            case: Shed { contender: Contender::Nft, sources: 1, rules: 1, deny: 0 },
            outcome: Err(anyhow!("no nft").context("failed to set up")).into(),
        },
        Row::TestRun { case: "empty", outcome: Outcome::Measured(PerPacket { ns_per_packet: 25.0 }) },
        Row::Load { outcome: Outcome::Measured(Milliseconds { ms: 700.5 }) },
        Row::Memory { outcome: Outcome::Measured(Bytes { bytes: 1 << 25 }) },
    ];
    let expected = json!([
        {
            "bench": "shed", "contender": "xdp_drop", "sources": 1000, "rules": 1, "deny": 0,
            "ns_per_packet": 100.0, "runs": 5, "spread": 0.1
        },
        {
            "bench": "shed", "contender": "nft", "sources": 1, "rules": 1, "deny": 0,
            "skipped": "failed to set up: no nft"
        },
        { "bench": "test_run", "case": "empty", "ns_per_packet": 25.0 },
        { "bench": "load", "ms": 700.5 },
        { "bench": "memory", "bytes": 33_554_432 },
    ]);
    assert_eq!(serde_json::to_value(rows).unwrap(), expected);
}

#[test]
fn a_goal_without_its_figures_is_not_met() {
    let report = Report::default();
    assert!(report.goals().iter().all(|goal| !goal.met()));
    assert_eq!(report.goals().len(), 12);
}

#[test]
fn goals_are_ratios_of_like_with_like() {
    let rows = vec![
        shed(Contender::Ratelimit, 1_000, 1, 0, 150.0),
        shed(Contender::Ratelimit, 1_000, 64, 0, 180.0),
        shed(Contender::XdpDrop, 1_000, 1, 0, 100.0),
        shed(Contender::XdpDrop, 1, 1, 0, 10.0),
        shed(Contender::Nft, 1_000, 1, 0, 300.0),
    ];
    let report = Report { rows, bucket_bytes: Some(32 << 20) };
    let met = |what: &str| {
        let goals = report.goals();
        let goal = goals.iter().find(|goal| goal.what.contains(what)).unwrap();
        (goal.figure, goal.met())
    };
    assert_eq!(met("bare XDP_DROP"), (Some(1.5), true));
    assert_eq!(met("nft"), (Some(0.5), false));
    assert_eq!(met("1000 sources, 64 rules"), (Some(1.2), false));
    assert_eq!(met("capacity"), (Some(32.0), true));
    assert_eq!(met("hashlimit"), (None, false));
}
