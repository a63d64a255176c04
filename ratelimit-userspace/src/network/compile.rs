//! The meaning of a rules file -> the exact contents of the policy maps and the load-time constants.
//!
//! Pure: nothing here touches the kernel. [`ratelimit_common::policy`] says what the contents mean to the
//! XDP program.

mod dimension;
mod limit;
pub mod slots;

#[cfg(test)]
pub(super) mod tests;

use std::fmt;

use ratelimit_common::{
    address::Address,
    gcra::LimitError,
    offenders,
    packet::{ABSENT, Fragment, Packet},
    policy::{
        self, MAX_LIMITS, MAX_MANAGEMENT, MAX_RULES, action, address_class, direct, range, stage, when_full,
    },
};
use serde::{Deserialize, Serialize};

use self::dimension::Interner;
pub use self::{
    dimension::{Addresses, RangeClasses},
    slots::Slots,
};
use crate::{
    config::policy::{Block, FragmentKind, IcmpType, Network, Rule, TcpFlags, Vlan, WhenFull},
    network::lists::{Lists, trie},
};

/// A compiled policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The constant `STAGES`: bits of [`stage`].
    pub stages: u64,
    /// The constant `WHEN_FULL`: one of [`when_full`].
    pub when_full: u32,
    /// The constants `SOURCE_BITS_V4` and `SOURCE_BITS_V6`.
    pub source_bits: SourceBits,
    /// `rules`, in file order.
    pub rules: Vec<policy::Rule>,
    /// `direct_masks`; the blocks of unused dimensions are zero.
    pub direct_masks: Vec<u64>,
    /// The used rows of `range_classes`.
    pub range_classes: Vec<RangeClasses>,
    /// `range_masks`; the blocks of unused dimensions are zero.
    pub range_masks: Vec<u64>,
    /// `address_masks`.
    pub address_masks: Vec<u64>,
    /// `sources_v4` and `sources_v6`.
    pub sources: Addresses,
    /// `destinations_v4` and `destinations_v6`.
    pub destinations: Addresses,
    /// The allow, management and deny lists.
    pub lists: Lists,
    /// What people are told about each rule, in file order.
    pub descriptions: Vec<RuleDescription>,
}

/// How many leading bits of a source make one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceBits {
    /// Of an IPv4 source.
    pub v4: u32,
    /// Of an IPv6 source.
    pub v6: u32,
}

impl SourceBits {
    /// Those of a policy.
    pub fn of(network: &Network) -> Self {
        Self { v4: network.sources.ipv4_prefix.into(), v6: network.sources.ipv6_prefix.into() }
    }
}

/// What is known of a rule once it is compiled, for those who read its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleDescription {
    /// Its name.
    pub name: String,
    /// Its index in `rule_counters`.
    pub counter_slot: u32,
    /// Its refusals are counted, not shed.
    pub count_only: bool,
    /// Its limits in words, in the order of the tallies of a
    /// [`RuleCounters`](ratelimit_common::record::RuleCounters).
    pub limits: Vec<String>,
}

/// Why a policy has no compiled form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// There are more rules than bits in a mask.
    #[error("the policy has {count} rules, at most {MAX_RULES} fit: merge some, or move addresses to `deny`")]
    TooManyRules {
        /// How many there are.
        count: usize,
    },
    /// There are more management prefixes than bits in a mask.
    #[error("`management` has {count} prefixes, at most {MAX_MANAGEMENT} fit: use wider ones")]
    TooManyManagement {
        /// How many there are.
        count: usize,
    },
    /// A rule has no limit, or too many.
    #[error("rule `{rule}` has {count} limits, a rule has 1 to {MAX_LIMITS}")]
    LimitCount {
        /// The rule's name.
        rule: String,
        /// How many it has.
        count: usize,
    },
    /// The conditions on one field cut its values into more groups than can be told apart.
    #[error(
        "the rules' conditions on `{dimension}` cut its values into {classes} groups that meet different \
         rules, at most {max} can be told apart: use fewer or coarser ranges",
        max = range::CLASSES
    )]
    TooManyClasses {
        /// The key of the condition in a rules file.
        dimension: &'static str,
        /// How many groups there are.
        classes: usize,
    },
    /// A rule has no counter slot: the slots were assigned for other rules.
    #[error("rule `{rule}` has no counter slot")]
    NoSlot {
        /// The rule's name.
        rule: String,
    },
    /// A limit's numbers are out of range.
    #[error("rule `{rule}`, limit {number}: {words}", number = index + 1, words = LimitWords(*error))]
    Limit {
        /// The rule's name.
        rule: String,
        /// The limit's index.
        index: usize,
        /// What is wrong with it.
        error: LimitError,
    },
}

struct LimitWords(LimitError);

impl fmt::Display for LimitWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            LimitError::ZeroRate => "a bucket needs a rate above zero",
            LimitError::ZeroBurst => "a burst of zero lets nothing pass",
            LimitError::FillTooLong => "burst divided by rate is more than 90 days",
            LimitError::TooFast => "the rate is too high to be held to 0.1%",
            LimitError::TooSlow => "the rate is too low to be held to 0.1%",
        })
    }
}

/// Compiles a policy for a generation whose counters are in `slots`.
pub fn compile(network: &Network, slots: &Slots) -> Result<Compiled, CompileError> {
    let rules = &network.rules;
    if rules.len() > MAX_RULES {
        return Err(CompileError::TooManyRules { count: rules.len() });
    }
    if network.management.len() > MAX_MANAGEMENT {
        return Err(CompileError::TooManyManagement { count: network.management.len() });
    }
    let (compiled_rules, descriptions) =
        rules.iter().map(|rule| compile_rule(rule, network, slots)).collect::<Result<_, _>>()?;
    let lists = Lists::compile(&network.allow, &network.management, &network.deny);

    let mut stages = lists.stages;
    let mut set = |bit, condition| stages |= if condition { bit } else { 0 };
    set(stage::RULES, !rules.is_empty());
    set(stage::MALFORMED_PASS, network.malformed_pass);
    set(stage::MONITOR, network.monitor);
    set(stage::NEXT, network.next.is_some());
    set(stage::RULE_BLOCKS, rules.iter().any(|rule| rule.block.is_some()));
    set(stage::OVERRIDES, rules.iter().any(|rule| rule.for_clients));
    set(stage::SOURCE, dimension::is_used(rules, |matches| &matches.source));
    set(stage::DESTINATION, dimension::is_used(rules, |matches| &matches.destination));
    set(stage::PROTOCOL, dimension::is_used(rules, |matches| &matches.protocol));
    set(stage::SOURCE_PORT, dimension::is_used(rules, |matches| &matches.source_port));
    set(stage::DESTINATION_PORT, dimension::is_used(rules, |matches| &matches.destination_port));
    set(stage::TCP_FLAGS, dimension::is_used(rules, |matches| &matches.tcp_flags));
    set(stage::ICMP_TYPE, dimension::is_used(rules, |matches| &matches.icmp_type));
    set(stage::FRAGMENT, dimension::is_used(rules, |matches| &matches.fragment));
    set(stage::VLAN, dimension::is_used(rules, |matches| &matches.vlan));
    set(stage::LENGTH, dimension::is_used(rules, |matches| &matches.length));

    let (range_classes, range_masks) = compile_ranges(rules)?;
    let mut masks = Interner::default();
    let (sources, unlisted_source) = dimension::addresses(rules, |matches| &matches.source, &mut masks);
    let (destinations, unlisted_destination) =
        dimension::addresses(rules, |matches| &matches.destination, &mut masks);
    let mut address_masks = vec![0; address_class::FIRST as usize];
    address_masks[address_class::UNLISTED_SOURCE as usize] = unlisted_source;
    address_masks[address_class::UNLISTED_DESTINATION as usize] = unlisted_destination;
    address_masks.extend(masks.values);

    Ok(Compiled {
        stages,
        when_full: match network.sources.when_full {
            WhenFull::Pass => when_full::PASS,
            WhenFull::Share => when_full::SHARE,
            WhenFull::Drop => when_full::DROP,
        },
        source_bits: SourceBits::of(network),
        rules: compiled_rules,
        direct_masks: compile_direct(rules),
        range_classes,
        range_masks,
        address_masks,
        sources,
        destinations,
        lists,
        descriptions,
    })
}

fn compile_rule(
    rule: &Rule,
    network: &Network,
    slots: &Slots,
) -> Result<(policy::Rule, RuleDescription), CompileError> {
    let count = rule.limits.len();
    if !(1..=MAX_LIMITS).contains(&count) {
        return Err(CompileError::LimitCount { rule: rule.name.clone(), count });
    }
    let counter_slot =
        slots.get(&rule.name).ok_or_else(|| CompileError::NoSlot { rule: rule.name.clone() })?;
    let mut compiled = policy::Rule {
        limits: [policy::Limit::UNUSED; MAX_LIMITS],
        limit_count: 0,
        action: if rule.count_only { action::COUNT } else { action::SHED },
        counter_slot,
        zero_limit: 0,
        block: rule.block.filter(|_| !rule.count_only).map(block).unwrap_or_default(),
    };
    for (index, limit) in rule.limits.iter().enumerate() {
        compiled.limits[index] = limit::compile(rule, index, network.sources, counter_slot)?;
        compiled.limit_count += 1;
        if limit.bucket.is_none() && compiled.zero_limit == 0 {
            compiled.zero_limit = compiled.limit_count;
        }
    }
    let description = RuleDescription {
        name: rule.name.clone(),
        counter_slot,
        count_only: rule.count_only,
        limits: rule.limits.iter().map(limit::words).collect(),
    };
    Ok((compiled, description))
}

fn block(block: Block) -> policy::Block {
    let (probability, samples) = offenders::sampling(block.after);
    let moments = block.within.as_nanos() >> offenders::MOMENT_SHIFT;
    policy::Block {
        probability,
        samples,
        window: u32::try_from(moments).unwrap_or(u32::MAX),
        seconds: u32::try_from(block.duration.as_secs()).unwrap_or(u32::MAX),
    }
}

fn compile_direct(rules: &[Rule]) -> Vec<u64> {
    let mut masks = vec![0; direct::LEN as usize];
    let block = |from: u32, to: u32| from as usize..to as usize;
    dimension::fill_direct(
        rules,
        |matches| &matches.protocol,
        &mut masks[block(direct::PROTOCOL, direct::TCP_FLAGS)],
        |&number| [number.into()],
    );
    dimension::fill_direct(
        rules,
        |matches| &matches.tcp_flags,
        &mut masks[block(direct::TCP_FLAGS, direct::ICMP_TYPE)],
        |&TcpFlags { set, clear }| {
            (0..=u8::MAX).filter(move |flags| flags & (set | clear) == set).map(u32::from)
        },
    );
    dimension::fill_direct(
        rules,
        |matches| &matches.icmp_type,
        &mut masks[block(direct::ICMP_TYPE, direct::FRAGMENT)],
        |&kind| match kind {
            IcmpType::V4(number) => [number.into()],
            IcmpType::V6(number) => [256 + u32::from(number)],
        },
    );
    dimension::fill_direct(
        rules,
        |matches| &matches.fragment,
        &mut masks[block(direct::FRAGMENT, direct::VLAN)],
        |&kind| match kind {
            FragmentKind::None => [Fragment::None as u32],
            FragmentKind::First => [Fragment::First as u32],
            FragmentKind::Later => [Fragment::Later as u32],
        },
    );
    dimension::fill_direct(
        rules,
        |matches| &matches.vlan,
        &mut masks[block(direct::VLAN, direct::LEN)],
        |&vlan| match vlan {
            Vlan::Id(id) => [id.into()],
            Vlan::Untagged => [UNTAGGED],
        },
    );
    masks
}

// Where packets without such a value are in each block: right after the values.
const PROTOCOL_ABSENT: u32 = direct::TCP_FLAGS - direct::PROTOCOL - 1;
const TCP_FLAGS_ABSENT: u32 = direct::ICMP_TYPE - direct::TCP_FLAGS - 1;
const ICMP_TYPE_ABSENT: u32 = direct::FRAGMENT - direct::ICMP_TYPE - 1;
const UNTAGGED: u32 = direct::LEN - direct::VLAN - 1;

fn compile_ranges(rules: &[Rule]) -> Result<(Vec<RangeClasses>, Vec<u64>), CompileError> {
    let mut masks = vec![0; (range::ROWS * range::MASKS) as usize];
    let block = |row: u32| (row * range::MASKS) as usize..((row + 1) * range::MASKS) as usize;
    let rows = [
        dimension::ranges(
            rules,
            |matches| &matches.source_port,
            (range::SOURCE_PORT, "source_port"),
            &mut masks[block(range::SOURCE_PORT)],
        )?,
        dimension::ranges(
            rules,
            |matches| &matches.destination_port,
            (range::DESTINATION_PORT, "destination_port"),
            &mut masks[block(range::DESTINATION_PORT)],
        )?,
        dimension::ranges(
            rules,
            |matches| &matches.length,
            (range::LENGTH, "length"),
            &mut masks[block(range::LENGTH)],
        )?,
    ];
    Ok((rows.into_iter().flatten().collect(), masks))
}

impl Compiled {
    /// The index of the rule that a packet of `length` bytes meets, from the very tables that the XDP
    /// program reads: what that program is tested against.
    pub fn classify(&self, packet: &Packet, length: u32) -> Option<usize> {
        self.classify_under(packet, length, None)
    }

    /// The same for a packet of a client that is put under a rule, by its index.
    pub fn classify_under(&self, packet: &Packet, length: u32, under: Option<usize>) -> Option<usize> {
        let mut mask = u64::MAX;
        let mut meet = |used: u64, dimension: &dyn Fn() -> u64| {
            if self.stages & used != 0 {
                mask &= dimension();
            }
        };
        meet(stage::RULES, &|| u64::MAX >> (MAX_RULES - self.rules.len()));
        meet(stage::SOURCE, &|| {
            self.address_mask(&self.sources, &packet.source, address_class::UNLISTED_SOURCE)
        });
        meet(stage::DESTINATION, &|| {
            self.address_mask(&self.destinations, &packet.destination, address_class::UNLISTED_DESTINATION)
        });
        meet(stage::PROTOCOL, &|| self.direct_mask(direct::PROTOCOL, packet.protocol, PROTOCOL_ABSENT));
        meet(stage::SOURCE_PORT, &|| self.range_mask(range::SOURCE_PORT, packet.source_port));
        meet(stage::DESTINATION_PORT, &|| self.range_mask(range::DESTINATION_PORT, packet.destination_port));
        meet(stage::TCP_FLAGS, &|| self.direct_mask(direct::TCP_FLAGS, packet.tcp_flags, TCP_FLAGS_ABSENT));
        meet(stage::ICMP_TYPE, &|| self.direct_mask(direct::ICMP_TYPE, packet.icmp_type, ICMP_TYPE_ABSENT));
        meet(stage::FRAGMENT, &|| self.direct_mask(direct::FRAGMENT, packet.fragment as u32, ABSENT));
        meet(stage::VLAN, &|| self.direct_mask(direct::VLAN, packet.vlan, UNTAGGED));
        meet(stage::LENGTH, &|| self.range_mask(range::LENGTH, length.min(u16::MAX.into())));
        let meets = |index: &usize| *index < MAX_RULES && mask & 1 << index != 0;
        (mask != 0 && self.stages & stage::RULES != 0)
            .then(|| under.filter(meets).unwrap_or_else(|| mask.trailing_zeros() as usize))
    }

    fn address_mask(&self, addresses: &Addresses, address: &Address, unlisted: u32) -> u64 {
        let class = trie::look_up(&addresses.v4, &addresses.v6, address).unwrap_or(unlisted);
        self.address_masks[class as usize]
    }

    fn direct_mask(&self, offset: u32, value: u32, absent: u32) -> u64 {
        self.direct_masks[(offset + if value == ABSENT { absent } else { value }) as usize]
    }

    fn range_mask(&self, row: u32, value: u32) -> u64 {
        let class = if value == ABSENT {
            range::CLASSES
        } else {
            let row = self.range_classes.iter().find(|classes| classes.row == row);
            row.map_or(0, |row| row.classes[value as usize].into())
        };
        self.range_masks[(row * range::MASKS) as usize + class]
    }
}
