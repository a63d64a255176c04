//! What happens while the daemon runs.

use std::{net::IpAddr, time::SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Mode, Origin, text};
use crate::network::interfaces;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number, larger than that of every event before it.
    pub id: u64,
    /// When it happened.
    #[serde(with = "text::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub time: SystemTime,
    /// What it is.
    #[serde(flatten)]
    pub what: What,
}

/// Recent events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// They, the newest last.
    pub events: Vec<Event>,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum What {
    /// A packet was shed, or would have been: one that was drawn from among `weight`.
    Shed(Shed),
    /// Samples of shed packets that there was no room for.
    SamplesLost {
        /// How many.
        count: u64,
    },
    /// Files were read, and what they say is in force.
    Reloaded {
        /// What made the daemon read them.
        cause: String,
        /// Whether they say anything else than before.
        changed: bool,
        /// Rules in force, those on packets and those on requests.
        rules: usize,
        /// What is allowed but probably not meant.
        warnings: Vec<String>,
        /// How long it took.
        milliseconds: u64,
    },
    /// Files were read and are not used; what was in force still is.
    ReloadFailed {
        /// What made the daemon read them.
        cause: String,
        /// What is wrong with them.
        message: String,
    },
    /// A policy was applied by hand.
    Applied {
        /// What to confirm or to roll back.
        trial: String,
        /// When the policy before comes back unless this one is confirmed; null: it stays.
        #[serde(with = "text::optional_rfc3339")]
        #[schema(value_type = Option<String>, format = DateTime)]
        deadline: Option<SystemTime>,
    },
    /// A policy on trial stays.
    Confirmed {
        /// Which.
        trial: String,
    },
    /// A policy on trial is no longer in force, the one before is.
    RolledBack {
        /// Which.
        trial: String,
        /// Why: nobody confirmed it in time, or somebody asked for it.
        cause: String,
    },
    /// Packets are shed, or no longer.
    ModeChanged {
        /// The mode now.
        mode: Mode,
    },
    /// A source was blocked.
    Blocked {
        /// It.
        #[schema(value_type = String)]
        prefix: IpNet,
        /// When the block ends by itself; null: when somebody ends it.
        #[serde(with = "text::optional_rfc3339")]
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<SystemTime>,
        /// Why.
        reason: String,
        /// Who blocked it.
        origin: Origin,
    },
    /// A client was blocked, or put under a rule on packets, for the requests that a rule denied to it.
    Escalated {
        /// Whose packets are shed.
        #[schema(value_type = String)]
        prefix: IpNet,
        /// The address that the last of those requests came from.
        #[schema(value_type = String)]
        client: IpAddr,
        /// The id of the rule on requests.
        rule: String,
        /// Requests that it denied.
        denials: u32,
        /// The time that they fell into, such as `1m`.
        within: String,
        /// Which offence of those that weigh it is, from 1.
        offence: u32,
        /// When that ends by itself.
        #[serde(with = "text::rfc3339")]
        #[schema(value_type = String, format = DateTime)]
        until: SystemTime,
        /// The rule on packets that it is put under; null: it is blocked.
        under: Option<String>,
    },
    /// Many sources were blocked at once.
    BlockedMany {
        /// Sources that were not blocked before.
        added: usize,
        /// Blocks that hold for another time or reason now.
        replaced: usize,
        /// Sources that could not be blocked.
        failed: usize,
    },
    /// A block was ended.
    Unblocked {
        /// The source.
        #[schema(value_type = String)]
        prefix: IpNet,
    },
    /// An interface is protected from now on.
    InterfaceAttached {
        /// Its name.
        interface: String,
        /// Where the program runs.
        mode: interfaces::Mode,
    },
    /// An interface that was protected is gone, or something else runs on it.
    InterfaceGone {
        /// Its name.
        interface: String,
    },
    /// An interface that should be protected is not.
    InterfaceFailed {
        /// Its name.
        interface: String,
        /// Why not, and what to do.
        message: String,
    },
    /// The daemon ends. Whether packets are limited from now on tells `on_stop`.
    Stopping,
    /// Events that this reader has not got, since it did not read fast enough.
    Lost {
        /// How many.
        count: u64,
    },
}

/// A packet that was shed, or would have been if the policy did not only monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shed {
    /// Why: a reason as `counters` names it.
    pub reason: String,
    /// The rule that it met; null: none.
    pub rule: Option<String>,
    /// Which of the rule's limits refused it, from 1; null: none.
    pub limit: Option<usize>,
    /// Where it came from; null: its addresses could not be read.
    #[schema(value_type = Option<String>)]
    pub source: Option<IpAddr>,
    /// Where it went to; null: its addresses could not be read.
    #[schema(value_type = Option<String>)]
    pub destination: Option<IpAddr>,
    /// Its protocol: a name such as `tcp`, or a number; null: it could not be read.
    pub protocol: Option<String>,
    /// Its source port; null: it has none.
    pub source_port: Option<u16>,
    /// Its destination port; null: it has none.
    pub destination_port: Option<u16>,
    /// Bytes of the whole frame.
    pub length: u32,
    /// How many shed packets it stands for.
    pub weight: u64,
    /// Where it came in.
    pub interface: String,
}

// === impl What ===

impl What {
    /// Its `type`, which is also the name of the server-sent event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shed(_) => "shed",
            Self::SamplesLost { .. } => "samples_lost",
            Self::Reloaded { .. } => "reloaded",
            Self::ReloadFailed { .. } => "reload_failed",
            Self::Applied { .. } => "applied",
            Self::Confirmed { .. } => "confirmed",
            Self::RolledBack { .. } => "rolled_back",
            Self::ModeChanged { .. } => "mode_changed",
            Self::Blocked { .. } => "blocked",
            Self::Escalated { .. } => "escalated",
            Self::BlockedMany { .. } => "blocked_many",
            Self::Unblocked { .. } => "unblocked",
            Self::InterfaceAttached { .. } => "interface_attached",
            Self::InterfaceGone { .. } => "interface_gone",
            Self::InterfaceFailed { .. } => "interface_failed",
            Self::Stopping => "stopping",
            Self::Lost { .. } => "lost",
        }
    }
}
