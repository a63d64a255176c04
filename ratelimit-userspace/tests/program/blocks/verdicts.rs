//! Which packets a block stops, and until when.

use std::net::IpAddr;

use ipnet::IpNet;
use ratelimit::network::mapping::{Mapping, Word};
use ratelimit_common::{
    address::{Address, prefix_mask},
    block_table::{self, Detail, Entry, Insertion, Memory, Set, Table},
    blocks::{ByRule, Runtime},
    bucket_table::Cell as _,
    policy::stage,
};

use super::host::{Host, net};
use crate::{
    frame::{Packet, icmp, udp},
    layer3::{NOTHING_PASSES, listener, neighbour, shapes},
    limiter::{MILLISECOND, SECOND},
};

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_block_holds_for_every_shape_of_packet_and_for_nobody_else() {
    let blocked = [
        ("198.51.100.149", "198.51.100.149", "198.51.100.148"),
        ("198.51.100.148/31", "198.51.100.149", "198.51.100.150"),
        ("198.0.0.0/7", "199.51.100.149", "200.51.100.149"),
        ("2001:db8:5::1", "2001:db8:5::1", "2001:db8:5::2"),
        ("2001:db8:5::/48", "2001:db8:5::1", "2001:db8:6::1"),
        ("2001:db8::/32", "2001:db8:5::1", "2001:db9:5::1"),
        ("2000::/5", "2001:db8:5::1", "2801:db8:5::1"),
        ("0.0.0.0/0", "8.8.8.8", "2001:db8:5::1"),
        ("::/0", "2001:db8:5::1", "8.8.8.8"),
        ("0.0.0.0", "0.0.0.0", "0.0.0.1"),
        ("::", "::", "0.0.0.0"),
        ("255.255.255.255", "255.255.255.255", "255.255.255.254"),
    ];
    let mut host = Host::new("malformed: pass");
    for (prefix, source, other) in blocked {
        host.block(prefix, 60);
        for shape in shapes(source) {
            assert_eq!(host.say(&shape), "drop blocked", "{prefix} {shape:?}");
        }
        assert_eq!(host.say(&udp(other)), "pass no_rule", "{prefix} {other}");
        assert!(host.unblock(prefix));
        assert_eq!(host.say(&udp(source)), "pass no_rule", "{prefix} {source}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_block_ends_by_itself_and_not_before_its_time() {
    let mut host = Host::new("mode: enforce");
    let start = 1000 * SECOND;
    for (prefix, source) in [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("198.51.100.0/24", "198.51.100.9"),
        ("2001:db8:1::/64", "2001:db8:1::9"),
    ] {
        let packet = udp(source);
        for (blocked_at, end) in [(0, 10 * SECOND), (400 * MILLISECOND, 11 * SECOND)] {
            host.at(start + blocked_at);
            host.block(prefix, 10);
            for (at, said) in [
                (blocked_at, "drop blocked"),
                (blocked_at + 10 * SECOND - 1, "drop blocked"),
                (end - 1, "drop blocked"),
                (end, "pass no_rule"),
                (end + 1_000_000 * SECOND, "pass no_rule"),
            ] {
                host.at(start + at);
                assert_eq!(host.say(&packet), said, "{prefix}, {at} ns after the start");
            }
        }
        // And one that does not end.
        host.at(start);
        host.block(prefix, 0);
        host.at(start + 60 * 365 * 86_400 * SECOND);
        assert_eq!(host.say(&packet), "drop blocked", "{prefix}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_last_block_says_when_it_ends() {
    let mut host = Host::new("mode: enforce");
    for prefix in ["192.0.2.1", "2001:db8::1", "198.51.100.0/24", "2001:db8:1::/64"] {
        let packet = udp(&net(prefix).addr().to_string());
        for (seconds, just_before) in [(100, 100), (10, 10), (1000, 1000)] {
            host.at(1000 * SECOND);
            host.block(prefix, seconds);
            host.at((1000 + just_before) * SECOND - 1);
            assert_eq!(host.say(&packet), "drop blocked", "{prefix} {seconds}");
            host.at((1000 + seconds) * SECOND);
            assert_eq!(host.say(&packet), "pass no_rule", "{prefix} {seconds}");
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_prefix_that_has_ended_does_not_hide_the_one_around_it() {
    for (source, outer, inner) in [
        ("10.1.2.3", "10.0.0.0/8", ["10.1.0.0/16", "10.1.2.0/24", "10.1.2.2/31"]),
        ("2001:db8:1:2::3", "2001:db8::/32", ["2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8:1:2::2/127"]),
        ("10.1.2.3", "0.0.0.0/0", ["8.0.0.0/5", "10.0.0.0/8", "10.1.0.0/16"]),
    ] {
        let mut host = Host::new("mode: enforce");
        host.block(outer, 100);
        for inner in inner {
            host.block(inner, 10);
        }
        host.at(1010 * SECOND);
        assert_eq!(host.say(&udp(source)), "drop blocked", "{outer}");
        host.at(1100 * SECOND);
        assert_eq!(host.say(&udp(source)), "pass no_rule", "{outer}");
        host.blocks.sweep().expect("it can be swept");
        assert_eq!(host.say(&udp(source)), "pass no_rule", "{outer}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn many_ended_prefixes_hide_the_one_around_them_until_the_next_sweep() {
    let mut host = Host::new("mode: enforce");
    host.block("10.0.0.0/8", 100);
    for length in 9..=16 {
        host.block(&format!("10.0.0.0/{length}"), 10);
    }
    host.at(1010 * SECOND);
    // Eight are passed over, and the ninth look-up would find the one that holds.
    assert_eq!(host.say(&udp("10.0.0.1")), "pass no_rule");
    assert_eq!(host.say(&udp("10.128.0.1")), "drop blocked");
    host.blocks.sweep().expect("it can be swept");
    assert_eq!(host.say(&udp("10.0.0.1")), "drop blocked");
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn allow_and_deny_come_before_blocks_and_rules_after_them() {
    let mut host = Host::new(&format!(
        "allow: [192.0.2.0/25, \"2001:db8:1::/64\"], deny: [198.51.100.0/24], {NOTHING_PASSES}"
    ));
    for prefix in
        ["192.0.2.0/24", "192.0.2.1", "2001:db8:1::1", "2001:db8::/32", "198.51.100.7", "203.0.113.1"]
    {
        host.block(prefix, 0);
    }
    for (source, said) in [
        ("192.0.2.1", "pass allowed"),
        ("192.0.2.129", "drop blocked"),
        ("2001:db8:1::1", "pass allowed"),
        ("2001:db8:2::1", "drop blocked"),
        ("198.51.100.7", "drop denied"),
        ("203.0.113.1", "drop blocked"),
        ("203.0.113.2", "drop zero_rate"),
    ] {
        assert_eq!(host.say(&udp(source)), said, "{source}");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn only_a_block_of_the_exact_address_stops_neighbour_discovery() {
    let mut host = Host::with_stages("sources: { ipv6_prefix: 128 }", stage::RULE_BLOCKS);
    for prefix in ["fe80::bad", "fe80::/10", "2001:db8::/32", "::/0"] {
        host.block(prefix, 0);
    }
    // Rules do not limit neighbour discovery, and what they block does not stop it.
    block_by_rule(&host, "fe80::5", 128, 2000);
    for kind in 133..=137 {
        assert_eq!(host.say(&neighbour("fe80::bad", kind)), "drop blocked");
        for source in ["fe80::1", "fe80::5", "2001:db8::1"] {
            assert_eq!(host.say(&neighbour(source, kind)), "pass neighbour", "{source} {kind}");
        }
    }
    for kind in [130, 131, 132, 143] {
        assert_eq!(host.say(&listener("fe80::bad", kind)), "drop blocked");
        assert_eq!(host.say(&listener("fe80::1", kind)), "pass neighbour");
    }
    for source in ["fe80::1", "fe80::5"] {
        assert_eq!(host.say(&icmp(source, 128)), "drop blocked");
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn monitoring_counts_what_would_be_shed() {
    let mut host = Host::new("mode: monitor");
    host.block("192.0.2.1", 60);
    host.block("2001:db8::/32", 60);
    for source in ["192.0.2.1", "2001:db8::1"] {
        assert_eq!(host.say(&udp(source)), "pass blocked", "{source}");
    }
    let counters = host.limiter.counters();
    let blocked = counters.reasons.iter().find(|count| count.reason == "blocked").expect("it exists");
    assert_eq!((blocked.passed.packets, blocked.shed.packets, blocked.would_shed.packets), (0, 0, 2));
}

/// The table of rules, as the program writes it.
struct ByRules {
    sets: Mapping<Set<Word>>,
    details: Mapping<Detail<Word>>,
}

impl Memory for ByRules {
    type Cell = Word;

    fn set(&self, index: u32) -> Option<&Set<Word>> {
        self.sets.get(index as usize)
    }

    fn detail(&self, index: u32) -> Option<&Detail<Word>> {
        self.details.get(index as usize)
    }
}

/// Blocks a client of this prefix length as a rule in counter slot 0 does it.
pub(super) fn block_by_rule(host: &Host, source: &str, length: u8, until: u32) {
    let open =
        |name: &str| aya::maps::MapData::from_pin(host.state.state().join(name)).expect("it is pinned");
    let table = ByRules {
        sets: Mapping::of(&open("rule_blocks")).expect("it can be mapped"),
        details: Mapping::of(&open("rule_block_details")).expect("it can be mapped"),
    };
    let runtime = Mapping::<Runtime<Word>>::of(&open("runtime")).expect("it can be mapped");
    let [high, low] = prefix_mask(length);
    let address = match source.parse().expect("an address") {
        IpAddr::V4(address) => Address::v4(address.octets()),
        IpAddr::V6(address) => Address::v6(address.octets()),
    };
    let client = Address { high: address.high & high, low: address.low & low, ..address };
    let hash_key = host.state.table().expect("it can be read").expect("it is there").hash_key;
    let sets = u32::try_from(table.sets.len()).expect("it is small");
    let id = ByRule::table_id(length.into());
    let about = ByRule { counter_slot: 0, length: length.into() }.word();
    let entry = Entry { until, about, since: 900 };
    let inserted = block_table::insert(&table, &Table { hash_key, id, sets }, &client, &entry, 1000);
    assert!(matches!(inserted, Insertion::Added | Insertion::Replaced));
    let latest = &runtime[0].rule_blocks_until;
    latest.write(latest.read().max(until.into()));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn what_a_rule_blocks_is_the_client_as_sources_tell_them_apart() {
    let yaml = "sources: { ipv4_prefix: 24, ipv6_prefix: 56 }";
    let mut host = Host::with_stages(yaml, stage::RULE_BLOCKS);
    block_by_rule(&host, "192.0.2.1", 24, 1060);
    block_by_rule(&host, "2001:db8:0:100::1", 56, 1030);
    for (source, until) in [
        ("192.0.2.0", 1060),
        ("192.0.2.255", 1060),
        ("192.0.3.0", 0),
        ("2001:db8:0:100::", 1030),
        ("2001:db8:0:1ff:ffff::", 1030),
        ("2001:db8:0:200::", 0),
        ("2001:db8::", 0),
    ] {
        for now in [1000, 1029, 1030, 1059, 1060] {
            host.at(now * SECOND);
            let said = if now < until { "drop blocked" } else { "pass no_rule" };
            assert_eq!(host.say(&udp(source)), said, "{source} at {now}");
        }
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn clients_of_another_length_are_others() {
    let mut host = Host::with_stages("sources: { ipv6_prefix: 56 }", stage::RULE_BLOCKS);
    // The same address, but it stood for a /64 when it was blocked.
    block_by_rule(&host, "2001:db8:0:100::1", 64, 2000);
    assert_eq!(host.say(&udp("2001:db8:0:100::1")), "pass no_rule");
    assert_eq!(host.list(), ["2001:db8:0:100::/64 900..2000  by rule ``"]);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn blocks_of_rules_are_not_looked_for_where_no_rule_blocks() {
    let mut host = Host::new("mode: enforce");
    block_by_rule(&host, "192.0.2.1", 32, 2000);
    assert_eq!(host.say(&udp("192.0.2.1")), "pass no_rule");
}

/// `SplitMix64` (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }

    /// An address of few: few octets vary, and each takes few values.
    fn address(&mut self) -> IpAddr {
        let mut octet = || [0, 1, 0x80, 0xff][usize::try_from(self.below(4)).expect("it is small")];
        let [a, b, c, d, v6] = [octet(), octet(), octet(), octet(), octet()];
        if v6 < 0x80 {
            return [a, b, c, d].into();
        }
        let mut octets = [0; 16];
        [octets[0], octets[3], octets[7], octets[15]] = [a, b, c, d];
        octets.into()
    }

    fn prefix(&mut self) -> IpNet {
        let address = self.address();
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        let length = if self.below(2) == 0 {
            bits
        } else {
            u8::try_from(self.below(u64::from(bits) + 1)).expect("it is small")
        };
        IpNet::new(address, length).expect("it is no longer").trunc()
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn the_program_sheds_exactly_whom_some_live_block_covers() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let mut host = Host::new("mode: enforce");
        let mut model: Vec<(IpNet, u64)> = Vec::new();
        for _ in 0..40 {
            // Long enough apart that never more than eight ended ones lie within each other unswept.
            host.blocks.sweep().expect("it can be swept");
            for _ in 0..8 {
                let prefix = random.prefix();
                let now = host.now() / SECOND;
                let known = model.iter().position(|(other, until)| *other == prefix && *until > now);
                if random.below(4) == 0 {
                    assert_eq!(host.unblock(&prefix.to_string()), known.is_some(), "{prefix}");
                    model.retain(|(other, _)| *other != prefix);
                } else {
                    let seconds = 1 + random.below(30);
                    host.block(&prefix.to_string(), seconds);
                    model.retain(|(other, _)| *other != prefix);
                    model.push((prefix, now + seconds));
                }
            }
            for _ in 0..60 {
                let source = random.address();
                let now = host.now() / SECOND;
                let covers = |(prefix, until): &&(IpNet, u64)| *until > now && prefix.contains(&source);
                let covering = model.iter().filter(covers).count();
                let said = if covering > 0 { "drop blocked" } else { "pass no_rule" };
                assert_eq!(host.say(&packet_of(source)), said, "seed {seed}: {source} at {now}: {model:?}");
                assert_eq!(host.find(&source.to_string()).len(), covering, "{source}");
            }
            let now = host.now();
            host.at(now + random.below(8) * SECOND);
        }
    }
}

fn packet_of(source: IpAddr) -> Packet {
    udp(&source.to_string())
}
