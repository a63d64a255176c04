//! The limiter: rules over a store.
//!
//! A request is planned (which limits apply, and what it costs each), committed (all counters are looked at
//! under one lock, and charged or not) and answered. Planning and settling know nothing of the store.

use std::{io, path::Path, slice, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use smallvec::SmallVec;

use self::{
    answer::answer,
    commit::{Intent, commit},
    identity::Keys,
    plan::{Plan, only_counter},
    upkeep::Upkeep,
};
use super::{
    ask::{Answer, Ask, Decision, Standing},
    clock::Now,
    rules::RuleBook,
    store::{
        memory::{Memory, Stats},
        snapshot,
    },
};
use crate::config::http::Http;

mod answer;
mod commit;
mod identity;
mod plan;
mod replace;
mod settle;
mod upkeep;

/// Decides requests. Shared by every way to ask.
#[derive(Debug)]
pub struct Limiter {
    book: ArcSwap<RuleBook>,
    memory: Memory,
    keys: Keys,
    upkeep: Mutex<Upkeep>,
    saving: Mutex<()>,
}

/// A counter as `inspect` finds it.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The id of its rule.
    pub rule: Arc<str>,
    /// Where it stands.
    pub standing: Standing,
    /// Units that count now.
    pub used: u64,
    /// Its identity in hexadecimal, as in the denial log.
    pub identity: String,
}

// === impl Limiter ===

impl Limiter {
    /// A limiter with fresh counters. `key` keys the identities of counters; with the same key the same
    /// descriptor has the same identity.
    pub fn new(config: &Http, key: [u8; 32]) -> Self {
        Self {
            book: ArcSwap::from_pointee(RuleBook::new(&config.domains, None)),
            memory: Memory::new(config.max_keys, config.on_full),
            keys: Keys::new(&key),
            upkeep: Mutex::default(),
            saving: Mutex::default(),
        }
    }

    /// Puts other rules in force. Unchanged limits keep their counters; changed ones convert them.
    pub fn reload(&self, config: &Http) {
        self.memory.set_bounds(config.max_keys, config.on_full);
        let mut upkeep = self.upkeep.lock();
        let before = self.book.load_full();
        self.book.store(Arc::new(RuleBook::new(&config.domains, Some(&before))));
        upkeep.superseded(&before);
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleBook> {
        self.book.load_full()
    }

    /// How many counters there are, and what happened because memory was full.
    pub fn stats(&self) -> Stats {
        self.memory.stats()
    }

    /// Decides and, unless it is a peek, charges.
    pub fn decide(&self, ask: &Ask<'_>, now: Now) -> Answer {
        let intent = if ask.peek { Intent::Peek } else { Intent::Decide };
        self.with_plan(ask, |book, plan| {
            let mut reports = SmallVec::new();
            let committed = commit(&self.memory, book, &mut plan.counters, now, intent, Some(&mut reports))?;
            Some(answer(plan, committed, &reports))
        })
    }

    /// As [`Limiter::decide`], for whoever needs to know no more than what becomes of the request.
    pub fn admit(&self, ask: &Ask<'_>, now: Now) -> Decision {
        let intent = if ask.peek { Intent::Peek } else { Intent::Decide };
        self.with_rules(|book, newest| {
            let commit = |counters: &mut [_]| {
                commit(&self.memory, (book, newest), counters, now, intent, None)
                    .map(|committed| committed.settlement.decision)
            };
            match &*ask.descriptors {
                [descriptor] => match only_counter(book, &self.keys, &ask.domain, descriptor) {
                    Some(mut counter) => commit(slice::from_mut(&mut counter)),
                    None => Some(Decision::Allow),
                },
                _ => commit(&mut Plan::new(book, &self.keys, ask).counters),
            }
        })
    }

    /// Charges the counters that the ask matches without asking whether it fits (a commit above what was
    /// reserved). Saturates at the limit.
    pub fn charge(&self, ask: &Ask<'_>, now: Now) {
        self.with_plan(ask, |book, plan| {
            commit(&self.memory, book, &mut plan.counters, now, Intent::Charge, None).map(|_| ())
        });
    }

    /// The counters that the descriptors of an ask match, without changing them. `None`: nothing limits the
    /// descriptor.
    pub fn inspect(&self, ask: &Ask<'_>, now: Now) -> Vec<Option<Inspected>> {
        self.with_plan(ask, |book, plan| {
            let mut reports: SmallVec<[commit::Report; 4]> = SmallVec::new();
            plan.counters.iter_mut().for_each(|counter| counter.cost = 0);
            commit(&self.memory, book, &mut plan.counters, now, Intent::Peek, Some(&mut reports))?;
            let inspected = |target: &plan::Target<'_>| {
                let (rule, place) = (target.rule?, target.counter?);
                let counter = &plan.counters[place];
                Some(Inspected {
                    rule: Arc::clone(&rule.id),
                    standing: reports[place].standing,
                    used: counter.meter().used(counter.aside.as_ref(), now),
                    identity: counter.identity.to_string(),
                })
            };
            Some(plan.targets.iter().map(inspected).collect())
        })
    }

    /// Forgets those counters; how many there were.
    pub fn reset(&self, ask: &Ask<'_>) -> usize {
        self.with_plan(ask, |_, plan| {
            let identities = || plan.counters.iter().map(|counter| counter.identity);
            let mut locked = self.memory.lock(identities());
            Some(identities().filter(|identity| locked.remove(*identity)).count())
        })
    }

    /// Forgets counters that are whole, a bounded part of them a call. Called now and then.
    pub fn sweep(&self, now: Now) {
        self.upkeep.lock().sweep(&self.book, &self.memory, now);
    }

    /// Writes the counters of windows longer than a minute to a file, atomically.
    pub fn save(&self, file: &Path, now: Now) -> io::Result<()> {
        let _alone = self.saving.lock();
        snapshot::save(file, &self.memory, &self.book.load_full(), self.keys.check(), now)
    }

    /// Reads what [`Limiter::save`] wrote, on clocks that may have been set since; how many counters.
    pub fn restore(&self, file: &Path, now: Now) -> io::Result<usize> {
        snapshot::restore(file, &self.memory, &self.book.load_full(), self.keys.check(), now)
    }

    /// Plans a request and does something with the plan.
    fn with_plan<T>(
        &self,
        ask: &Ask<'_>,
        mut attempt: impl FnMut((&RuleBook, bool), &mut Plan<'_>) -> Option<T>,
    ) -> T {
        self.with_rules(|book, newest| attempt((book, newest), &mut Plan::new(book, &self.keys, ask)))
    }

    /// Does something by the rules in force; again if meanwhile others came in force and it could not be
    /// done. Rules that come with `true` are the newest.
    fn with_rules<T>(&self, mut attempt: impl FnMut(&RuleBook, bool) -> Option<T>) -> T {
        let mut before: Option<Guard<Arc<RuleBook>>> = None;
        loop {
            let book = self.book.load();
            let newest = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &book));
            if let Some(done) = attempt(&book, newest) {
                return done;
            }
            before = Some(book);
        }
    }
}

#[cfg(test)]
mod tests;
