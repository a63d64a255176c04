//! Writes a compiled policy into the maps of a generation that is not loaded yet.
//!
//! The maps are new, so they are zero, and only what is not zero is written: each entry is a system call.

use aya::{
    Ebpf, Pod,
    maps::{
        Array, Map, MapData, MapError,
        lpm_trie::{Key, LpmTrie},
    },
};

use super::LoadError;
use crate::network::{
    compile::{Addresses, Compiled},
    lists::{Lists, trie::Node},
};

pub(super) fn fill(ebpf: &mut Ebpf, compiled: &Compiled) -> Result<(), LoadError> {
    let Compiled {
        stages: _,
        when_full: _,
        rules,
        direct_masks,
        range_classes,
        range_masks,
        address_masks,
        sources,
        destinations,
        lists,
        descriptions: _,
    } = compiled;
    fill_array(ebpf, "rules", (0..).zip(rules))?;
    fill_array(ebpf, "direct_masks", not_zero(direct_masks))?;
    fill_array(ebpf, "range_classes", range_classes.iter().map(|row| (row.row, &*row.classes)))?;
    fill_array(ebpf, "range_masks", not_zero(range_masks))?;
    fill_array(ebpf, "address_masks", not_zero(address_masks))?;
    let Addresses { v4, v6 } = sources;
    fill_trie(ebpf, "sources_v4", v4, Node::v4_octets)?;
    fill_trie(ebpf, "sources_v6", v6, Node::v6_octets)?;
    let Addresses { v4, v6 } = destinations;
    fill_trie(ebpf, "destinations_v4", v4, Node::v4_octets)?;
    fill_trie(ebpf, "destinations_v6", v6, Node::v6_octets)?;
    let Lists { stages: _, v4, v6, prefilter_v4, prefilter_v6 } = lists;
    fill_trie(ebpf, "listed_v4", v4, Node::v4_octets)?;
    fill_trie(ebpf, "listed_v6", v6, Node::v6_octets)?;
    fill_array(ebpf, "prefilter_v4", prefilter_v4.chunks())?;
    fill_array(ebpf, "prefilter_v6", prefilter_v6.chunks())
}

fn not_zero(masks: &[u64]) -> impl Iterator<Item = (u32, &u64)> {
    (0..).zip(masks).filter(|(_, mask)| **mask != 0)
}

fn fill_array<'a, V: Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
    entries: impl Iterator<Item = (u32, &'a V)>,
) -> Result<(), LoadError> {
    let mut array: Array<&mut MapData, V> =
        Array::try_from(map(ebpf, name)?).map_err(|source| LoadError::Fill { map: name, source })?;
    for (index, value) in entries {
        array.set(index, value, 0).map_err(|source| LoadError::Fill { map: name, source })?;
    }
    Ok(())
}

fn fill_trie<K: Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
    nodes: &[Node<u32>],
    octets: impl Fn(&Node<u32>) -> K,
) -> Result<(), LoadError> {
    let fill = |source: MapError| LoadError::Fill { map: name, source };
    let mut trie: LpmTrie<&mut MapData, K, u32> = LpmTrie::try_from(map(ebpf, name)?).map_err(fill)?;
    for node in nodes {
        trie.insert(&Key::new(node.length.into(), octets(node)), node.bits, 0).map_err(fill)?;
    }
    Ok(())
}

fn map<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, LoadError> {
    ebpf.map_mut(name).ok_or(LoadError::Object { kind: "map", name })
}
