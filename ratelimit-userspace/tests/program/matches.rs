//! What a rule matches: every dimension with packets that meet it and packets that do not, the order of
//! rules, and what passes because no rule is about it.

use super::{
    frame::{
        ACK, CWR, DESTINATION_OPTIONS, ECE, FIN, IP, Packet, RST, SYN, Transport, icmp, packet, tcp, udp,
    },
    limiter::Limiter,
};

const V4: &str = "10.0.0.1";
const V6: &str = "2001:db8::1";

/// A rule with this match and a rate of zero.
fn zero(name: &str, matches: &str) -> String {
    format!("{{ name: {name}, match: {{ {matches} }}, limits: {{ per: source, rate: 0/s }} }}")
}

fn with_ports(source: u16, destination: u16) -> [Packet; 3] {
    [
        packet(V4, Transport::Udp(source, destination)),
        packet(V6, Transport::Tcp(source, destination, ACK)),
        packet(V4, Transport::Sctp(source, destination)),
    ]
}

/// Asserts which packets a match takes and which not.
#[track_caller]
fn check(matches: &str, hits: &[Packet], misses: &[Packet]) {
    let mut limiter = Limiter::new(&format!("rules: [{}]", zero("only", matches)));
    for packet in hits {
        assert_eq!(limiter.say(packet), "drop zero_rate", "{matches} should match {packet:?}");
    }
    for packet in misses {
        assert_eq!(limiter.say(packet), "pass no_rule", "{matches} should not match {packet:?}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn addresses() {
    check(
        "source: [10.0.0.0/24, 192.0.2.7, \"2001:db8::/33\"]",
        &[udp("10.0.0.0"), udp("10.0.0.255"), udp("192.0.2.7"), udp("2001:db8:7fff::1")],
        &[udp("10.0.1.0"), udp("192.0.2.6"), udp("2001:db8:8000::"), udp("2001:db9::1")],
    );
    check(
        "destination: [203.0.113.5/32, \"2001:db8:ffff::/64\"]",
        &[udp(V4), udp(V6)],
        &[udp(V4).to("203.0.113.4"), udp("203.0.113.5").to(V4), udp(V6).to("2001:db8:ffff:1::5")],
    );
    check("source: 0.0.0.0/0", &[udp(V4)], &[udp(V6)]);
    check("destination: \"::/0\"", &[udp(V6)], &[udp(V4)]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn protocols() {
    let bare = |protocol| packet(V4, Transport::Bare(protocol));
    check("protocol: tcp", &[tcp(V4, SYN), tcp(V6, 0)], &[udp(V4), udp(V6), bare(47)]);
    check("protocol: [udp, 47, esp]", &[udp(V4), bare(47), bare(50)], &[tcp(V4, SYN), bare(51), icmp(V4, 8)]);
    check("protocol: icmp", &[icmp(V4, 8)], &[icmp(V6, 128), udp(V4)]);
    check("protocol: icmpv6", &[icmp(V6, 128)], &[icmp(V4, 8), udp(V6)]);
    check(
        "protocol: udp",
        &[udp(V6).extended(&[DESTINATION_OPTIONS]), udp(V6).fragment(5, true), udp(V4).fragment(5, true)],
        &[tcp(V6, 0).extended(&[DESTINATION_OPTIONS]), udp(V6).extended(&[DESTINATION_OPTIONS; 9])],
    );
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn ports_and_both_ends_of_their_ranges() {
    let hits: Vec<_> =
        [53, 100, 101, 199, 200, 65_535].into_iter().flat_map(|port| with_ports(9, port)).collect();
    let misses: Vec<_> =
        [0, 52, 54, 99, 201, 65_534].into_iter().flat_map(|port| with_ports(53, port)).collect();
    check("destination_port: [53, \"100-200\", 65535]", &hits, &misses);
    let hits: Vec<_> = [0, 1023].into_iter().flat_map(|port| with_ports(port, 5000)).collect();
    let misses: Vec<_> =
        with_ports(1024, 80).into_iter().chain([icmp(V4, 0), packet(V4, Transport::Bare(50))]).collect();
    check("source_port: \"0-1023\"", &hits, &misses);
    check("source_port: 4000, destination_port: 53", &[udp(V4), udp(V6)], &with_ports(53, 4000));
    // Only a first fragment has ports.
    check(
        "destination_port: 53",
        &[udp(V4).fragment(0, true), udp(V6).fragment(0, true), udp(V6).fragment(0, false)],
        &[udp(V4).fragment(1, true), udp(V6).fragment(1, false)],
    );
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn tcp_flags() {
    check(
        "tcp_flags: syn",
        &[tcp(V4, SYN), tcp(V6, SYN | ECE | CWR), tcp(V4, SYN | FIN), tcp(V4, SYN).fragment(0, true)],
        // A later fragment's data may look like a SYN.
        &[
            tcp(V4, SYN | ACK),
            tcp(V6, ACK),
            tcp(V4, 0),
            tcp(V4, SYN).fragment(1, true),
            tcp(V6, SYN).fragment(2, false),
            udp(V4),
        ],
    );
    check(
        "tcp_flags: [\"fin,!ack\", rst]",
        &[tcp(V4, FIN), tcp(V4, RST), tcp(V4, RST | ACK | SYN)],
        &[tcp(V4, FIN | ACK), tcp(V4, ACK), tcp(V4, 0)],
    );
    check("tcp_flags: \"null\"", &[tcp(V4, 0), tcp(V4, ECE)], &[tcp(V4, ACK), udp(V4)]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn icmp_types() {
    check(
        "protocol: [icmp, icmpv6], icmp_type: echo-request",
        &[icmp(V4, 8), icmp(V6, 128)],
        &[icmp(V4, 0), icmp(V4, 128), icmp(V6, 8), icmp(V6, 129), icmp(V4, 8).fragment(1, false), udp(V4)],
    );
    check("protocol: icmp, icmp_type: [3, 11]", &[icmp(V4, 3), icmp(V4, 11)], &[icmp(V4, 4), icmp(V6, 3)]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn fragments() {
    let parts = |offset, more| [udp(V4).fragment(offset, more), tcp(V6, SYN).fragment(offset, more)];
    let (first, later, last) = (parts(0, true), parts(100, true), parts(100, false));
    // An atomic fragment is whole (RFC 6946).
    let whole = [udp(V4), tcp(V6, SYN), udp(V4).fragment(0, false), tcp(V6, SYN).fragment(0, false)];
    let laters = [later, last].concat();
    check("fragment: none", &whole, &[&first[..], &laters].concat());
    check("fragment: first", &first, &[&whole[..], &laters].concat());
    check("fragment: later", &laters, &[&whole[..], &first].concat());
    check("fragment: any", &[&first[..], &laters].concat(), &whole);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn neither_dont_fragment_nor_the_reserved_bit_make_a_fragment() {
    let mut limiter = Limiter::new(&format!(
        "rules: [{}, {}]",
        zero("parts", "fragment: any"),
        zero("web", "destination_port: 80")
    ));
    for word in [0x0000, 0x4000, 0x8000, 0xc000_u16] {
        let mut frame = tcp(V4, ACK).frame();
        frame[IP + 6..IP + 8].copy_from_slice(&word.to_be_bytes());
        assert_eq!(limiter.frame(&frame, 0).rule, Some(1), "{word:#x}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn vlans() {
    let tagged = |id| udp(V4).tagged(&[(0x8100, id)]);
    let twice = |outer, inner| udp(V6).tagged(&[(0x88a8, outer), (0x8100, inner)]);
    // Priority and drop eligibility, the upper four bits, are no part of the id.
    check(
        "vlan: [10, 4094]",
        &[tagged(10), tagged(0xf00a), tagged(4094), twice(10, 7)],
        &[tagged(11), tagged(0), twice(7, 10), udp(V4)],
    );
    check("vlan: [untagged, 0]", &[udp(V4), udp(V6), tagged(0), tagged(0xe000)], &[tagged(1), twice(1, 0)]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn lengths_of_whole_frames() {
    // 14 + 20 + 8 bytes of headers.
    let long = |length: usize| udp(V4).payload(length - 42);
    check(
        "length: [64, \"100-200\", \"1500-65535\"]",
        &[long(64), long(100), long(200), long(1500), long(3000)],
        &[long(63), long(65), long(99), long(201), long(1499)],
    );
    let mut limiter = Limiter::new(&format!("rules: [{}]", zero("long", "length: 65535")));
    let frame = udp(V4).frame();
    for (length, rule) in [(65_534, None), (65_535, Some(0)), (200_000, Some(0))] {
        assert_eq!(limiter.on_wire(&frame, length, 0).rule, rule, "{length}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn all_conditions_of_a_match_must_hold() {
    let right = tcp("10.0.0.1", SYN).tagged(&[(0x8100, 5)]);
    let wrong = [
        tcp("10.0.1.1", SYN).tagged(&[(0x8100, 5)]),
        right.clone().to("203.0.113.6"),
        tcp("10.0.0.1", ACK).tagged(&[(0x8100, 5)]),
        tcp("10.0.0.1", SYN).tagged(&[(0x8100, 6)]),
        tcp("10.0.0.1", SYN),
        right.clone().fragment(0, true),
        right.clone().payload(100),
        Packet { transport: Transport::Tcp(4000, 81, SYN), ..right.clone() },
        Packet { transport: Transport::Tcp(4001, 80, SYN), ..right.clone() },
    ];
    check(
        "source: 10.0.0.0/24, destination: 203.0.113.5, protocol: tcp, source_port: 4000, destination_port: 80, \
         tcp_flags: syn, fragment: none, vlan: 5, length: \"60-99\"",
        &[right],
        &wrong,
    );
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_first_rule_that_matches_decides_whatever_its_place() {
    let mut rules: Vec<_> = (0..62)
        .map(|number| zero(&format!("r{number}"), &format!("destination_port: {}", 1000 + number)))
        .collect();
    rules.insert(0, zero("low", "destination_port: \"1010-1020\", source: 10.0.0.0/8"));
    rules.push(zero("rest", "protocol: udp"));
    let mut limiter = Limiter::new(&format!("rules: [{}]", rules.join(", ")));
    let mut to =
        |source, port| limiter.rule(&packet(source, Transport::Udp(1, port))).expect("the last takes it");
    for number in 0..62 {
        let own = format!("r{number}");
        let low = if (10..=20).contains(&number) { "low" } else { &own };
        assert_eq!((to(V4, 1000 + number).as_str(), to(V6, 1000 + number).as_str()), (low, own.as_str()));
    }
    assert_eq!(to(V4, 999), "rest");
    assert_eq!(limiter.rule(&tcp(V4, SYN)), None);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn fragments_that_no_rule_is_about_pass_in_any_order() {
    let mut limiter =
        Limiter::new(&format!("rules: [{}]", zero("dns", "protocol: udp, destination_port: 53")));
    let datagram = |port| packet(V4, Transport::Udp(4000, port));
    // Of an unmanaged port: the last fragment first.
    for (offset, more) in [(20, false), (10, true), (0, true)] {
        assert_eq!(limiter.say(&datagram(9999).fragment(offset, more)), "pass no_rule");
    }
    // Of a managed one the first is met by the rule; the others have no port to be met by.
    assert_eq!(limiter.say(&datagram(53).fragment(0, true)), "drop zero_rate");
    assert_eq!(limiter.say(&datagram(53).fragment(10, false)), "pass no_rule");
}
