//! The allow, management and deny lists, turned into what the XDP program looks sources up in: one trie a
//! family for all of them, and before each a bitmap that most sources end at.
//!
//! A management entry holds for some ports alone. A node that such entries cover says which class of ports
//! is open to its sources: the union over those entries, as one bitmap.

pub mod prefilter;
pub mod trie;

#[cfg(test)]
mod tests;

use std::{array, ops::BitOr};

use ipnet::IpNet;
use ratelimit_common::{
    address::{Address, Family},
    packet::Packet,
    policy::{MAX_MANAGEMENT, listed, ports, prefilter as bits, stage},
    record::Reason,
};

use self::{prefilter::Prefilter, trie::Node};
use crate::config::policy::Management;

/// The lists, compiled. Node values are bits of [`listed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// The list bits of [`stage`] that these lists need.
    pub stages: u64,
    /// Nodes of `listed_v4`.
    pub v4: Vec<Node<u32>>,
    /// Nodes of `listed_v6`.
    pub v6: Vec<Node<u32>>,
    /// `management`, by class.
    pub management: Vec<Box<Ports>>,
    /// Bits of `prefilter_v4`.
    pub prefilter_v4: Prefilter,
    /// Bits of `prefilter_v6`.
    pub prefilter_v6: Prefilter,
}

/// The ports on which sources are never shed, one bit each.
pub type Ports = [u64; ports::WORDS];

/// What entries say of the addresses that they cover: bits of [`listed`], then one bit for each of up to 64
/// management entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Marks([u32; 3]);

const _: () = assert!(MAX_MANAGEMENT == 64);

// === impl Lists ===

impl Lists {
    /// Compiles the lists. Entries may repeat and cover one another; an address takes part in all lists
    /// with every entry that covers it. Of management entries, the first [`MAX_MANAGEMENT`] count.
    ///
    /// [`listed::DENY_EXACT`] is set for single IPv6 addresses only: it is about neighbour discovery,
    /// which IPv4 does not have, and without it a denied address in a denied network needs no node.
    pub fn compile(allow: &[IpNet], management: &[Management], deny: &[IpNet]) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        let denied = |prefix: &IpNet| match prefix {
            IpNet::V6(exact) if exact.prefix_len() == 128 => listed::DENY | listed::DENY_EXACT,
            _ => listed::DENY,
        };
        let allow = allow.iter().map(|prefix| (prefix, Marks::list(listed::ALLOW)));
        let deny = deny.iter().map(|prefix| (prefix, Marks::list(denied(prefix))));
        let entries = (0..MAX_MANAGEMENT).zip(management);
        let managed = entries.map(|(index, entry)| (&entry.prefix, Marks::management(index)));
        for (prefix, marks) in allow.chain(managed).chain(deny) {
            let family = if matches!(prefix, IpNet::V4(_)) { &mut v4 } else { &mut v6 };
            family.push(Node::new(*prefix, marks));
        }

        let mut classes = Vec::new();
        let mut nodes = |entries| {
            let nodes = trie::nodes(entries, Marks::default()).into_iter();
            nodes.map(|node| node.map(|marks| marks.bits(&mut classes))).collect()
        };
        let mut lists = Self { v4: nodes(v4), v6: nodes(v6), ..Self::default() };
        lists.management = classes.into_iter().map(|class| open_ports(management, class)).collect();
        if !lists.management.is_empty() {
            lists.stages |= stage::MANAGEMENT;
        }
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

    /// Whether a source with these bits is never shed on a port.
    pub fn is_management(&self, bits: u32, port: u32) -> bool {
        let Some((word, bit)) = ports::bit(port).filter(|_| bits & listed::MANAGEMENT != 0) else {
            return false;
        };
        let open = self.management.get(listed::management_class(bits) as usize);
        open.is_some_and(|open| open[word] >> bit & 1 != 0)
    }

    /// What the lists alone make of a packet, as the XDP program goes through them; `None`: the packet goes
    /// on to the blocks and the rules.
    pub fn judge(&self, packet: &Packet) -> Option<Reason> {
        let bits = self.look_up(&packet.source);
        let denied = if packet.neighbour { listed::DENY_EXACT } else { listed::DENY };
        if bits & listed::ALLOW != 0 {
            Some(Reason::Allowed)
        } else if self.is_management(bits, packet.destination_port) {
            Some(Reason::Management)
        } else if bits & denied != 0 {
            Some(Reason::Denied)
        } else {
            None
        }
    }
}

/// The ports of all management entries of a class.
fn open_ports(management: &[Management], class: u64) -> Box<Ports> {
    let mut open = Box::new([0; ports::WORDS]);
    let entries = management.iter().enumerate().take(MAX_MANAGEMENT);
    for (_, entry) in entries.filter(|(index, _)| class >> index & 1 != 0) {
        for port in entry.ports.iter().cloned().flatten() {
            if let Some((word, bit)) = ports::bit(port.into()) {
                open[word] |= 1 << bit;
            }
        }
    }
    open
}

// === impl Marks ===

impl Marks {
    fn list(bits: u32) -> Self {
        Self([bits, 0, 0])
    }

    fn management(index: usize) -> Self {
        let mut marks = Self([listed::MANAGEMENT, 0, 0]);
        marks.0[1 + index / 32] = 1 << (index % 32);
        marks
    }

    /// The bits of [`listed`], with the class of the management entries among `classes`, where it is put if
    /// it is new.
    fn bits(self, classes: &mut Vec<u64>) -> u32 {
        let Self([bits, low, high]) = self;
        let mask = u64::from(high) << 32 | u64::from(low);
        if mask == 0 {
            return bits;
        }
        let known = classes.iter().position(|class| *class == mask).unwrap_or_else(|| {
            classes.push(mask);
            classes.len() - 1
        });
        // Prefixes that cover one another are a tree, so there are no more classes than entries.
        let class = u32::try_from(known).unwrap_or(u32::MAX);
        bits | class << listed::CLASS_SHIFT
    }
}

impl BitOr for Marks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(array::from_fn(|word| self.0[word] | other.0[word]))
    }
}
