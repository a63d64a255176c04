use std::time::{Duration, UNIX_EPOCH};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn traffic(packets: u64, variance: u64) -> Traffic<u64> {
    Traffic { packets, bytes: packets * 100, variance }
}

/// A CPU that took samples of `packets` packets at this rate, beginning at a second.
fn sampler(packets: u64, rate: u64) -> Sampler {
    let mut sampler = Sampler::default();
    for packet in 0..packets {
        if sampler.is_due() {
            sampler.draw(SECOND + packet * SECOND / rate);
        }
    }
    sampler
}

fn seen_since(first_seen: u64, samplers: &[Sampler]) -> Talker {
    let source = Source::of(&Address::v6([0x20; 16]), 64);
    let talker =
        sample::Talker { passed: traffic(12, 0), shed: traffic(0, 0), first_seen, last_seen: 3 * SECOND };
    let now = Now { monotonic: 10 * SECOND, wall: UNIX_EPOCH + Duration::from_secs(1000) };
    Talker::new(&source, &talker, samplers, &now).expect("a talker")
}

#[test]
fn counts_are_exact_while_no_cpu_passed_over_anything() {
    let talker = seen_since(2 * SECOND, &[sampler(1000, 1000), Sampler::default()]);
    assert_eq!(talker.source, "2020:2020:2020:2020::/64".parse().unwrap());
    assert_eq!(talker.passed, Estimate { packets: 12, bytes: 1200, packets_error: 0 });
    assert_eq!(talker.shed, Estimate::default());
    assert_eq!(talker.first_seen, UNIX_EPOCH + Duration::from_secs(992));
    assert_eq!(talker.last_seen, UNIX_EPOCH + Duration::from_secs(993));
}

#[test]
fn they_may_be_off_by_what_any_cpu_passed_over_since() {
    let cpus = [sampler(1000, 1000), sampler(1_000_000, 1_000_000)];
    let talker = seen_since(SECOND, &cpus);
    // What is not seen at all may be missing as well.
    assert_eq!(talker.passed.packets_error, talker.shed.packets_error);
    assert!(talker.passed.packets_error >= 3 * 64, "{talker:?}");
}

#[test]
fn a_family_that_nobody_knows_is_left_out() {
    let source = Source { family: 5, length: 32, high: 0, low: 0 };
    let now = Now { monotonic: 0, wall: UNIX_EPOCH };
    assert_eq!(Talker::new(&source, &sample::Talker::default(), &[], &now), None);
}
