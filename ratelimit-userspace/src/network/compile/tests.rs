use std::{net::IpAddr, ops::RangeInclusive, path::PathBuf};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::{collection::vec, option, prelude::*, sample::select};
use ratelimit_common::{
    address::Family,
    gcra::Rate,
    policy::{MAX_COUNTER_SLOTS, scope, unit},
};

use super::*;
use crate::config::policy::{Blocks, Bucket, Limit, Match, OnStop, Per, Sources, Unit};

const LIMIT: Limit = Limit {
    per: Per::Source,
    unit: Unit::Packets,
    bucket: Some(Bucket { rate: Rate { units: 50, nanos: 1_000_000_000 }, burst: 100 }),
};

pub(in crate::network) fn rule(name: &str, matches: Match) -> Rule {
    Rule {
        name: name.to_owned(),
        matches,
        limits: vec![LIMIT],
        count_only: false,
        block: None,
        for_clients: false,
        line: 1,
    }
}

pub(in crate::network) fn network(rules: Vec<Rule>) -> Network {
    Network {
        monitor: false,
        on_stop: OnStop::Keep,
        sources: Sources { ipv4_prefix: 32, ipv6_prefix: 64, capacity: 1024, when_full: WhenFull::Pass },
        malformed_pass: false,
        allow: Vec::new(),
        deny: Vec::new(),
        rules,
        deny_files: Vec::<PathBuf>::new(),
        management: Vec::new(),
        blocks: Blocks::default(),
        next: None,
    }
}

fn compile_fresh(network: &Network) -> Result<Compiled, CompileError> {
    let names = network.rules.iter().map(|rule| rule.name.as_str());
    let (slots, _) = Slots::assign(&Slots::default(), names);
    compile(network, &slots)
}

/// The first rule whose conditions all hold, tried one after another.
fn naive(rules: &[Rule], packet: &Packet, length: u32) -> Option<usize> {
    fn holds<T>(condition: Option<&Vec<T>>, accepts: impl Fn(&T) -> bool) -> bool {
        condition.is_none_or(|values| values.iter().any(accepts))
    }
    let address = |address: &Address| match address.family {
        Family::V4 => IpAddr::from(address.v4_octets()),
        Family::V6 => IpAddr::from(address.v6_octets()),
    };
    let port = |range: &RangeInclusive<u16>, port: u32| {
        port != ABSENT && (u32::from(*range.start())..=u32::from(*range.end())).contains(&port)
    };
    let fragment = match packet.fragment {
        Fragment::None => FragmentKind::None,
        Fragment::First => FragmentKind::First,
        Fragment::Later => FragmentKind::Later,
    };
    rules.iter().position(|Rule { matches, .. }| {
        let Match {
            source,
            destination,
            protocol,
            source_port,
            destination_port,
            tcp_flags,
            icmp_type,
            fragment: fragments,
            vlan,
            length: lengths,
        } = matches;
        holds(source.as_ref(), |prefix| prefix.contains(&address(&packet.source)))
            && holds(destination.as_ref(), |prefix| prefix.contains(&address(&packet.destination)))
            && holds(protocol.as_ref(), |number| u32::from(*number) == packet.protocol)
            && holds(source_port.as_ref(), |range| port(range, packet.source_port))
            && holds(destination_port.as_ref(), |range| port(range, packet.destination_port))
            && holds(tcp_flags.as_ref(), |flags| {
                packet.tcp_flags != ABSENT
                    && packet.tcp_flags & u32::from(flags.set) == u32::from(flags.set)
                    && packet.tcp_flags & u32::from(flags.clear) == 0
            })
            && holds(icmp_type.as_ref(), |kind| match kind {
                IcmpType::V4(number) => packet.icmp_type == u32::from(*number),
                IcmpType::V6(number) => packet.icmp_type == 256 + u32::from(*number),
            })
            && holds(fragments.as_ref(), |kind| *kind == fragment)
            && holds(vlan.as_ref(), |vlan| match vlan {
                Vlan::Id(id) => packet.vlan == u32::from(*id),
                Vlan::Untagged => packet.vlan == ABSENT,
            })
            && holds(lengths.as_ref(), |range| {
                (*range.start().min(&65_535)..=*range.end().min(&65_535)).contains(&length.min(65_535))
            })
    })
}

// Values are drawn from small sets, so that packets often meet rules, and rules one another.

fn v4() -> impl Strategy<Value = [u8; 4]> {
    (select(&[10, 192][..]), 0..2_u8, Just(0), select(&[0, 1, 128, 255][..])).prop_map(<[u8; 4]>::from)
}

fn v6() -> impl Strategy<Value = [u8; 16]> {
    (select(&[0x20, 0xfe, 0x0a][..]), 0..2_u8, 0..2_u8, 0..2_u8).prop_map(|(a, b, c, d)| {
        let mut octets = [0; 16];
        (octets[0], octets[3], octets[8], octets[15]) = (a, b, c, d);
        octets
    })
}

pub(in crate::network) fn prefix() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (v4(), select(&[0, 8, 15, 16, 24, 25, 32][..])).prop_map(|(octets, length)| {
            IpNet::V4(Ipv4Net::new(octets.into(), length).expect("at most 32").trunc())
        }),
        (v6(), select(&[0, 8, 32, 63, 64, 72, 127, 128][..])).prop_map(|(octets, length)| {
            IpNet::V6(Ipv6Net::new(octets.into(), length).expect("at most 128").trunc())
        }),
    ]
}

pub(in crate::network) fn address() -> impl Strategy<Value = Address> {
    prop_oneof![v4().prop_map(Address::v4), v6().prop_map(Address::v6)]
}

const PORTS: &[u16] = &[0, 1, 53, 80, 443, 1023, 1024, 65_534, 65_535];
const FLAGS: &[u8] = &[0, 0x02, 0x10, 0x12, 0x04, 0x29, 0xff];
const LENGTHS: &[u32] = &[0, 60, 64, 1500, 65_534, 65_535, 65_536, 100_000];
const TYPES: &[u8] = &[0, 8, 128, 135, 255];
const VLANS: &[u16] = &[0, 1, 100, 4094];
const PROTOCOLS: &[u8] = &[0, 1, 6, 17, 58, 132, 255];

fn some<T: Strategy>(values: T) -> impl Strategy<Value = Option<Vec<T::Value>>>
where
    T::Value: Clone,
{
    option::weighted(0.3, vec(values, 0..4))
}

pub(in crate::network) fn matches() -> impl Strategy<Value = Match> {
    let ports = || (select(PORTS), select(PORTS)).prop_map(|(from, to)| from.min(to)..=from.max(to));
    let lengths = (select(LENGTHS), select(LENGTHS)).prop_map(|(from, to)| from.min(to)..=from.max(to));
    let flags = (select(FLAGS), select(FLAGS))
        .prop_map(|(set, other)| TcpFlags { set: set & !other, clear: other & !set });
    let icmp = prop_oneof![select(TYPES).prop_map(IcmpType::V4), select(TYPES).prop_map(IcmpType::V6)];
    let fragments = select(&[FragmentKind::None, FragmentKind::First, FragmentKind::Later][..]);
    let vlans = prop_oneof![select(VLANS).prop_map(Vlan::Id), Just(Vlan::Untagged)];
    (
        (some(prefix()), some(prefix())),
        (some(select(PROTOCOLS)), some(ports()), some(ports()), some(flags)),
        (some(icmp), some(fragments), some(vlans), some(lengths)),
    )
        .prop_map(|((source, destination), transport, rest)| {
            let (protocol, source_port, destination_port, tcp_flags) = transport;
            let (icmp_type, fragment, vlan, length) = rest;
            Match {
                source,
                destination,
                protocol,
                source_port,
                destination_port,
                tcp_flags,
                icmp_type,
                fragment,
                vlan,
                length,
            }
        })
}

fn absent_or<T: Strategy>(values: T) -> impl Strategy<Value = u32>
where
    T::Value: Into<u32>,
{
    prop_oneof![1 => Just(ABSENT), 3 => values.prop_map(Into::into)]
}

pub(in crate::network) fn packet() -> impl Strategy<Value = (Packet, u32)> {
    let ports = || prop_oneof![select(PORTS), any::<u16>()];
    (
        (address(), address()),
        (absent_or(select(PROTOCOLS)), absent_or(ports()), absent_or(ports()), absent_or(select(FLAGS))),
        (
            absent_or(
                (select(TYPES), any::<bool>())
                    .prop_map(|(number, v6)| u32::from(number) + if v6 { 256 } else { 0 }),
            ),
            select(&[Fragment::None, Fragment::First, Fragment::Later][..]),
            absent_or(select(VLANS)),
            prop_oneof![select(LENGTHS), 0..70_000_u32],
        ),
    )
        .prop_map(|((source, destination), transport, (icmp_type, fragment, vlan, length))| {
            let (protocol, source_port, destination_port, tcp_flags) = transport;
            let packet = Packet {
                source,
                destination,
                protocol,
                source_port,
                destination_port,
                tcp_flags,
                icmp_type,
                vlan,
                fragment,
                neighbour: false,
                malformed: None,
                chain_too_long: false,
                cut: false,
            };
            (packet, length)
        })
}

proptest! {
    // Compiling a range dimension takes a while without optimisation.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tables_find_the_first_rule_that_matches(
        matches in vec(matches(), 0..12),
        packets in vec(packet(), 256),
    ) {
        let rules: Vec<_> = (0..).zip(matches).map(|(n, matches)| rule(&format!("r{n}"), matches)).collect();
        let compiled = compile_fresh(&network(rules.clone())).expect("few values make few classes");
        for (packet, length) in packets {
            prop_assert_eq!(
                compiled.classify(&packet, length),
                naive(&rules, &packet, length),
                "{:?} of {} bytes", packet, length
            );
        }
    }

    #[test]
    fn slots_are_kept_unique_and_rested(generations in vec(vec(any::<bool>(), MAX_RULES), 1..8)) {
        let mut previous = Slots::default();
        for (number, stays) in generations.into_iter().enumerate() {
            // Half of the names change from generation to generation, all are up to MAX_RULES.
            let names: Vec<String> = (0..)
                .zip(stays)
                .map(|(n, stays)| if stays { format!("r{n}") } else { format!("r{n}.{number}") })
                .collect();
            let (slots, fresh) = Slots::assign(&previous, names.iter().map(String::as_str));
            let mut seen = std::collections::BTreeSet::new();
            for name in &names {
                let slot = slots.get(name).expect("every rule has a slot");
                prop_assert!(seen.insert(slot) && (slot as usize) < MAX_COUNTER_SLOTS);
                if let Some(kept) = previous.get(name) {
                    prop_assert!(slot == kept && !fresh.contains(&slot));
                } else {
                    prop_assert!(fresh.contains(&slot));
                    prop_assert!(previous.iter().all(|(_, used)| used != slot));
                }
            }
            prop_assert_eq!(slots.iter().count(), names.len());
            previous = slots;
        }
    }
}

#[test]
fn all_bits_of_a_mask_are_rules() {
    let mut rules: Vec<_> = (0..64_u16)
        .map(|n| {
            let port = Some(vec![n..=n]);
            rule(&format!("r{n}"), Match { destination_port: port, ..Match::default() })
        })
        .collect();
    let compiled = compile_fresh(&network(rules.clone())).expect("64 rules fit");
    let (mut packet, _) = packet_of_nothing();
    packet.destination_port = 63;
    assert_eq!(compiled.classify(&packet, 60), Some(63));
    packet.destination_port = 64;
    assert_eq!(compiled.classify(&packet, 60), None);

    rules.push(rule("r64", Match::default()));
    assert_eq!(compile_fresh(&network(rules)), Err(CompileError::TooManyRules { count: 65 }));
}

fn packet_of_nothing() -> (Packet, u32) {
    let packet = Packet {
        source: Address::v4([192, 0, 2, 1]),
        destination: Address::v4([192, 0, 2, 2]),
        protocol: 17,
        source_port: ABSENT,
        destination_port: ABSENT,
        tcp_flags: ABSENT,
        icmp_type: ABSENT,
        vlan: ABSENT,
        fragment: Fragment::None,
        neighbour: false,
        malformed: None,
        chain_too_long: false,
        cut: false,
    };
    (packet, 60)
}

#[test]
fn a_policy_without_conditions_looks_at_nothing() {
    let compiled = compile_fresh(&network(vec![rule("all", Match::default())])).expect("it is valid");
    assert_eq!(compiled.stages, stage::RULES);
    assert!(compiled.range_classes.is_empty());
    assert!(compiled.direct_masks.iter().chain(&compiled.range_masks).all(|mask| *mask == 0));
    let (packet, length) = packet_of_nothing();
    assert_eq!(compiled.classify(&packet, length), Some(0));

    let none = compile_fresh(&network(Vec::new())).expect("it is valid");
    assert_eq!((none.stages, none.classify(&packet, length)), (0, None));
}

#[test]
fn only_an_ipv4_source_never_matches_ipv6() {
    let source = Some(vec!["0.0.0.0/0".parse().expect("a prefix")]);
    let compiled =
        compile_fresh(&network(vec![rule("v4", Match { source, ..Match::default() })])).expect("it is valid");
    let (mut packet, length) = packet_of_nothing();
    assert_eq!(compiled.classify(&packet, length), Some(0));
    packet.source = Address::v6([0; 16]);
    assert_eq!(compiled.classify(&packet, length), None);
}

#[test]
fn too_many_classes_name_the_dimension() {
    // Nine rules that each take every second block of a power of two: all 512 combinations occur.
    let rules = (0..9_u32)
        .map(|bit| {
            let ranges = (0..512_u16).filter(|value| value >> bit & 1 != 0).map(|value| value..=value);
            rule(&format!("r{bit}"), Match { source_port: Some(ranges.collect()), ..Match::default() })
        })
        .collect();
    let error = compile_fresh(&network(rules)).expect_err("512 classes do not fit");
    assert_eq!(error, CompileError::TooManyClasses { dimension: "source_port", classes: 512 });
    assert!(error.to_string().contains("`source_port`"));
}

#[test]
fn limits_are_known_by_whose_they_are_not_by_how_much_they_hold() {
    let bytes = Limit { unit: Unit::Bytes, ..LIMIT };
    let per_rule = Limit { per: Per::Rule, ..LIMIT };
    let mut first = rule("one", Match::default());
    first.limits = vec![LIMIT, bytes, LIMIT, per_rule];
    let mut second = first.clone();
    second.name = "two".to_owned();
    let ids = |network: &Network| -> Vec<u64> {
        let compiled = compile_fresh(network).expect("it is valid");
        compiled.rules.iter().flat_map(|rule| rule.limits.map(|limit| limit.id)).collect()
    };
    let before = network(vec![first, second]);
    let unique: std::collections::BTreeSet<u64> = ids(&before).into_iter().collect();
    assert_eq!(unique.len(), 8);

    let mut after = before.clone();
    after.rules[0].limits[0].bucket = None;
    after.rules[0].limits[1].bucket =
        Some(Bucket { rate: Rate { units: 7, nanos: 1_000_000_000 }, burst: 70_000 });
    after.rules[0].count_only = true;
    assert_eq!(ids(&after), ids(&before));

    after.sources.ipv4_prefix = 24;
    assert_ne!(ids(&after), ids(&before));
}

/// Pinned tables outlive a build, so an id must never change: this one was computed once.
#[test]
fn ids_stay_what_they_were() {
    let compiled = compile_fresh(&network(vec![rule("handshakes", Match::default())])).expect("it is valid");
    assert_eq!(compiled.rules[0].limits[0].id, 0x210e_39ff_c762_731f);
}

#[test]
fn limits_carry_their_masks_scopes_and_cells() {
    let mut all = rule("all", Match::default());
    let prefix = Per::Prefix { ipv4_prefix: 24, ipv6_prefix: 48 };
    let of_rule = |unit| Limit { per: Per::Rule, unit, ..LIMIT };
    all.limits = vec![
        Limit { per: prefix, ..LIMIT },
        of_rule(Unit::Packets),
        of_rule(Unit::Bytes),
        Limit { bucket: None, ..LIMIT },
    ];
    all.count_only = true;
    let mut slots = Slots::assign(&Slots::default(), ["other", "all"]).0;
    let compiled = compile(&network(vec![all.clone()]), &slots).expect("it is valid");
    let compiled_rule = compiled.rules[0];
    let [by_prefix, packets, bytes, zero] = compiled_rule.limits;
    assert_eq!((compiled_rule.counter_slot, compiled_rule.limit_count), (1, 4));
    assert_eq!((compiled_rule.action, compiled_rule.zero_limit), (action::COUNT, 4));
    assert_eq!((by_prefix.ipv4_mask, by_prefix.ipv6_mask), (0xffff_ff00 << 32, [u64::MAX << 16, 0]));
    assert_eq!((by_prefix.scope, by_prefix.bucket), (scope::ADDRESS, 0));
    assert_eq!((packets.scope, packets.unit, packets.bucket), (scope::RULE, unit::PACKETS, 4));
    assert_eq!((bytes.scope, bytes.unit, bytes.bucket), (scope::RULE, unit::BYTES, 7));
    assert_eq!((zero.capacity, zero.multiplier), (0, 0));
    assert_eq!(
        compiled.descriptions[0].limits,
        [
            "per /24 (IPv6 /48): 50/s, burst 100",
            "per rule: 50/s, burst 100",
            "per rule: 400bit/s, burst 100B",
            "per source: 0/s",
        ]
    );

    // The byte limit keeps its cell when the one before it goes.
    all.limits.remove(1);
    slots = Slots::assign(&slots, ["all"]).0;
    let compiled = compile(&network(vec![all]), &slots).expect("it is valid");
    assert_eq!((compiled.rules[0].limits[1].bucket, compiled.rules[0].limits[1].id), (7, bytes.id));
}

#[test]
fn impossible_rules_are_refused() {
    let mut none = rule("none", Match::default());
    none.limits.clear();
    let error = CompileError::LimitCount { rule: "none".to_owned(), count: 0 };
    assert_eq!(compile_fresh(&network(vec![none])), Err(error));

    let mut burst = rule("burst", Match::default());
    burst.limits[0].bucket = Some(Bucket { rate: Rate { units: 1, nanos: 1_000_000_000 }, burst: 0 });
    let error = compile_fresh(&network(vec![burst])).expect_err("a burst of zero is no bucket");
    assert!(matches!(&error, CompileError::Limit { rule, index: 0, .. } if rule == "burst"), "{error}");

    let unknown = network(vec![rule("unknown", Match::default())]);
    let error = CompileError::NoSlot { rule: "unknown".to_owned() };
    assert_eq!(compile(&unknown, &Slots::default()), Err(error));
}
