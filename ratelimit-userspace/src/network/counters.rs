//! What the program counted. Counters are per CPU, so that counting is one plain instruction; here they
//! are summed over all CPUs that the kernel can have, also those that are offline now.

use std::{
    array,
    borrow::Borrow,
    path::{Path, PathBuf},
};

use aya::{
    Pod,
    maps::{Map, MapData, MapError, PerCpuArray},
};
use ratelimit_common::record::{self, Event, Reason, ReasonCounters, RuleCounters};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{compile::RuleDescription, program::Program};

/// All counters at one moment. Packets go on being counted while they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// By rule, in file order.
    pub rules: Vec<RuleCount>,
    /// By reason, all of them, in the order of their numbers.
    pub reasons: Vec<ReasonCount>,
    /// By event, all of them, in the order of their numbers.
    pub events: Vec<EventCount>,
}

/// Packets and bytes of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Their whole length as XDP sees it, in bytes.
    pub bytes: u64,
}

/// What became of the packets that met one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleCount {
    /// The rule's name.
    pub rule: String,
    /// Within all limits.
    pub passed: Tally,
    /// Refused, by limit.
    pub limits: Vec<LimitCount>,
}

/// What one limit of a rule refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitCount {
    /// The limit in words.
    pub limit: String,
    /// Shed.
    pub shed: Tally,
    /// Passed only because the policy or the rule monitors.
    pub would_shed: Tally,
}

/// What became of the packets whose verdict has one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonCount {
    /// Its name, such as `limited`.
    pub reason: String,
    /// Passed.
    pub passed: Tally,
    /// Shed.
    pub shed: Tally,
    /// Passed only because the policy or the rule monitors.
    pub would_shed: Tally,
}

/// How often something happened that is no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventCount {
    /// Its name, such as `live_evicted`.
    pub event: String,
    /// How often.
    pub count: u64,
}

/// Why counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// A map is not pinned where it should be, or not accessible.
    #[error(
        "failed to open the pinned map {}: is the limiter loaded, and may this user read BPF maps?",
        path.display()
    )]
    Open {
        /// Its pin.
        path: PathBuf,
        /// What the kernel says.
        source: MapError,
    },
    /// A map is missing, of another type or layout, or cannot be read.
    #[error("failed to read the map `{map}`")]
    Read {
        /// Its name.
        map: &'static str,
        /// What aya or the kernel says.
        source: MapError,
    },
    /// The program has no such map.
    #[error("the program has no map `{map}`")]
    Missing {
        /// Its name.
        map: &'static str,
    },
}

/// The maps that hold the counters.
#[derive(Debug)]
pub struct CounterMaps<M> {
    rules: M,
    reasons: M,
    events: M,
}

const RULES: &str = "rule_counters";
const REASONS: &str = "reason_counters";
const EVENTS: &str = "events";

// === impl CounterMaps ===

impl CounterMaps<Map> {
    /// The ones that are pinned by name in a directory.
    pub fn pinned(directory: &Path) -> Result<Self, CountersError> {
        let open = |name: &str| {
            let path = directory.join(name);
            match MapData::from_pin(&path) {
                Ok(data) => Ok(Map::PerCpuArray(data)),
                Err(source) => Err(CountersError::Open { path, source }),
            }
        };
        Ok(Self { rules: open(RULES)?, reasons: open(REASONS)?, events: open(EVENTS)? })
    }
}

impl<'a> CounterMaps<&'a Map> {
    /// The ones of a loaded program.
    pub fn of(program: &'a Program) -> Result<Self, CountersError> {
        let map = |name| program.map(name).ok_or(CountersError::Missing { map: name });
        Ok(Self { rules: map(RULES)?, reasons: map(REASONS)?, events: map(EVENTS)? })
    }
}

impl<M: Borrow<Map>> CounterMaps<M> {
    /// Reads everything. `rules` are those of the policy that counts, in file order.
    pub fn read(&self, rules: &[RuleDescription]) -> Result<Counters, CountersError> {
        let by_slot = PerCpu { map: RULES, array: self.rules.borrow(), add: add_rule };
        let by_reason = PerCpu { map: REASONS, array: self.reasons.borrow(), add: add_reason };
        let by_event = PerCpu { map: EVENTS, array: self.events.borrow(), add: u64::wrapping_add };
        let rules = rules.iter().map(|rule| Ok(RuleCount::new(rule, by_slot.sum(rule.counter_slot)?)));
        let reasons = Reason::ALL.iter().map(|&reason| {
            let ReasonCounters { passed, shed, would_shed } = by_reason.sum(reason as u32)?;
            let (passed, shed, would_shed) = (passed.into(), shed.into(), would_shed.into());
            Ok(ReasonCount { reason: reason.name().to_owned(), passed, shed, would_shed })
        });
        let events = Event::ALL.iter().map(|&event| {
            Ok(EventCount { event: event.name().to_owned(), count: by_event.sum(event as u32)? })
        });
        Ok(Counters {
            rules: rules.collect::<Result<_, _>>()?,
            reasons: reasons.collect::<Result<_, _>>()?,
            events: events.collect::<Result<_, _>>()?,
        })
    }
}

/// A per-CPU array and how its values add up.
struct PerCpu<'a, V> {
    map: &'static str,
    array: &'a Map,
    add: fn(V, V) -> V,
}

impl<V: Pod + Default> PerCpu<'_, V> {
    /// The sum over all possible CPUs.
    fn sum(&self, index: u32) -> Result<V, CountersError> {
        let failed = |source| CountersError::Read { map: self.map, source };
        let array = PerCpuArray::<_, V>::try_from(self.array).map_err(failed)?;
        let values = array.get(&index, 0).map_err(failed)?;
        Ok(values.iter().copied().fold(V::default(), self.add))
    }
}

fn add_tally(one: record::Tally, other: record::Tally) -> record::Tally {
    record::Tally {
        packets: one.packets.wrapping_add(other.packets),
        bytes: one.bytes.wrapping_add(other.bytes),
    }
}

fn add_reason(one: ReasonCounters, other: ReasonCounters) -> ReasonCounters {
    ReasonCounters {
        passed: add_tally(one.passed, other.passed),
        shed: add_tally(one.shed, other.shed),
        would_shed: add_tally(one.would_shed, other.would_shed),
    }
}

fn add_rule(one: RuleCounters, other: RuleCounters) -> RuleCounters {
    RuleCounters {
        passed: add_tally(one.passed, other.passed),
        shed: array::from_fn(|limit| add_tally(one.shed[limit], other.shed[limit])),
        would_shed: array::from_fn(|limit| add_tally(one.would_shed[limit], other.would_shed[limit])),
    }
}

// === conversions ===

impl RuleCount {
    fn new(rule: &RuleDescription, counters: RuleCounters) -> Self {
        let RuleCounters { passed, shed, would_shed } = counters;
        let tallies = shed.into_iter().zip(would_shed);
        let limits = rule.limits.iter().zip(tallies).map(|(limit, (shed, would_shed))| LimitCount {
            limit: limit.clone(),
            shed: shed.into(),
            would_shed: would_shed.into(),
        });
        Self { rule: rule.name.clone(), passed: passed.into(), limits: limits.collect() }
    }
}

impl From<record::Tally> for Tally {
    fn from(record::Tally { packets, bytes }: record::Tally) -> Self {
        Self { packets, bytes }
    }
}
