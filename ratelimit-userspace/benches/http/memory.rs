//! What a key costs in memory: everything that a limiter has allocated once each key has a counter.

use anyhow::Result;

use crate::{
    Series,
    contender::{Counting, Governor, Keyed, Name, Ours, governor_keys},
    decision::Case,
    heap,
    keys::{Random, addresses, shuffled},
};

/// Bytes a key. The texts that the keys are asked by are not counted, copies that a limiter keeps are.
pub(crate) fn run(keys: u32) -> Result<Vec<Series<Case>>> {
    let addresses = addresses(keys);
    let descriptors = governor_keys(&addresses);
    let order = shuffled(keys, &mut Random::new(1));

    let ours = |counting| bytes(&order, || Ours::by_address(counting, &addresses));
    let series = |contender, algorithm, bytes| Series {
        case: Case { contender, algorithm, keys },
        costs: vec![bytes],
    };
    Ok(vec![
        series(Name::Ratelimit, Counting::TokenBucket, ours(Counting::TokenBucket)?),
        series(Name::Ratelimit, Counting::SlidingWindow, ours(Counting::SlidingWindow)?),
        series(Name::Governor, Counting::TokenBucket, bytes(&order, || Governor::by_address(&descriptors))?),
    ])
}

/// Dropped before the next one is made.
fn bytes<C: Keyed>(order: &[u32], make: impl FnOnce() -> Result<C>) -> Result<f64> {
    let (bytes, limiter) = heap::counted(|| {
        let mut limiter = make()?;
        limiter.fill(order)?;
        Ok::<_, anyhow::Error>(limiter)
    });
    drop(limiter?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    Ok(bytes as f64 / order.len() as f64)
}
