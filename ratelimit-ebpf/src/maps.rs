//! The program's maps. Sizes given here are the smallest; the loader sets those that the policy needs.
//!
//! *State* maps outlive a generation of the program: they are pinned and shared. *Policy* maps belong to
//! one generation and are never edited once it is attached.

use core::hint::black_box;

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, ProgramArray, RingBuf},
    macros::btf_map,
};
use ratelimit_common::{
    block_table::{self, Detail, WAYS},
    blocks::{self, Runtime},
    bucket_table::Set,
    charge, offenders,
    overrides::{self, Override},
    packet::Packet,
    policy::{MAX_COUNTER_SLOTS, MAX_RULE_BUCKETS, MAX_RULES, Rule, direct, ports, prefilter, range},
    record::{Event, Reason, ReasonCounters, Replay, RuleCounters},
    sample::{Budget, RING, Source, TALKERS, Talker},
    sampler::Sampler,
};

use crate::atomic::AtomicWord;

/// Values are aligned to pages, and userspace reads and writes them without a system call.
const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// A `per: rule` bucket on a cache line of its own, so that rules do not slow each other down.
#[repr(C, align(64))]
pub(crate) struct RuleBucket {
    tat: AtomicWord,
}

/// State: buckets of addresses. `BPF_F_MMAPABLE` also aligns the values to pages, so that a set is one
/// cache line.
#[btf_map(name = "buckets")]
static BUCKETS: Array<Set<AtomicWord>, 1, MMAPABLE> = Array::new();

/// State: `per: rule` buckets.
#[btf_map(name = "rule_buckets")]
static RULE_BUCKETS: Array<RuleBucket, MAX_RULE_BUCKETS, MMAPABLE> = Array::new();

/// State: by counter slot.
#[btf_map(name = "rule_counters")]
pub(crate) static RULE_COUNTERS: PerCpuArray<RuleCounters, MAX_COUNTER_SLOTS> = PerCpuArray::new();

/// State: by [`Reason`].
#[btf_map(name = "reason_counters")]
pub(crate) static REASON_COUNTERS: PerCpuArray<ReasonCounters, { Reason::ALL.len() }> = PerCpuArray::new();

/// State: by [`Event`].
#[btf_map(name = "events")]
pub(crate) static EVENTS: PerCpuArray<u64, { Event::ALL.len() }> = PerCpuArray::new();

/// State: addresses that the operator blocked. Only userspace writes it.
#[btf_map(name = "blocks")]
static BLOCKS: Array<block_table::Set<AtomicWord>, 2, MMAPABLE> = Array::new();

/// State: what else is known of them.
#[btf_map(name = "block_details")]
static BLOCK_DETAILS: Array<Detail<AtomicWord>, { 2 * WAYS as usize }, MMAPABLE> = Array::new();

/// Sets of `rule_blocks`.
pub(crate) const RULE_BLOCK_SETS: u32 = block_table::sets_for(blocks::RULE_CAPACITY);

/// State: sources that rules blocked.
#[btf_map(name = "rule_blocks")]
static RULE_BLOCKS: Array<block_table::Set<AtomicWord>, { RULE_BLOCK_SETS as usize }, MMAPABLE> =
    Array::new();

/// State: what else is known of them.
#[btf_map(name = "rule_block_details")]
static RULE_BLOCK_DETAILS: Array<Detail<AtomicWord>, { (RULE_BLOCK_SETS * WAYS) as usize }, MMAPABLE> =
    Array::new();

/// State: how often rules that block shed packets of whom.
#[btf_map(name = "offenders")]
pub(crate) static OFFENDERS: Array<offenders::Set<AtomicWord>, { offenders::SETS as usize }, MMAPABLE> =
    Array::new();

/// The most prefixes that can be blocked. A trie takes memory as they come.
const BLOCK_PREFIXES: usize = 1 << 22;

/// State: prefixes that the operator blocked.
#[btf_map(name = "block_prefixes_v4")]
pub(crate) static BLOCK_PREFIXES_V4: LpmTrie<[u8; 4], blocks::Prefix, BLOCK_PREFIXES> = LpmTrie::new();

/// State: prefixes that the operator blocked.
#[btf_map(name = "block_prefixes_v6")]
pub(crate) static BLOCK_PREFIXES_V6: LpmTrie<[u8; 16], blocks::Prefix, BLOCK_PREFIXES> = LpmTrie::new();

/// A prefilter that userspace changes in place.
pub(crate) type BlockFilter = Array<PrefilterChunk, { prefilter::CHUNKS as usize }, MMAPABLE>;

/// State: which /24s hold a blocked prefix, see [`prefilter`].
#[btf_map(name = "block_filter_v4")]
pub(crate) static BLOCK_FILTER_V4: BlockFilter = BlockFilter::new();

/// State: the same for IPv6, hashed.
#[btf_map(name = "block_filter_v6")]
pub(crate) static BLOCK_FILTER_V6: BlockFilter = BlockFilter::new();

/// State: clients that are put under a rule. Only userspace writes it; what it replaces is freed when no program
/// looks at it any more, which an allocation of its own makes sure of.
#[btf_map(name = "overrides")]
pub(crate) static OVERRIDES: HashMap<
    overrides::Client,
    Override,
    { overrides::CAPACITY },
    { BPF_F_NO_PREALLOC as usize },
> = HashMap::new();

/// State: words that change in place.
#[btf_map(name = "runtime")]
pub(crate) static RUNTIME: Array<Runtime<AtomicWord>, 1, MMAPABLE> = Array::new();

/// State: which packets are samples.
#[btf_map(name = "sampler")]
pub(crate) static SAMPLER: PerCpuArray<Sampler, 1> = PerCpuArray::new();

/// State: what the samples tell of each source.
#[btf_map(name = "talkers")]
pub(crate) static TALKERS_BY_SOURCE: LruHashMap<Source, Talker<AtomicWord>, TALKERS> = LruHashMap::new();

/// State: what the samples tell of refused packets, for whoever listens. Without a value type, which
/// bpftool takes for one of 16 bytes.
#[btf_map(name = "samples")]
pub(crate) static SAMPLES: RingBuf<(), RING> = RingBuf::new();

/// State: how many records may still be written, by [`Reason`].
#[btf_map(name = "sample_budget")]
pub(crate) static SAMPLE_BUDGET: PerCpuArray<Budget, { Reason::ALL.len() }> = PerCpuArray::new();

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

/// Policy: the allow, management and deny lists, see [`ratelimit_common::policy::listed`].
#[btf_map(name = "listed_v4")]
pub(crate) static LISTED_V4: LpmTrie<[u8; 4], u32, 1> = LpmTrie::new();

/// Policy: the allow, management and deny lists, see [`ratelimit_common::policy::listed`].
#[btf_map(name = "listed_v6")]
pub(crate) static LISTED_V6: LpmTrie<[u8; 16], u32, 1> = LpmTrie::new();

/// Policy: the ports on which a class of sources is never shed, see [`ratelimit_common::policy::ports`].
#[btf_map(name = "management")]
pub(crate) static MANAGEMENT: Array<[u64; ports::WORDS], 1> = Array::new();

/// One chunk of a prefilter bitmap.
pub(crate) type PrefilterChunk = [u64; prefilter::CHUNK_WORDS];

/// Policy: which /24s hold a listed prefix, see [`prefilter`].
#[btf_map(name = "prefilter_v4")]
pub(crate) static PREFILTER_V4: Array<PrefilterChunk, 1> = Array::new();

/// Policy: the same for IPv6, hashed.
#[btf_map(name = "prefilter_v6")]
pub(crate) static PREFILTER_V6: Array<PrefilterChunk, 1> = Array::new();

/// Policy: the program that gets what passes. The loader fills it when this program is loaded, since the
/// kernel compares the two.
#[btf_map(name = "next")]
pub(crate) static NEXT: ProgramArray<1> = ProgramArray::new();

/// The exchange of a replayed packet.
#[btf_map(name = "replay")]
pub(crate) static REPLAY: Array<Replay, 1> = Array::new();

/// Where a packet is parsed into, see [`forget`].
#[btf_map(name = "scratch")]
static SCRATCH: PerCpuArray<Packet, 1> = PerCpuArray::new();

/// The packet at hand, once more, for a function that takes numbers only.
#[inline(always)]
pub(crate) fn packet_at_hand() -> Option<&'static Packet> {
    // SAFETY: as in `scratch`. Whoever wrote to it waits for this function's caller to return.
    SCRATCH.get_ptr(0).map(|packet| unsafe { &*packet })
}

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

/// The operator's table of blocked addresses.
pub(crate) struct OperatorBlocks;

impl block_table::Memory for OperatorBlocks {
    type Cell = AtomicWord;

    #[inline(always)]
    fn set(&self, index: u32) -> Option<&block_table::Set<AtomicWord>> {
        BLOCKS.get(index)
    }

    #[inline(always)]
    fn detail(&self, index: u32) -> Option<&Detail<AtomicWord>> {
        BLOCK_DETAILS.get(index)
    }
}

/// The table of sources that rules blocked.
pub(crate) struct RuleBlocks;

impl block_table::Memory for RuleBlocks {
    type Cell = AtomicWord;

    #[inline(always)]
    fn set(&self, index: u32) -> Option<&block_table::Set<AtomicWord>> {
        RULE_BLOCKS.get(index)
    }

    #[inline(always)]
    fn detail(&self, index: u32) -> Option<&Detail<AtomicWord>> {
        RULE_BLOCK_DETAILS.get(index)
    }
}
