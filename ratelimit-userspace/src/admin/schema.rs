//! What goes over the wire: JSON with stable names. Numbers of packets are packets, numbers of bytes are
//! bytes of whole frames; times are RFC 3339 in UTC, durations text such as `10m` or `1h 30m`.

mod address;
mod block;
mod change;
mod event;
mod status;
pub mod text;

pub use self::{
    address::{Address, Fate, LimitState, RuleMet, Under},
    block::{Block, BlockError, BlockRequest, BlockTotals, Blocked, Blocks, BulkBlocked, Origin},
    change::{Applied, Config, ModeAnswer, ModeRequest, Reloaded},
    event::{Event, Events, Shed, What},
    status::{
        AttachWish, Daemon, Interface, Management, Mode, Policy, Reloads, Rule, Rules, Source, Sources,
        SourcesPolicy, Status, Traffic, Trial,
    },
};

/// What went wrong (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// What kind of problem it is; absent: no other than its status tells.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The kind in words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What failed, where, why, and what to do next.
    pub detail: String,
}

#[cfg(test)]
mod tests;
