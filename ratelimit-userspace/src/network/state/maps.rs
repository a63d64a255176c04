//! The state maps, and what each of them is of no use without.

use ratelimit_common::block_table;

/// The state maps, as the object and their pins name them.
pub const STATE_MAPS: [&str; 20] = [
    BUCKETS,
    RULE_BUCKETS,
    RULE_COUNTERS,
    "reason_counters",
    "events",
    BLOCKS,
    BLOCK_DETAILS,
    "rule_blocks",
    "rule_block_details",
    OFFENDERS,
    "block_prefixes_v4",
    "block_prefixes_v6",
    "block_filter_v4",
    "block_filter_v6",
    OVERRIDES,
    "runtime",
    "sampler",
    "sample_budget",
    "samples",
    "talkers",
];

/// Addresses that the operator's table is made for; it grows.
pub const INITIAL_BLOCKS: u32 = 16_384;

pub(super) const BUCKETS: &str = "buckets";
pub(super) const RULE_BUCKETS: &str = "rule_buckets";
pub(super) const RULE_COUNTERS: &str = "rule_counters";
pub(super) const BLOCKS: &str = "blocks";
const BLOCK_DETAILS: &str = "block_details";
const OFFENDERS: &str = "offenders";
const OVERRIDES: &str = "overrides";

/// A map of blocks that userspace makes with the first reason.
pub(super) const BLOCK_REASONS: &str = "block_reasons";

/// What a map belongs to, as people are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Blocks,
    Buckets,
    RuleBuckets,
    Counters,
    Sources,
    Other(&'static str),
}

// === impl Part ===

impl Part {
    pub(super) fn of(map: &'static str) -> Self {
        match map {
            BUCKETS => Self::Buckets,
            RULE_BUCKETS => Self::RuleBuckets,
            RULE_COUNTERS | "reason_counters" | "events" => Self::Counters,
            "sampler" | "sample_budget" | "samples" | "talkers" => Self::Sources,
            "rule_blocks" | "rule_block_details" | "runtime" => Self::Blocks,
            _ if map.starts_with("block") => Self::Blocks,
            _ => Self::Other(map),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Buckets => "buckets",
            Self::RuleBuckets => "`per: rule` buckets",
            Self::Counters => "counters",
            Self::Sources => "sources",
            Self::Other(map) => map,
        }
    }
}

/// Whether a map holds times since the table's zero, or hashes under its key.
pub(super) fn needs_table(map: &'static str) -> bool {
    matches!(map, BUCKETS | RULE_BUCKETS | OFFENDERS) || Part::of(map) == Part::Blocks
}

/// Whether a map's entries belong to rules by their counter slots.
pub(super) fn needs_slots(map: &'static str) -> bool {
    matches!(map, RULE_BUCKETS | RULE_COUNTERS | OFFENDERS | OVERRIDES)
}

/// How many entries a map has that grows by itself, given the sets of the operator's blocks; `None`: as
/// many as the object or the policy says.
pub(super) fn own_entries(map: &'static str, block_sets: u32) -> Option<u32> {
    match map {
        BLOCKS => Some(block_sets),
        BLOCK_DETAILS => Some(block_sets.saturating_mul(block_table::WAYS)),
        _ => None,
    }
}
