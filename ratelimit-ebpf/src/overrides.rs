//! Clients that are put under a rule for a time.

use ratelimit_common::{
    address::{Address, Family},
    bucket_table::Cell as _,
    overrides::Client,
    policy::stage,
};

use crate::{constants, maps, xdp_frame::seconds};

/// The client is under no rule.
const NONE: u64 = u64::MAX;

/// The index of the rule that a source is put under.
#[inline(always)]
pub(crate) fn rule_of(stages: u64, source: &Address) -> Option<u32> {
    if stages & stage::OVERRIDES == 0 {
        return None;
    }
    let latest = maps::RUNTIME.get(0)?.overrides_until.read();
    if latest == 0 || latest <= u64::from(seconds()) {
        return None;
    }
    let rule = override_of(source.family as u32, source.high, source.low);
    if rule == NONE { None } else { Some(rule as u32) }
}

/// The index of the rule that a source is put under, or [`NONE`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn override_of(family: u32, high: u64, low: u64) -> u64 {
    if constants::STAGES.load() & stage::OVERRIDES == 0 {
        return NONE;
    }
    let family = if family == Family::V4 as u32 { Family::V4 } else { Family::V6 };
    let client = Client::of(&Address { family, high, low }, constants::SOURCE_BITS_V6.load());
    // SAFETY: userspace never writes to a value that is there, but replaces it, and the kernel keeps the one
    // before until this program has ended.
    let Some(found) = (unsafe { maps::OVERRIDES.get(client) }) else { return NONE };
    if found.until <= seconds() {
        return NONE;
    }
    match maps::RULES.get(found.rule) {
        Some(rule) if rule.counter_slot == found.counter_slot => found.rule.into(),
        _ => NONE,
    }
}
