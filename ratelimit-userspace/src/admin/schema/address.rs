//! What becomes of one address.

use std::{net::IpAddr, time::SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Block, Source, text};
use crate::network::{explain, overrides, show};

/// What becomes of an address now, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Address {
    /// It.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// It is on the allow list.
    pub allowed: bool,
    /// It is on the deny list.
    pub denied: bool,
    /// Destination ports at which it is never shed, whatever else holds.
    pub management: Vec<String>,
    /// Whether something before the rules decides about all of its packets.
    pub fate: Fate,
    /// The rule that it is put under for its requests; null: none.
    pub under: Option<Under>,
    /// The rules that its packets can meet, in file order.
    pub rules: Vec<RuleMet>,
    /// Packets of it that meet no rule, in words.
    pub without_rule: Vec<String>,
    /// Every block that covers it.
    pub blocks: Vec<Block>,
    /// What was seen of it; null: nothing lately.
    pub seen: Option<Source>,
}

/// A client that is put under a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Under {
    /// Everybody who is taken for the client.
    #[schema(value_type = String)]
    pub client: IpNet,
    /// The name of the rule.
    pub rule: String,
    /// Until when.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub until: SystemTime,
}

/// What is decided of all packets of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// All pass: the allow list.
    Passes,
    /// All are shed: the deny list.
    Denied,
    /// All are shed: a block.
    Blocked,
    /// The rules decide.
    Rules,
}

/// A rule that packets of an address meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleMet {
    /// Its name.
    pub rule: String,
    /// Which packets, in words.
    pub packets: Vec<String>,
    /// Its refusals are counted, not shed.
    pub count_only: bool,
    /// What its limits say to a packet of 64 bytes.
    pub limits: Vec<LimitState>,
    /// Whether all of them let one pass now.
    pub admits: bool,
    /// After which time they do, such as `1s 250ms`; null: now, or never.
    pub wait: Option<String>,
}

/// What one limit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitState {
    /// It, in words.
    pub limit: String,
    /// What is counted: `packets` or `bytes`.
    pub unit: String,
    /// Units that are left in its bucket.
    pub left: u64,
    /// Units that a full one holds; 0: the rate is zero.
    pub of: u64,
    /// Units that the packet costs.
    pub cost: u64,
    /// It lets the packet pass.
    pub admits: bool,
    /// After which time it lets it pass, such as `1s 250ms`; null: now, or never.
    pub wait: Option<String>,
    /// When the bucket is full again if nobody takes from it; null: it is full.
    pub full_in: Option<String>,
}

// === impl Address ===

impl Address {
    /// What the policy makes of it, and what was seen.
    pub fn new(shown: show::Shown, blocks: Vec<Block>, seen: Option<Source>) -> Self {
        let show::Shown { address, allowed, denied, management, fate, under, rules, without_rule } = shown;
        let under = under.map(|overrides::Under { client, rule, until, .. }| Under { client, rule, until });
        let (fate, rules) = (fate.into(), rules.into_iter().map(RuleMet::from).collect());
        Self { address, allowed, denied, management, fate, under, rules, without_rule, blocks, seen }
    }
}

// === conversions ===

impl From<show::Fate> for Fate {
    fn from(fate: show::Fate) -> Self {
        match fate {
            show::Fate::Passes => Self::Passes,
            show::Fate::Denied => Self::Denied,
            show::Fate::Blocked => Self::Blocked,
            show::Fate::Rules => Self::Rules,
        }
    }
}

impl From<show::RuleMet> for RuleMet {
    fn from(met: show::RuleMet) -> Self {
        let show::RuleMet { rule, packets, count_only, limits, admits, wait } = met;
        let limits = limits.into_iter().map(LimitState::from).collect();
        Self { rule, packets, count_only, limits, admits, wait }
    }
}

impl From<explain::LimitState> for LimitState {
    fn from(state: explain::LimitState) -> Self {
        let explain::LimitState { limit, unit, left, of, cost, admits, wait, wait_for: _, full_in } = state;
        Self { limit, unit: unit.to_owned(), left, of, cost, admits, wait, full_in }
    }
}
