//! Frames that contradict themselves: each kind is recognised, counted, and dropped or passed as the policy
//! says; and no bytes whatever make the program fail.

use std::cell::RefCell;

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use ratelimit::network::compile::Compiled;
use ratelimit_common::{
    packet::{self, Parsed},
    policy::stage,
    record::Reason,
};

use super::{
    frame::{
        AUTHENTICATION, DESTINATION_OPTIONS, HOP_BY_HOP, IP, Packet, ROUTING, SYN, Transport, icmp, packet,
        tcp, udp,
    },
    limiter::Limiter,
};

const V4: &str = "10.0.0.1";
const V6: &str = "2001:db8::1";

/// The frame with the byte at an offset replaced.
fn edited(packet: &Packet, offset: usize, byte: u8) -> Vec<u8> {
    let mut frame = packet.frame();
    frame[offset] = byte;
    frame
}

fn cut(packet: &Packet, length: usize) -> Vec<u8> {
    packet.frame()[..length].to_vec()
}

fn bare(source: &str, protocol: u8, payload: usize) -> Packet {
    packet(source, Transport::Bare(protocol)).payload(payload)
}

/// Frames whose addresses cannot be trusted.
fn before_addresses() -> Vec<(&'static str, Vec<u8>)> {
    let (v4, v6) = (udp(V4), udp(V6));
    vec![
        ("malformed_vlan", cut(&v4.clone().tagged(&[(0x8100, 5)]), 16)),
        ("malformed_vlan", cut(&v4.clone().tagged(&[(0x88a8, 5), (0x8100, 5)]), 20)),
        ("malformed_vlan", v4.clone().tagged(&[(0x88a8, 5), (0x8100, 5), (0x8100, 5)]).frame()),
        ("malformed_ipv4", cut(&v4, IP)),
        ("malformed_ipv4", cut(&v4, IP + 19)),
        ("malformed_ipv4", edited(&v4, IP, 0x44)),
        ("malformed_ipv4", edited(&v4, IP, 0x40)),
        ("malformed_ipv4", edited(&v4, IP, 0x65)),
        ("malformed_ipv4", edited(&v4, IP + 2, 0xff)),
        ("malformed_ipv4", edited(&v4, IP + 3, 19)),
        ("malformed_ipv6", cut(&v6, IP)),
        ("malformed_ipv6", cut(&v6, IP + 39)),
        ("malformed_ipv6", edited(&v6, IP, 0x45)),
        ("malformed_ipv6", edited(&v6, IP + 4, 0xff)),
    ]
}

/// Frames with addresses, malformed behind them.
fn behind_addresses() -> Vec<(&'static str, Vec<u8>)> {
    let mut frames =
        vec![("malformed_icmp", bare(V4, 1, 7).frame()), ("malformed_icmp", bare(V6, 58, 3).frame())];
    for extension in [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS, 135, 139, 140] {
        frames.push(("malformed_extension", bare(V6, extension, 7).frame()));
        // The header says that it goes on beyond the packet.
        let longer = edited(&tcp(V6, SYN).extended(&[extension]), IP + 41, 40);
        frames.push(("malformed_extension", longer));
    }
    frames.push(("malformed_extension", bare(V6, 44, 7).frame()));
    for (source, header) in [(V4, 20), (V6, 40)] {
        let transport = IP + header;
        let (tcp, udp) = (tcp(source, SYN), udp(source));
        frames.extend([
            ("malformed_tcp", bare(source, 6, 0).frame()),
            ("malformed_tcp", bare(source, 6, 19).frame()),
            ("malformed_tcp", bare(source, 6, 19).fragment(0, true).frame()),
            ("malformed_tcp", edited(&tcp, transport + 12, 0x40)),
            ("malformed_tcp", edited(&tcp.clone().payload(0), transport + 12, 0x60)),
            ("malformed_udp", bare(source, 17, 7).frame()),
            ("malformed_udp", edited(&udp, transport + 5, 7)),
            ("malformed_udp", edited(&udp, transport + 4, 1)),
            ("malformed_udp", bare(source, 17, 40).frame()),
            ("malformed_sctp", bare(source, 132, 11).frame()),
        ]);
    }
    frames
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn every_kind_is_dropped_or_passed_as_configured_and_counted() {
    let kinds = [before_addresses(), behind_addresses()].concat();
    for (malformed, action) in [("drop", "drop"), ("pass", "pass")] {
        let mut limiter = Limiter::new(&format!(
            "malformed: {malformed}, rules: [{{ name: none, limits: {{ per: source, rate: 0/s }} }}]"
        ));
        for (kind, frame) in &kinds {
            assert_eq!(limiter.say_frame(frame), format!("{action} {kind}"), "{frame:02x?}");
        }
        for reason in Reason::ALL.iter().map(|reason| reason.name()) {
            let frames = || kinds.iter().filter(|(kind, _)| *kind == reason);
            let bytes: usize = frames().map(|(_, frame)| frame.len()).sum();
            let (passed, shed) = limiter.reason(reason);
            let (counted, other) = if action == "drop" { (shed, passed) } else { (passed, shed) };
            assert_eq!((counted.packets, counted.bytes), (frames().count() as u64, bytes as u64), "{reason}");
            assert_eq!(other.packets, 0, "{reason}");
            assert!(!reason.starts_with("malformed") || counted.packets > 0, "no frame for {reason}");
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn lists_apply_to_packets_that_are_malformed_behind_their_addresses() {
    for malformed in ["drop", "pass"] {
        for (list, said) in [("allow", "pass allowed"), ("deny", "drop denied")] {
            let mut limiter =
                Limiter::new(&format!("malformed: {malformed}, {list}: [10.0.0.0/8, \"2001:db8::/32\"]"));
            for (_, frame) in behind_addresses() {
                assert_eq!(limiter.say_frame(&frame), said, "{frame:02x?}");
            }
            for (kind, frame) in before_addresses() {
                assert_eq!(limiter.say_frame(&frame), format!("{malformed} {kind}"), "{frame:02x?}");
            }
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn padding_and_the_data_of_later_fragments_are_no_headers() {
    let mut limiter = Limiter::new("malformed: drop");
    let mut padded = bare(V4, 6, 0).fragment(10, false).frame();
    padded.resize(60, 0xff);
    let fragments = [
        bare(V4, 17, 3).fragment(1, true).frame(),
        bare(V4, 1, 0).fragment(1, false).frame(),
        bare(V6, 6, 1).fragment(1, false).frame(),
        bare(V6, 58, 1).fragment(1, true).frame(),
        icmp(V4, 8).payload(0).frame(),
        padded,
    ];
    for frame in fragments {
        assert_eq!(limiter.say_frame(&frame), "pass no_rule", "{frame:02x?}");
    }
    // A header that reaches into the padding is cut short all the same.
    let mut short = bare(V4, 6, 10).frame();
    short.resize(60, 0);
    assert_eq!(limiter.say_frame(&short), "drop malformed_tcp");
}

struct Bytes<'a>(&'a [u8]);

impl packet::Frame for Bytes<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}

/// What must become of a frame under rules whose rates are all zero, found without the kernel.
fn expected(compiled: &Compiled, frame: &[u8]) -> (bool, Reason, Option<usize>) {
    let malformed = |reason| (compiled.stages & stage::MALFORMED_PASS == 0, reason, None);
    let packet = match packet::parse(&Bytes(frame)) {
        Parsed::Ip(packet) => packet,
        Parsed::Malformed(reason) => return malformed(reason),
        Parsed::NotIp => return (false, Reason::NotIp, None),
        Parsed::Cut => panic!("the whole frame is there: {frame:02x?}"),
    };
    let length = u32::try_from(frame.len()).expect("it is short");
    if let Some(reason) = compiled.lists.judge(&packet) {
        (reason == Reason::Denied, reason, None)
    } else if packet.neighbour {
        (false, Reason::Neighbour, None)
    } else if let Some(reason) = packet.malformed {
        malformed(reason)
    } else {
        match compiled.classify(&packet, length) {
            Some(rule) => (true, Reason::ZeroRate, Some(rule)),
            None => (false, Reason::NoRule, None),
        }
    }
}

/// Random bytes behind a plausible ethertype, and sound frames with some bytes changed and the end cut off.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    const STARTS: &[&[u8]] = &[&[0x08, 0x00, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0x00], &[0x88, 0xa8], &[]];
    let start = select(STARTS);
    let noise = (start, vec(any::<u8>(), 48..200)).prop_map(|(start, mut bytes)| {
        bytes[12..12 + start.len()].copy_from_slice(start);
        bytes
    });
    let source =
        select(&["10.0.0.1", "10.0.0.2", "192.0.2.9", "2001:db8::1", "fe80::1", "2001:db8:7::1"][..]);
    let transport = select(
        &[
            Transport::Udp(4000, 53),
            Transport::Tcp(80, 4000, SYN),
            Transport::Sctp(9, 53),
            Transport::Icmp(8, 0),
            Transport::Icmp(135, 0),
            Transport::Bare(50),
            Transport::Bare(6),
        ][..],
    );
    let extensions = vec(select(&[HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS][..]), 0..10);
    let tags = vec((select(&[0x8100, 0x88a8, 0x9100][..]), 0..16_u16), 0..3);
    let fragment = proptest::option::of((select(&[0, 1, 100][..]), any::<bool>()));
    let shape = (extensions, tags, fragment, 0..=10_u8, select(&[1, 64, 255][..]));
    let damage =
        (vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), any::<prop::sample::Index>(), any::<bool>());
    let sound = (source, transport, shape, 0..64_usize, damage).prop_map(
        |(source, transport, shape, payload, damage)| {
            let (extensions, tags, fragment, option_words, hop_limit) = shape;
            let packet = packet(source, transport);
            let packet = Packet { tags, option_words, extensions, fragment, hop_limit, payload, ..packet };
            let mut frame = packet.frame();
            let (bytes, end, is_cut) = damage;
            for (place, byte) in bytes {
                let place = place.index(frame.len());
                frame[place] = byte;
            }
            if is_cut {
                frame.truncate(14 + end.index(frame.len() - 13));
            }
            frame
        },
    );
    prop_oneof![noise, sound.clone(), sound]
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn any_bytes_get_the_verdict_that_the_parser_and_the_tables_give() {
    let rules = "allow: [192.0.2.0/24], management: [\
        { prefix: 10.0.0.2, ports: [22, 4000] }, { prefix: [10.0.0.0/8, \"2001:db8:7::/64\"], ports: \"50-60\" }], deny: [10.0.0.2, \"2001:db8:7::/48\", \"fe80::/10\"], rules: [\
        { name: dns, match: { protocol: [udp, sctp], destination_port: [53, \"1000-2000\"] }, limits: { per: source, rate: 0/s } }, \
        { name: syn, match: { protocol: tcp, tcp_flags: syn, source_port: \"1-1023\" }, limits: { per: source, rate: 0/s } }, \
        { name: ping, match: { protocol: [icmp, icmpv6], icmp_type: echo-request }, limits: { per: source, rate: 0/s } }, \
        { name: parts, match: { fragment: later, source: [10.0.0.0/8, \"2001:db8::/32\"] }, limits: { per: source, rate: 0/s } }, \
        { name: vlan, match: { vlan: [1, 2, 3, 4, 5] }, limits: { per: source, rate: 0/s } }, \
        { name: long, match: { length: \"100-65535\", destination: [203.0.113.0/24, \"::/0\"] }, limits: { per: source, rate: 0/s } }]";
    for malformed in ["drop", "pass"] {
        let Limiter { compiled, program } = Limiter::new(&format!("malformed: {malformed}, {rules}"));
        let program = RefCell::new(program);
        let config = Config { cases: 5000, failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&frames(), |frame| {
            let length = u32::try_from(frame.len()).expect("it is short");
            // Fails when the action is neither pass nor drop, so also when it is XDP_ABORTED.
            let verdict = program.borrow_mut().test_run(&frame, length, 0);
            let verdict = verdict.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!((verdict.dropped, verdict.reason, verdict.rule), expected(&compiled, &frame));
            prop_assert!(!verdict.cut && !verdict.would_drop);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}
