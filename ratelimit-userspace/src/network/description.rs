//! What runs, as JSON in the pinned array `policy`: written by the daemon when a policy takes effect, read
//! by `status` and `counters` whether a daemon runs or not, and by the next start, which keeps the
//! counter slots of rules that stay.

mod words;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use aya::maps::{Array, MapError};
use serde::{Deserialize, Serialize};

use super::{
    compile::{RuleDescription, Slots},
    state::{self, StateError},
};
use crate::config::policy::{AttachMode, Interface, Network, OnStop, Sources, WhenFull};

/// The pin's name in the state directory.
const NAME: &str = "policy";
/// The name of one that does not run yet. The BPF file system reserves names with dots.
const NEXT: &str = "policy-next";

/// The text is spread over array values of this size, the last one filled up with spaces.
const CHUNK: usize = 4096;

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// How sources are told apart and kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceDescription {
    /// Its name.
    pub name: String,
    /// The mode asked for: `auto`, `native` or `generic`.
    pub mode: String,
}

/// A description that is pinned but not in force. Dropping it before [`Staged::commit`] removes it.
#[derive(Debug)]
pub struct Staged {
    directory: PathBuf,
    committed: bool,
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
            matches: network.rules.iter().map(|rule| words::matches(&rule.matches)).collect(),
            slots,
        }
    }

    /// Seconds for which this policy has been in force.
    pub fn uptime(&self) -> u64 {
        state::boottime_nanos().saturating_sub(self.loaded_at_boottime) / 1_000_000_000
    }

    /// Reads the description pinned in a state directory; `None` when there is none.
    pub fn read(directory: &Path) -> Result<Option<Self>, StateError> {
        let path = directory.join(NAME);
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

    /// Pins the description beside the one in force, ready to replace it.
    pub fn stage(&self, directory: &Path) -> Result<Staged, StateError> {
        let path = directory.join(NEXT);
        // One that an interrupted start left behind.
        let _ = fs::remove_file(&path);
        let failed = |source| StateError::Map { verb: "write", path: path.clone(), source };
        let text = serde_json::to_vec(self).map_err(|error| failed(MapError::IoError(error.into())))?;
        let chunks = u32::try_from(text.len().div_ceil(CHUNK)).unwrap_or(u32::MAX);
        let mut array = Array::<_, [u8; CHUNK]>::create(chunks, 0).map_err(failed)?;
        for (index, part) in (0..chunks).zip(text.chunks(CHUNK)) {
            let mut chunk = [b' '; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            array.set(index, chunk, 0).map_err(failed)?;
        }
        state::pin(array, &path)?;
        Ok(Staged { directory: directory.to_owned(), committed: false })
    }
}

// === impl Staged ===

impl Staged {
    /// Replaces the description in force, atomically.
    pub fn commit(&mut self) -> io::Result<()> {
        fs::rename(self.directory.join(NEXT), self.directory.join(NAME))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_file(self.directory.join(NEXT));
        }
    }
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
