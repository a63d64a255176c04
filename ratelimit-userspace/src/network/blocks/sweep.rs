//! What has to be tidied now and then, and whether there is room.

use std::collections::HashSet;

use ipnet::IpNet;
use ratelimit_common::{
    address::Family,
    blocks::{Kind, held},
    bucket_table::Cell as _,
};

use super::{
    Blocks, BlocksError,
    source::{canonical, kind, single},
};
use crate::network::state::INITIAL_BLOCKS;

impl Blocks {
    /// Takes out what has ended, counts anew, and forgets reasons that nobody needs. Blocks end without it;
    /// it keeps the tries short and a host that blocks nobody at its full speed.
    pub fn sweep(&mut self) -> Result<(), BlocksError> {
        let now = self.now().seconds();
        if !self.repaired {
            self.singles.repair(now);
            self.repaired = true;
        }
        let all = self.prefixes.all().map_err(|source| self.failed(Kind::PrefixV4, source))?;
        let (live, ended): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, block)| block.until > now);
        for (prefix, _) in &ended {
            let removed = self.prefixes.remove(prefix);
            removed.map_err(|source| self.failed(kind(prefix), source))?;
        }
        let mut counts = [0_u64; Kind::COUNT];
        let mut reasons: HashSet<u32> = live.iter().map(|(_, block)| block.reason).collect();
        for (prefix, _) in &live {
            counts[kind(prefix) as usize] += 1;
        }
        let mut last = 0;
        for occupant in self.singles.occupants(now) {
            let family = if occupant.address.family == Family::V4 { Kind::V4 } else { Kind::V6 };
            counts[family as usize] += 1;
            let reason = u32::try_from(occupant.entry.about).unwrap_or_default();
            // A million of them mostly have the same.
            if reason != last {
                reasons.insert(reason);
                last = reason;
            }
        }
        self.reasons.retain(&reasons)?;

        let Some(runtime) = self.runtime() else { return Ok(()) };
        let mut held = 0;
        if runtime.held.read() & (held::PREFIXES_V4 | held::PREFIXES_V6) != 0 {
            held |= self.prefixes.rebuild_filters(live.iter().map(|(prefix, _)| prefix));
        }
        held |= if counts[Kind::V4 as usize] > 0 { held::V4 } else { 0 };
        held |= if counts[Kind::V6 as usize] > 0 { held::V6 } else { 0 };
        runtime.held.write(held);
        for (word, count) in runtime.counts.iter().zip(counts) {
            word.write(count);
        }
        // The program may make a block at this moment: then the word has changed, and stays.
        let until = runtime.rule_blocks_until.read();
        if until <= now.into() {
            let _ = runtime.rule_blocks_until.compare_exchange(until, 0);
        }
        Ok(())
    }

    /// Whether there is room for these, of which some may be blocked already: `None` if there is, else the
    /// capacity to [grow](Blocks::grow) to first.
    pub fn need<'a>(
        &self,
        prefixes: impl IntoIterator<Item = &'a IpNet>,
        capacity: u32,
    ) -> Result<Option<u32>, BlocksError> {
        let now = self.now().seconds();
        let mut new: Vec<IpNet> = Vec::new();
        for prefix in prefixes {
            // What cannot be blocked needs no room.
            let Ok(prefix) = canonical(*prefix) else { continue };
            let is_known = match single(&prefix) {
                Some(address) => self.singles.find(&address, now).is_some(),
                None => self
                    .prefixes
                    .get(&prefix)
                    .map_err(|source| self.failed(kind(&prefix), source))?
                    .is_some_and(|block| block.until > now),
            };
            if !is_known {
                new.push(prefix);
            }
        }
        new.sort_unstable();
        new.dedup();
        let new_singles = new.iter().filter(|prefix| single(prefix).is_some()).count();
        let new_prefixes = new.len() - new_singles;

        let counts = self.count();
        let total = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let mut singles = total(counts.v4 + counts.v6);
        let mut prefixes = total(counts.prefixes_v4 + counts.prefixes_v6);
        let most = capacity as usize;
        // Some of those counted may have ended.
        if new_singles > 0 && singles + new_singles > most.min(self.singles.capacity() as usize) {
            singles = self.singles.occupants(now).count();
        }
        if new_prefixes > 0 && prefixes + new_prefixes > most {
            let all = self.prefixes.all().map_err(|source| self.failed(Kind::PrefixV4, source))?;
            prefixes = all.iter().filter(|(_, block)| block.until > now).count();
        }
        let full = |what, live, new| Err(BlocksError::Full { what, live, new, capacity });
        if new_singles > 0 && singles + new_singles > most {
            return full("addresses", singles, new_singles);
        }
        if new_prefixes > 0 && prefixes + new_prefixes > most {
            return full("prefixes", prefixes, new_prefixes);
        }
        let needed = u32::try_from(singles + new_singles).unwrap_or(capacity);
        if new_singles == 0 || needed <= self.singles.capacity() {
            return Ok(None);
        }
        Ok(Some(needed.next_power_of_two().clamp(INITIAL_BLOCKS.min(capacity), capacity)))
    }
}
