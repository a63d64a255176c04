use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};
use proptest::{collection::vec, prelude::*, sample::select};
use ratelimit_common::policy::prefilter::CHUNKS;

use super::*;

/// The bits of all entries that cover the address, one by one.
fn naive(allow: &[IpNet], deny: &[IpNet], address: IpAddr) -> u32 {
    let allowed = allow.iter().filter(|prefix| prefix.contains(&address)).map(|_| listed::ALLOW);
    let denied = deny.iter().filter(|prefix| prefix.contains(&address)).map(|prefix| {
        let exact = matches!(prefix, IpNet::V6(prefix) if prefix.prefix_len() == 128);
        listed::DENY | if exact { listed::DENY_EXACT } else { 0 }
    });
    allowed.chain(denied).fold(0, |bits, bit| bits | bit)
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

proptest! {
    #[test]
    fn look_up_is_the_union_of_covering_entries(
        allow in vec(prefix(), 0..12),
        deny in vec(prefix(), 0..24),
        others in vec(any::<IpAddr>(), 8),
    ) {
        let lists = Lists::compile(&allow, &deny);
        let addresses = allow.iter().chain(&deny).flat_map(near).chain(others);
        for candidate in addresses {
            prop_assert_eq!(
                lists.look_up(&address(candidate)),
                naive(&allow, &deny, candidate),
                "{}", candidate
            );
        }
    }

    #[test]
    fn each_node_says_something_new(allow in vec(prefix(), 0..12), deny in vec(prefix(), 0..24)) {
        let lists = Lists::compile(&allow, &deny);
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
    let lists = Lists::compile(&[], &deny);
    let lengths: Vec<_> = lists.v4.iter().map(|node| (node.v4_octets(), node.length)).collect();
    assert_eq!(lengths, [([10, 0, 0, 0], 8), ([11, 0, 0, 0], 8)]);
    assert_eq!(lists.stages, stage::LISTS_V4);
}

#[test]
fn an_exact_ipv6_deny_stays_within_a_denied_network() {
    let lists = Lists::compile(&[], &nets(&["2001:db8::/32", "2001:db8::1/128", "2001:db8::/64"]));
    let nodes: Vec<_> = lists.v6.iter().map(|node| (node.length, node.bits, node.outermost)).collect();
    assert_eq!(nodes, [(32, listed::DENY, true), (128, listed::DENY | listed::DENY_EXACT, false)]);
    // The level of the covering prefix is the only one that has to be asked.
    assert_eq!(lists.stages, stage::LISTS_V6 | stage::LISTS_V6_32);
}

#[test]
fn whole_families() {
    let lists = Lists::compile(&nets(&["192.0.2.1/32"]), &nets(&["0.0.0.0/0", "::/0"]));
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
    let lists = Lists::compile(&[], &[]);
    assert_eq!(lists, Lists::default());
    assert_eq!(lists.prefilter_v4.chunks().count() + lists.prefilter_v6.chunks().count(), 0);
}

#[test]
fn a_million_entries() {
    // Every fourth /28 of 10.0.0.0/8 and beyond: no two cover each other, and none has a neighbour.
    let deny: Vec<IpNet> = (0..1_000_000_u32)
        .map(|index| Ipv4Net::new((0x0a00_0000 + (index << 6)).into(), 28).expect("28 is a length").into())
        .collect();
    let lists = Lists::compile(&[], &deny);
    assert_eq!(lists.v4.len(), 1_000_000);
    assert_eq!(lists.look_up(&Address::v4([10, 0, 0, 64])), listed::DENY);
    assert_eq!(lists.look_up(&Address::v4([10, 0, 0, 16])), 0);
}
