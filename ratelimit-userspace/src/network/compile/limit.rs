//! Limits: identity, arithmetic, and the words that describe one.

use std::hash::Hasher as _;

use ratelimit_common::{
    address::prefix_mask,
    bucket_table,
    gcra::{self, FULL_FRAME, TICK_SHIFT},
    policy::{self, COARSE_LAG_NANOS, MAX_LIMITS, scope, unit},
};
use siphasher::sip::SipHasher24;

use super::CompileError;
use crate::config::policy::{Limit, Per, Rule, Sources, Unit};

/// Cells of a rule among the `per: rule` buckets.
#[expect(clippy::cast_possible_truncation, reason = "it is a handful")]
const CELLS: u32 = MAX_LIMITS as u32;

/// One limit of a rule, as the XDP program reads it.
pub(super) fn compile(
    rule: &Rule,
    index: usize,
    sources: Sources,
    counter_slot: u32,
) -> Result<policy::Limit, CompileError> {
    let limit = &rule.limits[index];
    let ordinal = rule.limits[..index].iter().filter(|other| same_kind(limit, other)).map(|_| 1).sum();
    let (ipv4_prefix, ipv6_prefix) = prefixes(limit.per, sources);
    let mut compiled = policy::Limit {
        id: id(&rule.name, limit, (ipv4_prefix, ipv6_prefix), ordinal),
        ipv4_mask: prefix_mask(ipv4_prefix)[0],
        ipv6_mask: prefix_mask(ipv6_prefix),
        scope: if limit.per == Per::Rule { scope::RULE } else { scope::ADDRESS },
        unit: match limit.unit {
            Unit::Packets => unit::PACKETS,
            Unit::Bytes => unit::BYTES,
        },
        bucket: if limit.per == Per::Rule { rule_bucket(counter_slot, limit.unit, ordinal) } else { 0 },
        ..policy::Limit::UNUSED
    };
    if let Some(bucket) = &limit.bucket {
        let arithmetic = match limit.unit {
            Unit::Packets => gcra::Limit::packets(bucket.rate, bucket.burst),
            Unit::Bytes => gcra::Limit::bytes(bucket.rate, bucket.burst),
        };
        let arithmetic @ gcra::Limit { multiplier, shift, capacity } =
            arithmetic.map_err(|error| CompileError::Limit { rule: rule.name.clone(), index, error })?;
        compiled.multiplier = multiplier;
        compiled.shift = shift;
        compiled.capacity = capacity;
        compiled.scale = bucket_table::scale(capacity);
        compiled.slow =
            u32::from(arithmetic.cost(compiled.units(FULL_FRAME), 0) > COARSE_LAG_NANOS << TICK_SHIFT);
    }
    Ok(compiled)
}

fn same_kind(one: &Limit, other: &Limit) -> bool {
    (one.per, one.unit) == (other.per, other.unit)
}

/// Bits of a source that pick the bucket; none when everyone shares one.
fn prefixes(per: Per, sources: Sources) -> (u8, u8) {
    match per {
        Per::Source => (sources.ipv4_prefix, sources.ipv6_prefix),
        Per::Prefix { ipv4_prefix, ipv6_prefix } => (ipv4_prefix, ipv6_prefix),
        Per::Rule => (0, 0),
    }
}

/// The identity of a limit, under which its buckets are kept over reloads, restarts and builds: SipHash-2-4
/// (key zero) of what says whose bucket it is, and nothing of what says how much it holds, so that a
/// changed rate keeps its buckets. The bytes hashed are, integers little-endian: the name's length (u64),
/// the name, the kind of `per` (0 source, 1 prefix, 2 rule), both prefix lengths in bits, the unit
/// (0 packets, 1 bytes), and the ordinal among the rule's limits of equal `per` and unit (u32).
fn id(rule: &str, limit: &Limit, (ipv4_prefix, ipv6_prefix): (u8, u8), ordinal: u32) -> u64 {
    let kind = match limit.per {
        Per::Source => 0,
        Per::Prefix { .. } => 1,
        Per::Rule => 2,
    };
    let unit = match limit.unit {
        Unit::Packets => 0,
        Unit::Bytes => 1,
    };
    // `Hasher::write_u64` and its like follow the machine's byte order; `write` does not.
    let mut hasher = SipHasher24::new();
    hasher.write(&(rule.len() as u64).to_le_bytes());
    hasher.write(rule.as_bytes());
    hasher.write(&[kind, ipv4_prefix, ipv6_prefix, unit]);
    hasher.write(&ordinal.to_le_bytes());
    hasher.finish()
}

/// The cell of a `per: rule` limit among those of its rule. Packets count up from the front and bytes down
/// from the back, so a limit keeps its cell when limits of other kinds come and go around it.
fn rule_bucket(counter_slot: u32, unit: Unit, ordinal: u32) -> u32 {
    let cell = match unit {
        Unit::Packets => ordinal,
        Unit::Bytes => CELLS - 1 - ordinal,
    };
    counter_slot * CELLS + cell
}

/// What a limit says, in the words of a rules file.
pub(super) fn words(limit: &Limit) -> String {
    let per = match limit.per {
        Per::Source => "per source".to_owned(),
        Per::Prefix { ipv4_prefix, ipv6_prefix } => format!("per /{ipv4_prefix} (IPv6 /{ipv6_prefix})"),
        Per::Rule => "per rule".to_owned(),
    };
    let Some(bucket) = &limit.bucket else {
        return format!("{per}: 0/s");
    };
    let gcra::Rate { units, nanos } = bucket.rate;
    let (units, nanos) = (u128::from(units), u128::from(nanos));
    let (rate, burst) = match limit.unit {
        Unit::Packets => {
            let rate = match nanos {
                1_000_000_000 => format!("{units}/s"),
                60_000_000_000 => format!("{units}/m"),
                3_600_000_000_000 => format!("{units}/h"),
                86_400_000_000_000 => format!("{units}/d"),
                _ => format!("{units} in {nanos} ns"),
            };
            (rate, bucket.burst.to_string())
        }
        Unit::Bytes => {
            let bits = units * 8 * 1_000_000_000;
            let rate = if bits.is_multiple_of(nanos) {
                format!("{}bit/s", decimal(bits / nanos))
            } else {
                format!("{units} B in {nanos} ns")
            };
            (rate, format!("{}B", decimal(bucket.burst.into())))
        }
    };
    format!("{per}: {rate}, burst {burst}")
}

/// A number with the largest decimal prefix that keeps it whole.
fn decimal(number: u128) -> String {
    let prefixes = [(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
    match prefixes.iter().find(|(size, _)| number != 0 && number.is_multiple_of(*size)) {
        Some((size, prefix)) => format!("{}{prefix}", number / size),
        None => number.to_string(),
    }
}
