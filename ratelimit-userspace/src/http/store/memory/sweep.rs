//! Counters leave when they are whole, and move to the limits that are in force: a part of them at a time.

use std::sync::atomic::Ordering;

use super::{Memory, Slot, room::Terms, shard::Shard};
use crate::{
    config::http::OnFull,
    http::{clock::Now, rules::RuleBook},
};

/// Entries that are looked at under one lock.
const BATCH: usize = 256;

/// Where the last sweep stopped.
#[derive(Debug, Default)]
pub(super) struct Progress {
    shard: usize,
    /// Entries of this shard that are still to be looked at: those in the slots below.
    left: Option<usize>,
}

// === impl Memory ===

impl Memory {
    /// Looks at a 64th of all counters, though at least at some thousand: puts them under the limits that are
    /// in force, and removes those that are whole. Calls with the version of each that stays. Whether it has
    /// now been through all of them once more.
    pub(crate) fn sweep(&self, now: Now, book: &RuleBook, mut stays: impl FnMut(u32)) -> bool {
        // Only one at a time; a second has nothing to add.
        let Some(mut progress) = self.sweep.try_lock() else { return false };
        self.trim(now, book);
        let mut budget = (self.stats().keys / 64).max(4_096);
        while budget > 0 {
            let mut shard = self.shards[progress.shard].0.lock();
            let left = progress.left.unwrap_or(usize::MAX).min(shard.len());
            let batch = left.min(BATCH);
            // Downwards: the entry that takes the place of a removed one has been looked at.
            for slot in (left - batch..left).rev() {
                let Ok(slot) = Slot::try_from(slot) else { continue };
                match shard.tend(slot, now, book) {
                    Some(version) => stays(version),
                    None => self.release(1),
                }
            }
            budget = budget.saturating_sub(batch.max(1));
            progress.left = Some(left - batch);
            if left == batch {
                shard.shrink();
                drop(shard);
                *progress = Progress { shard: (progress.shard + 1) % self.shards.len(), left: None };
                if progress.shard == 0 {
                    return true;
                }
            }
        }
        false
    }

    /// Removes what is above a maximum that was lowered.
    fn trim(&self, now: Now, book: &RuleBook) {
        let terms = Terms { book, now, keep: &[] };
        let mut shards = self.shards.iter().cycle();
        let mut failures = 0;
        while self.keys.0.load(Ordering::Relaxed) > self.max_keys.load(Ordering::Relaxed)
            && failures < self.shards.len()
        {
            let Some(shard) = shards.next() else { break };
            if self.make_way_in(&mut shard.0.lock(), OnFull::Evict, &terms) {
                self.release(1);
                failures = 0;
            } else {
                failures += 1;
            }
        }
    }
}

// === impl Shard ===

impl Shard {
    /// Puts an entry under the limit in force, and removes it if it is whole; else its version.
    fn tend(&mut self, slot: Slot, now: Now, book: &RuleBook) -> Option<u32> {
        if let Some(metered) = book.successor(self.entry(slot).version) {
            self.convert(slot, metered, book, now);
        }
        if self.debt(slot, book, now).is_none() {
            self.remove(slot);
            return None;
        }
        Some(self.entry(slot).version)
    }
}
