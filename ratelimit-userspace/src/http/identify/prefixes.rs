//! Which is the longest prefix that holds an address, by binary search.

use std::net::IpAddr;

use ipnet::IpNet;

use super::address::canonical_prefix;

/// Prefixes and what they stand for. Nested ones are cut into ranges that do not overlap, each of which knows
/// its longest prefix.
#[derive(Debug)]
pub(super) struct PrefixTable<T> {
    v4: Box<[(u32, Option<T>)]>,
    v6: Box<[(u128, Option<T>)]>,
}

// === impl PrefixTable ===

impl<T: Copy> PrefixTable<T> {
    pub(super) fn new(prefixes: impl IntoIterator<Item = (IpNet, T)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, value) in prefixes {
            match canonical_prefix(prefix) {
                IpNet::V4(net) => v4.push((u32::from(net.network()), u32::from(net.broadcast()), value)),
                IpNet::V6(net) => v6.push((u128::from(net.network()), u128::from(net.broadcast()), value)),
            }
        }
        let after = |last: u32| last.checked_add(1);
        let after_v6 = |last: u128| last.checked_add(1);
        Self { v4: ranges(v4, after), v6: ranges(v6, after_v6) }
    }

    /// What the longest prefix that holds an address stands for.
    pub(super) fn get(&self, address: IpAddr) -> Option<T> {
        match address.to_canonical() {
            IpAddr::V4(address) => find(&self.v4, &u32::from(address)),
            IpAddr::V6(address) => find(&self.v6, &u128::from(address)),
        }
    }
}

fn find<A: Ord, T: Copy>(ranges: &[(A, Option<T>)], address: &A) -> Option<T> {
    let after = ranges.partition_point(|(start, _)| start <= address);
    after.checked_sub(1).and_then(|index| ranges[index].1)
}

/// Turns prefixes, given by their first and last address, into ranges, given by where they start; each ends
/// where the next starts.
fn ranges<A: Ord + Copy, T: Copy>(
    mut prefixes: Vec<(A, A, T)>,
    after: impl Fn(A) -> Option<A>,
) -> Box<[(A, Option<T>)]> {
    fn push<A: Ord, T>(ranges: &mut Vec<(A, Option<T>)>, start: A, value: Option<T>) {
        ranges.pop_if(|(previous, _)| *previous == start);
        ranges.push((start, value));
    }
    // The outer ones come first.
    prefixes.sort_by_key(|(first, last, _)| (*first, std::cmp::Reverse(*last)));
    let mut ranges = Vec::new();
    let mut open: Vec<(A, T)> = Vec::new();
    let close = |ranges: &mut Vec<_>, open: &mut Vec<(A, T)>, before: Option<A>| {
        while let Some((last, _)) = open.pop_if(|(last, _)| before.is_none_or(|before| *last < before)) {
            if let Some(start) = after(last) {
                push(ranges, start, open.last().map(|(_, value)| *value));
            }
        }
    };
    for (first, last, value) in prefixes {
        close(&mut ranges, &mut open, Some(first));
        push(&mut ranges, first, Some(value));
        open.push((last, value));
    }
    close(&mut ranges, &mut open, None);
    ranges.into_boxed_slice()
}

#[cfg(test)]
mod tests;
