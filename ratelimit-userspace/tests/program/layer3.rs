//! What is decided by addresses alone: allow and deny hold for every IPv4 and IPv6 packet whatever its
//! shape, and nothing that keeps a host reachable is ever limited.

use std::{fmt::Write as _, net::Ipv4Addr};

use ratelimit::{config, network::program::Clock};
use xtask::lab::Directory;

use super::{
    frame::{
        AUTHENTICATION, DESTINATION_OPTIONS, HOP_BY_HOP, IP, Packet, ROUTING, SYN, Transport, ethernet, icmp,
        packet, tcp, udp,
    },
    limiter::Limiter,
};

const C_TAG: u16 = 0x8100;
const S_TAG: u16 = 0x88a8;

/// Everything a source may send, be it v4 or v6.
pub(super) fn shapes(source: &str) -> Vec<Packet> {
    let bare = |protocol| packet(source, Transport::Bare(protocol));
    let mut shapes = vec![
        udp(source),
        tcp(source, SYN),
        packet(source, Transport::Sctp(1, 2)),
        icmp(source, 8),
        icmp(source, 128),
        bare(50),
        bare(47),
        bare(255),
        bare(59),
        udp(source).tagged(&[(C_TAG, 5)]),
        udp(source).tagged(&[(S_TAG, 5), (C_TAG, 6)]),
        tcp(source, SYN).fragment(0, true),
        tcp(source, SYN).fragment(100, true),
        udp(source).fragment(8191, false),
        // Cut short after the IP header.
        packet(source, Transport::Bare(6)).payload(19),
        packet(source, Transport::Bare(17)).payload(0),
    ];
    if source.contains(':') {
        for extension in [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS, 135, 139, 140] {
            shapes.push(tcp(source, SYN).extended(&[extension]));
        }
        shapes.push(tcp(source, SYN).extended(&[DESTINATION_OPTIONS; 12]));
        shapes.push(tcp(source, SYN).extended(&[ROUTING, DESTINATION_OPTIONS]).fragment(0, true));
        shapes.push(tcp(source, SYN).extended(&[HOP_BY_HOP]).fragment(3, false));
    } else {
        shapes.extend((1..=10).map(|words| tcp(source, SYN).options(words)));
    }
    shapes
}

pub(super) const NOTHING_PASSES: &str = "rules: [{ name: none, limits: { per: source, rate: 0/s } }]";

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn deny_holds_for_every_shape_of_packet() {
    let denied = [
        ("198.51.100.0/24", "198.51.100.149"),
        ("198.51.100.149", "198.51.100.149"),
        ("198.0.0.0/7", "199.51.100.149"),
        ("2001:db8:5::/48", "2001:db8:5::1"),
        ("2001:db8::/32", "2001:db8:5::1"),
        ("2000::/5", "2001:db8:5::1"),
        ("2001:db8:5::1", "2001:db8:5::1"),
        ("0.0.0.0/0", "8.8.8.8"),
        ("::/0", "2001:db8:5::1"),
    ];
    for (prefix, source) in denied {
        let mut limiter = Limiter::new(&format!("deny: [\"{prefix}\"], malformed: pass"));
        for shape in shapes(source) {
            assert_eq!(limiter.say(&shape), "drop denied", "{prefix} {shape:?}");
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn allow_beats_deny_malformed_and_every_rule() {
    let mut limiter = Limiter::new(&format!(
        "allow: [198.51.100.0/25, \"2001:db8:5::/64\"], deny: [198.51.100.0/24, 198.51.100.7, \"::/0\"], {NOTHING_PASSES}"
    ));
    for source in ["198.51.100.7", "2001:db8:5::1"] {
        for shape in shapes(source) {
            assert_eq!(limiter.say(&shape), "pass allowed", "{shape:?}");
        }
    }
    assert_eq!(limiter.say(&udp("198.51.100.128")), "drop denied");
    assert_eq!(limiter.say(&udp("2001:db8:5:1::1")), "drop denied");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_prefix_covers_its_first_and_its_last_address_and_no_other() {
    let mut limiter = Limiter::new(
        "deny: [198.51.100.0/24, 203.0.113.77, 10.64.0.0/10, \"2001:db8:a::/47\", \"2001:db8:c::/64\", \"fc00::/7\"]",
    );
    let covered = [
        "198.51.100.0",
        "198.51.100.149",
        "198.51.100.255",
        "203.0.113.77",
        "10.64.0.0",
        "10.127.255.255",
        "2001:db8:a::",
        "2001:db8:b:ffff:ffff:ffff:ffff:ffff",
        "2001:db8:c::",
        "2001:db8:c:0:ffff::",
        "fc00::",
        "fdff:ffff::1",
    ];
    let free = [
        "198.51.99.255",
        "198.51.101.0",
        "203.0.113.76",
        "203.0.113.78",
        "10.63.255.255",
        "10.128.0.0",
        "2001:db8:9:ffff::",
        "2001:db8:c:1::",
        "2001:db8:d::",
        "fbff::",
        "fe00::",
    ];
    for source in covered {
        assert_eq!(limiter.say(&udp(source)), "drop denied", "{source}");
    }
    for source in free {
        assert_eq!(limiter.say(&udp(source)), "pass no_rule", "{source}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_mapped_address_in_a_list_is_the_ipv4_address() {
    let mut limiter = Limiter::new("deny: [\"::ffff:61.4.83.52\"], allow: [\"::ffff:203.0.113.0/120\"]");
    assert_eq!(limiter.say(&udp("61.4.83.52")), "drop denied");
    assert_eq!(limiter.say(&udp("61.4.83.53")), "pass no_rule");
    assert_eq!(limiter.say(&udp("203.0.113.9")), "pass allowed");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_hundred_thousand_denied_prefixes_are_all_found() {
    let v4 = |offset: u32| Ipv4Addr::from(0x0b00_0000 + offset).to_string();
    let v6 = |number: u32| format!("2001:db8:{:x}", number * 2);
    let directory = Directory::new("deny").expect("a directory");
    let mut list = "# ten in seven are IPv4\n".to_owned();
    for number in 0..70_000 {
        writeln!(list, "{}/24 # {number}", v4(number * 512)).expect("a string takes it");
    }
    for number in 0..30_000 {
        writeln!(list, "{}::/48", v6(number)).expect("a string takes it");
    }
    std::fs::write(directory.path().join("list.txt"), list).expect("it can be written");
    let rules = directory.path().join("rules.yaml");
    let text = format!("network: {{ deny_files: list.txt, {NOTHING_PASSES} }}");
    let loaded = config::parse(text.as_bytes(), &rules).unwrap_or_else(|failure| panic!("{failure}"));
    let network = loaded.config.network.expect("it has the section");
    assert_eq!(network.deny.len(), 100_000);
    let mut limiter = Limiter::load(&network, Clock::Replay);
    for number in (0..70_000).step_by(331).chain([69_999]) {
        let [inside, outside] = [255, 256].map(|offset| v4(number * 512 + offset));
        assert_eq!(limiter.say(&udp(&inside)), "drop denied", "{inside}");
        assert_eq!(limiter.say(&udp(&outside)), "drop zero_rate", "{outside}");
    }
    for number in (0..30_000).step_by(331).chain([29_999]) {
        let (inside, outside) =
            (format!("{}:ffff::1", v6(number)), format!("2001:db8:{:x}::1", number * 2 + 1));
        assert_eq!(limiter.say(&udp(&inside)), "drop denied", "{inside}");
        assert_eq!(limiter.say(&udp(&outside)), "drop zero_rate", "{outside}");
    }
}

const DENY_ALL: &str = "deny: [0.0.0.0/0, \"::/0\"]";

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn what_is_not_ip_passes_and_is_not_counted_as_ip() {
    let llc = ethernet(0x0026, &[0x42, 0x42, 0x03]);
    let [arp, lldp, eapol, mpls] = [0x0806, 0x88cc, 0x888e, 0x8847].map(|kind| ethernet(kind, &[0x45; 46]));
    let tagged_arp = ethernet(C_TAG, &[0, 5, 0x08, 0x06, 0x45]);
    for policy in [DENY_ALL, NOTHING_PASSES] {
        let mut limiter = Limiter::new(policy);
        for frame in [&llc, &arp, &lldp, &eapol, &mpls, &tagged_arp] {
            assert_eq!(limiter.say_frame(frame), "pass not_ip", "{frame:02x?}");
        }
        let counters = limiter.counters();
        for count in counters.reasons.iter().filter(|count| count.reason != "not_ip") {
            assert_eq!((count.passed.packets, count.shed.packets), (0, 0), "{}", count.reason);
        }
    }
}

/// Neighbour discovery as a receiver accepts it.
pub(super) fn neighbour(source: &str, kind: u8) -> Packet {
    icmp(source, kind).to("ff02::1").hop_limit(255)
}

/// Multicast listener discovery as a router accepts it.
pub(super) fn listener(source: &str, kind: u8) -> Packet {
    icmp(source, kind).to("ff02::16").hop_limit(1).extended(&[HOP_BY_HOP])
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn neighbour_and_listener_discovery_pass_under_deny_all_and_under_any_rule() {
    for policy in [DENY_ALL, NOTHING_PASSES] {
        let mut limiter = Limiter::new(policy);
        for source in ["fe80::1", "::", "2001:db8::1"] {
            for kind in 133..=137 {
                assert_eq!(limiter.say(&neighbour(source, kind)), "pass neighbour", "{source} {kind}");
            }
        }
        for source in ["fe80::1", "::"] {
            for kind in [130, 131, 132, 143] {
                assert_eq!(limiter.say(&listener(source, kind)), "pass neighbour", "{source} {kind}");
            }
        }
        // What is no such thing, though it looks like it.
        let pretenders = [
            neighbour("fe80::1", 135).hop_limit(254),
            neighbour("fe80::1", 128),
            neighbour("fe80::1", 135).fragment(0, false),
            listener("2001:db8::1", 143),
            listener("fe80::1", 143).hop_limit(255),
            packet("10.0.0.1", Transport::Icmp(135, 0)).hop_limit(255),
        ];
        for pretender in pretenders {
            assert!(limiter.say(&pretender).starts_with("drop"), "{pretender:?}");
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn only_a_deny_of_the_exact_address_stops_neighbour_discovery() {
    let mut limiter = Limiter::new("deny: [\"fe80::bad\", \"fe80::/10\", \"2001:db8::bad/128\"]");
    for kind in 133..=137 {
        assert_eq!(limiter.say(&neighbour("fe80::bad", kind)), "drop denied");
        assert_eq!(limiter.say(&neighbour("2001:db8::bad", kind)), "drop denied");
        assert_eq!(limiter.say(&neighbour("fe80::1", kind)), "pass neighbour");
    }
    assert_eq!(limiter.say(&listener("fe80::bad", 143)), "drop denied");
    assert_eq!(limiter.say(&listener("fe80::1", 143)), "pass neighbour");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn tags_and_options_and_extension_headers_do_not_change_the_bucket() {
    let alike: [(&str, Vec<Packet>); 2] = [
        (
            "10.0.0.1",
            vec![
                udp("10.0.0.1"),
                udp("10.0.0.1").tagged(&[(C_TAG, 5)]),
                udp("10.0.0.1").tagged(&[(S_TAG, 5), (C_TAG, 6)]),
                udp("10.0.0.1").options(10),
                udp("10.0.0.1").fragment(9, false),
            ],
        ),
        (
            "2001:db8::1",
            vec![
                tcp("2001:db8::1", SYN),
                tcp("2001:db8::2", SYN).tagged(&[(C_TAG, 5)]),
                tcp("2001:db8::3", SYN).tagged(&[(S_TAG, 5), (C_TAG, 6)]),
                tcp("2001:db8::4", SYN).extended(&[HOP_BY_HOP, ROUTING]),
                tcp("2001:db8::5", SYN).extended(&[DESTINATION_OPTIONS; 12]),
            ],
        ),
    ];
    for (source, packets) in alike {
        let mut limiter =
            Limiter::new("rules: [{ name: all, limits: { per: source, rate: 1/h, burst: 5 } }]");
        for packet in &packets {
            assert_eq!(limiter.say(packet), "pass within_limit", "{packet:?}");
        }
        for packet in &packets {
            assert_eq!(limiter.say(packet), "drop limited", "{packet:?}");
        }
        assert_eq!(limiter.claimed(), 1, "{source}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_walk_over_extension_headers_reaches_the_protocol_or_says_that_it_does_not() {
    let mut limiter = Limiter::new(
        "rules: [{ name: syn, match: { protocol: tcp, tcp_flags: syn, destination_port: 80 }, limits: { per: source, rate: 0/s } }, \
         { name: rest, limits: { per: source, rate: 1/h, burst: 2 } }]",
    );
    for headers in [0, 1, 6, 7, 8] {
        let packet = tcp("2001:db8::1", SYN).extended(&vec![DESTINATION_OPTIONS; headers]);
        assert_eq!(limiter.say(&packet), "drop zero_rate", "{headers}");
    }
    assert_eq!(limiter.event("ipv6_chain_too_long"), 0);
    // Beyond the bound it is counted, and the source's bucket still bites.
    let long = tcp("2001:db8::1", SYN).extended(&[DESTINATION_OPTIONS; 9]);
    let said = [limiter.say(&long), limiter.say(&long), limiter.say(&long)];
    assert_eq!(said, ["pass within_limit", "pass within_limit", "drop limited"]);
    assert_eq!(limiter.event("ipv6_chain_too_long"), 3);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn ports_are_read_behind_ipv4_options_of_any_length() {
    let mut limiter = Limiter::new(
        "rules: [{ name: dns, match: { protocol: udp, destination_port: 53 }, limits: { per: source, rate: 0/s } }]",
    );
    for words in 0..=10 {
        assert_eq!(limiter.say(&udp("10.0.0.1").options(words)), "drop zero_rate", "{words}");
    }
    // A header of four words is shorter than a header, and one of 15 may be longer than the frame.
    let mut frame = udp("10.0.0.1").frame();
    frame[IP] = 0x44;
    assert_eq!(limiter.say_frame(&frame), "drop malformed_ipv4");
    let mut frame = packet("10.0.0.1", Transport::Bare(17)).payload(39).frame();
    frame[IP] = 0x4f;
    assert_eq!(limiter.say_frame(&frame), "drop malformed_ipv4");
}
