//! What userspace does to the maps.

use std::{fs, net::IpAddr};

use aya::maps::MapData;
use ratelimit::network::{
    blocks::{BlockCounts, BlocksError, Change, recover},
    compile::SourceBits,
    mapping::{Mapping, MappingError, Seen, Word},
};
use ratelimit_common::{
    block_table::{self, Set},
    blocks::Runtime,
    bucket_table::{self, Cell as _},
    policy::stage,
};

use super::{
    host::{Host, net, new},
    verdicts::block_by_rule,
};
use crate::{frame::udp, limiter::SECOND};

#[test]
#[ignore = "requires root: BPF maps"]
fn blocks_are_listed_found_and_removed() {
    let mut host = Host::new("mode: enforce");
    assert_eq!(host.try_block("192.0.2.1", 60, "probes").expect("it fits"), Change::Added);
    assert_eq!(host.try_block("2001:db8::1", 0, "").expect("it fits"), Change::Added);
    assert_eq!(host.try_block("192.0.2.0/24", 30, "net").expect("it fits"), Change::Added);
    assert_eq!(host.try_block("2001:db8::/32", 0, "probes").expect("it fits"), Change::Added);
    // With another end and reason, and the beginning that it had.
    host.at(1005 * SECOND);
    assert_eq!(host.try_block("192.0.2.1", 20, "again").expect("it fits"), Change::Replaced);
    assert_eq!(host.try_block("192.0.2.0/24", 50, "").expect("it fits"), Change::Replaced);

    assert_eq!(
        host.list(),
        [
            "192.0.2.0/24 1000..1055",
            "192.0.2.1/32 1000..1025 again",
            "2001:db8::/32 1000..ever probes",
            "2001:db8::1/128 1000..ever"
        ]
    );
    assert_eq!(host.find("192.0.2.1"), ["192.0.2.1/32 1000..1025 again", "192.0.2.0/24 1000..1055"]);
    assert_eq!(host.find("::ffff:192.0.2.2"), ["192.0.2.0/24 1000..1055"]);
    assert_eq!(host.find("2001:db8:1::1"), ["2001:db8::/32 1000..ever probes"]);
    assert_eq!(host.find("192.0.3.1"), [""; 0]);
    let counts = BlockCounts { v4: 1, v6: 1, prefixes_v4: 1, prefixes_v6: 1, by_rules: 0 };
    assert_eq!(host.blocks.count(), counts);

    assert!(!host.unblock("192.0.2.2"), "the prefix covers it, but is another block");
    assert!(!host.unblock("192.0.0.0/16"));
    assert!(host.unblock("192.0.2.1"));
    assert!(!host.unblock("192.0.2.1"));
    assert!(host.unblock("2001:db8::/32"));
    // What has ended is no block any more.
    host.at(1055 * SECOND);
    assert!(!host.unblock("192.0.2.0/24"));
    assert_eq!(host.list(), ["2001:db8::1/128 1000..ever"]);
    // Ended, and begun again.
    assert_eq!(host.try_block("192.0.2.0/24", 5, "").expect("it fits"), Change::Added);
    assert_eq!(host.find("192.0.2.7"), ["192.0.2.0/24 1055..1060"]);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn entries_that_cannot_be_blocked_change_nothing() {
    let mut host = Host::new("mode: enforce");
    for (prefix, seconds, reason, words) in [
        ("192.0.2.1/24", 10, "", "bits set beyond its prefix length; the network is 192.0.2.0/24"),
        ("2001:db8::1/64", 10, "", "the network is 2001:db8::/64"),
        ("::ffff:0:0/95", 10, "", "host"),
        ("::ffff:0.0.0.0/90", 10, "", "network is"),
        ("192.0.2.1", 3_000_000_000, "", "longer than a block can be"),
        ("192.0.2.1", u64::MAX, "", "longer than a block can be"),
        ("192.0.2.1", 10, &"x".repeat(121), "the reason has 121 bytes, 120 are the most"),
        ("192.0.2.1", 10, "a\u{1b}[2J", "control characters"),
    ] {
        let Err(error) = host.try_block(prefix, seconds, reason) else { panic!("{prefix} was blocked") };
        let message = error.to_string();
        assert!(message.contains(words) || words == "host" && message.contains("bits"), "{message}");
    }
    let no_time = ratelimit::network::blocks::NewBlock {
        duration: Some(std::time::Duration::ZERO),
        ..new("192.0.2.1", 1, "")
    };
    assert!(matches!(host.blocks.block(&no_time), Err(BlocksError::NoTime)));
    assert_eq!(host.list(), [""; 0]);

    // Mapped addresses are what they stand for, whatever the form.
    host.block("::ffff:192.0.2.1", 10);
    host.block("::ffff:198.51.100.0/120", 10);
    assert_eq!(host.list(), ["192.0.2.1/32 1000..1010", "198.51.100.0/24 1000..1010"]);
    assert!(host.unblock("192.0.2.1"));
    let longest = "x".repeat(120);
    host.try_block("192.0.2.9", 10, &longest).expect("it is as long as it may be");
    assert_eq!(host.find("192.0.2.9"), [format!("192.0.2.9/32 1000..1010 {longest}")]);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn of_many_each_that_fails_is_told_and_the_others_hold() {
    let mut host = Host::new("mode: enforce");
    host.block("192.0.2.2", 10);
    let entries = ["192.0.2.1", "192.0.2.1/24", "192.0.2.2", "2001:db8::/32", "2001:db8::1/32"];
    let outcome = host.blocks.block_all(entries.map(|prefix| new(prefix, 60, "")));
    assert_eq!((outcome.added, outcome.replaced), (2, 1));
    let places: Vec<_> = outcome.errors.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [1, 4]);
    assert_eq!(host.list().len(), 3);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn a_sweep_takes_out_what_has_ended() {
    let mut host = Host::new("mode: enforce");
    let runtime = || {
        let data = MapData::from_pin(host.state.state().join("runtime")).expect("it is pinned");
        Mapping::<Runtime<Seen>>::of(&data).expect("it can be mapped")
    };
    let runtime = runtime();
    assert_eq!(runtime[0].held.read(), 0);
    for (prefix, seconds, reason) in [
        ("192.0.2.1", 10, "short"),
        ("192.0.2.2", 20, "long"),
        ("2001:db8::1", 10, "short"),
        ("192.0.2.0/24", 10, "short"),
        ("2001:db8::/32", 20, "long"),
        ("2001:db8:1::/48", 10, "short"),
    ] {
        host.try_block(prefix, seconds, reason).expect("it fits");
    }
    let held = runtime[0].held.read();
    assert_eq!(held, 0b11_0111, "{held:#b}");

    host.at(1010 * SECOND);
    assert_eq!(host.blocks.count().v4, 2, "nobody has looked yet");
    host.blocks.sweep().expect("it can be swept");
    let held = runtime[0].held.read();
    assert_eq!(held, 0b1_0001, "{held:#b}");
    let counts = BlockCounts { v4: 1, prefixes_v6: 1, ..BlockCounts::default() };
    assert_eq!(host.blocks.count(), counts);
    assert_eq!(host.list(), ["192.0.2.2/32 1000..1020 long", "2001:db8::/32 1000..1020 long"]);
    assert_eq!(reasons(&host), ["long"]);
    assert_eq!(host.say(&udp("2001:db8:1::1")), "drop blocked");

    host.at(1020 * SECOND);
    host.blocks.sweep().expect("it can be swept");
    assert_eq!((runtime[0].held.read(), host.blocks.count()), (0, BlockCounts::default()));
    assert_eq!(reasons(&host), [""; 0]);
    // And it goes on.
    host.try_block("2001:db8:1::/48", 10, "new").expect("it fits");
    assert_eq!(host.say(&udp("2001:db8:1::1")), "drop blocked");
    assert_eq!(host.list(), ["2001:db8:1::/48 1020..1030 new"]);
}

fn reasons(host: &Host) -> Vec<String> {
    let data = MapData::from_pin(host.state.state().join("block_reasons")).expect("it is pinned");
    let map = aya::maps::HashMap::<_, u32, [u8; 128]>::try_from(aya::maps::Map::HashMap(data));
    let map = map.expect("its layout");
    let text = |bytes: [u8; 128]| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
    let mut texts: Vec<_> = map.iter().map(|entry| text(entry.expect("it can be read").1)).collect();
    texts.sort();
    texts
}

#[test]
#[ignore = "requires root: BPF maps"]
fn what_rules_blocked_is_listed_removed_and_told_apart() {
    let yaml = "rules: [{ name: flood, limits: { per: source, rate: 1/s } }]";
    let mut host = Host::with_stages(yaml, stage::RULE_BLOCKS);
    block_by_rule(&host, "192.0.2.1", 32, 1060);
    block_by_rule(&host, "2001:db8:0:7::1", 64, 1030);
    block_by_rule(&host, "2001:db8:0:8::1", 64, 1030);
    host.try_block("192.0.2.1", 10, "by hand").expect("it fits");

    assert_eq!(
        host.find("192.0.2.1"),
        ["192.0.2.1/32 1000..1010 by hand", "192.0.2.1/32 900..1060  by rule ``"]
    );
    assert_eq!(host.find("2001:db8:0:7:ffff::1"), ["2001:db8:0:7::/64 900..1030  by rule ``"]);
    assert_eq!(host.blocks.count().by_rules, 3);

    // The address ends both, the address of a client ends the client's, the prefix is the client.
    assert!(host.unblock("192.0.2.1"));
    assert!(host.unblock("2001:db8:0:7:ffff::1"));
    assert!(!host.unblock("2001:db8::/48"));
    assert!(host.unblock("2001:db8:0:8::/64"));
    assert_eq!(host.list(), [""; 0]);
    for source in ["192.0.2.1", "2001:db8:0:7::1", "2001:db8:0:8::1"] {
        assert_ne!(host.say(&udp(source)), "drop blocked", "{source}");
    }

    // With a policy of other lengths, those of the old ones are of no use.
    block_by_rule(&host, "192.0.2.1", 32, 1060);
    block_by_rule(&host, "2001:db8:0:7::1", 64, 1060);
    host.blocks.retain_rule_blocks(SourceBits { v4: 32, v6: 56 });
    assert_eq!(host.list(), ["192.0.2.1/32 900..1060  by rule ``"]);

    // A sweep forgets the last end when it has come.
    host.at(1060 * SECOND);
    host.blocks.sweep().expect("it can be swept");
    let data = MapData::from_pin(host.state.state().join("runtime")).expect("it is pinned");
    let runtime = Mapping::<Runtime<Seen>>::of(&data).expect("it can be mapped");
    assert_eq!(runtime[0].rule_blocks_until.read(), 0);
}

/// The number-th of many addresses, half of them IPv6.
fn address(number: u32) -> IpAddr {
    if number.is_multiple_of(2) {
        (0x0a00_0000 + number).to_be_bytes().into()
    } else {
        ((0x2001_0db8_u128 << 96) + u128::from(number)).to_be_bytes().into()
    }
}

#[test]
#[ignore = "requires root: BPF maps"]
fn the_table_grows_with_its_blocks() {
    let mut host = Host::new("mode: enforce");
    let prefixes: Vec<_> = (0..30_000).map(|number| net(&address(number).to_string())).collect();
    assert_eq!(host.blocks.need(&prefixes[..16_000], 1 << 20).expect("it can be told"), None);
    assert_eq!(host.blocks.need(&prefixes, 1 << 20).expect("it can be told"), Some(32_768));
    assert_eq!(host.blocks.need(&prefixes, 30_000).expect("it can be told"), Some(30_000));
    let Err(BlocksError::Full { what, live, new: more, capacity }) = host.blocks.need(&prefixes, 29_999)
    else {
        panic!("it has room")
    };
    assert_eq!((what, live, more, capacity), ("addresses", 0, 30_000, 29_999));
    let nets: Vec<_> = (0..5).map(|number| net(&format!("10.{number}.0.0/16"))).collect();
    assert!(matches!(host.blocks.need(&nets, 4), Err(BlocksError::Full { what: "prefixes", new: 5, .. })));
    assert_eq!(host.blocks.need(&nets, 5).expect("it can be told"), None);

    let block = |prefix: &ipnet::IpNet| new(&prefix.to_string(), 60, "many");
    let outcome = host.blocks.block_all(prefixes[..16_000].iter().map(block));
    assert_eq!((outcome.added, outcome.errors.len()), (16_000, 0));
    // Those that are blocked need no room, nor those that are named twice.
    assert_eq!(
        host.blocks.need(prefixes[..16_000].iter().chain(&prefixes[..99]), 16_384).expect("it can be told"),
        None
    );

    // Undone: the old table is in its place.
    drop(host.blocks.grow(32_768).expect("it can grow"));
    host.reopen();
    assert_eq!(host.list().len(), 16_000);
    assert_eq!(host.say(&udp("10.0.0.0")), "drop blocked");

    let growth = host.blocks.grow(32_768).expect("it can grow");
    host.reload(Some(growth.sets()));
    assert_eq!(host.say(&udp("10.0.0.0")), "drop blocked");
    growth.commit();
    host.reopen();
    assert_eq!(host.list().len(), 16_000);
    assert_eq!(host.blocks.need(&prefixes, 1 << 20).expect("it can be told"), None);
    let outcome = host.blocks.block_all(prefixes.iter().map(block));
    assert_eq!((outcome.added, outcome.replaced, outcome.errors.len()), (14_000, 16_000, 0));
    for number in (0..30_000).step_by(997) {
        assert_eq!(host.say(&udp(&address(number).to_string())), "drop blocked", "{number}");
        assert_eq!(host.say(&udp(&address(number + 30_000).to_string())), "pass no_rule", "{number}");
    }
    // What is pinned has the size that the next start is to use.
    host.reload(None);
    assert_eq!(host.say(&udp("10.0.0.0")), "drop blocked");
    assert_eq!(host.blocks.count().v4, 15_000);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn a_growth_that_was_broken_off_is_undone() {
    let mut host = Host::new("mode: enforce");
    host.block("192.0.2.1", 60);
    let directory = host.state.state();
    let pins = || {
        ["blocks", "block_details", "blocks-old", "block_details-old"]
            .map(|name| directory.join(name).exists())
    };
    // Killed after everything was in place, then between the two.
    for both in [true, false] {
        std::mem::forget(host.blocks.grow(32_768).expect("it can grow"));
        if !both {
            fs::rename(directory.join("block_details-old"), directory.join("block_details"))
                .expect("they are there");
        }
        recover(&host.state).expect("it can be undone");
        assert_eq!(pins(), [true, true, false, false]);
        host.reload(None);
        host.reopen();
        assert_eq!(host.say(&udp("192.0.2.1")), "drop blocked");
    }
    // Killed while the old one was removed: the new one stays.
    let growth = host.blocks.grow(32_768).expect("it can grow");
    host.reload(Some(growth.sets()));
    std::mem::forget(growth);
    fs::remove_file(directory.join("blocks-old")).expect("it is there");
    recover(&host.state).expect("it can be finished");
    assert_eq!(pins(), [true, true, false, false]);
    host.reload(None);
    host.reopen();
    assert_eq!(host.list(), ["192.0.2.1/32 1000..1060"]);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn what_a_killed_process_left_half_done_is_repaired() {
    let mut host = Host::new("mode: enforce");
    host.block("192.0.2.1", 60);
    host.block("2001:db8::1", 60);
    let open = |name: &str| MapData::from_pin(host.state.state().join(name)).expect("it is pinned");
    let sets = Mapping::<Set<Word>>::of(&open("blocks")).expect("it can be mapped");
    let used = || -> Vec<u64> {
        sets.iter()
            .flat_map(|set| &set.ways)
            .map(bucket_table::Cell::read)
            .filter(|word| *word != 0)
            .collect()
    };
    let before = used();
    assert_eq!(before.len(), 2);
    let claimed = u64::from(block_table::LATEST + 1);
    // A way that was claimed, and never written; and an address that was being moved.
    for (place, set) in sets.iter().enumerate() {
        set.ways[7].write(0x0102_0304_0000_0000 | claimed);
        let twin = before.iter().find(|word| **word >> 32 == 0xc000_0201);
        if set.ways.iter().any(|way| Some(&way.read()) == twin) {
            let twin = *twin.expect("the IPv4 one");
            sets[place].ways[5].write(twin);
        }
    }
    assert_eq!(host.list().iter().filter(|line| line.starts_with("192.0.2.1")).count(), 2);
    host.blocks.sweep().expect("it can be swept");
    assert_eq!(used(), before);
    assert_eq!(host.list(), ["192.0.2.1/32 1000..1060", "2001:db8::1/128 1000..1060"]);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn nothing_can_be_blocked_where_nothing_is_loaded() {
    let bpffs = xtask::lab::BpfFs::mount().expect("a BPF file system");
    let state = ratelimit::network::state::StateDir::new(bpffs.path());
    let Err(error) = ratelimit::network::blocks::Blocks::open(&state) else { panic!("it is open") };
    assert!(error.to_string().contains("start `ratelimit daemon` first"), "{error}");
}

#[test]
#[ignore = "requires root: BPF maps"]
fn maps_are_mapped_as_what_they_are() {
    let host = Host::new("mode: enforce");
    let open = |name: &str| MapData::from_pin(host.state.state().join(name)).expect("it is pinned");
    let written = Mapping::<Set<Word>>::of(&open("blocks")).expect("it can be mapped");
    let seen = Mapping::<Set<Seen>>::of(&open("blocks")).expect("it can be mapped");
    assert_eq!(written.len(), seen.len());
    written[1].ways[3].write(77);
    assert_eq!(seen[1].ways[3].read(), 77);
    // What is only looked at stays as it is.
    seen[1].ways[3].write(78);
    assert_eq!(seen[1].ways[3].compare_exchange(77, 79), Err(77));
    assert_eq!(seen[1].ways[3].add(1), 77);
    assert_eq!(written[1].ways[3].read(), 77);

    assert!(Mapping::<bucket_table::Set<Seen>>::of(&open("buckets")).is_ok());
    for name in ["block_details", "reason_counters", "block_prefixes_v4"] {
        let mapped = Mapping::<Set<Seen>>::of(&open(name));
        assert!(matches!(mapped, Err(MappingError::Layout { expected: 64 })), "{name}");
    }
}
