//! What the verifier has to follow, however large the policy; and the rules file of the README, loaded and
//! asked.

use std::path::Path;

use ratelimit::{
    config,
    network::program::{Clock, Options},
};

use super::{
    frame::{ACK, Packet, SYN, Transport, packet, tcp, udp},
    limiter::{Limiter, SECOND, network},
};

/// A quarter of what the kernel follows at most, so that the next kernel or compiler may be worse at it.
const MOST_INSTRUCTIONS: u32 = 250_000;

/// Sixty-four rules that between them look at everything, with four limits each.
fn everything(mode: &str, malformed: &str, when_full: &str) -> String {
    let rules: Vec<_> = (0..64)
        .map(|n| {
            let matches = match n % 4 {
                0 => format!("protocol: tcp, tcp_flags: syn, destination_port: \"{}-{}\", source: 10.{n}.0.0/16", n * 100, n * 100 + 50),
                1 => format!("protocol: [icmp, icmpv6], icmp_type: echo-request, length: \"{}-1500\", vlan: {n}", 64 + n),
                2 => format!("source_port: {n}, destination: [\"2001:db8:{n}::/48\", 192.0.{n}.0/24], fragment: none"),
                _ => format!("fragment: any, protocol: {n}, source: \"2001:db8:{n}::/48\", vlan: untagged"),
            };
            format!(
                "{{ name: r{n}, match: {{ {matches} }}, limits: [\
                 {{ per: source, rate: 100/s }}, {{ per: {{ ipv4_prefix: 24, ipv6_prefix: 48 }}, rate: 1000/s }}, \
                 {{ per: rule, bandwidth: 1Gbit/s }}, {{ per: source, bandwidth: 7Mbit/s, burst: 1MB }}] }}"
            )
        })
        .collect();
    format!(
        "next: /sys/fs/bpf/behind, mode: {mode}, malformed: {malformed}, sources: {{ capacity: 1024, when_full: {when_full} }}, \
         allow: [192.0.2.0/24, \"2001:db8:1::/48\", \"2002::/16\"], deny: [198.51.100.0/24, \"2001:db8::/33\", \"fe80::bad\"], \
         management: [{{ prefix: [192.0.2.0/25, 10.0.0.0/8], ports: [22, \"9000-9100\"] }}, {{ prefix: \"2001:db8:2::/48\", ports: 22 }}], \
         rules: [{}]",
        rules.join(", ")
    )
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_largest_policies_stay_far_below_what_the_verifier_follows() {
    for when_full in ["pass", "share", "drop"] {
        for (mode, malformed) in [("enforce", "drop"), ("monitor", "pass")] {
            for clock in [Clock::Kernel, Clock::Replay] {
                let mut network = network(&everything(mode, malformed, when_full));
                network.rules[63].for_clients = true;
                let mut limiter = Limiter::load(&network, clock);
                let info = limiter.program.xdp().info().expect("the kernel tells");
                let count = info.verified_instruction_count().expect("Linux 5.16 tells");
                println!("{when_full}, {mode}, {clock:?}: {count} instructions verified");
                assert!(
                    (1000..MOST_INSTRUCTIONS).contains(&count),
                    "{when_full}, {mode}, {clock:?}: {count}"
                );
            }
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn traces_are_not_there_unless_asked_for_and_do_not_ask_too_much() {
    let count = |yaml: &str, trace| {
        let options = Options { trace, ..Clock::Kernel.into() };
        let mut limiter = Limiter::load(&network(yaml), options);
        let info = limiter.program.xdp().info().expect("the kernel tells");
        let count = info.verified_instruction_count().expect("Linux 5.16 tells");
        (count, info.size_translated().expect("the kernel tells"))
    };
    let everything = everything("enforce", "drop", "pass");
    for yaml in ["mode: enforce", &everything] {
        let (without, with) = (count(yaml, false), count(yaml, true));
        println!("instructions verified and bytes, without and with traces: {without:?}, {with:?}");
        assert!(without.1 < with.1);
        assert!(with.0 < MOST_INSTRUCTIONS, "{with:?}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn what_a_policy_does_not_use_is_not_verified() {
    let count = |yaml: &str| {
        let mut limiter = Limiter::load(&network(yaml), Clock::Kernel);
        let info = limiter.program.xdp().info().expect("the kernel tells");
        info.verified_instruction_count().expect("Linux 5.16 tells")
    };
    let empty = count("mode: enforce");
    let one = count("rules: [{ name: all, limits: { per: source, rate: 10/s } }]");
    let all = count(&everything("enforce", "drop", "pass"));
    println!("{empty} instructions verified without rules, {one} for one, {all} for everything");
    assert!(empty < one && one < all, "{empty}, {one}, {all}");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_example_of_the_readme_loads_and_does_what_it_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/example.yaml");
    let loaded = config::load(&file).unwrap_or_else(|failure| panic!("{failure}"));
    let mut limiter = Limiter::load(&loaded.config.network.expect("it has the section"), Clock::Replay);

    for (source, said) in [
        ("192.0.2.200", "pass allowed"),
        ("2001:db8:1:ffff::1", "pass allowed"),
        ("198.51.100.1", "drop denied"),
        // From the deny file; the first of them is on the allow list as well.
        ("192.0.2.7", "pass allowed"),
        ("2001:db8:bad::1", "drop denied"),
    ] {
        assert_eq!(limiter.say(&udp(source)), said, "{source}");
    }
    let to_dns = |source: &str, port| packet(source, Transport::Udp(4000, port)).to("203.0.113.5");
    let met: [(Packet, &str); 9] = [
        (tcp("10.1.0.1", SYN), "handshakes"),
        (tcp("10.1.0.1", ACK), "rest"),
        (to_dns("10.1.0.1", 53), "dns"),
        (to_dns("10.1.0.1", 853), "dns"),
        (to_dns("10.1.0.1", 5000), "dns"),
        (to_dns("10.1.0.1", 5010), "dns"),
        (to_dns("10.1.0.1", 5011), "rest"),
        (to_dns("10.1.0.1", 53).to("203.0.113.6"), "rest"),
        (tcp("2001:db8:9::1", SYN), "handshakes"),
    ];
    for (packet, rule) in met {
        assert_eq!(limiter.rule(&packet).as_deref(), Some(rule), "{packet:?}");
    }

    // (a flood in one instant, what passes, the limit that refuses the next)
    let now = 10 * SECOND;
    let floods = [
        (tcp("10.2.0.1", SYN), 100, 0),
        (tcp("2001:db8:9:1::1", SYN), 100, 0),
        (to_dns("10.2.0.1", 53), 400, 0),
        // 25 MB in frames of 1514 bytes.
        (tcp("10.2.0.2", ACK).payload(1460), 16_512, 1),
        (tcp("10.2.0.3", ACK).payload(0), 20_000, 0),
    ];
    for (packet, burst, limit) in floods {
        assert_eq!(limiter.passing(&packet, burst + 10, now), burst, "{packet:?}");
        assert_eq!(limiter.frame(&packet.frame(), now).limit, Some(limit), "{packet:?}");
    }
    // Thirteen sources of one /24, 400 each, find the 5000 of their prefix.
    let passed: Vec<_> =
        (1..=13).map(|host| limiter.passing(&to_dns(&format!("10.3.0.{host}"), 53), 500, now)).collect();
    assert_eq!(passed.iter().sum::<usize>(), 5000, "{passed:?}");
    assert_eq!(limiter.frame(&to_dns("10.3.0.99", 53).frame(), now).limit, Some(1));
}
