//! What runs, as JSON in the pinned array `policy`: written by the daemon when a policy takes effect, read
//! by `status` and `counters` whether a daemon runs or not, and by the next start, which keeps the
//! counter slots of rules that stay.

mod words;

use std::{
    io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use aya::maps::{Array, MapError};
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use self::words::protocol_name;
pub(super) use self::words::{flags, matches};
use super::{
    compile::{RuleDescription, Slots},
    state::{self, StateError},
};
use crate::config::policy::{AttachMode, Blocks, Interface, Network, OnStop, Sources, WhenFull};

/// The pin's name in the state directory.
pub(super) const NAME: &str = "policy";

/// The text is spread over array values of this size, the last one filled up with spaces.
const CHUNK: usize = 4096;

/// What runs. Another build may have written it: fields that it does not know are ignored, those that it
/// lacks are as if empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    /// Version of the daemon that loaded it.
    pub version: String,
    /// The program's id in the kernel. A link that carries another program was changed since.
    pub program_id: u32,
    /// The rules file, absolute.
    pub rules_file: PathBuf,
    /// When it was loaded, in seconds since 1970.
    pub loaded_at: u64,
    /// When it was loaded, in nanoseconds of `CLOCK_BOOTTIME`, which nobody sets.
    pub loaded_at_boottime: u64,
    /// `enforce` or `monitor`.
    pub mode: String,
    /// What a clean stop leaves behind: `keep` or `detach`.
    pub on_stop: String,
    /// What happens to malformed frames: `drop` or `pass`.
    pub malformed: String,
    /// How sources are told apart and kept.
    pub sources: SourcesDescription,
    /// How many prefixes are allowed.
    pub allow: usize,
    /// How many prefixes are denied.
    pub deny: usize,
    /// The interfaces, as the rules file has them.
    pub interfaces: Vec<InterfaceDescription>,
    /// The rules, in file order.
    pub rules: Vec<RuleDescription>,
    /// What each of them applies to, in words.
    pub matches: Vec<String>,
    /// The counter slots of this generation.
    pub slots: Slots,
    /// The policy itself but for `allow` and `deny`, which may be long and which the kernel holds. `None`: it
    /// was written by a build that has another form for it.
    #[serde(deserialize_with = "lenient")]
    pub network: Option<Network>,
}

/// How sources are told apart and kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourcesDescription {
    /// Bits of an IPv4 source that make one client.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 source that make one client.
    pub ipv6_prefix: u8,
    /// Buckets to hold.
    pub capacity: u32,
    /// `pass`, `share` or `drop`.
    pub when_full: String,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceDescription {
    /// Its name.
    pub name: String,
    /// The mode asked for: `auto`, `native` or `generic`.
    pub mode: String,
}

// === impl Description ===

impl Description {
    /// Describes a policy that takes effect now.
    pub fn new(
        rules_file: &Path,
        interfaces: &[Interface],
        network: &Network,
        rules: Vec<RuleDescription>,
        slots: Slots,
        program_id: u32,
    ) -> Self {
        let Network { monitor, on_stop, sources, malformed_pass, allow, deny, .. } = network;
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program_id,
            rules_file: std::path::absolute(rules_file).unwrap_or_else(|_| rules_file.to_owned()),
            loaded_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            loaded_at_boottime: state::boottime_nanos(),
            mode: if *monitor { "monitor" } else { "enforce" }.to_owned(),
            on_stop: match on_stop {
                OnStop::Keep => "keep",
                OnStop::Detach => "detach",
            }
            .to_owned(),
            malformed: if *malformed_pass { "pass" } else { "drop" }.to_owned(),
            sources: SourcesDescription::from(sources),
            allow: allow.len(),
            deny: deny.len(),
            interfaces: interfaces.iter().map(InterfaceDescription::from).collect(),
            rules,
            matches: network.rules.iter().map(|rule| matches(&rule.matches)).collect(),
            slots,
            network: Some(without_lists(network)),
        }
    }

    /// Seconds for which this policy has been in force.
    pub fn uptime(&self) -> u64 {
        state::boottime_nanos().saturating_sub(self.loaded_at_boottime) / 1_000_000_000
    }

    /// Reads the description pinned in a state directory; `None` when there is none.
    pub fn read(directory: &Path) -> Result<Option<Self>, StateError> {
        Self::read_from(&directory.join(NAME))
    }

    /// Reads the description pinned at `path`; `None` when there is none.
    pub(super) fn read_from(path: &Path) -> Result<Option<Self>, StateError> {
        let path = path.to_owned();
        let Some(array) = state::open_array::<[u8; CHUNK]>(&path)? else { return Ok(None) };
        let mut text = Vec::new();
        for chunk in array.iter() {
            let chunk =
                chunk.map_err(|source| StateError::Map { verb: "read", path: path.clone(), source })?;
            text.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| StateError::File {
            verb: "understand",
            path,
            source: io::Error::other(error),
        })
    }

    /// Pins the description at `path`, where nothing is.
    pub fn pin(&self, path: &Path) -> Result<(), StateError> {
        let failed = |source| StateError::Map { verb: "write", path: path.to_owned(), source };
        let text = serde_json::to_vec(self).map_err(|error| failed(MapError::IoError(error.into())))?;
        let chunks = u32::try_from(text.len().div_ceil(CHUNK)).unwrap_or(u32::MAX);
        let mut array = Array::<_, [u8; CHUNK]>::create(chunks, 0).map_err(failed)?;
        for (index, part) in (0..chunks).zip(text.chunks(CHUNK)) {
            let mut chunk = [b' '; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            array.set(index, chunk, 0).map_err(failed)?;
        }
        state::pin(array, path)
    }
}

fn without_lists(network: &Network) -> Network {
    let Network { monitor, on_stop, sources, malformed_pass, rules, management, blocks, next, .. } = network;
    Network {
        monitor: *monitor,
        on_stop: *on_stop,
        sources: *sources,
        malformed_pass: *malformed_pass,
        allow: Vec::new(),
        deny: Vec::new(),
        rules: rules.clone(),
        deny_files: Vec::new(),
        management: management.clone(),
        // Nobody looks for it here.
        blocks: Blocks { capacity: blocks.capacity, crowdsec: None },
        next: next.clone(),
    }
}

/// What another build wrote in another form must not hide all the rest.
fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Network>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

// === conversions ===

impl From<&Sources> for SourcesDescription {
    fn from(sources: &Sources) -> Self {
        let Sources { ipv4_prefix, ipv6_prefix, capacity, when_full } = *sources;
        let when_full = match when_full {
            WhenFull::Pass => "pass",
            WhenFull::Share => "share",
            WhenFull::Drop => "drop",
        };
        Self { ipv4_prefix, ipv6_prefix, capacity, when_full: when_full.to_owned() }
    }
}

impl From<&Interface> for InterfaceDescription {
    fn from(interface: &Interface) -> Self {
        let mode = match interface.mode {
            AttachMode::Auto => "auto",
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        };
        Self { name: interface.name.clone(), mode: mode.to_owned() }
    }
}

#[cfg(test)]
mod tests;
