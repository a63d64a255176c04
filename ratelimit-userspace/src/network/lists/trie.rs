//! Prefixes -> the nodes of a longest-prefix trie.
//!
//! A longest-prefix look-up ends at one node, but everything said about a shorter covering prefix holds
//! as well, so each node carries the union over all prefixes that cover it. A node that would say the
//! same as the look-up without it is left out: a deny list is often full of such prefixes.

use std::ops::BitOr;

use ipnet::IpNet;
use ratelimit_common::address::{Address, Family};

/// A prefix and the bits that hold for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node<B> {
    /// The address from the top of the word, in both families; bits after `length` are zero.
    pub network: u128,
    /// How many bits of `network` count.
    pub length: u8,
    /// No other node covers this one. (Sorts after `length`, and is set by [`nodes`].)
    pub outermost: bool,
    /// What holds for the addresses under this prefix.
    pub bits: B,
}

impl<B> Node<B> {
    /// A node for one prefix.
    pub fn new(prefix: IpNet, bits: B) -> Self {
        let network = match prefix.network() {
            std::net::IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            std::net::IpAddr::V6(address) => address.to_bits(),
        };
        Self { network, length: prefix.prefix_len(), outermost: false, bits }
    }

    /// The same prefix, with something else that holds for it.
    pub fn map<C>(self, convert: impl FnOnce(B) -> C) -> Node<C> {
        let Self { network, length, outermost, bits } = self;
        Node { network, length, outermost, bits: convert(bits) }
    }

    /// The key's octets in an IPv4 trie.
    pub fn v4_octets(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.network.to_be_bytes();
        [a, b, c, d]
    }

    /// The key's octets in an IPv6 trie.
    pub fn v6_octets(&self) -> [u8; 16] {
        self.network.to_be_bytes()
    }

    /// The first 64 bits, as [`Address::high`].
    pub fn high(&self) -> u64 {
        (self.network >> 64) as u64
    }

    fn last(&self) -> u128 {
        self.network | u128::MAX.checked_shr(self.length.into()).unwrap_or(0)
    }
}

/// The nodes that a trie needs so that each address meets the union of the `entries` that cover it, in
/// order of address, then length. Of addresses that no node covers, `outside` holds.
pub fn nodes<B>(mut entries: Vec<Node<B>>, outside: B) -> Vec<Node<B>>
where
    B: BitOr<Output = B> + Copy + Ord,
{
    // Covering prefixes come before what they cover, so the ones that cover the current entry are a stack.
    entries.sort_unstable();
    let mut covering: Vec<(u128, B)> = Vec::new();
    let mut kept: Vec<Node<B>> = Vec::new();
    let mut entries = entries.into_iter().peekable();
    while let Some(mut node) = entries.next() {
        while let Some(same) =
            entries.next_if(|next| (next.network, next.length) == (node.network, node.length))
        {
            node.bits = node.bits | same.bits;
        }
        while covering.pop_if(|(last, _)| *last < node.network).is_some() {}
        let above = covering.last().map_or(outside, |(_, bits)| *bits);
        node.bits = node.bits | above;
        if node.bits != above {
            node.outermost = covering.is_empty();
            covering.push((node.last(), node.bits));
            kept.push(node);
        }
    }
    kept
}

/// What a trie of these nodes answers: the bits of the longest prefix that covers the address.
///
/// Walks all nodes: it says what the kernel's trie does, for tests and for explaining a verdict.
pub fn look_up<B: Copy>(v4: &[Node<B>], v6: &[Node<B>], address: &Address) -> Option<B> {
    let (nodes, value) = match address.family {
        Family::V4 => (v4, u128::from(address.high) << 64),
        Family::V6 => (v6, (u128::from(address.high) << 64) | u128::from(address.low)),
    };
    nodes
        .iter()
        .filter(|node| node.network <= value && value <= node.last())
        .max_by_key(|node| node.length)
        .map(|node| node.bits)
}
