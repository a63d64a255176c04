//! Rules that block the sources of which they shed too much.

use super::{
    frame::{tcp, udp},
    limiter::{Limiter, SECOND},
};

/// A rule that lets one packet a day pass and blocks as `block` says; what no rule meets passes.
fn blocking(settings: &str, block: &str) -> Limiter {
    Limiter::new(&format!(
        "{settings} rules: [{{ name: r, match: {{ protocol: udp }}, limits: {{ per: source, rate: 1/d, \
         burst: 1 }}, block: {{ {block} }} }}]"
    ))
}

/// How many packets of a source are shed before the first that meets its block, at so many a second from
/// `from` on; and when that was.
fn until_blocked(limiter: &mut Limiter, source: &str, from: u64, rate: u64) -> Option<(u64, u64)> {
    let frame = udp(source).frame();
    let mut shed = 0;
    for number in 0..20_000 {
        let at = from + number * SECOND / rate;
        let verdict = limiter.frame(&frame, at);
        match verdict.reason.name() {
            "limited" => shed += 1,
            "blocked" => return Some((shed, at)),
            _ => {}
        }
    }
    None
}

#[test]
#[ignore = "requires root"]
fn a_small_number_is_exact() {
    for after in [1, 2, 100] {
        let mut limiter = blocking("", &format!("after: {after}, within: 10s, for: 60s"));
        let (shed, _) = until_blocked(&mut limiter, "192.0.2.1", SECOND, 1000).expect("a block");
        assert_eq!(shed, after);
        assert_eq!(limiter.event("blocked_by_rule"), 1);
    }
}

#[test]
#[ignore = "requires root"]
fn a_large_number_is_met_within_thirty_percent() {
    for after in [200_u64, 1000, 5000] {
        let mut limiter = blocking("", &format!("after: {after}, within: 1m, for: 60s"));
        let (shed, _) = until_blocked(&mut limiter, "192.0.2.1", 60 * SECOND, 1000).expect("a block");
        assert!(shed.abs_diff(after) * 10 <= after * 3, "{shed} of {after}");
    }
}

#[test]
#[ignore = "requires root"]
fn sources_that_come_by_turns_are_told_apart() {
    let mut limiter = blocking("", "after: 500, within: 1m, for: 60s");
    let sources: Vec<_> = (1..=10).map(|number| udp(&format!("192.0.2.{number}")).frame()).collect();
    let mut shed = [0_u64; 10];
    for number in 0..20_000 {
        let source = number % 10;
        let verdict = limiter.frame(&sources[source], 60 * SECOND + number as u64 * SECOND / 1000);
        shed[source] += u64::from(verdict.reason.name() == "limited");
    }
    assert!(shed.iter().all(|shed| shed.abs_diff(500) <= 150), "{shed:?}");
    assert_eq!(limiter.event("blocked_by_rule"), 10);
}

#[test]
#[ignore = "requires root"]
fn below_the_rate_nobody_is_blocked() {
    let mut limiter = blocking("", "after: 100, within: 10s, for: 60s");
    assert_eq!(until_blocked(&mut limiter, "192.0.2.1", SECOND, 9), None);
    assert_eq!(limiter.reason("blocked").1.packets, 0);
}

#[test]
#[ignore = "requires root"]
fn a_block_holds_for_every_packet_and_ends_by_itself_and_then_the_count_begins_anew() {
    let mut limiter = blocking("", "after: 10, within: 10s, for: 60s");
    let (_, at) = until_blocked(&mut limiter, "192.0.2.1", SECOND, 1000).expect("a block");
    let verdict = |limiter: &mut Limiter, seconds: u64| {
        limiter.frame(&tcp("192.0.2.1", 0x02).frame(), at + seconds * SECOND).reason.name()
    };
    assert_eq!(verdict(&mut limiter, 0), "blocked");
    assert_eq!(verdict(&mut limiter, 59), "blocked");
    assert_eq!(verdict(&mut limiter, 62), "no_rule");
    assert_eq!(limiter.frame(&tcp("192.0.2.2", 0x02).frame(), at).reason.name(), "no_rule");
    let (shed, _) = until_blocked(&mut limiter, "192.0.2.1", at + 62 * SECOND, 1000).expect("a block");
    assert_eq!(shed, 10);
}

#[test]
#[ignore = "requires root"]
fn a_client_is_what_sources_say() {
    let mut limiter =
        blocking("sources: { ipv4_prefix: 24, ipv6_prefix: 48 },", "after: 5, within: 10s, for: 60s");
    for (source, neighbour, stranger) in [
        ("192.0.2.1", "192.0.2.200", "192.0.3.1"),
        ("2001:db8:1:2::3", "2001:db8:1:ffff::1", "2001:db8:2::1"),
    ] {
        until_blocked(&mut limiter, source, SECOND, 1000).expect("a block");
        assert_eq!(limiter.frame(&udp(neighbour).frame(), SECOND).reason.name(), "blocked");
        assert_ne!(limiter.frame(&udp(stranger).frame(), SECOND).reason.name(), "blocked");
    }
}

#[test]
#[ignore = "requires root"]
fn allowed_and_management_sources_are_never_blocked() {
    let mut limiter = blocking(
        "allow: [192.0.2.1], management: [{ prefix: 192.0.2.2, ports: 53 }],",
        "after: 5, within: 10s, for: 60s",
    );
    assert_eq!(until_blocked(&mut limiter, "192.0.2.1", SECOND, 1000), None);
    let management = udp("192.0.2.2").frame();
    let reasons = |limiter: &mut Limiter| {
        (0..20).map(|at| limiter.frame(&management, SECOND + at).reason.name()).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&mut limiter), ["management"; 20]);
    until_blocked(&mut limiter, "192.0.2.3", SECOND, 1000).expect("a block");
}

#[test]
#[ignore = "requires root"]
fn what_only_counts_blocks_nobody() {
    let monitored = blocking("mode: monitor,", "after: 5, within: 10s, for: 60s");
    let counting = Limiter::new(
        "rules: [{ name: r, action: count, match: { protocol: udp }, limits: { per: source, rate: 1/d, burst: 1 \
         }, block: { after: 5, within: 10s, for: 60s } }]",
    );
    for mut limiter in [monitored, counting] {
        assert_eq!(until_blocked(&mut limiter, "192.0.2.1", SECOND, 1000), None);
        assert_eq!(limiter.event("blocked_by_rule"), 0);
    }
}

#[test]
#[ignore = "requires root"]
fn a_rate_of_zero_blocks_too() {
    let mut limiter = Limiter::new(
        "rules: [{ name: r, match: { protocol: udp }, limits: { per: source, rate: 0/s }, block: { after: 3, \
         within: 10s, for: 60s } }]",
    );
    let reasons: Vec<_> =
        (0..5).map(|at| limiter.frame(&udp("192.0.2.1").frame(), SECOND + at).reason.name()).collect();
    assert_eq!(reasons, ["zero_rate", "zero_rate", "zero_rate", "blocked", "blocked"]);
}

#[test]
#[ignore = "requires root"]
fn ended_blocks_make_room() {
    let mut limiter = blocking("", "after: 1, within: 1s, for: 1s");
    // Far more sources than there is room for, in the course of time.
    for number in 0..100_000_u32 {
        let source = std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
        let at = SECOND + u64::from(number) * SECOND / 5000;
        let frame = udp(&source).frame();
        limiter.frame(&frame, at);
        limiter.frame(&frame, at);
        if number % 1000 == 0 {
            assert_eq!(limiter.frame(&frame, at).reason.name(), "blocked", "source {number}");
        }
    }
    assert_eq!(limiter.event("blocked_by_rule"), 100_000);
    assert_eq!(limiter.event("no_room_to_block"), 0);
}
