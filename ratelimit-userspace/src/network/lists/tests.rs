use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};
use proptest::{collection::vec, prelude::*, sample::select};
use ratelimit_common::{packet::ABSENT, policy::prefilter::CHUNKS};

use super::*;

/// The bits of all entries that cover the address, one by one; without the class of ports.
fn naive(allow: &[IpNet], management: &[Management], deny: &[IpNet], address: IpAddr) -> u32 {
    let allowed = allow.iter().filter(|prefix| prefix.contains(&address)).map(|_| listed::ALLOW);
    let denied = deny.iter().filter(|prefix| prefix.contains(&address)).map(|prefix| {
        let exact = matches!(prefix, IpNet::V6(prefix) if prefix.prefix_len() == 128);
        listed::DENY | if exact { listed::DENY_EXACT } else { 0 }
    });
    let managed = management.iter().filter(|entry| entry.prefix.contains(&address));
    allowed.chain(denied).chain(managed.map(|_| listed::MANAGEMENT)).fold(0, |bits, bit| bits | bit)
}

fn address(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => Address::v4(address.octets()),
        IpAddr::V6(address) => Address::v6(address.octets()),
    }
}

/// Prefixes that often cover one another: few octets vary, and each takes few values.
fn prefix() -> impl Strategy<Value = IpNet> {
    let octet = || select(&[0, 1, 0x80, 0xff][..]);
    let v4 = ([octet(), octet(), octet(), octet()], 0..=32_u8).prop_map(|(octets, length)| {
        IpNet::V4(Ipv4Net::new(octets.into(), length).expect("at most 32").trunc())
    });
    let v6 = ([octet(), octet(), octet(), octet()], 0..=128_u8).prop_map(|(varied, length)| {
        let mut octets = [0; 16];
        [octets[0], octets[3], octets[5], octets[15]] = varied;
        IpNet::V6(Ipv6Net::new(octets.into(), length).expect("at most 128").trunc())
    });
    prop_oneof![v4, v6]
}

/// Addresses in and right beside a prefix.
fn near(prefix: &IpNet) -> [IpAddr; 4] {
    match prefix {
        IpNet::V4(net) => [
            net.network().into(),
            net.broadcast().into(),
            net.network().to_bits().wrapping_sub(1).to_be_bytes().into(),
            net.broadcast().to_bits().wrapping_add(1).to_be_bytes().into(),
        ],
        IpNet::V6(net) => [
            net.network().into(),
            net.broadcast().into(),
            net.network().to_bits().wrapping_sub(1).to_be_bytes().into(),
            net.broadcast().to_bits().wrapping_add(1).to_be_bytes().into(),
        ],
    }
}

const PORTS: &[u16] = &[0, 22, 63, 64, 9100, 65_535];

fn management() -> impl Strategy<Value = Vec<Management>> {
    let ports = (select(PORTS), select(PORTS)).prop_map(|(from, to)| from.min(to)..=from.max(to));
    let entry = (prefix(), vec(ports, 1..3)).prop_map(|(prefix, ports)| Management { prefix, ports });
    vec(entry, 0..12)
}

const LIST_BITS: u32 = (1 << listed::CLASS_SHIFT) - 1;

proptest! {
    #[test]
    fn look_up_is_the_union_of_covering_entries(
        allow in vec(prefix(), 0..12),
        management in management(),
        deny in vec(prefix(), 0..24),
        others in vec(any::<IpAddr>(), 8),
    ) {
        let lists = Lists::compile(&allow, &management, &deny);
        let managed = management.iter().map(|entry| &entry.prefix);
        let addresses = allow.iter().chain(managed).chain(&deny).flat_map(near).chain(others);
        prop_assert_eq!(lists.stages & stage::MANAGEMENT != 0, !management.is_empty());
        prop_assert!(lists.management.len() <= management.len());
        for candidate in addresses {
            let bits = lists.look_up(&address(candidate));
            prop_assert_eq!(bits & LIST_BITS, naive(&allow, &management, &deny, candidate), "{}", candidate);
            for port in PORTS.iter().flat_map(|port| [port.wrapping_sub(1), *port, port.wrapping_add(1)]) {
                let open = management.iter().any(|Management { prefix, ports }| {
                    prefix.contains(&candidate) && ports.iter().any(|range| range.contains(&port))
                });
                prop_assert_eq!(lists.is_management(bits, port.into()), open, "{} {}", candidate, port);
            }
            prop_assert!(!lists.is_management(bits, ABSENT));
        }
    }

    #[test]
    fn each_node_says_something_new(
        allow in vec(prefix(), 0..12), management in management(), deny in vec(prefix(), 0..24),
    ) {
        let lists = Lists::compile(&allow, &management, &deny);
        for family in [&lists.v4, &lists.v6] {
            for (index, node) in family.iter().enumerate() {
                let mut without = family.clone();
                without.remove(index);
                let last = node.network | u128::MAX.checked_shr(node.length.into()).unwrap_or(0);
                let covers = |other: &&Node<u32>| {
                    let other_last = other.network | u128::MAX.checked_shr(other.length.into()).unwrap_or(0);
                    other.network <= node.network && last <= other_last
                };
                let above = without.iter().filter(covers).max_by_key(|other| other.length);
                prop_assert_ne!(above.map_or(0, |above| above.bits), node.bits);
            }
        }
    }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a prefix")).collect()
}

#[test]
fn covered_and_repeated_denies_are_dropped() {
    let deny = nets(&["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "10.0.0.0/8", "11.0.0.0/8"]);
    let lists = Lists::compile(&[], &[], &deny);
    let lengths: Vec<_> = lists.v4.iter().map(|node| (node.v4_octets(), node.length)).collect();
    assert_eq!(lengths, [([10, 0, 0, 0], 8), ([11, 0, 0, 0], 8)]);
    assert_eq!(lists.stages, stage::LISTS_V4);
}

#[test]
fn an_exact_ipv6_deny_stays_within_a_denied_network() {
    let lists = Lists::compile(&[], &[], &nets(&["2001:db8::/32", "2001:db8::1/128", "2001:db8::/64"]));
    let nodes: Vec<_> = lists.v6.iter().map(|node| (node.length, node.bits, node.outermost)).collect();
    assert_eq!(nodes, [(32, listed::DENY, true), (128, listed::DENY | listed::DENY_EXACT, false)]);
    // The level of the covering prefix is the only one that has to be asked.
    assert_eq!(lists.stages, stage::LISTS_V6 | stage::LISTS_V6_32);
}

#[test]
fn whole_families() {
    let lists = Lists::compile(&nets(&["192.0.2.1/32"]), &[], &nets(&["0.0.0.0/0", "::/0"]));
    assert_eq!(lists.look_up(&Address::v4([0; 4])), listed::DENY);
    assert_eq!(lists.look_up(&Address::v4([255; 4])), listed::DENY);
    assert_eq!(lists.look_up(&Address::v4([192, 0, 2, 1])), listed::DENY | listed::ALLOW);
    assert_eq!(lists.look_up(&Address::v6([0xff; 16])), listed::DENY);
    assert_eq!(lists.stages, stage::LISTS_V4 | stage::LISTS_V6 | stage::LISTS_V6_16);
    assert_eq!(lists.prefilter_v4.chunks().count(), CHUNKS as usize);
    assert!(lists.prefilter_v4.chunks().all(|(_, chunk)| chunk.iter().all(|word| *word == u64::MAX)));
}

#[test]
fn empty_lists_need_nothing() {
    let lists = Lists::compile(&[], &[], &[]);
    assert_eq!(lists, Lists::default());
    assert_eq!(lists.prefilter_v4.chunks().count() + lists.prefilter_v6.chunks().count(), 0);
}

#[test]
fn management_entries_share_what_ports_are_open() {
    let entry = |prefix: &str, port: u16| Management {
        prefix: prefix.parse().expect("a prefix"),
        ports: vec![port..=port],
    };
    let management = [
        entry("10.0.0.0/8", 22),
        entry("10.1.0.0/16", 80),
        entry("10.1.0.0/16", 443),
        entry("2001:db8::/32", 22),
        entry("10.1.2.0/24", 22),
    ];
    let lists = Lists::compile(&[], &management, &nets(&["10.1.2.3/32", "192.0.2.1/32"]));
    let classes = |address: [u8; 4]| listed::management_class(lists.look_up(&Address::v4(address)));
    // An inner entry has other ports than an outer one, even where their numbers are the same.
    let of: Vec<_> = [[10, 9, 9, 9], [10, 1, 9, 9], [10, 1, 2, 9], [10, 1, 2, 3]].map(classes).to_vec();
    assert_eq!((of[0], of[1], of[2], of[3]), (0, 1, 2, 2));
    assert_eq!(lists.management.len(), 4);
    assert_eq!(lists.look_up(&Address::v4([192, 0, 2, 1])), listed::DENY);
    let bits = lists.look_up(&Address::v4([10, 1, 2, 3]));
    assert_eq!(bits & LIST_BITS, listed::DENY | listed::MANAGEMENT);
    let open: Vec<_> = (0..=65_535).filter(|port| lists.is_management(bits, *port)).collect();
    assert_eq!(open, [22, 80, 443]);
}

#[test]
fn no_management_entry_is_one_too_many() {
    let entries: Vec<_> = (0..=64_u8)
        .map(|n| Management {
            prefix: Ipv4Net::new([10, 0, n, 0].into(), 24).expect("24").into(),
            ports: vec![22..=22],
        })
        .collect();
    let lists = Lists::compile(&[], &entries, &[]);
    let managed = |n: u8| lists.is_management(lists.look_up(&Address::v4([10, 0, n, 1])), 22);
    assert!((0..64).all(managed));
    assert!(!managed(64));
    assert_eq!(lists.management.len(), 64);
}

#[test]
fn a_million_entries() {
    // Every fourth /28 of 10.0.0.0/8 and beyond: no two cover each other, and none has a neighbour.
    let deny: Vec<IpNet> = (0..1_000_000_u32)
        .map(|index| Ipv4Net::new((0x0a00_0000 + (index << 6)).into(), 28).expect("28 is a length").into())
        .collect();
    let lists = Lists::compile(&[], &[], &deny);
    assert_eq!(lists.v4.len(), 1_000_000);
    assert_eq!(lists.look_up(&Address::v4([10, 0, 0, 64])), listed::DENY);
    assert_eq!(lists.look_up(&Address::v4([10, 0, 0, 16])), 0);
}
