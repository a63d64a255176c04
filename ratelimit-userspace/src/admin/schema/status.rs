//! What runs, and what it sees.

use std::{path::PathBuf, time::SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BlockTotals, text};
use crate::network::interfaces;

/// What is enforced, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The directory with the pinned links and state.
    pub pin_dir: String,
    /// The daemon that works with it; null: none runs.
    pub daemon: Option<Daemon>,
    /// The policy in force; null: packets are not limited.
    pub policy: Option<Policy>,
    /// Where it is, or should be, attached.
    pub interfaces: Vec<Interface>,
    /// Sources that are blocked now; null without state.
    pub blocks: Option<BlockTotals>,
    /// What became of reloads; null: no daemon runs.
    pub reloads: Option<Reloads>,
    /// The policy in force is on trial; null: it stays.
    pub trial: Option<Trial>,
}

/// The process that works with a pin directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Daemon {
    /// Its id; null: it runs in another PID namespace.
    pub pid: Option<u32>,
    /// Its command line.
    pub command: Option<String>,
}

/// A policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Version of the daemon that loaded it.
    pub version: String,
    /// Id of its program in the kernel.
    pub program_id: u32,
    /// The rules file.
    #[schema(value_type = String)]
    pub rules_file: PathBuf,
    /// Since when it has been in force.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub since: SystemTime,
    /// The same in seconds, on a clock that nobody sets.
    pub uptime_seconds: u64,
    /// Whether it sheds.
    pub mode: Mode,
    /// What a clean stop leaves behind: `keep` or `detach`.
    pub on_stop: String,
    /// What happens to malformed frames: `drop` or `pass`.
    pub malformed: String,
    /// How sources are told apart and kept.
    pub sources: SourcesPolicy,
    /// Prefixes that are allowed.
    pub allow: usize,
    /// Prefixes that are denied.
    pub deny: usize,
    /// The interfaces that its file names.
    pub interfaces: Vec<AttachWish>,
    /// How many rules it has.
    pub rules: usize,
    /// Who is never shed, on which ports.
    #[serde(default)]
    pub management: Vec<Management>,
    /// How many single addresses, and how many prefixes, may be blocked; null: it is not known.
    #[serde(default)]
    pub blocks_capacity: Option<u32>,
    /// The pinned program that gets what passes; null: none.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub next: Option<PathBuf>,
}

/// Packets of these sources to these ports are never shed; both must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Management {
    /// The sources.
    #[schema(value_type = String)]
    pub prefix: IpNet,
    /// Destination ports, such as `22` or `8000-8010`.
    pub ports: Vec<String>,
}

/// Whether packets are shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are.
    Enforce,
    /// What would be shed is counted and passes.
    Monitor,
}

/// How sources are told apart and kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourcesPolicy {
    /// Bits of an IPv4 source that make one client.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 source that make one client.
    pub ipv6_prefix: u8,
    /// Buckets to hold.
    pub capacity: u32,
    /// What happens to a new source when all buckets are in use: `pass`, `share` or `drop`.
    pub when_full: String,
}

/// An interface, or a pattern of them, that a rules file names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachWish {
    /// Its name, or the pattern.
    pub name: String,
    /// The mode asked for: `auto`, `native` or `generic`.
    pub mode: String,
}

/// An interface with a pinned link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Where the program runs; null: the interface is gone, or something else runs on it.
    pub mode: Option<interfaces::Mode>,
    /// The program that its link carries.
    pub program_id: Option<u32>,
    /// Whether that is the policy's, and runs.
    pub current: bool,
    /// What is to be known about it; null: all is as it should be.
    pub note: Option<String>,
}

/// What became of reloads since the daemon was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloads {
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that failed and changed nothing.
    pub failed: u64,
    /// Whether the last one succeeded; true before the first.
    pub last_ok: bool,
    /// When one last succeeded, or the daemon was started.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub last_success: SystemTime,
    /// When one last failed.
    #[serde(with = "text::optional_rfc3339")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_failure: Option<SystemTime>,
    /// Why the last one failed; null: it did not.
    pub error: Option<String>,
}

/// A policy that is in force until it is confirmed or its time is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trial {
    /// What to confirm or to roll back.
    pub id: String,
    /// When the one before comes back.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub deadline: SystemTime,
}

/// The rules on packets, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rules {
    /// They.
    pub rules: Vec<Rule>,
}

/// A rule on packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Which packets meet it, in words.
    pub applies_to: String,
    /// Its limits in words, in file order.
    pub limits: Vec<String>,
    /// Its refusals are counted, not shed.
    pub count_only: bool,
}

/// Sources that sent the most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sources {
    /// The one that sent the most comes first.
    pub sources: Vec<Source>,
}

/// What was seen of a source, by sampling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// It, as the policy tells sources apart.
    #[schema(value_type = String)]
    pub source: IpNet,
    /// What passed.
    pub passed: Traffic,
    /// What was shed.
    pub shed: Traffic,
    /// When it was first seen.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub first_seen: SystemTime,
    /// When it was last seen.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub last_seen: SystemTime,
}

/// Estimated traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of whole frames.
    pub bytes: u64,
    /// Packets that the estimate is off by at most, in at least 19 of 20 cases; 0: it is exact.
    pub packets_error: u64,
}
