//! What becomes of an address now: the lists it is on, the rules that its packets meet, and what is left in its
//! buckets.
//!
//! Pure over buckets that are looked at, not charged.

mod kinds;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ratelimit_common::{address::Address, charge};
use serde::Serialize;

use self::kinds::{Kind, kinds};
use super::{
    blocks::Block,
    buckets::Buckets,
    explain::{LimitState, limit_states},
    in_force::{Listed, Policy, ip},
    overrides::Under,
};

/// Bytes of the packet whose waits are told: a small frame.
pub const PACKET: u32 = 64;

/// What becomes of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// It.
    pub address: IpAddr,
    /// It is on the allow list.
    pub allowed: bool,
    /// It is on the deny list.
    pub denied: bool,
    /// Destination ports at which it is never shed, whatever else holds: `management`.
    pub management: Vec<String>,
    /// Whether something before the rules decides about all of its packets.
    pub fate: Fate,
    /// The rule that it is put under for its requests; null: none.
    pub under: Option<Under>,
    /// The rules that its packets can meet, in file order.
    pub rules: Vec<RuleMet>,
    /// Packets of it that meet no rule.
    pub without_rule: Vec<String>,
}

/// What is decided of all packets of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// All pass.
    Passes,
    /// All are shed: the deny list.
    Denied,
    /// All are shed: a block.
    Blocked,
    /// The rules decide.
    Rules,
}

/// A rule that packets of the address meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleMet {
    /// Its name.
    pub rule: String,
    /// Which packets.
    pub packets: Vec<String>,
    /// Its refusals are counted, not shed.
    pub count_only: bool,
    /// What its limits say to a small packet.
    pub limits: Vec<LimitState>,
    /// Whether all of them let one pass now.
    pub admits: bool,
    /// When they do; null: now, or never.
    pub wait: Option<String>,
}

/// Shows an address. Without buckets: as if nobody had sent yet.
pub fn show<B: charge::Buckets>(
    policy: &Policy,
    address: &Address,
    listed: &Listed,
    blocks: &[Block],
    under: Option<Under>,
    buckets: Option<&Buckets<B>>,
) -> Shown {
    let own = ip(address);
    let management = policy.network.management.iter().filter(|entry| entry.prefix.contains(&own));
    let kinds = kinds(policy, own, under.as_ref().map(|under| under.index));
    let packets_of = |met: Option<usize>| {
        kinds
            .iter()
            .filter(|kind| kind.met == met)
            .map(|Kind { words, .. }| words.clone())
            .collect::<Vec<_>>()
    };
    let rules = (0..policy.network.rules.len()).filter_map(|index| {
        let packets = packets_of(Some(index));
        if packets.is_empty() {
            return None;
        }
        let rule = &policy.network.rules[index];
        let limits = limit_states(policy, index, address, PACKET, buckets);
        // When the slowest admits, all do.
        let slowest = limits.iter().max_by_key(|limit| limit.wait_for);
        let (admits, wait) = slowest.map_or((true, None), |limit| (limit.admits, limit.wait.clone()));
        Some(RuleMet { rule: rule.name.clone(), packets, count_only: rule.count_only, admits, wait, limits })
    });
    Shown {
        address: own,
        allowed: listed.is_allowed(),
        denied: listed.is_denied(),
        management: management.flat_map(|entry| entry.ports.iter().map(kinds::range)).collect(),
        under,
        fate: if listed.is_allowed() {
            Fate::Passes
        } else if listed.is_denied() {
            Fate::Denied
        } else if !blocks.is_empty() {
            Fate::Blocked
        } else {
            Fate::Rules
        },
        rules: rules.collect(),
        without_rule: packets_of(None),
    }
}
