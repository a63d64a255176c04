//! The first rule that matches a packet, in constant time however many rules there are.

use aya_ebpf::btf_maps::{LpmTrie, lpm_trie::Key};
use ratelimit_common::{
    address::{Address, Family},
    packet::{ABSENT, Packet},
    policy::{Rule, address_class, direct, range, stage},
};

use crate::maps;

/// The first rule that matches, or the preferred one if that does, with its index.
#[inline(always)]
pub(crate) fn first_match(
    stages: u64,
    packet: &Packet,
    length: u64,
    preferred: Option<u32>,
) -> Option<(u32, &'static Rule)> {
    let mut mask = u64::MAX;
    if stages & stage::PROTOCOL != 0 {
        mask &= direct_or_absent(direct::PROTOCOL, packet.protocol, 256);
    }
    if stages & stage::DESTINATION_PORT != 0 {
        mask &= by_range(range::DESTINATION_PORT, packet.destination_port);
    }
    if stages & stage::SOURCE_PORT != 0 {
        mask &= by_range(range::SOURCE_PORT, packet.source_port);
    }
    if stages & stage::TCP_FLAGS != 0 {
        mask &= direct_or_absent(direct::TCP_FLAGS, packet.tcp_flags, 256);
    }
    if stages & stage::ICMP_TYPE != 0 {
        mask &= direct_or_absent(direct::ICMP_TYPE, packet.icmp_type, 512);
    }
    if stages & stage::FRAGMENT != 0 {
        mask &= direct_mask(direct::FRAGMENT + packet.fragment as u32);
    }
    if stages & stage::VLAN != 0 {
        mask &= direct_or_absent(direct::VLAN, packet.vlan, 4096);
    }
    if stages & stage::LENGTH != 0 {
        mask &= by_range(range::LENGTH, if length > 65_535 { 65_535 } else { length as u32 });
    }
    if stages & stage::SOURCE != 0 {
        let class = class_of(&maps::SOURCES_V4, &maps::SOURCES_V6, &packet.source);
        mask &= address_mask(class, address_class::UNLISTED_SOURCE);
    }
    if stages & stage::DESTINATION != 0 {
        let class = class_of(&maps::DESTINATIONS_V4, &maps::DESTINATIONS_V6, &packet.destination);
        mask &= address_mask(class, address_class::UNLISTED_DESTINATION);
    }
    if mask == 0 {
        return None;
    }
    let index = match preferred {
        Some(preferred) if mask >> (preferred % 64) & 1 != 0 => preferred % 64,
        _ => mask.trailing_zeros(),
    };
    Some((index, maps::RULES.get(index)?))
}

#[inline(always)]
fn direct_mask(index: u32) -> u64 {
    match maps::DIRECT_MASKS.get(index) {
        Some(mask) => *mask,
        None => 0,
    }
}

/// The mask of a value in a small domain, or that of packets without such a value.
#[inline(always)]
fn direct_or_absent(offset: u32, value: u32, absent: u32) -> u64 {
    direct_mask(offset + if value == ABSENT { absent } else { value })
}

#[inline(always)]
fn by_range(row: u32, value: u32) -> u64 {
    let class = if value == ABSENT {
        range::CLASSES as u32
    } else {
        match maps::RANGE_CLASSES.get(row) {
            Some(classes) => u32::from(classes[value as usize % 65_536]),
            None => return 0,
        }
    };
    match maps::RANGE_MASKS.get(row * range::MASKS + class) {
        Some(mask) => *mask,
        None => 0,
    }
}

#[inline(always)]
fn class_of(
    v4: &'static LpmTrie<[u8; 4], u32, 1>,
    v6: &'static LpmTrie<[u8; 16], u32, 1>,
    address: &Address,
) -> Option<&'static u32> {
    match address.family {
        Family::V4 => v4.get(&Key::new(32, address.v4_octets())),
        Family::V6 => v6.get(&Key::new(128, address.v6_octets())),
    }
}

#[inline(always)]
fn address_mask(class: Option<&u32>, unlisted: u32) -> u64 {
    match maps::ADDRESS_MASKS.get(class.map_or(unlisted, |class| *class)) {
        Some(mask) => *mask,
        None => 0,
    }
}
