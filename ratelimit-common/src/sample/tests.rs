//! Sources, and how often refused packets are told of.

extern crate std;

use core::sync::atomic::AtomicU64;

use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_source_is_the_prefix_that_makes_one_client() {
    let address = Address::v4([192, 0, 2, 77]);
    let host = Source::of(&address, 32);
    assert_eq!((host.family, host.length, host.high, host.low), (4, 32, 0xc000_024d << 32, 0));
    assert_eq!(Source::of(&address, 24).high, 0xc000_0200 << 32);

    let mut octets = [0xff; 16];
    octets[..8].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 1, 2, 3, 4]);
    let address = Address::v6(octets);
    assert_eq!(Source::of(&address, 64).low, 0);
    assert_eq!(Source::of(&address, 64).high, 0x2001_0db8_0102_0304);
    assert_eq!(Source::of(&address, 128).low, u64::MAX);
    // 0.0.0.0 is not ::.
    assert_ne!(Source::of(&Address::v4([0; 4]), 32), Source::of(&Address::v6([0; 16]), 32));
}

#[test]
fn a_talker_adds_up_what_passed_and_what_was_refused() {
    let word = || AtomicU64::new(0);
    let traffic = || Traffic { packets: word(), bytes: word(), variance: word() };
    let talker = Talker { passed: traffic(), shed: traffic(), first_seen: word(), last_seen: word() };
    talker.add(false, 1, 60, 5);
    talker.add(true, 8, 1500, 7);
    talker.add(true, 1, 100, 9);
    let read = |traffic: &Traffic<AtomicU64>| {
        [traffic.packets.read(), traffic.bytes.read(), traffic.variance.read()]
    };
    assert_eq!(read(&talker.passed), [1, 60, 0]);
    assert_eq!(read(&talker.shed), [9, 12_100, 56]);
    assert_eq!(talker.last_seen.read(), 9);
}

#[test]
fn records_come_fifty_a_second_and_ten_at_once() {
    let mut budget = Budget::default();
    let mut told = 0;
    for n in 0..10_000 {
        told += u64::from(budget.spend(1, SECOND + n * SECOND / 1000).is_some());
    }
    assert!((500..=510).contains(&told), "{told} in ten seconds");

    let mut budget = Budget::default();
    let at_once = (0..1000).filter(|_| budget.spend(1, SECOND).is_some()).count();
    assert_eq!(at_once, 10);
}

#[test]
fn what_no_record_tells_the_next_one_stands_for() {
    let mut budget = Budget::default();
    let mut told = 0;
    for n in 0..5000_u64 {
        told += budget.spend(n % 7, SECOND + n * 100_000).unwrap_or(0);
    }
    let sent: u64 = (0..5000).map(|n| n % 7).sum();
    // Only what came since the last record is missing.
    assert!(sent - told < 6 * 200, "{told} of {sent}");

    // There was no room for this one.
    let mut budget = Budget::default();
    let weight = budget.spend(5, SECOND).unwrap();
    budget.return_untold(weight);
    assert_eq!(budget.spend(2, SECOND), Some(7));
}

#[test]
fn time_that_runs_back_silences_a_reason_for_the_burst_at_most() {
    let mut budget = Budget::default();
    assert!(budget.spend(1, 3600 * SECOND).is_some());
    let told = (0..1000).filter(|n| budget.spend(1, SECOND + n * SECOND / 1000).is_some()).count();
    assert!(told >= 40, "{told}");
}
