//! The program's maps. Sizes given here are the smallest; the loader sets those that the policy needs.
//!
//! *State* maps outlive a generation of the program: they are pinned and shared. *Policy* maps belong to
//! one generation and are never edited once it is attached.

use core::hint::black_box;

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, LpmTrie, PerCpuArray},
    macros::btf_map,
};
use ratelimit_common::{
    bucket_table::Set,
    charge,
    packet::Packet,
    policy::{MAX_COUNTER_SLOTS, MAX_RULE_BUCKETS, MAX_RULES, Rule, direct, prefilter, range},
    record::{Event, Reason, ReasonCounters, Replay, RuleCounters},
};

use crate::atomic::AtomicWord;

/// A `per: rule` bucket on a cache line of its own, so that rules do not slow each other down.
#[repr(C, align(64))]
pub(crate) struct RuleBucket {
    tat: AtomicWord,
}

/// State: buckets of addresses. `BPF_F_MMAPABLE` also aligns the values to pages, so that a set is one
/// cache line.
#[btf_map(name = "buckets")]
static BUCKETS: Array<Set<AtomicWord>, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// State: `per: rule` buckets.
#[btf_map(name = "rule_buckets")]
static RULE_BUCKETS: Array<RuleBucket, MAX_RULE_BUCKETS, { BPF_F_MMAPABLE as usize }> = Array::new();

/// State: by counter slot.
#[btf_map(name = "rule_counters")]
pub(crate) static RULE_COUNTERS: PerCpuArray<RuleCounters, MAX_COUNTER_SLOTS> = PerCpuArray::new();

/// State: by [`Reason`].
#[btf_map(name = "reason_counters")]
pub(crate) static REASON_COUNTERS: PerCpuArray<ReasonCounters, { Reason::ALL.len() }> = PerCpuArray::new();

/// State: by [`Event`].
#[btf_map(name = "events")]
pub(crate) static EVENTS: PerCpuArray<u64, { Event::ALL.len() }> = PerCpuArray::new();

/// Policy: the rules in file order.
#[btf_map(name = "rules")]
pub(crate) static RULES: Array<Rule, MAX_RULES> = Array::new();

/// Policy: see [`direct`].
#[btf_map(name = "direct_masks")]
pub(crate) static DIRECT_MASKS: Array<u64, { direct::LEN as usize }> = Array::new();

/// Policy: see [`range`].
#[btf_map(name = "range_classes")]
pub(crate) static RANGE_CLASSES: Array<[u8; 65_536], { range::ROWS as usize }> = Array::new();

/// Policy: see [`range`].
#[btf_map(name = "range_masks")]
pub(crate) static RANGE_MASKS: Array<u64, { (range::ROWS * range::MASKS) as usize }> = Array::new();

/// Policy: see [`ratelimit_common::policy::address_class`].
#[btf_map(name = "address_masks")]
pub(crate) static ADDRESS_MASKS: Array<u64, 1> = Array::new();

/// Policy: source prefixes of the rules.
#[btf_map(name = "sources_v4")]
pub(crate) static SOURCES_V4: LpmTrie<[u8; 4], u32, 1> = LpmTrie::new();

/// Policy: source prefixes of the rules.
#[btf_map(name = "sources_v6")]
pub(crate) static SOURCES_V6: LpmTrie<[u8; 16], u32, 1> = LpmTrie::new();

/// Policy: destination prefixes of the rules.
#[btf_map(name = "destinations_v4")]
pub(crate) static DESTINATIONS_V4: LpmTrie<[u8; 4], u32, 1> = LpmTrie::new();

/// Policy: destination prefixes of the rules.
#[btf_map(name = "destinations_v6")]
pub(crate) static DESTINATIONS_V6: LpmTrie<[u8; 16], u32, 1> = LpmTrie::new();

/// Policy: the allow and deny lists, see [`ratelimit_common::policy::listed`].
#[btf_map(name = "listed_v4")]
pub(crate) static LISTED_V4: LpmTrie<[u8; 4], u32, 1> = LpmTrie::new();

/// Policy: the allow and deny lists, see [`ratelimit_common::policy::listed`].
#[btf_map(name = "listed_v6")]
pub(crate) static LISTED_V6: LpmTrie<[u8; 16], u32, 1> = LpmTrie::new();

/// One chunk of a prefilter bitmap.
pub(crate) type PrefilterChunk = [u64; prefilter::CHUNK_WORDS];

/// Policy: which /24s hold a listed prefix, see [`prefilter`].
#[btf_map(name = "prefilter_v4")]
pub(crate) static PREFILTER_V4: Array<PrefilterChunk, 1> = Array::new();

/// Policy: the same for IPv6, hashed.
#[btf_map(name = "prefilter_v6")]
pub(crate) static PREFILTER_V6: Array<PrefilterChunk, 1> = Array::new();

/// The exchange of a replayed packet.
#[btf_map(name = "replay")]
pub(crate) static REPLAY: Array<Replay, 1> = Array::new();

/// Where a packet is parsed into, see [`forget`].
#[btf_map(name = "scratch")]
static SCRATCH: PerCpuArray<Packet, 1> = PerCpuArray::new();

/// This CPU's place for a parsed packet; `None` cannot happen: the map has one entry.
#[inline(always)]
pub(crate) fn scratch() -> Option<&'static mut Packet> {
    // SAFETY: the pointer is this CPU's slot of a per-CPU array, XDP programs of one CPU do not interrupt
    // each other, and a program asks for it once. All zeroes, which the slot starts as, are a valid
    // `Packet`, and nothing else writes it.
    SCRATCH.get_ptr_mut(0).map(|packet| unsafe { &mut *packet })
}

/// Makes the verifier forget what it knows of a parsed packet.
///
/// It would follow every combination of header kinds to the end of the program, since each leaves other
/// constants in the packet: 800,000 instructions for a policy that uses every stage, where one million is
/// the limit. Of what is read from a map it knows nothing, so behind this point there is one path.
/// `black_box` keeps the compiler from carrying the values past the map.
#[inline(always)]
pub(crate) fn forget(packet: &mut Packet) -> &Packet {
    black_box(packet)
}

/// The state maps as `charge` sees them.
pub(crate) struct Buckets;

impl charge::Buckets for Buckets {
    type Cell = AtomicWord;

    #[inline(always)]
    fn set(&self, index: u64) -> Option<&Set<AtomicWord>> {
        BUCKETS.get(index as u32)
    }

    #[inline(always)]
    fn rule_bucket(&self, index: u32) -> Option<&AtomicWord> {
        RULE_BUCKETS.get(index).map(|bucket| &bucket.tat)
    }
}
