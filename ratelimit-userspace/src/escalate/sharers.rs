//! Which identities live behind an address: known secrets that requests from there came with.
//!
//! Behind an address with several of them is more than one client, of which one offends. Each is a fingerprint
//! of 32 bits, remembered for a day after it was last seen; of more than [`MOST`] the one that was seen least
//! recently gives way.

use ipnet::IpNet;

use super::table::Table;
use crate::http::algorithm::Nanos;

/// Identities of an address that are told apart: what a rule may ask for at most.
const MOST: usize = 8;
/// Addresses that are remembered, 110 bytes each.
const CAPACITY: usize = 1 << 16;
const MINUTE: Nanos = 60_000_000_000;
/// After so many minutes nobody lives there any more.
const REMEMBERED: u32 = 24 * 60;

/// Those of all addresses.
#[derive(Debug)]
pub(super) struct Sharers(Table<IpNet, Identities>);

/// Those of one address.
#[derive(Debug, Default)]
struct Identities([Seen; MOST]);

/// An identity, and the minute in which it was last seen; 0: there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fingerprint: u32,
    minute: u32,
}

// === impl Sharers ===

impl Sharers {
    pub(super) fn new() -> Self {
        Self(Table::new(CAPACITY))
    }

    /// An identity came from an address.
    pub(super) fn note(&mut self, client: IpNet, identity: u64, now: Nanos) {
        let minute = minute(now);
        let identities = self.0.entry(&client, |identities| identities.weight(minute));
        identities.note(fingerprint(identity), minute);
    }

    /// How many live behind an address.
    pub(super) fn count(&self, client: &IpNet, now: Nanos) -> usize {
        self.0.get(client).map_or(0, |identities| identities.count(minute(now)))
    }
}

// === impl Identities ===

impl Identities {
    fn note(&mut self, fingerprint: u32, minute: u32) {
        let known = |seen: &Seen| seen.minute != 0 && seen.fingerprint == fingerprint;
        let oldest = || (0..MOST).min_by_key(|index| self.0[*index].minute);
        let place = self.0.iter().position(known).or_else(oldest).unwrap_or_default();
        self.0[place] = Seen { fingerprint, minute: minute.max(1) };
    }

    fn count(&self, minute: u32) -> usize {
        let live = |seen: &&Seen| seen.minute != 0 && minute.saturating_sub(seen.minute) < REMEMBERED;
        self.0.iter().filter(live).count()
    }

    /// An address with many identities weighs more, and among equals one that was seen later.
    fn weight(&self, minute: u32) -> (usize, u32) {
        (self.count(minute), self.0.iter().map(|seen| seen.minute).max().unwrap_or_default())
    }
}

fn fingerprint(identity: u64) -> u32 {
    u32::try_from(identity >> 32).unwrap_or_default()
}

fn minute(now: Nanos) -> u32 {
    u32::try_from(now / MINUTE).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
