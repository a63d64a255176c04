use std::num::NonZeroU64;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::{
    config::http::{Algorithm, Align, CalendarUnit, MAX_WINDOW_NANOS},
    http::algorithm::Log,
};

const CHECK: [u8; 16] = [9; 16];

/// A sound file around these records.
fn file(records: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(CHECK);
    bytes.extend([0; 16]);
    bytes.extend(records);
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

fn limits() -> impl Strategy<Value = Limit> {
    let zone = prop_oneof![Just("UTC"), Just("Europe/Vienna"), Just("America/New_York")];
    let unit = prop_oneof![Just(CalendarUnit::Day), Just(CalendarUnit::Week), Just(CalendarUnit::Month)];
    let window = prop_oneof![
        (1..=MAX_WINDOW_NANOS).prop_map(|nanos| Window::Fixed(NonZeroU64::new(nanos).unwrap())),
        (unit, zone).prop_map(|(unit, zone)| Window::Calendar(unit, TimeZone::get(zone).unwrap())),
    ];
    let algorithm = prop_oneof![
        any::<bool>().prop_map(|round_up| Algorithm::SlidingWindow { round_up }),
        (2..=u32::MAX).prop_map(|segments| Algorithm::Segments { segments }),
        Just(Algorithm::SlidingLog),
        Just(Algorithm::FixedWindow),
        any::<(u64, bool)>().prop_map(|(burst, interval)| Algorithm::TokenBucket { burst, interval }),
        any::<(u64, Option<u64>)>()
            .prop_map(|(burst, max_delay)| Algorithm::LeakyBucket { burst, max_delay }),
    ];
    let align = prop_oneof![Just(Align::Epoch), Just(Align::First)];
    (any::<u64>(), window, algorithm, align, any::<bool>(), any::<u32>()).prop_map(
        |(units, window, algorithm, align, count_denied, soft_margin_permille)| Limit {
            units,
            window,
            algorithm,
            align,
            count_denied,
            soft_margin_permille,
        },
    )
}

/// States as limits write them.
fn states() -> impl Strategy<Value = (Meter, State)> {
    let charges = prop::collection::vec((0..10_000_000_000_u64, 1..50_i64), 1..20);
    (limits(), charges).prop_filter_map("a limit of nothing counts nothing", |(limit, charges)| {
        let meter = Meter::new(limit);
        let (mut state, mut now) = (None, 1_700_000_000_000_000_000);
        for (passed, cost) in charges {
            now += passed;
            meter.charge(&mut state, Now::at(now), cost);
        }
        state.map(|state| (meter, state))
    })
}

proptest! {
    #[test]
    fn a_limit_is_read_as_it_was_written(limit in limits()) {
        let bytes = limit_bytes(&limit).unwrap();
        let mut reader = Reader(&bytes);
        prop_assert_eq!(read_limit(&mut reader), Some(limit));
        prop_assert!(reader.0.is_empty());
        for length in 0..bytes.len() {
            prop_assert_eq!(read_limit(&mut Reader(&bytes[..length])), None);
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written((meter, state) in states()) {
        let mut bytes = Vec::new();
        write_state(&mut bytes, &state);
        let mut reader = Reader(&bytes);
        let read = read_state(&mut reader).unwrap();
        prop_assert!(reader.0.is_empty());
        let last = Now::at(1_700_000_000_000_000_000 + 200_000_000_000);
        prop_assert_eq!(meter.used(Some(&read), last), meter.used(Some(&state), last));
        prop_assert_eq!(meter.whole_at(&read), meter.whole_at(&state));
        for length in 0..bytes.len() {
            prop_assert!(read_state(&mut Reader(&bytes[..length])).is_none());
        }
    }

    #[test]
    fn whatever_a_file_holds_it_is_read_or_refused(records in prop::collection::vec(0..6_u8, 0..80)) {
        _ = read(&file(&records), CHECK);
    }
}

#[test]
fn an_empty_file_of_counters_is_sound() {
    let contents = read(&file(&[END]), CHECK).unwrap();
    assert!(contents.counters.is_empty() && contents.limits.is_empty());
}

#[test]
fn records_that_make_no_sense_are_damage_though_the_digest_fits() {
    let damaged = |records: &[u8]| matches!(read(&file(records), CHECK), Err(SnapshotError::Damaged));
    assert!(damaged(&[]), "no end");
    assert!(damaged(&[END, END]), "more after the end");
    assert!(damaged(&[7]), "no such record");
    let mut counter = vec![COUNTER];
    counter.extend([1; 16]);
    counter.extend(0_u32.to_le_bytes());
    write_state(&mut counter, &State::Log(Box::new(Log::from_entries([(1, 1)]))));
    counter.push(END);
    assert!(damaged(&counter), "a counter without a limit");
    let mut huge = vec![COUNTER];
    huge.extend([0; 20]);
    huge.push(255);
    huge.extend(u64::MAX.to_le_bytes());
    assert!(damaged(&huge), "a log that is longer than the file");
}

#[test]
fn a_log_whose_instants_are_not_in_order_is_refused() {
    let mut bytes = vec![255];
    bytes.extend(2_u64.to_le_bytes());
    for number in [5_u64, 1, 5, 1] {
        bytes.extend(number.to_le_bytes());
    }
    assert!(read_state(&mut Reader(&bytes)).is_none());
}

#[test]
fn limits_that_no_configuration_admits_are_refused() {
    let limit = Limit {
        units: 1,
        window: Window::Fixed(NonZeroU64::MIN),
        algorithm: Algorithm::Segments { segments: 1 },
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    };
    let window =
        |window| Limit { window: Window::Fixed(window), algorithm: Algorithm::SlidingLog, ..limit.clone() };
    let read = |limit: &Limit| read_limit(&mut Reader(&limit_bytes(limit).unwrap()));
    assert!(read(&limit).is_none());
    assert!(read(&window(NonZeroU64::MAX)).is_none());
    assert!(read(&window(NonZeroU64::MIN)).is_some());
    let mut zero = limit_bytes(&window(NonZeroU64::MIN)).unwrap();
    zero[9] = 0;
    assert!(read_limit(&mut Reader(&zero)).is_none());
}

#[test]
fn a_limit_in_a_time_zone_without_a_name_is_not_written() {
    let zone = TimeZone::fixed(jiff::tz::offset(2));
    let window = Window::Calendar(CalendarUnit::Day, zone);
    let limit = Limit {
        units: 1,
        window,
        algorithm: Algorithm::FixedWindow,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    };
    assert!(limit_bytes(&limit).is_none());
}
