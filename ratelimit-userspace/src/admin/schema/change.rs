//! What became of changes.

use std::{path::PathBuf, time::SystemTime};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Mode, text};
use crate::admin::command;

/// The files were read, and what they say is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Whether they say anything else than before.
    pub changed: bool,
    /// Rules in force, those on packets and those on requests.
    pub rules: usize,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

/// Another policy is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Applied {
    /// What to confirm or to roll back.
    pub id: String,
    /// When the policy before comes back unless this one is confirmed; null: it stays.
    #[serde(with = "text::optional_rfc3339")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<SystemTime>,
    /// Whether it says anything else than the one before.
    pub changed: bool,
    /// Rules in force, those on packets and those on requests.
    pub rules: usize,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

/// Whether packets are to be shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    /// The mode.
    pub mode: Mode,
    /// Also where that cuts the connection of who asks.
    #[serde(default)]
    pub force: bool,
}

/// The mode is as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModeAnswer {
    /// The mode now.
    pub mode: Mode,
    /// Whether it was another one before.
    pub changed: bool,
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Config {
    /// The rules file of the daemon.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Whether the text was applied by hand and does not stand in that file.
    pub applied: bool,
    /// Its YAML text.
    pub text: String,
}

// === conversions ===

impl From<command::Reloaded> for Reloaded {
    fn from(reloaded: command::Reloaded) -> Self {
        let command::Reloaded { changed, rules, warnings, milliseconds } = reloaded;
        Self { changed, rules, warnings, milliseconds }
    }
}

impl From<command::Applied> for Applied {
    fn from(applied: command::Applied) -> Self {
        let command::Applied { id, deadline, reloaded } = applied;
        let command::Reloaded { changed, rules, warnings, milliseconds } = reloaded;
        Self { id, deadline, changed, rules, warnings, milliseconds }
    }
}

impl From<command::Configuration> for Config {
    fn from(configuration: command::Configuration) -> Self {
        let command::Configuration { path, applied, text } = configuration;
        Self { path, applied, text }
    }
}
