//! What a decision costs when every key has a counter and keys come in random order, on one thread.

use anyhow::Result;
use serde::Serialize;

use crate::{
    Series,
    contender::{Counting, Governor, Keyed, Name, Ours, governor_keys},
    keys::{Random, addresses, shuffled},
    stopwatch::timed,
};

/// What tells one series from another.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    /// Who decides.
    pub(crate) contender: Name,
    /// How it counts.
    pub(crate) algorithm: Counting,
    /// How many keys there are.
    pub(crate) keys: u32,
}

/// Nanoseconds a decision; in each run all contenders meet the same keys in the same order, by turns.
pub(crate) fn run(keys: u32, runs: u32) -> Result<Vec<Series<Case>>> {
    let addresses = addresses(keys);
    let descriptors = governor_keys(&addresses);
    let mut random = Random::new(1);
    let first = shuffled(keys, &mut random);

    let mut contenders = contenders(&addresses, &descriptors)?;
    let mut all = Vec::new();
    for (contender, algorithm, limiter) in &mut contenders {
        limiter.fill(&first)?;
        let case = Case { contender: *contender, algorithm: *algorithm, keys };
        all.push(Series { case, costs: Vec::new() });
    }
    for _ in 0..runs {
        let order = shuffled(keys, &mut random);
        for ((_, _, limiter), series) in contenders.iter_mut().zip(&mut all) {
            let (time, passed) = timed(|| limiter.pass_all(&order));
            passed?;
            series.costs.push(time.as_secs_f64() * 1e9 / f64::from(keys));
        }
    }
    Ok(all)
}

type Named<'a> = (Name, Counting, Box<dyn Keyed + 'a>);

fn contenders<'a>(addresses: &'a [String], descriptors: &'a [String]) -> Result<[Named<'a>; 3]> {
    let ours = |counting| Ours::by_address(counting, addresses).map(Box::new);
    Ok([
        (Name::Ratelimit, Counting::TokenBucket, ours(Counting::TokenBucket)?),
        (Name::Ratelimit, Counting::SlidingWindow, ours(Counting::SlidingWindow)?),
        (Name::Governor, Counting::TokenBucket, Box::new(Governor::by_address(descriptors)?)),
    ])
}
