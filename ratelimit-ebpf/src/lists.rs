//! The allow and deny lists.

use aya_ebpf::btf_maps::{Array, lpm_trie::Key};
use ratelimit_common::{
    address::{Address, Family},
    policy::{prefilter, stage},
};

use crate::maps::{self, PrefilterChunk};

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
            if !may_hold_v6(stages, source.high) {
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

/// Whether some level of the IPv6 prefilter that is in use has the address' bit.
#[inline(always)]
fn may_hold_v6(stages: u64, high: u64) -> bool {
    let level = |used: u64, bits: u32| {
        stages & used != 0 && is_set(&maps::PREFILTER_V6, prefilter::v6_bit(high, bits))
    };
    level(stage::LISTS_V6_48, 48) || level(stage::LISTS_V6_32, 32) || level(stage::LISTS_V6_16, 16)
}

#[inline(always)]
fn is_set(bitmap: &Array<PrefilterChunk, 1>, bit: u32) -> bool {
    let Some(chunk) = bitmap.get(bit >> 16) else {
        return false;
    };
    let word = (bit >> 6) as usize % prefilter::CHUNK_WORDS;
    chunk[word] >> (bit % 64) & 1 != 0
}
