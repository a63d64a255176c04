use std::time::UNIX_EPOCH;

use proptest::prelude::*;
use ratelimit_common::packet::ABSENT;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn now() -> Now {
    Now { monotonic: 100 * SECOND, wall: UNIX_EPOCH + Duration::from_secs(5_000) }
}

fn record() -> Refused {
    Refused {
        time: 98 * SECOND,
        weight: 7,
        source: [0xc000_0201 << 32, 0],
        destination: [0xcb00_7105 << 32, 0],
        length: 60,
        interface: 3,
        reason: Reason::Limited as u32,
        counter_slot: 1,
        limit: 0,
        shed: 1,
        family: 4,
        protocol: 17,
        source_port: 4000,
        destination_port: 53,
    }
}

#[test]
fn a_record_is_told_in_words() {
    let sample = Sample::new(&record(), Some("dns".to_owned()), &now()).expect("a sample");
    let expected = Sample {
        time: UNIX_EPOCH + Duration::from_secs(4_998),
        reason: Reason::Limited,
        shed: true,
        rule: Some("dns".to_owned()),
        limit: Some(0),
        source: Some("192.0.2.1".parse().unwrap()),
        destination: Some("203.0.113.5".parse().unwrap()),
        protocol: Some(17),
        source_port: Some(4000),
        destination_port: Some(53),
        length: 60,
        weight: 7,
        interface: 3,
    };
    assert_eq!(sample, expected);
}

#[test]
fn what_a_packet_does_not_have_is_not_told() {
    let absent = Refused {
        limit: Refused::NONE,
        protocol: ABSENT,
        source_port: ABSENT,
        destination_port: ABSENT,
        ..record()
    };
    let sample = Sample::new(&absent, None, &now()).expect("a sample");
    assert_eq!(
        (sample.limit, sample.protocol, sample.source_port, sample.destination_port),
        (None, None, None, None)
    );

    // The port 0 is one; without addresses it is none.
    let zero = Refused { source_port: 0, ..record() };
    assert_eq!(Sample::new(&zero, None, &now()).expect("a sample").source_port, Some(0));
    let sample = Sample::new(&Refused { family: 0, ..zero }, None, &now()).expect("a sample");
    assert_eq!(
        (sample.source, sample.destination, sample.source_port, sample.protocol),
        (None, None, None, None)
    );
}

#[test]
fn odd_records_are_passed_over() {
    let reasons = u32::try_from(Reason::ALL.len()).unwrap();
    assert_eq!(Sample::new(&Refused { reason: reasons, ..record() }, None, &now()), None);
    assert_eq!(Sample::new(&Refused { family: 5, ..record() }, None, &now()), None);
    assert_eq!(Refused::from_bytes(&[0; size_of::<Refused>() - 1]), None);
    assert_eq!(Refused::from_bytes(&[0; size_of::<Refused>() + 1]), None);
}

proptest! {
    #[test]
    fn no_record_is_too_odd_to_be_looked_at(bytes in any::<[u8; size_of::<Refused>()]>()) {
        let record = Refused::from_bytes(&bytes).expect("any bytes will do");
        let known = (record.reason as usize) < Reason::ALL.len() && matches!(record.family, 0 | 4 | 6);
        prop_assert_eq!(Sample::new(&record, None, &now()).is_some(), known);
    }
}
