//! What a decision costs among many rules, one of which matches.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::{
    Series,
    contender::{Contender, Limitador, Name, Ours},
    stopwatch::timed,
};

/// What tells one series from another.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    contender: Name,
    rules: u32,
}

/// Nanoseconds a decision; the contenders take turns.
pub(crate) fn run(numbers: &[u32], runs: u32, window: Duration) -> Result<Vec<Series<Case>>> {
    let routes: Vec<Vec<String>> = numbers
        .iter()
        .map(|rules| (0..*rules).map(|number| format!("/v1/route-{number}")).collect())
        .collect();

    let mut contenders: Vec<(Series<Case>, Box<dyn Contender + '_>)> = Vec::new();
    for (&rules, routes) in numbers.iter().zip(&routes) {
        let mut enter = |contender, limiter| {
            contenders.push((Series { case: Case { contender, rules }, costs: Vec::new() }, limiter));
        };
        enter(Name::Ratelimit, Box::new(Ours::by_route(routes)?));
        enter(Name::Limitador, Box::new(Limitador::by_route(routes)?));
    }
    for _ in 0..runs {
        for (series, limiter) in &mut contenders {
            // Neither the first nor the last rule.
            let matching = series.case.rules / 2;
            series.costs.push(cost(limiter.as_mut(), matching, window)?);
        }
    }
    Ok(contenders.into_iter().map(|(series, _)| series).collect())
}

/// Twice as many decisions each time, until they take long enough.
fn cost(limiter: &mut dyn Contender, request: u32, window: Duration) -> Result<f64> {
    let mut requests = vec![request];
    loop {
        let (time, passed) = timed(|| limiter.pass_all(&requests));
        passed?;
        if time >= window {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 decisions")]
            return Ok(time.as_secs_f64() * 1e9 / requests.len() as f64);
        }
        requests.resize(requests.len() * 2, request);
    }
}
