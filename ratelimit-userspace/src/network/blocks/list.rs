//! What is blocked, for people and programs to see.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use ratelimit_common::{
    block_table::{self, Entry, FOREVER, Occupant},
    blocks::{ByRule, Kind, Prefix},
};

use super::{
    Blocks, BlocksError, Now,
    source::{address_of, canonical, kind, net_of, single},
};
use crate::network::{compile::SourceBits, description::Description};

/// A block that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Who is blocked.
    pub prefix: IpNet,
    /// When it ends; `None`: when somebody ends it.
    pub until: Option<SystemTime>,
    /// When it began.
    pub since: SystemTime,
    /// Why, in the operator's words; empty if none were given.
    pub reason: String,
    /// Who made it.
    pub origin: Origin,
}

/// Who made a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The operator.
    Command,
    /// A rule, by its name; empty if that is not known any more.
    Rule(String),
}

/// What the numbers in the maps stand for, looked up once each.
struct Words<'a> {
    blocks: &'a Blocks,
    now: Now,
    reasons: HashMap<u64, String>,
    rules: Option<HashMap<u32, String>>,
}

// === impl Blocks ===

impl Blocks {
    /// All blocks that hold: the operator's single addresses, then those of rules, then prefixes.
    pub fn list(&self) -> Result<Vec<Block>, BlocksError> {
        let mut blocks = Vec::new();
        self.for_each(|block| blocks.push(block))?;
        Ok(blocks)
    }

    /// The same, one by one: there may be a million.
    pub fn for_each(&self, mut visit: impl FnMut(Block)) -> Result<(), BlocksError> {
        let mut words = Words::new(self);
        let now = words.now.seconds();
        for Occupant { address, entry, .. } in self.singles.occupants(now) {
            visit(words.of_entry(net_of(&address, u32::MAX), &entry)?);
        }
        if self.rules_block(now) {
            for occupant in self.by_rules.occupants(now) {
                visit(words.of_rule(&occupant));
            }
        }
        let prefixes = self.prefixes.all().map_err(|source| self.failed(Kind::PrefixV4, source))?;
        for (prefix, block) in prefixes.into_iter().filter(|(_, block)| block.until > now) {
            visit(words.of_prefix(prefix, &block)?);
        }
        Ok(())
    }

    /// The block of exactly this prefix that a command made.
    pub fn exactly(&self, prefix: IpNet) -> Result<Option<Block>, BlocksError> {
        let prefix = canonical(prefix)?;
        let mut words = Words::new(self);
        let now = words.now.seconds();
        if let Some(address) = single(&prefix) {
            let entry = self.singles.find(&address, now);
            return entry.map(|entry| words.of_entry(prefix, &entry)).transpose();
        }
        let known = self.prefixes.get(&prefix).map_err(|source| self.failed(kind(&prefix), source))?;
        known.filter(|known| known.until > now).map(|known| words.of_prefix(prefix, &known)).transpose()
    }

    /// All blocks that hold for an address.
    pub fn find(&self, address: IpAddr) -> Result<Vec<Block>, BlocksError> {
        let mut words = Words::new(self);
        let now = words.now.seconds();
        let own = IpNet::from(address.to_canonical());
        let address = address_of(own.addr());
        let mut blocks = Vec::new();
        if let Some(entry) = self.singles.find(&address, now) {
            blocks.push(words.of_entry(own, &entry)?);
        }
        let by_rules = self.rules_block(now).then(|| self.by_rules.occupants(now));
        for occupant in by_rules.into_iter().flatten().filter(|occupant| client(occupant).contains(&own)) {
            blocks.push(words.of_rule(&occupant));
        }
        let covering = self.prefixes.covering(&address, own.max_prefix_len());
        let covering = covering.map_err(|source| self.failed(kind(&own), source))?;
        for (prefix, block) in covering.into_iter().filter(|(_, block)| block.until > now) {
            blocks.push(words.of_prefix(prefix, &block)?);
        }
        Ok(blocks)
    }

    /// Ends what rules blocked under other lengths of clients' prefixes: with a policy that has these, it is
    /// not looked for any more.
    pub fn retain_rule_blocks(&self, bits: SourceBits) {
        for occupant in self.by_rules.occupants(0) {
            let length = ByRule::from_word(occupant.entry.about).length;
            let current = if client(&occupant).addr().is_ipv4() { bits.v4 } else { bits.v6 };
            if length != current {
                block_table::vacate(&self.by_rules, &occupant);
            }
        }
    }

    /// Ends the blocks of rules that a block of this prefix would be said to be; whether there was one.
    pub(super) fn unblock_by_rules(&self, prefix: &IpNet, now: u32) -> bool {
        if !self.rules_block(now) {
            return false;
        }
        let is_single = single(prefix).is_some();
        let concerns = |client: IpNet| client == *prefix || is_single && client.contains(prefix);
        let concerned = self.by_rules.occupants(now).filter(|occupant| concerns(client(occupant)));
        concerned.filter(|occupant| block_table::vacate(&self.by_rules, occupant)).count() > 0
    }
}

/// The client that a rule blocked.
fn client(occupant: &Occupant) -> IpNet {
    net_of(&occupant.address, ByRule::from_word(occupant.entry.about).length)
}

// === impl Words ===

impl<'a> Words<'a> {
    fn new(blocks: &'a Blocks) -> Self {
        Self { blocks, now: blocks.now(), reasons: HashMap::new(), rules: None }
    }

    fn of_entry(&mut self, prefix: IpNet, entry: &Entry) -> Result<Block, BlocksError> {
        self.block(prefix, entry.until, entry.since, entry.about)
    }

    fn of_prefix(&mut self, prefix: IpNet, block: &Prefix) -> Result<Block, BlocksError> {
        self.block(prefix, block.until, block.since.into(), block.reason.into())
    }

    fn of_rule(&mut self, occupant: &Occupant) -> Block {
        let Entry { until, about, since } = occupant.entry;
        let slot = ByRule::from_word(about).counter_slot;
        Block {
            prefix: client(occupant),
            until: self.until(until),
            since: self.now.wall(u32::try_from(since).unwrap_or(FOREVER)),
            reason: String::new(),
            origin: Origin::Rule(self.rule(slot)),
        }
    }

    fn block(&mut self, prefix: IpNet, until: u32, since: u64, reason: u64) -> Result<Block, BlocksError> {
        let since = UNIX_EPOCH + Duration::from_secs(since);
        let reason = self.reason(reason)?;
        Ok(Block { prefix, until: self.until(until), since, reason, origin: Origin::Command })
    }

    fn until(&self, until: u32) -> Option<SystemTime> {
        (until != FOREVER).then(|| self.now.wall(until))
    }

    fn reason(&mut self, number: u64) -> Result<String, BlocksError> {
        if let Some(text) = self.reasons.get(&number) {
            return Ok(text.clone());
        }
        let text = self.blocks.reasons.text(number)?;
        self.reasons.insert(number, text.clone());
        Ok(text)
    }

    fn rule(&mut self, slot: u32) -> String {
        let directory = &self.blocks.directory;
        let rules = self.rules.get_or_insert_with(|| {
            let description = Description::read(directory).ok().flatten();
            let rules = description.into_iter().flat_map(|description| description.rules);
            rules.map(|rule| (rule.counter_slot, rule.name)).collect()
        });
        rules.get(&slot).cloned().unwrap_or_default()
    }
}
