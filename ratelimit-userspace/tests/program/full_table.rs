//! More sources than the table has room for: who keeps what under each `when_full`.
//!
//! The table is the smallest there is, 1024 buckets in 2048 ways, so that a flood of some ten thousand
//! sources is to it what tens of millions are to the default one.

use std::net::Ipv4Addr;

use super::{
    frame::{Packet, SYN, Transport, packet, tcp, udp},
    limiter::{Limiter, MILLISECOND, SECOND, assert_held},
};

const WAYS: u64 = 2048;

/// A limiter with this fate of new sources and one limit of 10/s, burst 10.
fn ten_a_second(when_full: &str) -> Limiter {
    Limiter::new(&format!(
        "sources: {{ capacity: 1024, when_full: {when_full} }}, rules: [{{ name: all, limits: {{ per: source, rate: 10/s, burst: 10 }} }}]"
    ))
}

/// A source that was never there before.
fn fresh(number: u32, make: impl Fn(&str) -> Packet) -> Vec<u8> {
    make(&Ipv4Addr::from(0x1400_0000 + number).to_string()).frame()
}

fn clients(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|n| udp(&format!("10.0.0.{n}")).frame()).collect()
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_table_holds_what_it_is_configured_for() {
    let mut limiter = Limiter::new(
        "sources: { capacity: 1024 }, rules: [{ name: all, limits: { per: source, rate: 1/h, burst: 2 } }]",
    );
    let frames: Vec<_> = (0..1024).map(|n| fresh(n, udp)).collect();
    for round in 0..4 {
        for (n, frame) in frames.iter().enumerate() {
            assert_eq!(limiter.frame(frame, 0).dropped, round >= 2, "source {n}, packet {round}");
        }
    }
    assert_eq!((limiter.event("live_evicted"), limiter.claimed()), (0, 1024));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn idle_sources_give_way_without_loss() {
    let mut limiter = ten_a_second("drop");
    // Fifty thousand sources, each idle again long before the table is full: 5000/s, full after 0.1 s.
    for n in 0..50_000 {
        assert!(!limiter.frame(&fresh(n, udp), u64::from(n) * 200_000).dropped, "source {n}");
    }
    assert_eq!((limiter.event("live_evicted"), limiter.event("table_full")), (0, 0));
}

/// What passed of the clients' packets, of the offender's and of the flood, in ten seconds.
struct Passed {
    clients: u64,
    offender: u64,
    flood: u64,
}

/// Twenty clients that each send at exactly their rate of 10/s, an offender at ten times that whose bucket
/// is empty, and a flood of sources that send one packet each.
fn ten_seconds(limiter: &mut Limiter, flood_a_second: u32) -> Passed {
    let clients = clients(20);
    let offender = udp("10.9.9.9").frame();
    // Before the flood. Three packets ahead, so that the clients' buckets are in use all the time.
    for frame in clients.iter().flat_map(|frame| [frame; 3]) {
        assert!(!limiter.frame(frame, SECOND).dropped);
    }
    assert_eq!(limiter.passing(&udp("10.9.9.9"), 50, SECOND), 10);

    let mut passed = Passed { clients: 0, offender: 0, flood: 0 };
    let mut number = 0;
    for step in 1..=1000_u32 {
        let at = SECOND + u64::from(step) * 10 * MILLISECOND;
        for _ in 0..flood_a_second / 100 {
            number += 1;
            passed.flood += u64::from(!limiter.frame(&fresh(number, udp), at).dropped);
        }
        passed.offender += u64::from(!limiter.frame(&offender, at).dropped);
        if step % 10 == 0 {
            for frame in &clients {
                passed.clients += u64::from(!limiter.frame(frame, at).dropped);
            }
        }
    }
    passed
}

const CLIENTS_SENT: u64 = 20 * 100;

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn pass_serves_every_client_and_holds_the_offender() {
    let mut limiter = ten_a_second("pass");
    let passed = ten_seconds(&mut limiter, 40_000);
    assert_eq!(passed.clients, CLIENTS_SENT);
    assert_held(passed.offender, 100.0, 0.0, "the offender");
    // Nothing per source bounds a flood of sources: each is new.
    assert_eq!(passed.flood, 400_000);
    assert!(limiter.event("live_evicted") > 10_000);
    assert_eq!(limiter.event("table_full"), 0);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn share_bounds_the_flood_by_the_table_and_holds_the_offender() {
    // Below what 2048 ways of 10/s admit together the clients feel nothing.
    let mut limiter = ten_a_second("share");
    let passed = ten_seconds(&mut limiter, 10_000);
    assert_eq!((passed.clients, passed.flood), (CLIENTS_SENT, 100_000));
    assert_held(passed.offender, 100.0, 0.0, "the offender");

    let mut limiter = ten_a_second("share");
    let passed = ten_seconds(&mut limiter, 40_000);
    assert!(passed.flood <= WAYS * (10 * 10 + 10), "{} of the flood passed", passed.flood);
    assert!(passed.offender <= 100, "{} of the offender passed", passed.offender);
    assert!(limiter.event("live_evicted") > 10_000);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn drop_sheds_new_sources_and_keeps_those_that_have_a_bucket() {
    let mut limiter = ten_a_second("drop");
    let passed = ten_seconds(&mut limiter, 40_000);
    assert_eq!(passed.clients, CLIENTS_SENT);
    assert_held(passed.offender, 100.0, 0.0, "the offender");
    // A way is free again a tenth of a second after its only packet.
    assert!(passed.flood <= WAYS * (10 * 10 + 1), "{} of the flood passed", passed.flood);
    assert_eq!(limiter.event("live_evicted"), 0);
    assert_eq!(limiter.event("table_full"), 400_000 - passed.flood);
    let (_, shed) = limiter.reason("limited");
    assert_eq!(shed.packets, 400_000 - passed.flood + 1000 - passed.offender + 40);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn an_offender_stays_limited_through_a_flood_of_a_hundred_thousand_sources() {
    for when_full in ["pass", "share", "drop"] {
        let mut limiter = Limiter::new(&format!(
            "sources: {{ capacity: 1024, when_full: {when_full} }}, rules: [{{ name: all, limits: {{ per: source, rate: 1/m, burst: 100 }} }}]"
        ));
        assert_eq!(limiter.passing(&udp("10.9.9.9"), 200, 0), 100);
        let offender = udp("10.9.9.9").frame();
        let mut passed = 0_u64;
        for n in 0..100_000 {
            let at = u64::from(n) * 10_000;
            limiter.frame(&fresh(n, udp), at);
            if n % 50 == 0 {
                passed += u64::from(!limiter.frame(&offender, at).dropped);
            }
        }
        assert_eq!(passed, 0, "{when_full}: the offender passed");
    }
}

/// A flood through a limit of one a day, which leaves debts of a day all over the table.
const SLOW_AND_FAST: &str = "rules: [\
    { name: slow, match: { protocol: udp }, limits: { per: source, rate: 1/d, burst: 1 } }, \
    { name: fast, match: { protocol: tcp }, limits: { per: source, rate: 1000/s, burst: 1000 } }]";

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_flood_through_a_slow_limit_does_not_hurt_the_clients_of_a_fast_one() {
    // (while the flood goes on, at most so many of a client's 1000 packets may be refused)
    for (when_full, tolerated) in [("pass", 0), ("share", 100)] {
        let mut limiter =
            Limiter::new(&format!("sources: {{ capacity: 1024, when_full: {when_full} }}, {SLOW_AND_FAST}"));
        for n in 0..20_000 {
            limiter.frame(&fresh(n, udp), 0);
        }
        let client = tcp("10.0.0.1", SYN).frame();
        let refused = |limiter: &mut Limiter, from: u64, flood: u32| {
            let mut refused = 0;
            for step in 0..1000 {
                let at = from + u64::from(step) * 10 * MILLISECOND;
                for n in 0..flood {
                    limiter.frame(&fresh(100_000 + step * flood + n, udp), at);
                }
                refused += u32::from(limiter.frame(&client, at).dropped);
            }
            refused
        };
        let during = refused(&mut limiter, SECOND, 10);
        assert!(during <= tolerated, "{when_full}: {during} of 1000 refused during the flood");
        let after = refused(&mut limiter, 20 * SECOND, 0);
        assert!(after <= u32::from(tolerated > 0), "{when_full}: {after} of 1000 refused after the flood");
        // The client has its whole burst again, no more.
        assert_eq!(limiter.passing(&tcp("10.0.0.1", SYN), 1100, 60 * SECOND), 1000, "{when_full}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_limit_per_rule_bounds_a_flood_whatever_the_table_does() {
    for when_full in ["pass", "share", "drop"] {
        let mut limiter = Limiter::new(&format!(
            "sources: {{ capacity: 1024, when_full: {when_full} }}, rules: [{{ name: all, limits: [\
             {{ per: source, rate: 10/s, burst: 10 }}, {{ per: rule, rate: 500/s, burst: 50 }}] }}]"
        ));
        let passed = (0..40_000_u32)
            .filter(|n| !limiter.frame(&fresh(*n, udp), u64::from(*n) * 50_000).dropped)
            .count();
        assert_held(passed as u64, 1000.0, 50.0, when_full);
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn refused_packets_of_new_sources_take_no_bucket() {
    let mut limiter = Limiter::new(
        "sources: { capacity: 1024 }, rules: [{ name: all, limits: [{ per: source, rate: 10/s, burst: 10 }, { per: rule, rate: 1/h, burst: 100 }] }]",
    );
    for n in 0..5000 {
        limiter.frame(&packet(&Ipv4Addr::from(n).to_string(), Transport::Udp(1, 2)).frame(), 0);
    }
    assert_eq!((limiter.claimed(), limiter.event("live_evicted")), (100, 0));
}
