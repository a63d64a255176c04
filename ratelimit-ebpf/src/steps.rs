//! The steps of a charge, as functions that the verifier follows once each.
//!
//! Global functions (Linux 5.6) take numbers only and are verified on their own, for any arguments. As
//! parts of the caller they would be followed again for every limit of a rule, in every state that the
//! limits before may have left: more than the million instructions that the verifier allows.

use ratelimit_common::{
    charge::{Direct, Outcome, Share, Steps, Table},
    policy::Rule,
};

use crate::{constants, maps};

/// The steps for the limits of one rule.
pub(crate) struct Calls {
    pub(crate) index: u32,
    pub(crate) rule: &'static Rule,
}

impl Steps for Calls {
    /// Right here: it is short, and what a flood is shed by.
    #[inline(always)]
    fn refuses(&self, limit: u32, share: Share) -> bool {
        Direct { buckets: &maps::Buckets, table: &table(), rule: self.rule }.refuses(limit, share)
    }

    #[inline(always)]
    fn ask(&self, limit: u32, share: Share) -> Outcome {
        Outcome(ask(self.index, limit, share.hash, share.units, share.now))
    }

    #[inline(always)]
    fn take(&self, limit: u32, share: Share) -> Outcome {
        Outcome(take(self.index, limit, share.hash, share.units, share.now))
    }

    #[inline(always)]
    fn give_back(&self, limit: u32, hash: u64, ticks: u64) {
        give_back(self.index, limit, hash, ticks);
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn ask(rule: u32, limit: u32, hash: u64, units: u64, now: u64) -> u64 {
    direct(rule, |steps| steps.ask(limit, Share { hash, units, now }).0)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn take(rule: u32, limit: u32, hash: u64, units: u64, now: u64) -> u64 {
    direct(rule, |steps| steps.take(limit, Share { hash, units, now }).0)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn give_back(rule: u32, limit: u32, hash: u64, ticks: u64) -> u64 {
    direct(rule, |steps| {
        steps.give_back(limit, hash, ticks);
        0
    })
}

/// Does something with the limits of a rule; nothing when there is no such rule, which cannot be.
#[inline(always)]
fn direct(rule: u32, step: impl FnOnce(&Direct<'_, maps::Buckets>) -> u64) -> u64 {
    match maps::RULES.get(rule) {
        Some(rule) => step(&Direct { buckets: &maps::Buckets, table: &table(), rule }),
        None => 0,
    }
}

/// What is fixed when the table is made or the policy loaded.
#[inline(always)]
pub(crate) fn table() -> Table {
    Table {
        hash_key: hash_key(),
        set_mask: constants::SET_MASK.load(),
        when_full: constants::WHEN_FULL.load(),
    }
}

/// The key of all tables' hashes.
#[inline(always)]
pub(crate) fn hash_key() -> [u64; 2] {
    [constants::HASH_KEY_0.load(), constants::HASH_KEY_1.load()]
}
