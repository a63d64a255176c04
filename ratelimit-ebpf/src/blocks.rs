//! Sources that are blocked: single addresses by the operator and by rules, and prefixes by the operator.
//!
//! The look-ups are functions that the verifier follows once each: see [`crate::steps`].

use aya_ebpf::btf_maps::{LpmTrie, lpm_trie::Key};
use ratelimit_common::{
    address::{Address, Family, prefix_mask},
    block_table::{self, Entry, Insertion, Table},
    blocks::{self, ByRule, NESTED, OPERATOR, Prefix, held},
    bucket_table::Cell as _,
    offenders::{self, Threshold},
    policy::{prefilter, stage},
    record::Event,
};

use crate::{
    constants,
    maps::{self, RULE_BLOCK_SETS},
    prefilter::{is_set, may_hold_v6},
    steps,
    verdict::count_event,
    xdp_frame::{coarse_nanos, seconds},
};

/// Whether a source is blocked; with `exactly`, only by a block of this one address that the operator made.
#[inline(always)]
pub(crate) fn is_blocked(stages: u64, source: &Address, exactly: bool) -> bool {
    let Some(runtime) = maps::RUNTIME.get(0) else { return false };
    let held = runtime.held.read();
    let (single, prefixes) = match source.family {
        Family::V4 => (held::V4, held::PREFIXES_V4),
        Family::V6 => (held::V6, held::PREFIXES_V6),
    };
    let Address { high, low, .. } = *source;
    let family = source.family as u32;
    if held & single != 0 && operator_block(family, high, low) > u64::from(seconds()) {
        return true;
    }
    if exactly {
        return false;
    }
    if stages & stage::RULE_BLOCKS != 0 {
        let latest = runtime.rule_blocks_until.read();
        if latest != 0
            && latest > u64::from(seconds())
            && rule_block(family, high, low) > u64::from(seconds())
        {
            return true;
        }
    }
    held & prefixes != 0 && may_hold(source, held) && prefix_block(family, high, low, seconds()) != 0
}

/// What a source is to the table of rules: the prefix that makes one client, and the table for those.
#[inline(always)]
pub(crate) fn client(source: &Address) -> (Address, Table) {
    let bits = match source.family {
        Family::V4 => constants::SOURCE_BITS_V4.load(),
        Family::V6 => constants::SOURCE_BITS_V6.load(),
    };
    let [high, low] = prefix_mask(bits as u8);
    let address = Address { family: source.family, high: source.high & high, low: source.low & low };
    let table = Table { hash_key: steps::hash_key(), id: ByRule::table_id(bits), sets: RULE_BLOCK_SETS };
    (address, table)
}

/// Counts a packet that a rule shed of a source, and blocks the source if that was one too many.
#[inline(always)]
pub(crate) fn count_offence(rule: u32, source: &Address) {
    offence(rule, source.family as u32, source.high, source.low);
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn offence(rule: u32, family: u32, high: u64, low: u64) -> u64 {
    if constants::STAGES.load() & stage::RULE_BLOCKS == 0 {
        return 0;
    }
    let Some(met) = maps::RULES.get(rule) else { return 0 };
    let (client, table) = client(&address(family, high, low));
    let hash = block_table::hash(&table, blocks::offender_id(met.counter_slot), &client);
    let nanos = coarse_nanos();
    if count_offence_of(rule, hash, nanos >> offenders::MOMENT_SHIFT) == 0 {
        return 0;
    }
    let family = client.family as u32;
    let place = place_for_block(family, client.high, client.low, block_table::seconds(nanos));
    if place == NO_PLACE {
        count_event(Event::NoRoomToBlock, 1);
        return 0;
    }
    block_by_rule(place, u64::from(family) << 32 | u64::from(rule), client.high, client.low, nanos)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn count_offence_of(rule: u32, hash: u64, now: u64) -> u64 {
    let Some(rule) = maps::RULES.get(rule) else { return 0 };
    let Some(set) = maps::OFFENDERS.get((hash >> 32) as u32 % offenders::SETS) else { return 0 };
    let threshold = Threshold { samples: rule.block.samples, window: rule.block.window };
    offenders::count(set, hash, threshold, now).into()
}

/// Blocks a client at its place for as long as a rule says, whose index is below the client's family; 1 if it is
/// blocked now.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn block_by_rule(place: u64, about: u64, high: u64, low: u64, nanos: u64) -> u64 {
    let now = block_table::seconds(nanos);
    let Some(rule) = maps::RULES.get(about as u32) else { return 0 };
    let (client, table) = client(&address((about >> 32) as u32, high, low));
    // The second that has begun is not counted: a block is never shorter than it says.
    let until = now.saturating_add(rule.block.seconds).saturating_add(1);
    let about = ByRule { counter_slot: rule.counter_slot, length: ByRule::length_of(table.id) }.word();
    let entry = Entry { until, about, since: now.into() };
    let known = place & KNOWN != 0;
    match block_table::insert_at(&maps::RuleBlocks, &table, &client, &entry, now, place as u32, known) {
        Insertion::Added | Insertion::Replaced => {
            count_event(Event::BlockedByRule, 1);
            announce(until);
            1
        }
        // Another CPU blocks somebody at this very place: the next count that is reached tries again.
        Insertion::Busy | Insertion::Full => 0,
    }
}

/// Where the block of a client belongs: a place, and [`KNOWN`] if it has that already; else [`NO_PLACE`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn place_for_block(family: u32, high: u64, low: u64, now: u32) -> u64 {
    let (client, table) = client(&address(family, high, low));
    if let Some(place) = block_table::known_place(&maps::RuleBlocks, &table, &client) {
        return u64::from(place) | KNOWN;
    }
    block_table::free_place(&maps::RuleBlocks, &table, &client, now).map_or(NO_PLACE, u64::from)
}

/// The client has the place already.
const KNOWN: u64 = 1 << 32;
/// All places are taken.
const NO_PLACE: u64 = u64::MAX;

/// Lets packets be looked up among the blocks of rules until the last of those ends.
#[inline(always)]
fn announce(until: u32) {
    let Some(runtime) = maps::RUNTIME.get(0) else { return };
    for _ in 0..ANNOUNCEMENTS {
        let known = runtime.rule_blocks_until.read();
        if known >= u64::from(until)
            || runtime.rule_blocks_until.compare_exchange(known, until.into()).is_ok()
        {
            return;
        }
    }
}

/// Tries to announce a block. Each that fails was won by another block.
const ANNOUNCEMENTS: u32 = 8;

/// When the operator's block of an address ends, or 0.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn operator_block(family: u32, high: u64, low: u64) -> u64 {
    let table = Table { hash_key: steps::hash_key(), id: OPERATOR, sets: constants::BLOCK_SETS.load() };
    block_table::until(&maps::OperatorBlocks, &table, &address(family, high, low)).into()
}

/// When the block of a source by a rule ends, or 0.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn rule_block(family: u32, high: u64, low: u64) -> u64 {
    if constants::STAGES.load() & stage::RULE_BLOCKS == 0 {
        return 0;
    }
    let (client, table) = client(&address(family, high, low));
    block_table::until(&maps::RuleBlocks, &table, &client).into()
}

/// 1 if a blocked prefix covers an address, else 0.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn prefix_block(family: u32, high: u64, low: u64, now: u32) -> u64 {
    let address = address(family, high, low);
    let covered = match address.family {
        Family::V4 => covers(&maps::BLOCK_PREFIXES_V4, 32, address.v4_octets(), now),
        Family::V6 => covers(&maps::BLOCK_PREFIXES_V6, 128, address.v6_octets(), now),
    };
    covered.into()
}

/// Whether the prefilter lets an address through to the trie.
#[inline(always)]
fn may_hold(source: &Address, held: u64) -> bool {
    match source.family {
        Family::V4 => is_set(&maps::BLOCK_FILTER_V4, prefilter::v4_bit(source.high)),
        Family::V6 => {
            let levels = [held::PREFIXES_V6_48, held::PREFIXES_V6_32, held::PREFIXES_V6_16];
            may_hold_v6(&maps::BLOCK_FILTER_V6, source.high, levels.map(|level| held & level != 0))
        }
    }
}

/// Whether one of the prefixes that cover an address is blocked now. The longest may have ended.
#[inline(always)]
fn covers<K: Copy, const M: usize>(
    trie: &'static LpmTrie<K, Prefix, M>,
    bits: u32,
    octets: K,
    now: u32,
) -> bool {
    let mut key = Key::new(bits, octets);
    for _ in 0..NESTED {
        let Some(prefix) = trie.get(&key) else { return false };
        if prefix.until > now {
            return true;
        }
        if prefix.length == 0 {
            return false;
        }
        key = Key::new(prefix.length - 1, octets);
    }
    false
}

#[inline(always)]
fn address(family: u32, high: u64, low: u64) -> Address {
    let family = if family == Family::V4 as u32 { Family::V4 } else { Family::V6 };
    Address { family, high, low }
}
