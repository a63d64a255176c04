//! Writes a compiled policy into the maps of a generation that is not loaded yet.
//!
//! The maps are new, so they are zero, and only what is not zero is written: each entry is a system call.
//! Those that are shared with the generation before are left alone.

use aya::{
    Ebpf, Pod,
    maps::{
        Array, Map, MapData, MapError,
        lpm_trie::{Key, LpmTrie},
    },
};

use super::{LoadError, share::Shared};
use crate::network::{
    compile::{Addresses, Compiled},
    lists::{Lists, trie::Node},
};

/// The maps of a generation, and which of them hold what they should.
struct Maps<'a> {
    ebpf: &'a mut Ebpf,
    shared: &'a [Shared],
}

pub(super) fn fill(ebpf: &mut Ebpf, compiled: &Compiled, shared: &[Shared]) -> Result<(), LoadError> {
    let Compiled {
        stages: _,
        when_full: _,
        source_bits: _,
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
    let mut maps = Maps { ebpf, shared };
    maps.array("rules", (0..).zip(rules))?;
    maps.array("direct_masks", not_zero(direct_masks))?;
    maps.array("range_classes", range_classes.iter().map(|row| (row.row, &*row.classes)))?;
    maps.array("range_masks", not_zero(range_masks))?;
    maps.array("address_masks", not_zero(address_masks))?;
    let Addresses { v4, v6 } = sources;
    maps.trie("sources_v4", v4, Node::v4_octets)?;
    maps.trie("sources_v6", v6, Node::v6_octets)?;
    let Addresses { v4, v6 } = destinations;
    maps.trie("destinations_v4", v4, Node::v4_octets)?;
    maps.trie("destinations_v6", v6, Node::v6_octets)?;
    let Lists { stages: _, v4, v6, management, prefilter_v4, prefilter_v6 } = lists;
    maps.trie("listed_v4", v4, Node::v4_octets)?;
    maps.trie("listed_v6", v6, Node::v6_octets)?;
    maps.array("management", (0..).zip(management.iter().map(|open| &**open)))?;
    maps.array("prefilter_v4", prefilter_v4.chunks())?;
    maps.array("prefilter_v6", prefilter_v6.chunks())
}

fn not_zero(masks: &[u64]) -> impl Iterator<Item = (u32, &u64)> {
    (0..).zip(masks).filter(|(_, mask)| **mask != 0)
}

impl Maps<'_> {
    fn array<'a, V: Pod>(
        &mut self,
        name: &'static str,
        entries: impl Iterator<Item = (u32, &'a V)>,
    ) -> Result<(), LoadError> {
        let Some(map) = self.unfilled(name)? else { return Ok(()) };
        let fill = |source| LoadError::Fill { map: name, source };
        let mut array: Array<&mut MapData, V> = Array::try_from(map).map_err(fill)?;
        for (index, value) in entries {
            array.set(index, value, 0).map_err(fill)?;
        }
        Ok(())
    }

    fn trie<K: Pod>(
        &mut self,
        name: &'static str,
        nodes: &[Node<u32>],
        octets: impl Fn(&Node<u32>) -> K,
    ) -> Result<(), LoadError> {
        let Some(map) = self.unfilled(name)? else { return Ok(()) };
        let fill = |source: MapError| LoadError::Fill { map: name, source };
        let mut trie: LpmTrie<&mut MapData, K, u32> = LpmTrie::try_from(map).map_err(fill)?;
        for node in nodes {
            trie.insert(&Key::new(node.length.into(), octets(node)), node.bits, 0).map_err(fill)?;
        }
        Ok(())
    }

    /// The map of this name, unless it was found filled.
    fn unfilled(&mut self, name: &'static str) -> Result<Option<&mut Map>, LoadError> {
        if self.shared.iter().any(|shared| shared.map == name && shared.found) {
            return Ok(None);
        }
        self.ebpf.map_mut(name).map(Some).ok_or(LoadError::Object { kind: "map", name })
    }
}
