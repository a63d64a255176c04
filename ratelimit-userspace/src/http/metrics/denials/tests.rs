use super::*;

const START: Nanos = 1_800_000_000_000_000_000;

/// What a sampler lets through of one denial at each of these times: how many were left out before it.
fn sampled(times: impl IntoIterator<Item = Nanos>) -> Vec<(Nanos, u64)> {
    let sampler = Sampler::default();
    let times = times.into_iter().zip(1..);
    times.filter_map(|(at, count)| Some((at, sampler.sample(START + at, || count)?))).collect()
}

#[test]
fn ten_at_once_and_then_one_a_second() {
    let lines = sampled([0; 100]);
    assert_eq!(lines, [(0, 0); 10]);

    // A thousand denials a second for three seconds: 10 lines, then one as each second ends.
    let lines = sampled((0..3_000).map(|number| number * 1_000_000));
    assert_eq!(lines.len(), 12);
    assert_eq!(lines[9], (9_000_000, 0));
    assert_eq!(lines[10], (1_000_000_000, 990));
    assert_eq!(lines[11], (2_000_000_000, 999));
}

#[test]
fn ten_are_there_again_after_ten_idle_seconds() {
    let lines = sampled([[0; 20], [10_000_000_000; 20]].concat());
    assert_eq!(lines.len(), 20);
    assert_eq!(lines[10], (10_000_000_000, 10));
    assert_eq!(lines[11], (10_000_000_000, 0));
}

#[test]
fn what_no_line_follows_is_told_at_a_flush() {
    let sampler = Sampler::default();
    for count in 1..=15 {
        sampler.sample(START, || count);
    }
    assert_eq!(sampler.told.load(Ordering::Relaxed), 10);
    sampler.flush(None, START, 15);
    assert_eq!(sampler.told.load(Ordering::Relaxed), 10, "no line may be written yet");
    sampler.flush(None, START + INTERVAL, 15);
    assert_eq!(sampler.told.load(Ordering::Relaxed), 15);
    sampler.flush(None, START + 2 * INTERVAL, 15);
    assert_eq!(sampler.sample(START + 2 * INTERVAL, || 16), Some(0), "nothing was left to tell");
}
