//! Management entries: where the source and the destination port are theirs, a packet is never shed, whatever
//! else is said of it. Packets without a port of their own are no management.

use super::{
    frame::{ACK, HOP_BY_HOP, Packet, ROUTING, SYN, Transport, icmp, packet},
    limiter::Limiter,
};

const C_TAG: u16 = 0x8100;
const S_TAG: u16 = 0x88a8;

/// Everything is refused but what management says.
const SHUT: &str = "management: [{ prefix: [192.0.2.0/24, \"2001:db8:1::/48\"], ports: [22, \"9000-9010\"] }], \
    rules: [{ name: nothing, limits: { per: source, rate: 0/s } }]";
/// The same, by the deny list.
const DENIED: &str = "management: [{ prefix: [192.0.2.0/24, \"2001:db8:1::/48\"], ports: [22, \"9000-9010\"] }], \
    deny: [192.0.2.0/25, \"2001:db8::/32\", \"2001:db8:1::1\"]";

fn tcp(source: &str, port: u16) -> Packet {
    packet(source, Transport::Tcp(4000, port, SYN))
}

/// Packets of every protocol that has ports, in every wrapping, to a port.
fn dresses(source: &str, port: u16) -> Vec<Packet> {
    let bare = [
        tcp(source, port),
        packet(source, Transport::Tcp(4000, port, ACK)),
        packet(source, Transport::Udp(4000, port)),
        packet(source, Transport::Sctp(4000, port)),
    ];
    let mut dressed = Vec::new();
    for packet in bare {
        dressed.push(packet.clone().tagged(&[(C_TAG, 5)]));
        dressed.push(packet.clone().tagged(&[(S_TAG, 5), (C_TAG, 6)]));
        dressed.push(packet.clone().options(if source.contains(':') { 0 } else { 10 }));
        dressed.push(packet.clone().extended(if source.contains(':') {
            &[HOP_BY_HOP, ROUTING]
        } else {
            &[]
        }));
        dressed.push(packet.clone().fragment(0, true));
        dressed.push(packet);
    }
    dressed
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn nothing_sheds_management() {
    for policy in [SHUT, DENIED] {
        let mut limiter = Limiter::new(policy);
        for source in ["192.0.2.1", "2001:db8:1::1", "2001:db8:1:ffff::2"] {
            for port in [22, 9000, 9005, 9010] {
                for packet in dresses(source, port) {
                    assert_eq!(limiter.say(&packet), "pass management", "{packet:?}");
                }
            }
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn source_and_port_must_both_be_management() {
    for (policy, said) in [(SHUT, "drop zero_rate"), (DENIED, "drop denied")] {
        let mut limiter = Limiter::new(policy);
        for source in ["192.0.2.1", "2001:db8:1::1"] {
            for port in [0, 21, 23, 86, 8999, 9011, 65_535] {
                for packet in dresses(source, port) {
                    assert_eq!(limiter.say(&packet), said, "{packet:?}");
                }
            }
            // It is where packets go that counts, not where they come from.
            let reply = packet(source, Transport::Tcp(22, 4000, ACK));
            assert_eq!(limiter.say(&reply), said);
        }
    }
    let mut limiter = Limiter::new(SHUT);
    for source in ["192.0.3.1", "192.0.1.255", "2001:db8:2::1", "10.0.0.1"] {
        assert_eq!(limiter.say(&tcp(source, 22)), "drop zero_rate", "{source}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn what_has_no_port_is_no_management() {
    for (policy, said) in [(SHUT, "drop zero_rate"), (DENIED, "drop denied")] {
        let mut limiter = Limiter::new(policy);
        for source in ["192.0.2.1", "2001:db8:1::1"] {
            let ping = if source.contains(':') { 128 } else { 8 };
            for packet in [
                tcp(source, 22).fragment(1, false),
                tcp(source, 22).fragment(100, true),
                icmp(source, ping),
                // Bytes that would be the port 22.
                packet(source, Transport::Bare(47)),
                packet(source, Transport::Bare(50)),
            ] {
                assert_eq!(limiter.say(&packet), said, "{packet:?}");
            }
        }
        let unreached = tcp("2001:db8:1::1", 22).extended(&[HOP_BY_HOP; 9]);
        assert_eq!(limiter.say(&unreached), said);
    }
    let mut limiter = Limiter::new(SHUT);
    let mut short = tcp("192.0.2.1", 22).payload(0).frame();
    let length = short.len();
    short.truncate(length - 1);
    // The IP header says that the TCP header is whole.
    assert_eq!(limiter.say_frame(&short), "drop malformed_ipv4");
    let mut offset = tcp("192.0.2.1", 22).frame();
    offset[14 + 20 + 12] = 0x40;
    assert_eq!(limiter.say_frame(&offset), "drop malformed_tcp");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn allow_comes_before_management_and_neighbours_after() {
    let mut limiter = Limiter::new(
        "allow: 192.0.2.1, management: [{ prefix: [192.0.2.0/24, \"fe80::/10\"], ports: \"0-65535\" }], deny: \"fe80::bad\"",
    );
    assert_eq!(limiter.say(&tcp("192.0.2.1", 22)), "pass allowed");
    assert_eq!(limiter.say(&tcp("192.0.2.2", 22)), "pass management");
    let neighbour = |source| packet(source, Transport::Icmp(135, 0)).hop_limit(255);
    assert_eq!(limiter.say(&neighbour("fe80::1")), "pass neighbour");
    assert_eq!(limiter.say(&neighbour("fe80::bad")), "drop denied");
    assert_eq!(limiter.say(&tcp("fe80::bad", 0)), "pass management");
    assert_eq!(limiter.say(&tcp("fe80::bad", 65_535)), "pass management");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn management_is_counted_and_charges_nothing() {
    let mut limiter = Limiter::new(
        "management: { prefix: 192.0.2.0/24, ports: 22 }, \
         rules: [{ name: all, limits: { per: source, rate: 1/h, burst: 1 } }]",
    );
    assert_eq!(limiter.passing(&tcp("192.0.2.1", 22), 100, 0), 100);
    assert_eq!(limiter.claimed(), 0);
    assert_eq!(limiter.passing(&tcp("192.0.2.1", 23), 100, 0), 1);
    let (passed, shed) = limiter.reason("management");
    assert_eq!((passed.packets, shed.packets), (100, 0));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn entries_that_cover_one_another_add_up() {
    let mut limiter = Limiter::new(
        "management: [{ prefix: 10.0.0.0/8, ports: 22 }, { prefix: 10.1.0.0/16, ports: 80 }, \
         { prefix: 10.1.2.3, ports: [80, 443] }], deny: [0.0.0.0/0, 10.1.2.0/24]",
    );
    for (source, open) in [
        ("10.0.0.1", &[22][..]),
        ("10.1.0.1", &[22, 80]),
        ("10.1.2.4", &[22, 80]),
        ("10.1.2.3", &[22, 80, 443]),
        ("11.0.0.1", &[]),
    ] {
        for port in [22, 80, 443] {
            let said = if open.contains(&port) { "pass management" } else { "drop denied" };
            assert_eq!(limiter.say(&tcp(source, port)), said, "{source} {port}");
        }
    }
}
