use std::net::IpAddr;

use ipnet::IpNet;

use super::{MINUTE, Sharers};

const START: u64 = 1_800_000_000_000_000_000;
const DAY: u64 = 24 * 60 * MINUTE;

fn client(number: u32) -> IpNet {
    IpNet::from(IpAddr::from(number.to_be_bytes()))
}

fn identity(number: u64) -> u64 {
    number << 32 | 0x1234
}

#[test]
fn each_identity_counts_once() {
    let mut sharers = Sharers::new();
    assert_eq!(sharers.count(&client(1), START), 0);
    for number in [1, 2, 1, 2, 2] {
        sharers.note(client(1), identity(number), START);
    }
    sharers.note(client(2), identity(1), START);
    assert_eq!((sharers.count(&client(1), START), sharers.count(&client(2), START)), (2, 1));
}

#[test]
fn who_was_not_seen_for_a_day_lives_there_no_longer() {
    let mut sharers = Sharers::new();
    sharers.note(client(1), identity(1), START);
    sharers.note(client(1), identity(2), START + DAY / 2);
    assert_eq!(sharers.count(&client(1), START + DAY - MINUTE), 2);
    assert_eq!(sharers.count(&client(1), START + DAY), 1);
    assert_eq!(sharers.count(&client(1), START + 2 * DAY), 0);
}

#[test]
fn of_many_the_latest_are_told_apart() {
    let mut sharers = Sharers::new();
    for number in 0..100 {
        sharers.note(client(1), identity(number), START);
    }
    assert_eq!(sharers.count(&client(1), START), 8);
}

#[test]
fn a_spray_of_addresses_does_not_displace_one_that_is_shared() {
    let mut sharers = Sharers::new();
    for number in 0..3 {
        sharers.note(client(1), identity(number), START);
    }
    for sprayed in 1000..400_000 {
        sharers.note(client(sprayed), identity(7), START + DAY / 2);
    }
    assert_eq!(sharers.count(&client(1), START + DAY / 2), 3);
}
