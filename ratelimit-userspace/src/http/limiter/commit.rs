//! All counters of a request are looked at together, and all are charged or none.

use smallvec::SmallVec;

use super::{
    plan::Counter,
    settle::{Settlement, Vote},
};
use crate::{
    config::http::OnFull,
    http::{
        ask::{Decision, Standing},
        clock::Now,
        rules::RuleBook,
        store::{
            Identity,
            memory::{Locked, Memory, Place, Terms},
        },
    },
};

/// What is wanted of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// To decide and to charge.
    Decide,
    /// To decide, and to change nothing.
    Peek,
    /// To charge, whatever the limits say.
    Charge,
}

/// What became of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) settlement: Settlement,
    /// It is refused since memory is full.
    pub(super) store_full: bool,
}

/// Where a counter stands afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) standing: Standing,
    /// What its limit would say of the same request now.
    pub(super) next: Vote,
}

/// A request's counters, locked.
struct Commit<'a, 'p> {
    locked: Locked<'a>,
    memory: &'a Memory,
    book: &'a RuleBook,
    now: Now,
    intent: Intent,
    counters: &'a mut [Counter<'p>],
    settlement: Settlement,
    /// Counters that were not in the store come into it.
    add: bool,
}

/// Decides and charges. With `reports` it also tells where each counter stands afterwards, in order.
///
/// `None`, and nothing has been done: a counter was written under a limit that these rules do not know, so
/// there are newer ones. Unless they are `newest`; then such a counter starts anew.
pub(super) fn commit(
    memory: &Memory,
    (book, newest): (&RuleBook, bool),
    counters: &mut [Counter<'_>],
    now: Now,
    intent: Intent,
    reports: Option<&mut SmallVec<[Report; 4]>>,
) -> Option<Committed> {
    let locked = memory.lock(counters.iter().map(|counter| counter.identity));
    let settlement = Settlement::REFUSED;
    let mut commit = Commit { locked, memory, book, now, intent, counters, settlement, add: true };
    commit.locate(newest)?;
    commit.decide();
    let store_full = match intent {
        Intent::Peek => {
            commit.charge_aside();
            false
        }
        Intent::Decide | Intent::Charge => {
            let store_full = commit.make_rooms();
            commit.charge();
            store_full
        }
    };
    if let Some(reports) = reports {
        reports.extend(commit.counters.iter().map(|counter| commit.report(counter)));
    }
    if intent != Intent::Peek {
        commit.keep();
    }
    Some(Committed { settlement: commit.settlement, store_full })
}

// === impl Commit ===

impl<'p> Commit<'_, 'p> {
    /// Finds the counters, and puts them under the limits that the request is decided by.
    fn locate(&mut self, newest: bool) -> Option<()> {
        let Self { locked, book, now, counters, .. } = self;
        for counter in &mut **counters {
            counter.place = locked.locate(counter.identity);
            if !locked.convert(counter.place, &counter.metered, book, *now) {
                if !newest {
                    return None;
                }
                locked.remove(counter.identity);
                return self.locate(newest);
            }
        }
        Some(())
    }

    fn decide(&mut self) {
        if self.intent != Intent::Charge {
            for counter in &mut *self.counters {
                let state = self.locked.state(counter.place);
                counter.vote.outcome = counter.meter().decide(state, self.now, counter.cost);
            }
        }
        self.settlement = Settlement::of(self.counters.iter().map(|counter| counter.vote));
    }

    /// Charges copies.
    fn charge_aside(&mut self) {
        for counter in &mut *self.counters {
            counter.aside = self.locked.state(counter.place).cloned();
            counter.place = Place::default();
            counter.charge_aside(&self.settlement, self.now);
        }
    }

    /// Charges the counters that are not in the store, and sees to it that they find room there. Whether the
    /// request is refused because they find none.
    fn make_rooms(&mut self) -> bool {
        let mut wanted: SmallVec<[Identity; 4]> = SmallVec::new();
        for counter in self.counters.iter_mut().filter(|counter| counter.place.is_absent()) {
            counter.charge_aside(&self.settlement, self.now);
            wanted.extend(counter.aside.is_some().then_some(counter.identity));
        }
        if self.locked.take_rooms(&wanted) {
            return false;
        }
        let mut keep: SmallVec<[Identity; 8]> =
            self.counters.iter().map(|counter| counter.identity).collect();
        keep.sort_unstable();
        self.add = self.locked.make_rooms(&wanted, &Terms { book: self.book, now: self.now, keep: &keep });
        for counter in &mut *self.counters {
            counter.place = self.locked.locate(counter.identity);
        }
        if self.add {
            return false;
        }
        let refuse = self.memory.on_full() != OnFull::Allow
            && self.intent == Intent::Decide
            && self.settlement.decision != Decision::Deny;
        self.memory.note_full(refuse);
        if refuse {
            self.settlement = Settlement::REFUSED;
            self.counters.iter_mut().for_each(|counter| counter.aside = None);
        }
        refuse
    }

    /// Charges the counters that are in the store.
    fn charge(&mut self) {
        for counter in &mut *self.counters {
            let meter = &counter.metered.meter;
            let Some(state) = self.locked.state_mut(counter.place) else { continue };
            if self.settlement.charges(&counter.vote) {
                meter.charge(state, self.now, counter.cost);
            } else if state.as_ref().is_some_and(|state| meter.is_ahead(state, self.now)) {
                // Else a refusal would last until the clock is where it was.
                meter.charge(state, self.now, 0);
            }
            counter.whole = state.is_none();
        }
    }

    /// Where a counter stands, once it is charged.
    fn report(&self, counter: &Counter<'p>) -> Report {
        let state = counter.aside.as_ref().or_else(|| self.locked.state(counter.place));
        let meter = counter.meter();
        let mut next = counter.vote;
        if self.settlement.decision == Decision::Deny && self.settlement.charges(&counter.vote) {
            next.outcome = meter.decide(state, self.now, counter.cost);
        }
        Report { standing: meter.standing(state, self.now), next }
    }

    /// Adds the counters that are new, and removes those that have become whole.
    fn keep(&mut self) {
        for counter in &mut *self.counters {
            if counter.whole {
                self.locked.remove(counter.identity);
            } else if let Some(state) = counter.aside.take().filter(|_| self.add) {
                self.locked.insert(counter.identity, state, &counter.metered);
            }
        }
    }
}
