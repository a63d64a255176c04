//! Reservations: a request is charged what it may cost, and later what it did cost.
//!
//! Pure: it says what to charge or give back, and its caller does so. A correction is what the difference
//! still counts: a charge that has left its window since then, or drained from its bucket, is not given
//! back a second time. Each reservation is corrected once: by its commit, or when it expires.

use std::{
    collections::{BTreeSet, HashMap},
    fmt, mem,
    str::FromStr,
    sync::Arc,
};

use super::{
    algorithm::{Meter, Nanos},
    ask::{Answer, Ask, Status},
    clock::Now,
};

/// Reservations that are remembered at most, those included that are settled.
pub const MAX_RESERVATIONS: usize = 65_536;

/// Bytes that they take at most, all together.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How long a settled reservation is remembered at least, so that a repeated commit is recognised.
pub const REMEMBERED: Nanos = 60_000_000_000;

/// What a reservation is called: random, so that only who made it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u128);

/// A text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has 32 hexadecimal digits")]
pub struct InvalidId;

/// No room for another reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many reservations are open; commit them, or wait until some expire")]
pub struct Full;

/// Why a commit does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// There is no such reservation, or no longer.
    #[error("no reservation has this id; it may have expired, then it was given back whole")]
    Unknown,
    /// It was committed with other hits.
    #[error("this reservation was committed before, with {committed} hits")]
    Conflict {
        /// Those hits.
        committed: u64,
    },
}

/// A settled reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// Hits that were reserved.
    pub reserved: u64,
    /// What is to be charged (or, where negative, given back) now. `None`: nothing, it was committed
    /// before.
    pub correction: Option<Ask<'static>>,
}

/// All reservations.
#[derive(Debug, Default)]
pub struct Reservations {
    by_id: HashMap<Id, Reservation>,
    deadlines: BTreeSet<(Nanos, Id)>,
    bytes: usize,
}

#[derive(Debug)]
struct Reservation {
    ask: Ask<'static>,
    /// For each descriptor, what it was charged by.
    charges: Vec<Option<Charge>>,
    hits: u64,
    made: Now,
    expires: Nanos,
    committed: Option<u64>,
    bytes: usize,
}

/// How one descriptor was charged.
#[derive(Debug)]
struct Charge {
    meter: Arc<Meter>,
    /// Units that one hit costs.
    cost: u64,
    /// Units that counted before.
    before: u64,
}

// === impl Reservations ===

impl Reservations {
    /// Whether one more for this ask has room. To be asked before the ask is charged.
    pub fn room(&self, ask: &Ask<'_>) -> Result<(), Full> {
        let fits = self.by_id.len() < MAX_RESERVATIONS && self.bytes.saturating_add(bytes(ask)) <= MAX_BYTES;
        if fits { Ok(()) } else { Err(Full) }
    }

    /// Remembers an ask that was charged `hits` a descriptor at `now`, and what it was answered.
    pub fn insert(&mut self, id: Id, ask: Ask<'static>, hits: u64, answer: &Answer, ttl: Nanos, now: Now) {
        let charges = answer.statuses.iter().map(|status| Charge::new(status, hits)).collect();
        let (expires, bytes) = (now.steady.saturating_add(ttl), bytes(&ask));
        self.bytes = self.bytes.saturating_add(bytes);
        self.deadlines.insert((expires, id));
        let reservation = Reservation { ask, charges, hits, made: now, expires, committed: None, bytes };
        self.by_id.insert(id, reservation);
    }

    /// Settles what a reservation really cost. The same commit again gives the same settlement, with
    /// nothing to correct.
    pub fn commit(&mut self, id: Id, hits: u64, now: Now) -> Result<Settlement, CommitError> {
        let reservation = self
            .by_id
            .get_mut(&id)
            .filter(|reservation| reservation.expires > now.steady)
            .ok_or(CommitError::Unknown)?;
        let reserved = reservation.hits;
        match reservation.committed {
            Some(committed) if committed == hits => return Ok(Settlement { reserved, correction: None }),
            Some(committed) => return Err(CommitError::Conflict { committed }),
            None => reservation.committed = Some(hits),
        }
        let until = reservation.expires.max(now.steady.saturating_add(REMEMBERED));
        let before = mem::replace(&mut reservation.expires, until);
        self.deadlines.remove(&(before, id));
        self.deadlines.insert((until, id));
        Ok(Settlement { reserved, correction: Some(reservation.correction(hits, now)) })
    }

    /// When the next one expires, on the steady clock.
    pub fn next_expiry(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Forgets those that have expired; what of them is to be given back.
    pub fn expire(&mut self, now: Now) -> Vec<Ask<'static>> {
        let mut given_back = Vec::new();
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now.steady
        {
            self.deadlines.pop_first();
            let Some(reservation) = self.by_id.remove(&id) else { continue };
            self.bytes = self.bytes.saturating_sub(reservation.bytes);
            if reservation.committed.is_none() {
                given_back.push(reservation.correction(0, now));
            }
        }
        given_back
    }
}

/// Memory that an ask takes, about.
fn bytes(ask: &Ask<'_>) -> usize {
    let texts = ask.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let texts: usize = texts.map(|entry| entry.key.len() + entry.value.len() + 64).sum();
    texts + ask.domain.len() + 128 * (ask.descriptors.len() + 2)
}

// === impl Reservation ===

impl Reservation {
    /// What is to be charged, so that the counters stand as if it had been `hits` from the start.
    fn correction(&self, hits: u64, now: Now) -> Ask<'static> {
        let mut ask = self.ask.clone();
        let excess = hits.saturating_sub(self.hits);
        let mut charges = self.charges.iter();
        for descriptor in &mut ask.descriptors {
            let charge = charges.next().and_then(Option::as_ref);
            descriptor.hits = match charge {
                Some(charge) if excess == 0 => {
                    charge.still_counts(self.hits, hits, self.made, now).saturating_neg()
                }
                // A descriptor that no limit counted is not counted now either.
                _ => signed(excess),
            };
        }
        ask
    }
}

// === impl Charge ===

impl Charge {
    /// `None`: no limit counted it.
    fn new(status: &Status, hits: u64) -> Option<Self> {
        let (rule, meter) = (status.rule.as_ref()?, status.meter.as_ref()?);
        let cost = rule.policy.cost.max(1);
        let used = status.standing.map_or(0, |standing| standing.limit.saturating_sub(standing.remaining));
        Some(Self { meter: Arc::clone(meter), cost, before: used.saturating_sub(hits.saturating_mul(cost)) })
    }

    /// How many hits of the difference between what was reserved and what it did cost still count.
    fn still_counts(&self, reserved: u64, real: u64, made: Now, now: Now) -> i64 {
        let used = |hits: u64| {
            let mut state = None;
            self.meter.charge(&mut state, made, signed(self.before));
            self.meter.charge(&mut state, made, signed(hits.saturating_mul(self.cost)));
            self.meter.used(state.as_ref(), now)
        };
        let units = used(reserved).saturating_sub(used(real));
        signed((units / self.cost).min(reserved.saturating_sub(real)))
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

// === impl Id ===

impl Id {
    /// The id of these 128 bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Id {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| InvalidId)
    }
}

#[cfg(test)]
mod tests;
