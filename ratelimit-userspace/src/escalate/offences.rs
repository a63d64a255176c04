//! Who was blocked before, and how long the next block is.
//!
//! A client has one level, whichever rules it offends. Its first block lasts `block`, and each that follows
//! `factor` times as long, up to `max`, by the terms of the rule that is offended then. A block that is over
//! weighs for as long again as it lasted: then the level falls by one, and the one below weighs for as long as
//! a block of that level lasts.

use std::time::Duration;

use ipnet::IpNet;

use super::table::Table;
use crate::{config::http::Escalate, http::algorithm::Nanos};

/// Clients that are remembered, 80 bytes each.
const CAPACITY: usize = 1 << 16;

/// The highest level. Twice as long each time reaches a year from a second long before it.
const HIGHEST: u32 = 64;

/// All that are remembered.
#[derive(Debug)]
pub(super) struct Offences(Table<IpNet, Record>);

/// A client's.
#[derive(Debug, Default)]
struct Record {
    /// Offences that weighed when the last block began, that one among them; 0: none.
    level: u32,
    /// When the last block ends.
    until: Nanos,
    first: Nanos,
    factor: u32,
    max: Nanos,
}

// === impl Offences ===

impl Offences {
    pub(super) fn new() -> Self {
        Self(Table::new(CAPACITY))
    }

    /// Notes an offence: which one of those that weigh it is, from 1, and for how long it blocks. `None`: the
    /// client is blocked already, and for what was under way before it was nobody is blocked longer.
    pub(super) fn offend(&mut self, client: IpNet, terms: &Escalate, now: Nanos) -> Option<(u32, Duration)> {
        let record = self.0.entry(&client, |record| (record.level_at(now), record.until));
        if now < record.until {
            return None;
        }
        let offence = (record.level_at(now) + 1).min(HIGHEST);
        let (first, max) = (nanos(terms.block), nanos(terms.max));
        *record = Record { level: offence, until: 0, first, factor: terms.factor, max };
        let duration = record.duration(offence);
        record.until = now.saturating_add(duration);
        Some((offence, Duration::from_nanos(duration)))
    }

    /// Forgets a client, and so its level.
    pub(super) fn forget(&mut self, client: IpNet) {
        self.0.forget_near(&client, |known| *known == client);
    }

    /// Forgets all clients of whom this holds.
    pub(super) fn forget_all(&mut self, forgotten: impl Fn(&IpNet) -> bool) {
        self.0.forget(forgotten);
    }

    /// Whether anything is known of a client.
    pub(super) fn knows(&self, client: &IpNet) -> bool {
        self.0.get(client).is_some()
    }
}

// === impl Record ===

impl Record {
    /// How long the block of an offence lasts.
    fn duration(&self, offence: u32) -> Nanos {
        let factor = u64::from(self.factor).saturating_pow(offence.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.max)
    }

    /// Offences that weigh.
    fn level_at(&self, now: Nanos) -> u32 {
        let mut level = self.level;
        let mut quiet = now.saturating_sub(self.until);
        while level > 0 && quiet >= self.duration(level) {
            quiet -= self.duration(level);
            level -= 1;
        }
        level
    }
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
