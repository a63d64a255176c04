//! The allow and deny lists, turned into what the XDP program looks sources up in: one trie a family for
//! both lists, and before each a bitmap that most sources end at.

pub mod prefilter;
pub mod trie;

#[cfg(test)]
mod tests;

use ipnet::IpNet;
use ratelimit_common::{
    address::{Address, Family},
    policy::{listed, prefilter as bits, stage},
};

use self::{prefilter::Prefilter, trie::Node};

/// Both lists, compiled. Node values are bits of [`listed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// The list bits of [`stage`] that these lists need.
    pub stages: u64,
    /// Nodes of `listed_v4`.
    pub v4: Vec<Node<u32>>,
    /// Nodes of `listed_v6`.
    pub v6: Vec<Node<u32>>,
    /// Bits of `prefilter_v4`.
    pub prefilter_v4: Prefilter,
    /// Bits of `prefilter_v6`.
    pub prefilter_v6: Prefilter,
}

impl Lists {
    /// Compiles the lists. Entries may repeat and cover one another; an address takes part in both lists
    /// with every entry that covers it.
    ///
    /// [`listed::DENY_EXACT`] is set for single IPv6 addresses only: it is about neighbour discovery,
    /// which IPv4 does not have, and without it a denied address in a denied network needs no node.
    pub fn compile(allow: &[IpNet], deny: &[IpNet]) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        let denied = |prefix: &IpNet| match prefix {
            IpNet::V6(exact) if exact.prefix_len() == 128 => listed::DENY | listed::DENY_EXACT,
            _ => listed::DENY,
        };
        let allow = allow.iter().map(|prefix| (prefix, listed::ALLOW));
        let deny = deny.iter().map(|prefix| (prefix, denied(prefix)));
        for (prefix, bits) in allow.chain(deny) {
            let family = if matches!(prefix, IpNet::V4(_)) { &mut v4 } else { &mut v6 };
            family.push(Node::new(*prefix, bits));
        }

        let mut lists = Self { v4: trie::nodes(v4, 0), v6: trie::nodes(v6, 0), ..Self::default() };
        // The bits of an outermost prefix are those of all addresses that it covers.
        for node in lists.v4.iter().filter(|node| node.outermost) {
            lists.stages |= stage::LISTS_V4;
            lists.prefilter_v4.insert_v4(node);
        }
        for node in lists.v6.iter().filter(|node| node.outermost) {
            let level = match lists.prefilter_v6.insert_v6(node) {
                16 => stage::LISTS_V6_16,
                32 => stage::LISTS_V6_32,
                _ => stage::LISTS_V6_48,
            };
            lists.stages |= stage::LISTS_V6 | level;
        }
        lists
    }

    /// What the XDP program finds for a source: bits of [`listed`].
    pub fn look_up(&self, source: &Address) -> u32 {
        let may_hold = match source.family {
            Family::V4 => self.prefilter_v4.contains(bits::v4_bit(source.high)),
            Family::V6 => [(stage::LISTS_V6_16, 16), (stage::LISTS_V6_32, 32), (stage::LISTS_V6_48, 48)]
                .iter()
                .any(|&(used, level)| {
                    self.stages & used != 0 && self.prefilter_v6.contains(bits::v6_bit(source.high, level))
                }),
        };
        if may_hold { trie::look_up(&self.v4, &self.v6, source).unwrap_or(0) } else { 0 }
    }
}
