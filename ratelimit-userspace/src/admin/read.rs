//! What is pinned, as the wire has it: the same whether a daemon answers or the command line looks itself.
//! Everything here makes system calls.

use std::{
    net::IpAddr,
    ops::RangeInclusive,
    time::{Duration, UNIX_EPOCH},
};

use super::schema::{
    Address, AttachWish, Block, BlockTotals, Daemon, Interface, Management, Mode, Origin, Policy, Rule,
    Rules, Source, Sources, SourcesPolicy, Status, Traffic,
};
pub use crate::network::talkers::By;
use crate::{
    config::policy::is_pattern,
    network::{
        blocks::{self, BlockCounts, BlocksError},
        buckets::{Buckets, BucketsError},
        counters::{CounterMaps, Counters, CountersError},
        description::{Description, SourcesDescription},
        in_force::{self, PolicyError},
        links::{Links, LinksError, Standing},
        overrides::Overrides,
        show,
        state::{StateDir, StateError},
        talkers,
    },
};

/// Why what is pinned cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No policy is pinned.
    #[error(
        "no policy is in force: nothing is pinned in {}. A rules file with a `network:` section brings one",
        .0.root().display()
    )]
    NoPolicy(StateDir),
    /// The state cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The interfaces cannot be looked at.
    #[error(transparent)]
    Links(#[from] LinksError),
    /// The counters cannot be read.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// The blocks cannot be read.
    #[error(transparent)]
    Blocks(Box<BlocksError>),
    /// The buckets cannot be read.
    #[error(transparent)]
    Buckets(#[from] BucketsError),
    /// The policy in force cannot be understood.
    #[error(transparent)]
    Policy(Box<PolicyError>),
}

/// What is enforced, and where. What only a daemon knows is left out.
pub fn status(state: &StateDir) -> Result<Status, ReadError> {
    let policy = Description::read(&state.state())?;
    Ok(Status {
        pin_dir: state.root().display().to_string(),
        daemon: state.holder().map(|holder| Daemon { pid: holder.pid, command: holder.command }),
        interfaces: interfaces(state, policy.as_ref())?,
        blocks: totals(state)?,
        policy: policy.as_ref().map(Policy::from),
        reloads: None,
        trial: None,
    })
}

/// The rules in force, in the order in which they are tried.
pub fn rules(state: &StateDir) -> Result<Rules, ReadError> {
    let Description { rules, matches, .. } = policy(state)?;
    let rules = rules.into_iter().zip(matches).map(|(rule, applies_to)| Rule {
        name: rule.name,
        applies_to,
        limits: rule.limits,
        count_only: rule.count_only,
    });
    Ok(Rules { rules: rules.collect() })
}

/// All counters.
pub fn counters(state: &StateDir) -> Result<Counters, ReadError> {
    let policy = policy(state)?;
    Ok(CounterMaps::pinned(&state.state())?.read(&policy.rules)?)
}

/// The sources that sent the most, `count` of them at most.
pub fn sources(state: &StateDir, count: usize, by: By) -> Result<Sources, ReadError> {
    policy(state)?;
    let sources = talkers::top(state, count, by)?.into_iter().map(Source::from).collect();
    Ok(Sources { sources })
}

/// What becomes of an address now, and what was seen of it.
pub fn address(state: &StateDir, address: IpAddr) -> Result<Address, ReadError> {
    let policy = in_force::Policy::pinned(state)?.ok_or_else(|| ReadError::NoPolicy(state.clone()))?;
    let own = in_force::address(address);
    let found = blocks::Blocks::open(state)?.find(address)?;
    let buckets = Buckets::pinned(state)?;
    let under = Overrides::open(state)?.find(address)?;
    let shown = show::show(&policy, &own, &policy.listed(&own)?, &found, under, buckets.as_ref());
    let seen = talkers::of(state, shown.address)?.map(Source::from);
    Ok(Address::new(shown, found.into_iter().map(Block::from).collect(), seen))
}

/// All blocks, in no order.
pub fn blocks(state: &StateDir) -> Result<impl Iterator<Item = Block> + use<>, ReadError> {
    Ok(open_blocks(state)?.list()?.into_iter().map(Block::from))
}

/// The blocks, to be looked through.
pub(super) fn open_blocks(state: &StateDir) -> Result<blocks::Blocks, ReadError> {
    policy(state)?;
    Ok(blocks::Blocks::open(state)?)
}

fn totals(state: &StateDir) -> Result<Option<BlockTotals>, ReadError> {
    match blocks::Blocks::count_pinned(state) {
        Ok(counts) => Ok(Some(counts.into())),
        // A policy of a daemon that knew of no blocks, or one that starts at this moment.
        Err(BlocksError::NotLoaded { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the policy is in force on every interface that it is meant for; if not, why. `None`: there is no
/// policy on packets.
pub fn readiness(state: &StateDir) -> Result<Option<Result<(), String>>, ReadError> {
    let Some(policy) = Description::read(&state.state())? else { return Ok(None) };
    let standing = interfaces(state, Some(&policy))?;
    let names = policy.interfaces.iter().map(|wish| wish.name.as_str());
    Ok(Some(lacking(names, &standing).map_or(Ok(()), Err)))
}

/// The first interface that a policy is meant for and not in force on, and why. Interfaces that only a pattern
/// names may be gone.
fn lacking<'a>(names: impl Iterator<Item = &'a str>, standing: &[Interface]) -> Option<String> {
    let names: Vec<&str> = names.filter(|name| !is_pattern(name)).collect();
    let due = |interface: &&Interface| interface.mode.is_some() || names.contains(&interface.name.as_str());
    if let Some(interface) = standing.iter().filter(due).find(|interface| !interface.current) {
        let note = interface.note.as_deref().unwrap_or_default();
        return Some(format!("{}: {note}", interface.name));
    }
    let missing = names.into_iter().find(|name| standing.iter().all(|interface| interface.name != *name));
    missing.map(|name| format!("{name}: not attached"))
}

fn policy(state: &StateDir) -> Result<Description, ReadError> {
    Description::read(&state.state())?.ok_or_else(|| ReadError::NoPolicy(state.clone()))
}

fn interfaces(state: &StateDir, policy: Option<&Description>) -> Result<Vec<Interface>, ReadError> {
    let program = policy.map(|policy| policy.program_id);
    let standing = Links::new(state.links()).standing()?;
    Ok(standing.into_iter().map(|standing| Interface::new(standing, program)).collect())
}

// === conversions ===

impl From<BlocksError> for ReadError {
    fn from(error: BlocksError) -> Self {
        Self::Blocks(Box::new(error))
    }
}

impl From<PolicyError> for ReadError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(Box::new(error))
    }
}

impl Interface {
    fn new(standing: Standing, program: Option<u32>) -> Self {
        let Standing { index, name, program_id, mode, remark } = standing;
        let current = mode.is_some() && program_id == program;
        let note = match (mode, current) {
            (None, _) => Some("gone, in another network namespace, or something else runs on it".to_owned()),
            (Some(_), false) => {
                Some("runs another policy: the daemon was interrupted, start it again".to_owned())
            }
            (Some(_), true) => remark,
        };
        Self { name, index, mode, program_id, current, note }
    }
}

impl From<&Description> for Policy {
    fn from(policy: &Description) -> Self {
        Self {
            version: policy.version.clone(),
            program_id: policy.program_id,
            rules_file: policy.rules_file.clone(),
            since: UNIX_EPOCH + Duration::from_secs(policy.loaded_at),
            uptime_seconds: policy.uptime(),
            mode: Mode::of(policy.mode == "monitor"),
            on_stop: policy.on_stop.clone(),
            malformed: policy.malformed.clone(),
            sources: SourcesPolicy::from(&policy.sources),
            allow: policy.allow,
            deny: policy.deny,
            interfaces: policy
                .interfaces
                .iter()
                .map(|interface| AttachWish { name: interface.name.clone(), mode: interface.mode.clone() })
                .collect(),
            rules: policy.rules.len(),
            management: policy
                .network
                .iter()
                .flat_map(|network| &network.management)
                .map(|entry| Management {
                    prefix: entry.prefix,
                    ports: entry.ports.iter().map(ports).collect(),
                })
                .collect(),
            blocks_capacity: policy.network.as_ref().map(|network| network.blocks.capacity),
            next: policy.network.as_ref().and_then(|network| network.next.clone()),
        }
    }
}

fn ports(range: &RangeInclusive<u16>) -> String {
    let (first, last) = (range.start(), range.end());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

impl From<&SourcesDescription> for SourcesPolicy {
    fn from(sources: &SourcesDescription) -> Self {
        let SourcesDescription { ipv4_prefix, ipv6_prefix, capacity, when_full } = sources.clone();
        Self { ipv4_prefix, ipv6_prefix, capacity, when_full }
    }
}

impl From<blocks::Block> for Block {
    fn from(block: blocks::Block) -> Self {
        let blocks::Block { prefix, until, since, reason, origin } = block;
        let (origin, rule) = match origin {
            blocks::Origin::Command => (Origin::Command, None),
            blocks::Origin::Rule(rule) => (Origin::Rule, Some(rule)),
        };
        Self { prefix, until, since, reason, origin, rule }
    }
}

impl From<BlockCounts> for BlockTotals {
    fn from(counts: BlockCounts) -> Self {
        let BlockCounts { v4, v6, prefixes_v4, prefixes_v6, by_rules } = counts;
        Self { addresses: v4 + v6, prefixes: prefixes_v4 + prefixes_v6, by_rules }
    }
}

impl From<talkers::Talker> for Source {
    fn from(talker: talkers::Talker) -> Self {
        let talkers::Talker { source, passed, shed, first_seen, last_seen } = talker;
        Self { source, passed: passed.into(), shed: shed.into(), first_seen, last_seen }
    }
}

impl From<talkers::Estimate> for Traffic {
    fn from(estimate: talkers::Estimate) -> Self {
        let talkers::Estimate { packets, bytes, packets_error } = estimate;
        Self { packets, bytes, packets_error }
    }
}

impl Mode {
    /// The mode that only counts, or the one that sheds.
    pub fn of(monitor: bool) -> Self {
        if monitor { Self::Monitor } else { Self::Enforce }
    }
}

#[cfg(test)]
mod tests;
