//! Rates and bursts on the virtual clock: exact after any idle time, at any spacing, from one a day to
//! 400 Gbit/s; all limits of a rule or none.

use std::{fs, process::Command};

use serde_json::Value;
use xtask::lab::Directory;

use super::{
    frame::{ACK, Packet, SYN, Transport, packet, tcp, udp},
    limiter::{DAY, HOUR, Limiter, MILLISECOND, SECOND, assert_held},
};

const CLIENT: &str = "10.0.0.1";

/// One rule for everything.
fn one(limits: &str) -> Limiter {
    Limiter::new(&format!("rules: [{{ name: all, limits: [{limits}] }}]"))
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn fifteen_at_once_of_ten_a_second_are_ten_and_five() {
    let mut limiter = one("{ per: source, rate: 10/s, burst: 10 }");
    assert_eq!(limiter.passing(&udp(CLIENT), 15, 0), 10);
    assert_eq!(limiter.passing(&udp(CLIENT), 15, SECOND), 10);
    assert_eq!(limiter.passing(&udp("10.0.0.2"), 15, SECOND), 10);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn after_idling_exactly_the_burst_passes() {
    // (limit, bytes of each packet, how many are the burst, how long an empty bucket takes to fill)
    let cases = [
        // 1.25 GB/s: bytes times idle nanoseconds overflow 64 bits after 15 seconds.
        ("bandwidth: 10Gbit/s, burst: 1514kB", 1514, 1000, SECOND),
        ("bandwidth: 400Gbit/s, burst: 60560kB", 1514, 40_000, SECOND),
        ("bandwidth: 3Mbit/s, burst: 151400B", 1514, 100, SECOND),
        ("rate: 100M/s, burst: 100k", 60, 100_000, SECOND),
        ("rate: 7/s, burst: 13", 60, 13, 2 * SECOND),
        ("rate: 1/m, burst: 3", 60, 3, 180 * SECOND),
        ("rate: 1/d, burst: 1", 60, 1, DAY),
    ];
    let frame = udp(CLIENT).payload(0).frame();
    for (limit, length, burst, fill) in cases {
        let mut limiter = one(&format!("{{ per: source, {limit} }}"));
        let mut at = 0;
        for idle in [0, 15 * SECOND, HOUR, 30 * DAY] {
            at += idle;
            let passed = (0..burst + 2).filter(|_| !limiter.on_wire(&frame, length, at).dropped).count();
            let is_full = idle == 0 || idle >= fill;
            // Those that are not full have not refilled one packet.
            assert_eq!(passed, if is_full { burst } else { 0 }, "{limit} after {idle} ns");
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn packets_slower_than_the_rate_pass_and_faster_ones_are_held_to_it() {
    for (rate, interval) in [(1000, MILLISECOND), (333, SECOND / 333), (30, SECOND / 30)] {
        for (percent, is_slower) in
            [(199, true), (150, true), (101, true), (99, false), (75, false), (51, false)]
        {
            let mut limiter = one(&format!("{{ per: source, rate: {rate}/s, burst: 10 }}"));
            let gap = interval * percent / 100;
            let passed = limiter.passing_between(&udp(CLIENT), 0, 60 * SECOND, gap);
            if is_slower {
                assert_eq!(passed, (60 * SECOND).div_ceil(gap), "{rate}/s at {percent}%");
            } else {
                assert_held(passed, f64::from(60 * rate), 10.0, format!("{rate}/s at {percent}%"));
            }
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_edge_of_a_second_lets_no_double_burst_through() {
    let mut limiter = one("{ per: source, rate: 100/s, burst: 100 }");
    assert_eq!(limiter.passing(&udp(CLIENT), 100, 990 * MILLISECOND), 100);
    // What 20 milliseconds refill.
    assert_eq!(limiter.passing(&udp(CLIENT), 100, 1010 * MILLISECOND), 2);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_fastest_and_the_slowest_limits_are_held() {
    // Small, odd and large frames, offered at more than twice what is allowed.
    for length in [64, 95, 1514, 9018] {
        for (gigabits, burst) in [(400, 60_000_000_u64), (100, 20_000_000), (5, 2_000_000)] {
            let mut limiter =
                one(&format!("{{ per: source, bandwidth: {gigabits}Gbit/s, burst: {burst}B }}"));
            let frame = udp(CLIENT).payload(0).frame();
            // Drained by large frames first, so that only the refill is left to measure.
            while !limiter.on_wire(&frame, 60_000, 0).dropped {}
            while !limiter.on_wire(&frame, length, 0).dropped {}
            let (mut bytes, mut at) = (0_u64, 0.0);
            for _ in 0..20_000 {
                at += f64::from(length) * 8.0 / f64::from(gigabits) / 2.1;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
                let now = at as u64;
                bytes += if limiter.on_wire(&frame, length, now).dropped { 0 } else { u64::from(length) };
            }
            let refill = at * f64::from(gigabits) / 8.0;
            assert_held(
                bytes / u64::from(length),
                refill / f64::from(length),
                0.0,
                format!("{gigabits}Gbit/s in {length}"),
            );
        }
    }
    let mut limiter = one("{ per: source, rate: 100M/s, burst: 100k }");
    assert_eq!(limiter.passing(&udp(CLIENT), 100_001, 0), 100_000);
    assert_held(limiter.passing_between(&udp(CLIENT), 0, 500_000, 4), 50_000.0, 0.0, "100M/s");

    let mut limiter = one("{ per: source, rate: 1/d, burst: 1 }");
    let passed: Vec<_> = [0, 1, DAY - 1, DAY, 2 * DAY - 1, 2 * DAY, 7 * DAY]
        .map(|at| limiter.passing(&udp(CLIENT), 2, at))
        .into();
    assert_eq!(passed, [1, 0, 0, 1, 0, 1, 1]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_clock_that_steps_back_gives_nothing_away_and_locks_nobody_out() {
    let mut limiter = one("{ per: source, rate: 10/s, burst: 10 }");
    assert_eq!(limiter.passing(&udp(CLIENT), 20, HOUR), 10);
    assert_eq!(limiter.passing(&udp(CLIENT), 20, HOUR - 50 * MILLISECOND), 0);
    assert_eq!(limiter.passing(&udp(CLIENT), 20, HOUR + SECOND), 10);
    // Far back: at most until a bucket has filled, on the new time.
    limiter.passing(&udp(CLIENT), 20, SECOND);
    assert_eq!(limiter.passing(&udp(CLIENT), 20, 2 * SECOND), 10);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_handshake_takes_one_of_a_syn_limit() {
    let mut limiter = Limiter::new(
        "rules: [{ name: syn, match: { protocol: tcp, tcp_flags: syn }, limits: { per: source, rate: 1/s, burst: 1 } }]",
    );
    for second in 0..3 {
        let at = second * SECOND;
        let passed = [SYN, ACK, ACK, SYN].map(|flags| limiter.passing(&tcp(CLIENT, flags), 1, at));
        assert_eq!(passed, [1, 1, 1, 0], "second {second}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_thousand_ports_are_one_source() {
    let mut limiter = one("{ per: source, rate: 100/s, burst: 100 }");
    let frames: Vec<_> = (1..=1000).map(|port| packet(CLIENT, Transport::Udp(port, port)).frame()).collect();
    // Twice the limit for ten seconds.
    let passed =
        (0..2000).filter(|n| !limiter.frame(&frames[n % 1000], *n as u64 * 5 * MILLISECOND).dropped).count();
    assert_held(passed as u64, 1000.0, 100.0, "ports");
    assert_eq!(limiter.claimed(), 1);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn many_slow_sources_are_held_by_the_limits_that_they_share() {
    let sources: Vec<_> = (0..20_000_u32)
        .map(|n| udp(&std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string()).frame())
        .collect();
    let cases = [
        // (limits, how much of each second's 20,000 may pass, all bursts, the limit that refuses)
        ("{ per: source, rate: 10/s }", 20_000.0, 0.0, None),
        ("{ per: source, rate: 10/s }, { per: rule, rate: 1000/s, burst: 100 }", 1000.0, 100.0, Some(1)),
        // 20,000 addresses lie in 79 /24s.
        ("{ per: { ipv4_prefix: 24, ipv6_prefix: 48 }, rate: 10/s, burst: 10 }", 790.0, 790.0, Some(0)),
        // And in one /8; a frame has 74 bytes.
        (
            "{ per: { ipv4_prefix: 8, ipv6_prefix: 48 }, bandwidth: 800kbit/s, burst: 2kB }",
            100_000.0 / 74.0,
            2000.0 / 74.0,
            Some(0),
        ),
    ];
    for (limits, share, burst, refuser) in cases {
        let mut limiter = Limiter::new(&format!(
            "sources: {{ capacity: 65536 }}, rules: [{{ name: all, limits: [{limits}] }}]"
        ));
        let mut passed = 0;
        for n in 0..60_000 {
            // All take turns, in an order that mixes the prefixes: the step has no divisor of 20,000.
            let frame = &sources[n * 7919 % sources.len()];
            let verdict = limiter.frame(frame, n as u64 * 50_000);
            passed += u64::from(!verdict.dropped);
            assert_eq!(verdict.limit, if verdict.dropped { refuser } else { None });
        }
        assert_held(passed, share * 3.0, burst, limits);
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_client_is_a_prefix_of_addresses_and_has_one_bucket() {
    let mut limiter = Limiter::new(
        "sources: { ipv4_prefix: 24 }, rules: [{ name: all, limits: { per: source, rate: 100/s, burst: 100 } }]",
    );
    // Ten thousand sources in one /64 and as many in one /24, within one second.
    let mut passed = [0, 0];
    for n in 0..10_000_u64 {
        let [a, b, c] = [n, n, n].map(|n| (n.wrapping_mul(0x9e37_79b9) >> 7) & 0xffff);
        let sources = [format!("2001:db8:0:1:{a:x}:{b:x}:{n:x}:{c:x}"), format!("10.0.0.{}", n % 256)];
        for (source, passed) in sources.iter().zip(&mut passed) {
            *passed += limiter.passing(&udp(source), 1, n * 100_000);
        }
    }
    assert_eq!(passed, [199, 199]);
    assert_eq!(limiter.claimed(), 2);
    // The neighbours are other clients.
    for other in ["2001:db8:0:2::1", "10.0.1.1"] {
        assert_eq!(limiter.passing(&udp(other), 200, SECOND), 100);
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn all_limits_are_charged_or_none() {
    let slow = [
        "{ per: source, rate: 1/h, burst: 10 }",
        "{ per: { ipv4_prefix: 24, ipv6_prefix: 48 }, rate: 1/h, burst: 10 }",
        "{ per: rule, rate: 1/h, burst: 10 }",
    ];
    for place in 0..=3 {
        let mut limits = slow.to_vec();
        limits.insert(place, "{ per: source, bandwidth: 8kbit/s, burst: 1514B }");
        let mut limiter = one(&limits.join(", "));
        let (large, small) = (udp(CLIENT).payload(1472), udp(CLIENT).payload(18));
        assert_eq!(limiter.passing(&large, 1, 0), 1);
        for _ in 0..50 {
            let verdict = limiter.frame(&large.frame(), 0);
            assert_eq!((verdict.dropped, verdict.limit), (true, Some(place)));
        }
        // When the bandwidth has refilled, what the 50 refused ones must not have taken is there: 9 each.
        assert_eq!(limiter.passing(&small, 20, 2 * SECOND), 9, "refused by limit {place}");
        let verdict = limiter.frame(&small.frame(), 2 * SECOND);
        assert_eq!(verdict.limit, Some(usize::from(place == 0)));
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn limits_of_one_rule_and_of_two_rules_keep_apart() {
    let mut limiter = Limiter::new(
        "rules: [{ name: dns, match: { destination_port: 53 }, limits: [{ per: source, rate: 1/h, burst: 5 }, { per: rule, rate: 1/h, burst: 12 }] }, \
         { name: rest, limits: [{ per: source, rate: 1/h, burst: 3 }, { per: rule, rate: 1/h, burst: 100 }] }]",
    );
    let mut burst = |packet: Packet| limiter.passing(&packet, 20, 0);
    // Five each until the twelve of the rule are gone, whatever the family.
    let passed = [udp("10.0.0.1"), udp("2001:db8::1"), udp("10.0.0.3"), udp("10.0.0.4")].map(&mut burst);
    assert_eq!(passed, [5, 5, 2, 0]);
    assert_eq!([tcp("10.0.0.1", ACK), tcp("10.0.0.4", ACK)].map(&mut burst), [3, 3]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_rate_of_zero_blocks_and_says_which_limit_does() {
    let mut limiter =
        one("{ per: source, rate: 10/s }, { per: rule, bandwidth: 0bit/s }, { per: source, rate: 0/d }");
    for at in [0, SECOND, 30 * DAY] {
        let verdict = limiter.frame(&udp(CLIENT).frame(), at);
        assert_eq!((verdict.dropped, verdict.reason.name(), verdict.limit), (true, "zero_rate", Some(1)));
    }
    assert_eq!(limiter.claimed(), 0);
}

/// Rates and bursts as `ratelimit check` takes or refuses them: a refusal says where and what.
#[test]
fn impossible_rates_and_bursts_are_errors_with_their_place() {
    let good = [
        "rate: 1/d",
        "rate: 1/m",
        "rate: 100M/s",
        "rate: 5000000000/m",
        "bandwidth: 400Gbit/s",
        "bandwidth: 40Gbit/s, burst: 8GB",
        "rate: 0/s",
        "rate: 1000/s, burst: 1000000000",
    ];
    let bad = [
        "rate: 10/s, burst: 0",
        "rate: 1M/s, burst: 999",
        "bandwidth: 1Tbit/s",
        "bandwidth: 401Gbit/s",
        "rate: 101M/s",
        "rate: 1/s, burst: 1000000000",
        "bandwidth: 1Mbit/s, burst: 1513B",
        "rate: 0/s, burst: 1",
        "rate: -1/s",
        "rate: 1.5/s",
        "rate: 4294967296/s",
        "bandwidth: 1Gbit/s, burst: 10",
        "rate: 18446744073709551616/s",
    ];
    let directory = Directory::new("rates").expect("a directory");
    let file = directory.path().join("rules.yaml");
    for (limit, is_good) in good.map(|limit| (limit, true)).into_iter().chain(bad.map(|limit| (limit, false)))
    {
        let text = format!(
            "network:\n  rules:\n    - name: all\n      limits:\n        - {{ per: source, {limit} }}\n"
        );
        fs::write(&file, text).expect("it can be written");
        let output =
            Command::new(env!("CARGO_BIN_EXE_ratelimit")).args(["check", "--json"]).arg(&file).output();
        let output = output.expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (output.status.code(), report["valid"] == true),
            (Some(i32::from(!is_good)), is_good),
            "{limit}: {report}"
        );
        if !is_good {
            let error = &report["errors"][0];
            assert_eq!(error["line"], 5, "{limit}: {report}");
            assert!(
                error["column"].as_u64() > Some(10) && error["expected"].is_string(),
                "{limit}: {report}"
            );
        }
    }
}
