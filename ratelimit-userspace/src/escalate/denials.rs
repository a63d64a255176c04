//! How often which rule denied whom of late.
//!
//! A window is counted in [`SEGMENTS`] parts. Nothing older than the window counts, and of its oldest part up
//! to a whole segment does not count any more: a client that is denied `after` times within 31/32 of the window
//! is found for certain, one that is denied less often within the whole window never is.

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

use ipnet::IpNet;

use super::table::Table;
use crate::{config::http::Escalate, http::algorithm::Nanos};

/// Parts of a window.
const SEGMENTS: usize = 32;
/// Clients and rules that are counted at a time, 120 bytes each.
const CAPACITY: usize = 1 << 16;

/// The counts of all clients.
#[derive(Debug)]
pub(super) struct Denials(Table<Key, Window>);

/// Who is denied by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    client: IpNet,
    rule: u64,
}

/// A sliding window.
#[derive(Debug, Default)]
struct Window {
    segments: [u16; SEGMENTS],
    /// The number of the newest segment since the clock began.
    newest: u64,
    /// Nanoseconds of a segment.
    length: Nanos,
    /// Denials that are too many.
    after: u16,
}

// === impl Denials ===

impl Denials {
    pub(super) fn new() -> Self {
        Self(Table::new(CAPACITY))
    }

    /// Counts a denial; whether it is one too many. Then the client begins anew.
    pub(super) fn count(&mut self, client: IpNet, rule: u64, terms: &Escalate, now: Nanos) -> bool {
        let window = self.0.entry(&Key { client, rule }, |window| window.weight(now));
        window.follow(terms, now);
        window.add();
        let too_many = window.sum() >= u32::from(terms.after);
        if too_many {
            *window = Window::default();
        }
        too_many
    }

    /// Forgets a client.
    pub(super) fn forget(&mut self, client: IpNet) {
        self.0.forget_near(&Key { client, rule: 0 }, |key| key.client == client);
    }

    /// Forgets all clients of whom this holds.
    pub(super) fn forget_all(&mut self, forgotten: impl Fn(&IpNet) -> bool) {
        self.0.forget(|key| forgotten(&key.client));
    }
}

// === impl Key ===

/// By the client alone: what all rules know of one is in its places, where it is found again.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.client.hash(state);
    }
}

// === impl Window ===

impl Window {
    /// Moves on to `now`. Other terms begin a new window.
    fn follow(&mut self, terms: &Escalate, now: Nanos) {
        let length = segment(terms.within);
        if self.length != length {
            *self = Self { length, newest: now / length, ..Self::default() };
        }
        self.after = terms.after;
        // A clock of another processor may lag behind.
        let now = (now / length).max(self.newest);
        for passed in (self.newest + 1..=now).take(SEGMENTS) {
            self.segments[slot(passed)] = 0;
        }
        if now - self.newest > SEGMENTS as u64 {
            self.segments = [0; SEGMENTS];
        }
        self.newest = now;
    }

    fn add(&mut self) {
        let segment = &mut self.segments[slot(self.newest)];
        *segment = segment.saturating_add(1);
    }

    fn sum(&self) -> u32 {
        self.segments.iter().map(|count| u32::from(*count)).sum()
    }

    /// How near it is to too many, and how new. What is over weighs nothing.
    fn weight(&self, now: Nanos) -> (u64, Nanos) {
        let end = (self.newest + SEGMENTS as u64).saturating_mul(self.length);
        if now >= end {
            return (0, 0);
        }
        (u64::from(self.sum()) * 0x1_0000 / u64::from(self.after.max(1)), end)
    }
}

fn segment(within: Duration) -> Nanos {
    u64::try_from(within.as_nanos()).unwrap_or(u64::MAX) / SEGMENTS as u64
}

fn slot(segment: u64) -> usize {
    usize::try_from(segment % SEGMENTS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests;
