//! The dimensions of a packet: for each value, the mask of the rules that accept it.
//!
//! A rule without a condition on a dimension accepts every value, also an absent one. A rule with a
//! condition accepts the values that it lists, and an absent one only where the condition can ask for
//! that (`vlan: untagged`).

use std::{collections::HashMap, hash::Hash, ops::RangeInclusive};

use ipnet::IpNet;
use ratelimit_common::policy::{address_class, range};

use super::CompileError;
use crate::{
    config::policy::{Match, Rule},
    network::lists::trie::{self, Node},
};

/// The values of a range dimension: ports, and lengths up to the last one.
const VALUES: usize = 1 << 16;

/// One row of `range_classes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeClasses {
    /// The row: one of [`range`].
    pub row: u32,
    /// 65,536 classes, by value.
    pub classes: Box<[u8; VALUES]>,
}

/// One dimension of addresses: the nodes of its two tries, with indexes into `address_masks`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Nodes of the IPv4 trie.
    pub v4: Vec<Node<u32>>,
    /// Nodes of the IPv6 trie.
    pub v6: Vec<Node<u32>>,
}

/// Picks a dimension's condition.
type Condition<T> = fn(&Match) -> &Option<Vec<T>>;

/// The rules with the bit and the condition of each.
fn conditions<'a, T: 'a>(
    rules: &'a [Rule],
    condition: Condition<T>,
) -> impl Iterator<Item = (u64, Option<&'a [T]>)> {
    rules.iter().enumerate().map(move |(index, rule)| (1 << index, condition(&rule.matches).as_deref()))
}

/// The rules without a condition: they accept whatever a packet has, or has not.
fn indifferent<T>(rules: &[Rule], condition: Condition<T>) -> u64 {
    conditions(rules, condition).filter(|(_, values)| values.is_none()).fold(0, |mask, (bit, _)| mask | bit)
}

/// Whether some rule has a condition: only then is the dimension looked at.
pub(super) fn is_used<T>(rules: &[Rule], condition: Condition<T>) -> bool {
    conditions(rules, condition).any(|(_, values)| values.is_some())
}

/// Fills a block of `direct_masks`, unless the dimension is unused; `indexes` are the entries that one
/// value of a condition accepts.
pub(super) fn fill_direct<T, I>(
    rules: &[Rule],
    condition: Condition<T>,
    block: &mut [u64],
    indexes: impl Fn(&T) -> I,
) where
    I: IntoIterator<Item = u32>,
{
    if !is_used(rules, condition) {
        return;
    }
    block.fill(indifferent(rules, condition));
    for (bit, values) in conditions(rules, condition) {
        for index in values.into_iter().flatten().flat_map(&indexes) {
            // A value that the field cannot hold is one that no packet has.
            if let Some(mask) = block.get_mut(index as usize) {
                *mask |= bit;
            }
        }
    }
}

/// Compiles a range dimension into a row of classes and the block of `range_masks` that belongs to it,
/// unless it is unused.
pub(super) fn ranges<T: Copy + Into<u32>>(
    rules: &[Rule],
    condition: Condition<RangeInclusive<T>>,
    (row, name): (u32, &'static str),
    block: &mut [u64],
) -> Result<Option<RangeClasses>, CompileError> {
    if !is_used(rules, condition) {
        return Ok(None);
    }
    let absent = indifferent(rules, condition);
    let mut masks = vec![absent; VALUES];
    for (bit, ranges) in conditions(rules, condition) {
        let Some(ranges) = ranges else { continue };
        // How many ranges begin at a value, less those that ended just before it.
        let mut edges = vec![0_i32; VALUES + 1];
        for range in ranges {
            let clamp = |value: T| (value.into() as usize).min(VALUES - 1);
            let (first, last) = (clamp(*range.start()), clamp(*range.end()));
            if first <= last {
                edges[first] += 1;
                edges[last + 1] -= 1;
            }
        }
        let mut open = 0;
        for (mask, edge) in masks.iter_mut().zip(edges) {
            open += edge;
            if open > 0 {
                *mask |= bit;
            }
        }
    }

    let (block, rest) = block.split_at_mut(range::CLASSES);
    rest.fill(absent);
    let mut interner = Interner::default();
    #[expect(clippy::cast_possible_truncation, reason = "refused below when there are more than 256")]
    let classes: Box<[u8]> = masks.into_iter().map(|mask| interner.index(mask) as u8).collect();
    let Some(used) = block.get_mut(..interner.values.len()) else {
        return Err(CompileError::TooManyClasses { dimension: name, classes: interner.values.len() });
    };
    used.copy_from_slice(&interner.values);
    let classes = classes.try_into().expect("there is a class for each of the values");
    Ok(Some(RangeClasses { row, classes }))
}

/// Compiles an address dimension; the masks of its nodes are added to `masks`, which follow on
/// [`address_class::FIRST`]. The mask of addresses that no prefix covers is returned.
pub(super) fn addresses(
    rules: &[Rule],
    condition: Condition<IpNet>,
    masks: &mut Interner<u64>,
) -> (Addresses, u64) {
    let outside = indifferent(rules, condition);
    let mut v4 = Vec::new();
    let mut v6 = Vec::new();
    for (bit, prefixes) in conditions(rules, condition) {
        for prefix in prefixes.into_iter().flatten() {
            let family = if matches!(prefix, IpNet::V4(_)) { &mut v4 } else { &mut v6 };
            family.push(Node::new(*prefix, bit));
        }
    }
    let mut classify = |entries| {
        let nodes = trie::nodes(entries, outside).into_iter();
        nodes.map(|node| node.map(|mask| address_class::FIRST + masks.index(mask))).collect()
    };
    (Addresses { v4: classify(v4), v6: classify(v6) }, outside)
}

/// Gives equal values the same index.
#[derive(Debug, Default)]
pub(super) struct Interner<T> {
    indexes: HashMap<T, u32>,
    next: u32,
    /// The values by index.
    pub(super) values: Vec<T>,
}

impl<T: Copy + Eq + Hash> Interner<T> {
    pub(super) fn index(&mut self, value: T) -> u32 {
        *self.indexes.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.next += 1;
            self.next - 1
        })
    }
}
