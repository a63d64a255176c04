//! Samples: what is known of each source, and what is told of refused packets.

use std::{net::Ipv4Addr, path::Path, time::Duration};

use aya::maps::RingBuf;
use ratelimit::network::{
    compile::{Slots, SourceBits},
    description::Description,
    program::{Clock, Options, StateMaps},
    samples::Samples,
    state::StateDir,
    talkers::{self, By, Estimate, Talker, TalkerMaps},
};
use ratelimit_common::{
    packet::ABSENT,
    record::Reason,
    sample::{Refused, TALKERS},
};
use xtask::lab::BpfFs;

use super::{
    frame::{Transport, icmp, packet, tcp, udp},
    limiter::{Limiter, MILLISECOND, SECOND, network, state},
};

/// On the virtual clock, with samples.
const SAMPLED: Options = Options { clock: Clock::Replay, sampling: true, trace: false };

const BITS: SourceBits = SourceBits { v4: 32, v6: 64 };

/// UDP is limited to a packet a day.
const SCARCE: &str =
    "rules: [{ name: scarce, match: { protocol: udp }, limits: { per: source, rate: 1/d, burst: 1 } }]";

fn sampled(yaml: &str) -> Limiter {
    Limiter::load(&network(yaml), SAMPLED)
}

fn known(limiter: &Limiter, source: &str) -> Option<Talker> {
    let maps = TalkerMaps::of(&limiter.program).expect("the program has them");
    maps.of_address(source.parse().expect("an address"), BITS).expect("it can be read")
}

fn top(limiter: &Limiter, count: usize, by: By) -> Vec<Talker> {
    TalkerMaps::of(&limiter.program).expect("the program has them").top(count, by).expect("they can be read")
}

/// The records that the program wrote since the last call.
fn told(limiter: &Limiter) -> Vec<Refused> {
    let mut ring = RingBuf::try_from(limiter.program.map("samples").expect("there is one")).expect("a ring");
    let mut records = Vec::new();
    while let Some(bytes) = ring.next() {
        records.push(Refused::from_bytes(&bytes).expect("a record"));
    }
    records
}

fn exactly(packets: u64, bytes: u64) -> Estimate {
    Estimate { packets, bytes, packets_error: 0 }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn few_packets_are_counted_exactly_whatever_becomes_of_them() {
    let mut limiter = sampled(SCARCE);
    let datagram = udp("192.0.2.1").frame();
    let segment = tcp("192.0.2.2", 0x02).frame();
    let length = |frame: &[u8]| frame.len() as u64;
    for number in 0..1000 {
        let at = SECOND + number * MILLISECOND;
        limiter.frame(&datagram, at);
        limiter.frame(&segment, at);
    }
    let shed = known(&limiter, "192.0.2.1").expect("it was seen");
    assert_eq!(shed.passed, exactly(1, length(&datagram)));
    assert_eq!(shed.shed, exactly(999, 999 * length(&datagram)));
    let passed = known(&limiter, "192.0.2.2").expect("it was seen");
    assert_eq!((passed.passed, passed.shed), (exactly(1000, 1000 * length(&segment)), exactly(0, 0)));
    assert_eq!(passed.last_seen.duration_since(passed.first_seen).expect("later").as_millis(), 999);
    assert_eq!(known(&limiter, "192.0.2.3"), None);

    assert_eq!(top(&limiter, 9, By::Shed)[0].source, "192.0.2.1/32".parse().unwrap());
    let [first] = top(&limiter, 1, By::Passed)[..] else { panic!("one was asked for") };
    assert_eq!((first.source, first.passed), (passed.source, passed.passed));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_source_is_what_makes_one_client() {
    let mut limiter = sampled("sources: { ipv4_prefix: 24, ipv6_prefix: 48 }");
    for source in
        ["192.0.2.1", "192.0.2.255", "192.0.3.1", "2001:db8:1:2::3", "2001:db8:1:ffff::", "2001:db8:2::"]
    {
        limiter.frame(&udp(source).frame(), SECOND);
    }
    let mut sources: Vec<_> = top(&limiter, 9, By::Passed)
        .iter()
        .map(|talker| format!("{} {}", talker.source, talker.passed.packets))
        .collect();
    sources.sort();
    assert_eq!(sources, ["192.0.2.0/24 2", "192.0.3.0/24 1", "2001:db8:1::/48 2", "2001:db8:2::/48 1"]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn verdicts_before_the_rules_are_accounted_too() {
    let mut limiter = sampled("allow: [192.0.2.1], deny: [192.0.2.2], rules: []");
    // Four bytes of a UDP header.
    let cut_short = packet("192.0.2.3", Transport::Bare(17)).payload(4).frame();
    for frame in [udp("192.0.2.1").frame(), udp("192.0.2.2").frame(), cut_short, icmp("192.0.2.4", 8).frame()]
    {
        limiter.frame(&frame, SECOND);
    }
    let counts = |source| known(&limiter, source).map(|talker| (talker.passed.packets, talker.shed.packets));
    assert_eq!(
        ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(counts),
        [Some((1, 0)), Some((0, 1)), Some((0, 1)), Some((1, 0))]
    );
    let reasons: Vec<_> =
        told(&limiter).iter().map(|record| Reason::ALL[record.reason as usize].name()).collect();
    assert_eq!(reasons, ["denied", "malformed_udp"]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_flood_is_estimated_within_the_stated_error() {
    const PACKETS: u64 = 400_000;
    let mut limiter = sampled(SCARCE);
    let (flood, honest) = (udp("192.0.2.1").frame(), tcp("192.0.2.2", 0x10).frame());
    for number in 0..PACKETS {
        // A million a second, every tenth of them honest.
        let frame = if number % 10 == 0 { &honest } else { &flood };
        limiter.frame(frame, SECOND + number * 1000);
    }
    for (source, sent) in [("192.0.2.1", PACKETS / 10 * 9), ("192.0.2.2", PACKETS / 10)] {
        let Talker { passed, shed, .. } = known(&limiter, source).expect("it was seen");
        let counted = if source == "192.0.2.1" { shed } else { passed };
        assert!(counted.packets.abs_diff(sent) <= counted.packets_error, "{counted:?} of {sent}");
        assert!(counted.packets_error > 0 && counted.packets_error < sent / 3, "{counted:?} of {sent}");
    }
    // Counters are exact all the same.
    assert_eq!(limiter.reason("limited").1.packets, PACKETS / 10 * 9 - 1);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn sources_that_take_turns_do_not_hide_behind_each_other() {
    const SOURCES: u64 = 64;
    const EACH: u64 = 5000;
    let mut limiter = sampled(SCARCE);
    let address = |n: u64| Ipv4Addr::from(0xc000_0200 + u32::try_from(n).expect("it is small")).to_string();
    let frames: Vec<_> = (0..SOURCES).map(|n| udp(&address(n)).frame()).collect();
    for turn in 0..EACH {
        for (n, frame) in (0..).zip(&frames) {
            limiter.frame(frame, SECOND + (turn * SOURCES + n) * 1000);
        }
    }
    let wrong = (0..SOURCES)
        .filter(|&n| {
            let shed = known(&limiter, &address(n)).expect("it was seen").shed;
            shed.packets.abs_diff(EACH - 1) > shed.packets_error
        })
        .count();
    // One in twenty may be.
    assert!(wrong <= 6, "{wrong}");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn more_sources_than_fit_displace_those_seen_least_recently() {
    let mut limiter = sampled("mode: enforce");
    let faithful = tcp("198.51.100.1", 0x10).frame();
    let strangers = u32::try_from(2 * TALKERS).expect("it is small");
    for number in 0..strangers {
        let at = SECOND + u64::from(number) * MILLISECOND;
        limiter.frame(&udp(&Ipv4Addr::from(0x0a00_0000 + number).to_string()).frame(), at);
        if number % 16 == 0 {
            limiter.frame(&faithful, at);
        }
    }
    let kept = top(&limiter, usize::MAX, By::Passed);
    assert!((TALKERS / 2..=TALKERS).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept[0].source, "198.51.100.1/32".parse().unwrap());
    assert_eq!(kept[0].passed.packets, u64::from(strangers / 16));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_refused_packet_is_told_of_in_full() {
    let mut limiter = sampled(
        "rules: [{ name: other, match: { protocol: tcp }, limits: { per: source, rate: 1/s } }, { name: scarce, \
         limits: [{ per: source, rate: 100/s }, { per: rule, rate: 1/d, burst: 1 }] }]",
    );
    let datagram = packet("2001:db8::1", Transport::Udp(1234, 53)).frame();
    limiter.frame(&datagram, SECOND);
    limiter.frame(&datagram, 2 * SECOND);
    let sent = udp("2001:db8::1");
    let [record] = told(&limiter)[..] else { panic!("one packet was refused") };
    let high = 0x2001_0db8_u64 << 32;
    let expected = Refused {
        time: 2 * SECOND,
        weight: 1,
        source: [high, 1],
        destination: [high | 0xffff << 16, 5],
        length: u32::try_from(datagram.len()).expect("it is short"),
        // What `BPF_PROG_TEST_RUN` says it came in by.
        interface: record.interface,
        reason: Reason::Limited as u32,
        counter_slot: limiter.compiled.descriptions[1].counter_slot,
        limit: 1,
        shed: 1,
        family: 6,
        protocol: 17,
        source_port: 1234,
        destination_port: 53,
    };
    assert_eq!(sent.destination.to_string(), "2001:db8:ffff::5");
    assert_eq!(record, expected);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn what_has_no_addresses_or_no_rule_is_told_of_as_such() {
    let mut limiter = sampled(SCARCE);
    let mut headless = udp("192.0.2.1").frame();
    headless.truncate(14 + 12);
    limiter.frame(&udp("192.0.2.9").frame(), SECOND);
    limiter.frame(&headless, SECOND);
    let [record] = told(&limiter)[..] else { panic!("one packet was refused") };
    assert_eq!(record.reason, Reason::MalformedIpv4 as u32);
    assert_eq!((record.family, record.source, record.destination), (0, [0; 2], [0; 2]));
    assert_eq!((record.counter_slot, record.limit), (Refused::NONE, Refused::NONE));
    // Not even what the frame before it left behind.
    assert_eq!((record.source_port, record.protocol), (0, 0));
    assert_eq!(known(&limiter, "192.0.2.1"), None);

    let mut ping = icmp("192.0.2.1", 8);
    ping.payload = 0;
    let mut limiter = sampled("deny: [192.0.2.1]");
    limiter.frame(&ping.frame(), SECOND);
    let [record] = told(&limiter)[..] else { panic!("one packet was refused") };
    assert_eq!((record.source_port, record.destination_port, record.protocol), (ABSENT, ABSENT, 1));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn what_only_monitoring_lets_pass_is_told_of_and_counts_as_shed() {
    for monitored in ["mode: monitor", "mode: enforce"] {
        let action = if monitored == "mode: monitor" { "" } else { ", action: count" };
        let mut limiter = sampled(&format!(
            "{monitored}, rules: [{{ name: r, limits: {{ per: source, rate: 1/d, burst: 1 }}{action} }}]"
        ));
        for at in 0..5 {
            assert!(!limiter.frame(&udp("192.0.2.1").frame(), SECOND + at).dropped);
        }
        let records = told(&limiter);
        assert_eq!(records.len(), 4);
        assert!(records.iter().all(|record| record.shed == 0));
        let talker = known(&limiter, "192.0.2.1").expect("it was seen");
        assert_eq!((talker.passed.packets, talker.shed.packets), (1, 4));
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_flood_is_told_of_fifty_times_a_second_for_each_reason() {
    let mut limiter = sampled(&format!("deny: [192.0.2.9], {SCARCE}"));
    let (often, rarely) = (udp("192.0.2.1").frame(), udp("192.0.2.9").frame());
    let mut records = Vec::new();
    for number in 0..200_000 {
        let at = SECOND + number * 10_000;
        limiter.frame(&often, at);
        if number % 1000 == 0 {
            limiter.frame(&rarely, at);
        }
        if number % 50_000 == 49_999 {
            records.extend(told(&limiter));
        }
    }
    // Two seconds, whichever CPUs the test ran on.
    let of = |reason: Reason| records.iter().filter(move |record| record.reason == reason as u32);
    let count = of(Reason::Limited).count();
    let cpus = std::thread::available_parallelism().expect("it is known").get();
    assert!((100..=110 * cpus).contains(&count), "{count}");
    // The rare reason is not lost among the frequent one. Each second is sampled in half.
    assert!(of(Reason::Denied).count() > 10);
    // Together they stand for all.
    let weight: u64 = of(Reason::Limited).map(|record| record.weight).sum();
    assert!((170_000..230_000).contains(&weight), "{weight}");
    assert_eq!(limiter.event("samples_lost"), 0);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn records_that_nobody_reads_are_lost_and_counted() {
    let mut limiter = sampled(SCARCE);
    let frame = udp("192.0.2.1").frame();
    for number in 0..4000 {
        limiter.frame(&frame, SECOND + number * SECOND / 50);
    }
    let lost = limiter.event("samples_lost");
    let records = told(&limiter);
    assert_eq!(records.len() as u64 + lost, 3999);
    assert!((2000..3000).contains(&records.len()), "{}", records.len());
    // The next one stands for those that were lost, if it is of the same CPU.
    limiter.frame(&frame, SECOND + 4001 * SECOND / 50);
    let next = told(&limiter);
    assert_eq!(next.len(), 1);
    assert!(next[0].weight <= lost + 1);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_replay_is_not_sampled() {
    let mut limiter = Limiter::new(SCARCE);
    for at in 0..10 {
        limiter.frame(&udp("192.0.2.1").frame(), SECOND + at);
    }
    assert_eq!(known(&limiter, "192.0.2.1"), None);
    assert_eq!(told(&limiter), []);
}

#[test]
#[ignore = "requires root: a BPF file system"]
fn a_reader_of_the_pins_gets_records_as_they_come_and_names_the_rules() {
    let bpffs = BpfFs::mount().expect("a BPF file system");
    let pins = StateDir::new(bpffs.path().join("ratelimit"));
    let _lock = pins.open().expect("nobody has it");
    let policy = network(SCARCE);
    let maps = StateMaps { pins: Some(pins.state()), ..state(&policy) };
    let mut limiter = Limiter::over(&policy, &maps, SAMPLED);
    let (slots, _) = Slots::assign(&Slots::default(), ["scarce"]);
    let rules = limiter.compiled.descriptions.clone();
    let description = Description::new(Path::new("rules.yaml"), &[], &policy, rules, slots, 1);
    description.pin(&pins.state().join("policy")).expect("it can be pinned");
    let frame = udp("192.0.2.1").frame();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut samples = Samples::open(&pins).expect("the ring is pinned");
        let soon = Duration::from_secs(10);
        for turn in 0..3 {
            // Nothing has come: it waits, and giving up loses nothing.
            let waited = tokio::time::timeout(Duration::from_millis(10), samples.next()).await;
            assert!(waited.is_err(), "{waited:?}");
            for n in 0..4 {
                limiter.frame(&frame, (turn + 1) * SECOND + n);
            }
            let expected = if turn == 0 { 3 } else { 4 };
            for _ in 0..expected {
                let sample = tokio::time::timeout(soon, samples.next())
                    .await
                    .expect("one is there")
                    .expect("a sample");
                assert_eq!(sample.reason, Reason::Limited);
                assert_eq!(sample.source, Some("192.0.2.1".parse().unwrap()));
                assert_eq!(sample.rule.as_deref(), Some("scarce"));
            }
        }
        // One that comes while it is waited for wakes it.
        let (sample, ()) = tokio::join!(tokio::time::timeout(soon, samples.next()), async {
            tokio::task::yield_now().await;
            limiter.frame(&frame, 10 * SECOND);
        });
        assert_eq!(sample.expect("it is woken").expect("a sample").weight, 1);
    });
    let first = talkers::top(&pins, 1, By::Shed).expect("they are pinned");
    assert_eq!((first[0].source, first[0].shed.packets), ("192.0.2.1/32".parse().unwrap(), 12));
    let of = |address: &str| {
        let known = talkers::of(&pins, address.parse().expect("an address")).expect("it is pinned");
        known.map(|known| (known.source, known.shed))
    };
    assert_eq!(of("::ffff:192.0.2.1"), Some((first[0].source, first[0].shed)));
    assert_eq!(of("192.0.2.2"), None);
}
