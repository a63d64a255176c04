//! Blocked sources.

use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text;

/// How many sources are blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockTotals {
    /// Single addresses that were blocked by a command.
    pub addresses: u64,
    /// Prefixes that were blocked by a command.
    pub prefixes: u64,
    /// Sources that rules blocked.
    pub by_rules: u64,
}

/// Blocked sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocks {
    /// They, in no order.
    pub blocks: Vec<Block>,
}

/// A blocked source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Block {
    /// It.
    #[schema(value_type = String)]
    pub prefix: IpNet,
    /// When the block ends by itself; null: when somebody ends it.
    #[serde(with = "text::optional_rfc3339")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<SystemTime>,
    /// When it was made.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub since: SystemTime,
    /// Why, in the words of who made it.
    pub reason: String,
    /// Who made it.
    pub origin: Origin,
    /// The rule that made it; null: none.
    pub rule: Option<String>,
}

/// Who makes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// An operator, or a program for one.
    Command,
    /// A rule with `block:`.
    Rule,
}

/// How a source is to be blocked. An empty body blocks it until somebody ends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockRequest {
    /// For how long, such as `10m`; absent: until somebody ends it.
    #[serde(rename = "for", with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10m")]
    pub duration: Option<Duration>,
    /// Why; at most 120 bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Also where that cuts the connection of who asks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// A source is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocked {
    /// It, in the one form that each source has.
    #[schema(value_type = String)]
    pub prefix: IpNet,
    /// When the block ends by itself; null: when somebody ends it.
    #[serde(with = "text::optional_rfc3339")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<SystemTime>,
    /// Whether it was not blocked before.
    pub added: bool,
}

/// What became of many sources to block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkBlocked {
    /// Sources that were not blocked before.
    pub added: usize,
    /// Blocks that hold for another time or reason now.
    pub replaced: usize,
    /// Lines that could not be blocked.
    pub failed: usize,
    /// Why, the first 10,000 of them in the order of their lines.
    pub errors: Vec<BlockError>,
}

/// A source that could not be blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockError {
    /// Its line, from 1.
    pub line: u64,
    /// What stands there.
    pub entry: String,
    /// What is wrong with it.
    pub message: String,
}
