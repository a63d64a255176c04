use std::time::Duration;

use ipnet::IpNet;
use proptest::prelude::*;

use super::{Denials, SEGMENTS};
use crate::{config::http::Escalate, escalate::fixture::terms};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000 * SECOND;

fn client(number: u32) -> IpNet {
    IpNet::from(std::net::IpAddr::from(number.to_be_bytes()))
}

fn twenty_in_a_minute() -> Escalate {
    Escalate { after: 20, within: Duration::from_mins(1), ..terms() }
}

#[test]
fn the_twentieth_denial_within_a_minute_is_one_too_many() {
    let mut denials = Denials::new();
    let terms = twenty_in_a_minute();
    let too_many: Vec<_> =
        (0..40).map(|second| denials.count(client(1), 1, &terms, START + second * SECOND)).collect();
    assert_eq!(too_many.iter().position(|too_many| *too_many), Some(19));
    assert_eq!(too_many.iter().filter(|too_many| **too_many).count(), 2, "it begins anew");
}

#[test]
fn who_is_denied_less_often_is_never_found() {
    let mut denials = Denials::new();
    let terms = twenty_in_a_minute();
    for second in 0..10_000 {
        assert!(!denials.count(client(1), 1, &terms, START + second * 4 * SECOND), "{second}");
    }
}

#[test]
fn rules_and_clients_are_counted_apart() {
    let mut denials = Denials::new();
    let terms = Escalate { after: 2, ..terms() };
    assert!(!denials.count(client(1), 1, &terms, START));
    assert!(!denials.count(client(2), 1, &terms, START));
    assert!(!denials.count(client(1), 2, &terms, START));
    assert!(denials.count(client(1), 1, &terms, START));
}

#[test]
fn a_forgotten_client_begins_anew() {
    let mut denials = Denials::new();
    let terms = Escalate { after: 2, ..terms() };
    denials.count(client(1), 1, &terms, START);
    denials.count(client(1), 2, &terms, START);
    denials.count(client(2), 1, &terms, START);
    denials.forget(client(1));
    assert!(!denials.count(client(1), 1, &terms, START));
    assert!(!denials.count(client(1), 2, &terms, START));
    assert!(denials.count(client(2), 1, &terms, START), "somebody else is not");
    denials.forget_all(|known| *known == client(1));
    assert!(!denials.count(client(1), 1, &terms, START));
}

#[test]
fn a_spray_of_clients_does_not_displace_who_is_near_to_too_many() {
    let mut denials = Denials::new();
    let terms = twenty_in_a_minute();
    for _ in 0..19 {
        denials.count(client(1), 1, &terms, START);
    }
    for sprayed in 1000..400_000 {
        denials.count(client(sprayed), 1, &terms, START);
    }
    assert!(denials.count(client(1), 1, &terms, START));
}

proptest! {
    /// Against a list of all denials.
    #[test]
    fn too_many_are_found_within_a_segment(
        after in 1..40_u16,
        within in 1..200_u64,
        steps in prop::collection::vec(0..20_u64, 1..300),
    ) {
        let terms = Escalate { after, within: Duration::from_secs(within), ..terms() };
        let (window, segment) = (within * SECOND, within * SECOND / SEGMENTS as u64);
        let mut denials = Denials::new();
        let mut all: Vec<u64> = Vec::new();
        let mut now = START;
        for step in steps {
            // From much less than a segment to several of them.
            now += step * step * segment / 40;
            all.push(now);
            let newer = |age: u64| all.iter().filter(|time| now - **time < age).count();
            let (most, least) = (newer(window), newer(window - segment));
            if denials.count(client(1), 1, &terms, now) {
                prop_assert!(most >= usize::from(after));
                all.clear();
            } else {
                prop_assert!(least < usize::from(after));
            }
        }
    }
}
