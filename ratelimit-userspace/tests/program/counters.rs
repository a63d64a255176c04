//! Counters equal what was sent: per rule, limit and reason, in packets and bytes, on every CPU the kernel
//! may have; monitoring sheds nothing and counts the same; jumbo frames count whole.

use std::collections::BTreeMap;

use aya::{maps::PerCpuArray, util::nr_cpus};
use ratelimit::network::{counters::Tally, program::Clock};
use ratelimit_common::record::{Reason, ReasonCounters};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{
    frame::{ACK, DESTINATION_OPTIONS, IP, Packet, SYN, Transport, ethernet, icmp, packet, tcp, udp},
    limiter::{Limiter, MILLISECOND, network},
};

const RULES: &str = "allow: [192.0.2.0/24], deny: [198.51.100.0/24], rules: [\
    { name: never, match: { protocol: esp }, limits: { per: source, rate: 0/s } }, \
    { name: dns, match: { destination_port: 53 }, limits: [{ per: source, rate: 20/s, burst: 3 }, { per: rule, bandwidth: 80kbit/s, burst: 2kB }] }, \
    { name: tcp, match: { protocol: tcp }, limits: { per: source, rate: 1/s, burst: 2 }, action: count }]";

/// Something for every reason that needs no race.
fn traffic() -> Vec<Vec<u8>> {
    let mut packets: Vec<Packet> = ["10.0.0.1", "10.0.0.2", "192.0.2.1", "198.51.100.1", "2001:db8::1"]
        .into_iter()
        .flat_map(|source| {
            [
                udp(source),
                udp(source).payload(700),
                tcp(source, SYN),
                tcp(source, ACK).payload(3),
                icmp(source, 8),
            ]
        })
        .collect();
    packets.push(packet("10.0.0.1", Transport::Bare(50)));
    packets.push(icmp("fe80::1", 135).hop_limit(255));
    packets.push(packet("10.0.0.1", Transport::Bare(6)).payload(5));
    packets.push(packet("10.0.0.1", Transport::Bare(17)).payload(5));
    let mut frames: Vec<_> = packets.iter().map(Packet::frame).collect();
    frames.push(ethernet(0x0806, &[1; 46]));
    let mut broken = frames[0].clone();
    broken[IP] = 0x41;
    frames.push(broken);
    frames
}

fn add(tally: &mut Tally, bytes: usize) {
    tally.packets += 1;
    tally.bytes += bytes as u64;
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn counters_equal_the_verdicts_given_in_every_mode() {
    for (mode, malformed) in [("enforce", "drop"), ("monitor", "drop"), ("enforce", "pass")] {
        let mut limiter = Limiter::new(&format!("mode: {mode}, malformed: {malformed}, {RULES}"));
        // By reason: passed, shed, would have been shed. By rule: passed, then by limit shed and would.
        let mut reasons = BTreeMap::<&str, [Tally; 3]>::new();
        let mut passed = [Tally::default(); 3];
        let mut refused = BTreeMap::<(usize, usize), [Tally; 2]>::new();
        for (n, frame) in traffic().iter().cycle().take(1500).enumerate() {
            let verdict = limiter.frame(frame, n as u64 * MILLISECOND);
            assert!(!(verdict.dropped && verdict.would_drop), "{verdict:?}");
            assert!(mode == "enforce" || !verdict.dropped, "{verdict:?}");
            let kind = if verdict.dropped {
                1
            } else if verdict.would_drop {
                2
            } else {
                0
            };
            add(&mut reasons.entry(verdict.reason.name()).or_default()[kind], frame.len());
            match (verdict.rule, verdict.limit) {
                (Some(rule), Some(limit)) => {
                    add(&mut refused.entry((rule, limit)).or_default()[kind - 1], frame.len());
                }
                (Some(rule), None) => add(&mut passed[rule], frame.len()),
                (None, limit) => assert_eq!(limit, None),
            }
        }
        let counters = limiter.counters();
        for count in &counters.reasons {
            let expected = reasons.remove(count.reason.as_str()).unwrap_or_default();
            assert_eq!([count.passed, count.shed, count.would_shed], expected, "{mode} {}", count.reason);
        }
        for (rule, count) in counters.rules.iter().enumerate() {
            assert_eq!(count.passed, passed[rule], "{mode} {}", count.rule);
            for (limit, count) in count.limits.iter().enumerate() {
                let expected = refused.remove(&(rule, limit)).unwrap_or_default();
                assert_eq!([count.shed, count.would_shed], expected, "{mode} {rule} {limit}");
            }
        }
        assert_eq!((reasons.len(), refused.len()), (0, 0));
        // The traffic reaches both limits of `dns`, and `tcp` only counts whatever the mode.
        let [never, dns, tcp] = &counters.rules[..] else { panic!("three rules") };
        let sheds = |limit: usize| (dns.limits[limit].shed.packets, dns.limits[limit].would_shed.packets);
        let is_shed = |(shed, would): (u64, u64)| {
            if mode == "monitor" { shed == 0 && would > 0 } else { shed > 0 && would == 0 }
        };
        assert!(is_shed(sheds(0)) && is_shed(sheds(1)), "{dns:?}");
        assert!(is_shed((never.limits[0].shed.packets, never.limits[0].would_shed.packets)));
        assert!(tcp.limits[0].shed.packets == 0 && tcp.limits[0].would_shed.packets > 0, "{tcp:?}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn monitoring_decides_as_enforcing_does() {
    let verdicts = |mode: &str| {
        let mut limiter = Limiter::new(&format!("mode: {mode}, {RULES}"));
        let judge = |(n, frame): (usize, &Vec<u8>)| {
            let verdict = limiter.frame(frame, n as u64 * MILLISECOND);
            (verdict.reason, verdict.rule, verdict.limit, verdict.dropped || verdict.would_drop)
        };
        traffic().iter().cycle().take(600).enumerate().map(judge).collect::<Vec<_>>()
    };
    assert_eq!(verdicts("monitor"), verdicts("enforce"));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn packets_on_every_cpu_are_counted_over_all_possible_ones() {
    let mut limiter = Limiter::new(RULES);
    let before = sched_getaffinity(None).expect("an affinity");
    let usable: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).collect();
    for (n, cpu) in usable.iter().enumerate() {
        let mut only = CpuSet::new();
        only.set(*cpu);
        sched_setaffinity(None, &only).expect("it may run there");
        for _ in 0..=n {
            assert_eq!(limiter.say(&udp("192.0.2.1").payload(100 - 42)), "pass allowed");
        }
    }
    sched_setaffinity(None, &before).expect("as before");
    let sent = (1..=usable.len() as u64).sum();
    assert_eq!(limiter.reason("allowed"), (Tally { packets: sent, bytes: sent * 100 }, Tally::default()));

    let map = limiter.program.map("reason_counters").expect("it exists");
    let array = PerCpuArray::<_, ReasonCounters>::try_from(map).expect("counters");
    let values = array.get(&(Reason::Allowed as u32), 0).expect("it can be read");
    assert_eq!(values.len(), nr_cpus().expect("a number of CPUs"));
    for (n, cpu) in usable.iter().enumerate() {
        assert_eq!(values[*cpu].passed.packets, n as u64 + 1, "CPU {cpu}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_jumbo_frame_counts_whole() {
    let policy = network(
        "rules: [{ name: dns, match: { destination_port: 53, length: \"9000-65535\" }, limits: { per: source, bandwidth: 8kbit/s, burst: 19kB } }]",
    );
    // Under replay the length is told; here the kernel's own count of all buffers must be right.
    let mut limiter = Limiter::load(&policy, Clock::Kernel);
    let frame = udp("10.0.0.1").payload(9000 - 42).frame();
    let actions: Vec<_> = (0..4).map(|_| limiter.program.run(&frame, 1).expect("it runs").0).collect();
    // linux/bpf.h: XDP_DROP is 1, XDP_PASS is 2. Two frames are 18,000 bytes.
    assert_eq!(actions, [2, 2, 1, 1]);
    let counters = limiter.counters();
    let two = Tally { packets: 2, bytes: 18_000 };
    assert_eq!((counters.rules[0].passed, counters.rules[0].limits[0].shed), (two, two));

    // A header beyond the first buffer: judged by its addresses, and counted.
    let mut deep = tcp("2001:db8::1", SYN).extended(&[DESTINATION_OPTIONS; 3]).payload(3 * 2040).frame();
    for header in 0..3 {
        let at = IP + 40 + header * 2048;
        deep[at..at + 2].copy_from_slice(&[if header == 2 { 6 } else { DESTINATION_OPTIONS }, 255]);
    }
    assert_eq!(limiter.program.run(&deep, 1).expect("it runs").0, 2);
    assert_eq!(limiter.event("beyond_first_buffer"), 1);
    let (passed, _) = limiter.reason("no_rule");
    assert_eq!(passed, Tally { packets: 1, bytes: deep.len() as u64 });
}
