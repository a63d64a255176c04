//! The allow, management and deny lists.

use aya_ebpf::btf_maps::lpm_trie::Key;
use ratelimit_common::{
    address::{Address, Family},
    policy::{listed, ports, prefilter, stage},
};

use crate::{
    maps,
    opaque::opaque,
    prefilter::{is_set, may_hold_v6},
};

/// The bits of [`ratelimit_common::policy::listed`] that hold for a source.
#[inline(always)]
pub(crate) fn look_up(stages: u64, source: &Address) -> u32 {
    let found = match source.family {
        Family::V4 if stages & stage::LISTS_V4 != 0 => {
            if !is_set(&maps::PREFILTER_V4, prefilter::v4_bit(source.high)) {
                return 0;
            }
            maps::LISTED_V4.get(&Key::new(32, source.v4_octets()))
        }
        Family::V6 if stages & stage::LISTS_V6 != 0 => {
            let levels = [stage::LISTS_V6_48, stage::LISTS_V6_32, stage::LISTS_V6_16];
            if !may_hold_v6(&maps::PREFILTER_V6, source.high, levels.map(|level| stages & level != 0)) {
                return 0;
            }
            maps::LISTED_V6.get(&Key::new(128, source.v6_octets()))
        }
        _ => return 0,
    };
    match found {
        Some(bits) => *bits,
        None => 0,
    }
}

/// Whether a source with these bits of [`listed`] is never shed on a port.
#[inline(always)]
pub(crate) fn is_management(stages: u64, bits: u32, port: u32) -> bool {
    if stages & stage::MANAGEMENT == 0 || bits & listed::MANAGEMENT == 0 {
        return false;
    }
    let Some((word, bit)) = ports::bit(port) else {
        return false;
    };
    // LLVM knows that a port has no word beyond the last and leaves the remainder out; verifiers before Linux
    // 6.8 do not, and refuse.
    let word = opaque(word as u64, u64::from(bits)) as usize;
    match maps::MANAGEMENT.get(listed::management_class(bits)) {
        Some(open) => open[word % ports::WORDS] >> bit & 1 != 0,
        None => false,
    }
}
