//! The bitmaps before the tries, see [`ratelimit_common::policy::prefilter`].

use aya_ebpf::btf_maps::Array;
use ratelimit_common::policy::prefilter::{CHUNK_WORDS, v6_bit};

use crate::maps::PrefilterChunk;

/// Whether the bitmap has the bit of an IPv6 address at one of the levels that are in use: 48, 32 and 16.
#[inline(always)]
pub(crate) fn may_hold_v6<const M: usize, const F: usize>(
    bitmap: &Array<PrefilterChunk, M, F>,
    high: u64,
    used: [bool; 3],
) -> bool {
    let [used_48, used_32, used_16] = used;
    let level = |used: bool, bits: u32| used && is_set(bitmap, v6_bit(high, bits));
    level(used_48, 48) || level(used_32, 32) || level(used_16, 16)
}

#[inline(always)]
pub(crate) fn is_set<const M: usize, const F: usize>(bitmap: &Array<PrefilterChunk, M, F>, bit: u32) -> bool {
    let Some(chunk) = bitmap.get(bit >> 16) else {
        return false;
    };
    let word = (bit >> 6) as usize % CHUNK_WORDS;
    chunk[word] >> (bit % 64) & 1 != 0
}
