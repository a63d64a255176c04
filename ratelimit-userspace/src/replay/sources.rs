//! The sources that sent the most, in bounded memory.

use std::{collections::HashMap, net::IpAddr};

/// Sources that are told apart exactly; beyond that the counts of rare ones are folded away.
const KEPT: usize = 8192;

/// What one source sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Packets that were or would be dropped.
    pub dropped: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// Frequent items by the algorithm of Misra and Gries (1982), decremented in batches: exact up to
/// 8,192 sources; beyond, no source that sent more than [`Sources::error`] packets is missing, and a
/// listed one may have sent up to that many more than told.
#[derive(Debug, Default)]
pub struct Sources {
    /// With each source its weight, which decides who stays.
    entries: HashMap<IpAddr, (u64, Sent)>,
    error: u64,
}

// === impl Sources ===

impl Sources {
    /// Counts one packet.
    pub fn count(&mut self, source: IpAddr, bytes: u32, dropped: bool) {
        let (weight, sent) = self.entries.entry(source).or_default();
        *weight += 1;
        sent.packets += 1;
        sent.dropped += u64::from(dropped);
        sent.bytes += u64::from(bytes);
        if self.entries.len() >= 2 * KEPT {
            self.fold();
        }
    }

    /// Packets by which a count may be too low; 0 as long as everything is exact.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// The sources with the most dropped packets, then the most packets, then by address.
    pub fn top(&self, count: usize) -> Vec<(IpAddr, Sent)> {
        let mut all: Vec<_> = self.entries.iter().map(|(address, (_, sent))| (*address, *sent)).collect();
        all.sort_by_key(|(address, sent)| {
            (std::cmp::Reverse(sent.dropped), std::cmp::Reverse(sent.packets), *address)
        });
        all.truncate(count);
        all
    }

    /// Takes the weight of the heaviest source that has to go from every source.
    fn fold(&mut self) {
        let mut weights: Vec<u64> = self.entries.values().map(|(weight, _)| *weight).collect();
        weights.select_nth_unstable_by(KEPT, |a, b| b.cmp(a));
        let cut = weights[KEPT];
        self.entries.retain(|_, (weight, _)| {
            *weight = weight.saturating_sub(cut);
            *weight > 0
        });
        self.error += cut;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn few_sources_are_counted_exactly_and_ranked_by_drops() {
        let mut sources = Sources::default();
        for packet in 0..100 {
            sources.count(address(1), 60, packet < 10);
            sources.count(address(2), 1500, packet < 20);
        }
        sources.count(address(3), 60, false);
        assert_eq!(sources.error(), 0);
        let top = sources.top(2);
        assert_eq!(top[0], (address(2), Sent { packets: 100, dropped: 20, bytes: 150_000 }));
        assert_eq!(top[1], (address(1), Sent { packets: 100, dropped: 10, bytes: 6000 }));
    }

    #[test]
    fn a_spray_of_sources_neither_grows_memory_nor_hides_the_heavy_one() {
        let mut sources = Sources::default();
        for packet in 0..200_000 {
            sources.count(address(1000 + packet), 60, true);
            if packet % 10 == 0 {
                sources.count(address(1), 60, true);
            }
        }
        assert!(sources.entries.len() < 2 * KEPT);
        let (heaviest, sent) = sources.top(1)[0];
        assert_eq!(heaviest, address(1));
        assert!(sent.packets <= 20_000 && sent.packets + sources.error() >= 20_000);
    }
}
