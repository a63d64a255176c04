//! The bitmaps that stand before the tries of the allow and deny lists.

use std::fmt;

use ratelimit_common::policy::prefilter::{self, CHUNK_WORDS, CHUNKS};

use super::trie::Node;

/// One map value: 65,536 bits.
pub type Chunk = [u64; CHUNK_WORDS];

#[expect(clippy::cast_possible_truncation, reason = "it is 65,536")]
const CHUNK_BITS: u32 = (CHUNK_WORDS * 64) as u32;

/// A bitmap of 2^24 bits. Chunks without a bit are not stored, and not written to the kernel either.
#[derive(Clone, PartialEq, Eq)]
pub struct Prefilter {
    chunks: Vec<Option<Box<Chunk>>>,
}

impl Default for Prefilter {
    fn default() -> Self {
        Self { chunks: vec![None; CHUNKS as usize] }
    }
}

impl fmt::Debug for Prefilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits: u32 = self.chunks().flat_map(|(_, chunk)| chunk).map(|word| word.count_ones()).sum();
        f.debug_struct("Prefilter").field("bits", &bits).finish_non_exhaustive()
    }
}

impl Prefilter {
    /// The chunks that have a bit set, with their indexes.
    pub fn chunks(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        (0..).zip(&self.chunks).filter_map(|(index, chunk)| Some((index, chunk.as_deref()?)))
    }

    /// Whether a bit is set.
    pub fn contains(&self, bit: u32) -> bool {
        let chunk = self.chunks.get((bit / CHUNK_BITS) as usize).and_then(Option::as_deref);
        chunk.is_some_and(|chunk| chunk[(bit / 64) as usize % CHUNK_WORDS] >> (bit % 64) & 1 != 0)
    }

    /// Sets the bits of all /24s that share an address with an IPv4 prefix.
    pub fn insert_v4<B>(&mut self, node: &Node<B>) {
        v4_words(node, |word, bits| self.insert(word, bits));
    }

    /// Sets the bits of an IPv6 prefix at the level of its length, which it returns: 16, 32 or 48.
    pub fn insert_v6<B>(&mut self, node: &Node<B>) -> u32 {
        v6_words(node, |word, bits| self.insert(word, bits))
    }

    fn insert(&mut self, word: usize, bits: u64) {
        let chunk = self.chunks[word / CHUNK_WORDS].get_or_insert_with(|| Box::new([0; CHUNK_WORDS]));
        chunk[word % CHUNK_WORDS] |= bits;
    }
}

/// The words of a bitmap, and their bits, for all /24s that share an address with an IPv4 prefix.
pub fn v4_words<B>(node: &Node<B>, mut set: impl FnMut(usize, u64)) {
    let first = prefilter::v4_bit(node.high());
    let (mut bit, end) = (first, first + (1 << 24_u32.saturating_sub(node.length.into())));
    while bit < end {
        let upto = end.min((bit / 64 + 1) * 64);
        let ones = u64::MAX >> (64 - (upto - bit));
        set((bit / 64) as usize, ones << (bit % 64));
        bit = upto;
    }
}

/// The same for an IPv6 prefix, at the level of its length, which it returns: 16, 32 or 48.
pub fn v6_words<B>(node: &Node<B>, mut set: impl FnMut(usize, u64)) -> u32 {
    let level = match node.length {
        0..32 => 16,
        32..48 => 32,
        48.. => 48,
    };
    // A prefix that is shorter than its level is all values of the bits in between.
    let expansions = 1_u64 << 16_u32.saturating_sub(node.length.into());
    for value in 0..expansions {
        let bit = prefilter::v6_bit(node.high() | (value << 48), level);
        set((bit / 64) as usize, 1 << (bit % 64));
    }
    level
}
