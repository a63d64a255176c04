//! What a counter holds. The small ones are at most three words, so that a store can pack them.

use std::collections::VecDeque;

use super::Nanos;

/// What has been counted so far. A counter that is whole again has none (`None` of an `Option<State>`),
/// so it makes no difference whether it was forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a bucket that drains evenly.
    Level(Level),
    /// Of a bucket that is refilled at intervals.
    Refill(Refill),
    /// Of a fixed window.
    Count(Count),
    /// Of a sliding window.
    Pair(Pair),
    /// Of a log or of segments.
    Log(Box<Log>),
}

/// How high a bucket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// When it stood so.
    pub(crate) updated: Nanos,
    /// Units times nanoseconds of the window, the high half.
    pub(crate) debt_high: u64,
    /// The low half.
    pub(crate) debt_low: u64,
}

/// What has been taken out of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// When it was last due a refill.
    pub(crate) refilled: Nanos,
    /// Units taken and not yet put back.
    pub(crate) used: u64,
}

/// What was counted in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// When the window began.
    pub(crate) start: Nanos,
    /// Units.
    pub(crate) count: u64,
}

/// What was counted in a window and in the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// When the later window began.
    pub(crate) start: Nanos,
    /// Units of the window before.
    pub(crate) previous: u64,
    /// Units of this window.
    pub(crate) current: u64,
}

/// Units and the instants at which they were charged. Entries hold running totals, so that what counts at
/// a time is found by bisection, however many entries have expired. The totals wrap: only differences
/// count, and none is above the limit.
#[derive(Clone, Debug, Default, Eq)]
pub struct Log {
    /// The running total before the first entry.
    pub(super) base: u64,
    /// Ordered by time, each instant once.
    pub(super) entries: VecDeque<Entry>,
}

/// What was charged at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Nanos,
    /// The running total, this entry included.
    pub(super) through: u64,
}

/// Which of the small states three packed words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Level,
    Refill,
    Count,
    Pair,
}

/// A state that an algorithm keeps.
pub(super) trait Held: Into<State> + Sized {
    /// It, if it is one of these.
    fn of(state: &State) -> Option<&Self>;
    /// It, if it is one of these.
    fn take(state: State) -> Option<Self>;
}

// === impl State ===

impl State {
    /// The words of a small state; the state itself if it is not small.
    pub(crate) fn pack(self) -> Result<(Kind, [u64; 3]), Self> {
        match self {
            Self::Level(Level { updated, debt_high, debt_low }) => {
                Ok((Kind::Level, [updated, debt_high, debt_low]))
            }
            Self::Refill(Refill { refilled, used }) => Ok((Kind::Refill, [refilled, used, 0])),
            Self::Count(Count { start, count }) => Ok((Kind::Count, [start, count, 0])),
            Self::Pair(Pair { start, previous, current }) => Ok((Kind::Pair, [start, previous, current])),
            Self::Log(_) => Err(self),
        }
    }

    /// The small state that was packed.
    pub(crate) fn unpack(kind: Kind, [first, second, third]: [u64; 3]) -> Self {
        match kind {
            Kind::Level => Self::Level(Level { updated: first, debt_high: second, debt_low: third }),
            Kind::Refill => Self::Refill(Refill { refilled: first, used: second }),
            Kind::Count => Self::Count(Count { start: first, count: second }),
            Kind::Pair => Self::Pair(Pair { start: first, previous: second, current: third }),
        }
    }

    /// The newest time in it: no time that it was charged at is later.
    pub(crate) fn newest(&self) -> Nanos {
        match self {
            Self::Level(level) => level.updated,
            Self::Refill(refill) => refill.refilled,
            Self::Count(count) => count.start,
            Self::Pair(pair) => pair.start,
            Self::Log(log) => log.entries.back().map_or(0, |entry| entry.at),
        }
    }

    /// The same on a clock that shows `nanos` more.
    #[must_use]
    pub(crate) fn shifted(mut self, nanos: i64) -> Self {
        let shift = |time: &mut Nanos| *time = time.saturating_add_signed(nanos);
        match &mut self {
            Self::Level(level) => shift(&mut level.updated),
            Self::Refill(refill) => shift(&mut refill.refilled),
            Self::Count(count) => shift(&mut count.start),
            Self::Pair(pair) => shift(&mut pair.start),
            Self::Log(log) => log.entries.iter_mut().for_each(|entry| shift(&mut entry.at)),
        }
        self
    }
}

// === impl Log ===

impl Log {
    /// A log of these instants, in order, and the units of each.
    pub(crate) fn from_entries(entries: impl IntoIterator<Item = (Nanos, u64)>) -> Self {
        let mut log = Self::default();
        for (at, units) in entries {
            log.push(at, units);
        }
        log
    }

    /// The instants, in order, and the units of each.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let before = std::iter::once(self.base).chain(self.entries.iter().map(|entry| entry.through));
        self.entries.iter().zip(before).map(|(entry, before)| (entry.at, entry.through.wrapping_sub(before)))
    }

    /// The running total at its end.
    pub(super) fn through(&self) -> u64 {
        self.entries.back().map_or(self.base, |entry| entry.through)
    }

    /// The running total before an entry.
    pub(super) fn before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(self.base, |previous| self.entries[previous].through)
    }

    /// Adds units at an instant, which is not before the newest.
    pub(super) fn push(&mut self, at: Nanos, units: u64) {
        let through = self.through().wrapping_add(units);
        match self.entries.back_mut() {
            Some(newest) if newest.at >= at => newest.through = through,
            _ => self.entries.push_back(Entry { at, through }),
        }
    }

    /// Takes units away, the newest first.
    pub(super) fn take_newest(&mut self, units: u64) {
        let total = self.through().wrapping_sub(self.base);
        let kept = total - units.min(total);
        let whole = self.entries.partition_point(|entry| entry.through.wrapping_sub(self.base) < kept);
        self.entries.truncate(whole + usize::from(kept > 0));
        if let Some(newest) = self.entries.back_mut() {
            newest.through = self.base.wrapping_add(kept);
        }
    }

    /// Takes units away, the oldest first, so that no more than this are left.
    pub(super) fn keep_newest(&mut self, units: u64) {
        let total = self.through().wrapping_sub(self.base);
        let taken = total - units.min(total);
        let whole = self.entries.partition_point(|entry| entry.through.wrapping_sub(self.base) <= taken);
        self.entries.drain(..whole);
        self.base = self.base.wrapping_add(taken);
    }

    /// Gives memory back when much of it is unused.
    pub(super) fn shrink(&mut self) {
        let length = self.entries.len();
        if self.entries.capacity() > 16.max(length.saturating_mul(4)) {
            self.entries.shrink_to(length.saturating_mul(2));
        }
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

// === impl Held ===

macro_rules! held {
    ($kind:ident, $inner:ident => $wrapped:expr, $taken:expr) => {
        impl From<$kind> for State {
            fn from($inner: $kind) -> Self {
                Self::$kind($wrapped)
            }
        }

        impl Held for $kind {
            fn of(state: &State) -> Option<&Self> {
                if let State::$kind(held) = state { Some(held) } else { None }
            }

            fn take(state: State) -> Option<Self> {
                if let State::$kind($inner) = state { Some($taken) } else { None }
            }
        }
    };
}

held!(Level, held => held, held);
held!(Refill, held => held, held);
held!(Count, held => held, held);
held!(Pair, held => held, held);
held!(Log, held => Box::new(held), *held);
