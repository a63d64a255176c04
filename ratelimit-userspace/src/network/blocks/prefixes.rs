//! Blocked prefixes: a trie a family, and the bitmap before it.

use aya::{
    Pod,
    maps::{
        Map, MapData, MapError,
        lpm_trie::{Key, LpmTrie},
    },
};
use ipnet::IpNet;
use ratelimit_common::{
    address::Address,
    blocks::{Prefix, held},
    bucket_table::Cell as _,
    policy::prefilter::{CHUNK_WORDS, CHUNKS},
};

use super::source::net_of;
use crate::network::{
    lists::{
        prefilter::{Prefilter, v4_words, v6_words},
        trie::Node,
    },
    mapping::{Mapping, Word},
};

/// A prefilter in mapped memory.
pub(super) type Filter = Mapping<[Word; CHUNK_WORDS]>;

/// The tries and bitmaps of both families.
#[derive(Debug)]
pub(super) struct Prefixes {
    pub(super) v4: LpmTrie<MapData, [u8; 4], Prefix>,
    pub(super) v6: LpmTrie<MapData, [u8; 16], Prefix>,
    pub(super) filter_v4: Filter,
    pub(super) filter_v6: Filter,
}

// === impl Prefixes ===

impl Prefixes {
    /// The block of exactly this prefix, ended or not.
    pub(super) fn get(&self, net: &IpNet) -> Result<Option<Prefix>, MapError> {
        let node = Node::new(*net, 0);
        let longest = match net {
            IpNet::V4(_) => look_up(&self.v4, node.length.into(), node.v4_octets()),
            IpNet::V6(_) => look_up(&self.v6, node.length.into(), node.v6_octets()),
        }?;
        Ok(longest.filter(|prefix| prefix.length == u32::from(node.length)))
    }

    /// The blocks of all prefixes that cover an address, ended or not, the longest first.
    pub(super) fn covering(&self, address: &Address, bits: u8) -> Result<Vec<(IpNet, Prefix)>, MapError> {
        let mut covering = Vec::new();
        let mut length = u32::from(bits);
        loop {
            let longest = match bits {
                32 => look_up(&self.v4, length, address.v4_octets()),
                _ => look_up(&self.v6, length, address.v6_octets()),
            }?;
            let Some(prefix) = longest else { return Ok(covering) };
            covering.push((net_of(address, prefix.length), prefix));
            match prefix.length.checked_sub(1) {
                Some(shorter) => length = shorter,
                None => return Ok(covering),
            }
        }
    }

    /// All blocks, ended or not.
    pub(super) fn all(&self) -> Result<Vec<(IpNet, Prefix)>, MapError> {
        let v4 = self.v4.iter().map(|entry| {
            entry.map(|(key, prefix)| (net_of(&Address::v4(key.data()), key.prefix_len()), prefix))
        });
        let v6 = self.v6.iter().map(|entry| {
            entry.map(|(key, prefix)| (net_of(&Address::v6(key.data()), key.prefix_len()), prefix))
        });
        v4.chain(v6).collect()
    }

    /// Blocks a prefix, and returns the bit of [`held`] without which it is not looked for.
    pub(super) fn insert(&mut self, net: &IpNet, prefix: Prefix) -> Result<u64, MapError> {
        let node = Node::new(*net, 0);
        // The bits first: where the trie holds nothing, they only cost time.
        match net {
            IpNet::V4(_) => {
                v4_words(&node, |word, bits| set_bits(&self.filter_v4, word, bits));
                self.v4.insert(&Key::new(prefix.length, node.v4_octets()), prefix, 0)?;
                Ok(held::PREFIXES_V4)
            }
            IpNet::V6(_) => {
                let level = v6_words(&node, |word, bits| set_bits(&self.filter_v6, word, bits));
                self.v6.insert(&Key::new(prefix.length, node.v6_octets()), prefix, 0)?;
                Ok(held_at(level))
            }
        }
    }

    /// Unblocks a prefix that is there.
    pub(super) fn remove(&mut self, net: &IpNet) -> Result<(), MapError> {
        let node = Node::new(*net, 0);
        match net {
            IpNet::V4(_) => self.v4.remove(&Key::new(node.length.into(), node.v4_octets())),
            IpNet::V6(_) => self.v6.remove(&Key::new(node.length.into(), node.v6_octets())),
        }
    }

    /// Makes the bitmaps those of these prefixes, and returns the bits of [`held`] for them.
    pub(super) fn rebuild_filters<'a>(&self, nets: impl Iterator<Item = &'a IpNet>) -> u64 {
        let (mut v4, mut v6) = (Prefilter::default(), Prefilter::default());
        let mut held = 0;
        for net in nets {
            let node = Node::new(*net, 0);
            held |= match net {
                IpNet::V4(_) => {
                    v4.insert_v4(&node);
                    held::PREFIXES_V4
                }
                IpNet::V6(_) => held_at(v6.insert_v6(&node)),
            };
        }
        copy(&v4, &self.filter_v4);
        copy(&v6, &self.filter_v6);
        held
    }
}

/// The longest prefix of at most `length` bits that covers an address.
fn look_up<K: Pod>(
    trie: &LpmTrie<MapData, K, Prefix>,
    length: u32,
    octets: K,
) -> Result<Option<Prefix>, MapError> {
    match trie.get(&Key::new(length, octets), 0) {
        Ok(prefix) => Ok(Some(prefix)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A trie from its pin.
pub(super) fn trie<K: Pod>(data: MapData) -> Result<LpmTrie<MapData, K, Prefix>, MapError> {
    LpmTrie::try_from(Map::LpmTrie(data))
}

fn held_at(level: u32) -> u64 {
    match level {
        16 => held::PREFIXES_V6_16,
        32 => held::PREFIXES_V6_32,
        _ => held::PREFIXES_V6_48,
    }
}

fn set_bits(filter: &Filter, word: usize, bits: u64) {
    if let Some(chunk) = filter.get(word / CHUNK_WORDS) {
        chunk[word % CHUNK_WORDS].set_bits(bits);
    }
}

/// Word by word, and only what differs: the program reads meanwhile.
fn copy(from: &Prefilter, to: &Filter) {
    let chunks: Vec<_> = from.chunks().collect();
    for (index, chunk) in (0..CHUNKS).zip(to.iter()) {
        let new = chunks.iter().find(|(other, _)| *other == index).map(|(_, chunk)| *chunk);
        for (place, word) in chunk.iter().enumerate() {
            let bits = new.map_or(0, |new| new[place]);
            if word.read() != bits {
                word.write(bits);
            }
        }
    }
}
