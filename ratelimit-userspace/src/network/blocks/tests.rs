//! What needs no kernel: forms of sources, and times.

use std::{
    net::IpAddr,
    time::{Duration, UNIX_EPOCH},
};

use ipnet::IpNet;
use proptest::prelude::*;
use ratelimit_common::block_table::{FOREVER, LATEST};

use super::{
    source::{address_of, canonical, kind, net_of, single},
    *,
};

const SECOND: u64 = 1_000_000_000;

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn at(monotonic: u64) -> Now {
    Now { monotonic, wall: UNIX_EPOCH + Duration::from_hours(500_000) }
}

#[test]
fn mapped_addresses_are_the_addresses_that_they_stand_for() {
    for (given, meant) in [
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("::ffff:192.0.2.1/128", "192.0.2.1/32"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("2001:db8::/32", "2001:db8::/32"),
    ] {
        assert_eq!(canonical(net(given)).expect("a source"), net(meant), "{given}");
    }
    assert!(
        matches!(canonical(net("192.0.2.1/24")), Err(BlocksError::HostBits { network, .. }) if network == net("192.0.2.0/24"))
    );
    assert!(matches!(canonical(net("::ffff:192.0.2.0/97")), Err(BlocksError::HostBits { .. })));
    assert!(matches!(canonical(net("2001:db8::1/64")), Err(BlocksError::HostBits { .. })));
}

proptest! {
    #[test]
    fn a_prefix_is_found_again_from_an_address_and_its_length(address: IpAddr, length in 0..=128_u8) {
        let length = length.min(if address.is_ipv4() { 32 } else { 128 });
        let prefix = IpNet::new(address, length).expect("a prefix").trunc();
        prop_assert_eq!(net_of(&address_of(address), length.into()), prefix);
        prop_assert_eq!(single(&prefix).is_some(), prefix.prefix_len() == prefix.max_prefix_len());
        let is_prefix = matches!(kind(&prefix), Kind::PrefixV4 | Kind::PrefixV6);
        prop_assert_eq!(single(&prefix).is_none(), is_prefix);
    }

    #[test]
    fn a_block_lasts_its_time_and_less_than_a_second_more(now in 0..1_u64 << 59, nanos in 1..1_u64 << 59) {
        let time = at(now);
        let end = time.end(Some(Duration::from_nanos(nanos))).expect("it is not too long");
        let lasts = u64::from(end) * SECOND - now;
        prop_assert!((nanos..nanos + SECOND).contains(&lasts));
        prop_assert_eq!(time.wall(end), time.wall + Duration::from_nanos(lasts));
    }
}

#[test]
fn times_out_of_range_are_refused() {
    assert_eq!(at(5).end(None).expect("for good"), FOREVER);
    assert!(matches!(at(5).end(Some(Duration::ZERO)), Err(BlocksError::NoTime)));
    let latest = Duration::from_secs(LATEST.into());
    assert_eq!(at(0).end(Some(latest)).expect("it is the longest"), LATEST);
    for (now, duration) in
        [(1, latest), (0, Duration::from_secs(u64::MAX)), (u64::MAX, Duration::from_nanos(1))]
    {
        let Err(error) = at(now).end(Some(duration)) else { panic!("{duration:?} from {now}") };
        assert!(error.to_string().contains("longer than a block can be"), "{error}");
    }
}

#[test]
fn times_before_now_are_before_it_by_the_wall_clock() {
    let time = at(10 * SECOND);
    assert_eq!(time.wall(7), time.wall - Duration::from_secs(3));
    assert_eq!(time.wall(10), time.wall);
}
