//! Who sends how much: what the program's samples tell of each source.
//!
//! Counts are exact while a CPU sees few packets, and estimates with an error beyond: see
//! [`ratelimit_common::sampler`]. Of the sources that are more than the table holds, those seen least recently
//! are forgotten; who comes back then is counted anew.

use std::{
    borrow::Borrow,
    cmp::Reverse,
    collections::HashMap as Seen,
    net::IpAddr,
    path::{Path, PathBuf},
    time::SystemTime,
};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use ipnet::IpNet;
use ratelimit_common::{
    address::{Address, Family},
    sample::{self, Source, TALKERS, Traffic},
    sampler::{self, Sampler},
};

use super::{
    blocks::{Now, address_of, net_of},
    compile::SourceBits,
    description::Description,
    program::Program,
    state::{StateDir, StateError, open},
};

const TALKERS_MAP: &str = "talkers";
const SAMPLER_MAP: &str = "sampler";

/// By what sources are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Packets that passed.
    Passed,
    /// Packets that were shed, or would have been.
    Shed,
}

/// A source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talker {
    /// The client: an address, or the prefix that makes one.
    pub source: IpNet,
    /// What passed.
    pub passed: Estimate,
    /// What was shed; where something only monitors, what would have been.
    pub shed: Estimate,
    /// Since when it is counted.
    pub first_seen: SystemTime,
    /// When it was last sampled.
    pub last_seen: SystemTime,
}

/// Packets and bytes of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Frames.
    pub packets: u64,
    /// Their whole length as XDP sees it, in bytes.
    pub bytes: u64,
    /// By how many packets this may be off: the true number lies within that in 19 of 20 cases. 0: it is exact.
    pub packets_error: u64,
}

/// The maps that hold what is known.
#[derive(Debug)]
pub struct TalkerMaps<M> {
    talkers: M,
    samplers: M,
    directory: PathBuf,
}

/// The `count` sources with the most packets. None while nothing is loaded.
pub fn top(state: &StateDir, count: usize, by: By) -> Result<Vec<Talker>, StateError> {
    match TalkerMaps::pinned(&state.state())? {
        Some(maps) => maps.top(count, by),
        None => Ok(Vec::new()),
    }
}

/// What is known of the source that an address belongs to.
pub fn of(state: &StateDir, address: IpAddr) -> Result<Option<Talker>, StateError> {
    let directory = state.state();
    let Some(maps) = TalkerMaps::pinned(&directory)? else { return Ok(None) };
    let Some(description) = Description::read(&directory)? else { return Ok(None) };
    let bits =
        SourceBits { v4: description.sources.ipv4_prefix.into(), v6: description.sources.ipv6_prefix.into() };
    maps.of_address(address, bits)
}

// === impl TalkerMaps ===

impl TalkerMaps<Map> {
    /// The ones that are pinned by name in a directory, if they are.
    pub fn pinned(directory: &Path) -> Result<Option<Self>, StateError> {
        let map = |name: &str| {
            let path = directory.join(name);
            let typed = |data| {
                Map::from_map_data(data).map_err(|source| StateError::Map {
                    verb: "use",
                    path: path.clone(),
                    source,
                })
            };
            open(&path)?.map(typed).transpose()
        };
        let (Some(talkers), Some(samplers)) = (map(TALKERS_MAP)?, map(SAMPLER_MAP)?) else { return Ok(None) };
        Ok(Some(Self { talkers, samplers, directory: directory.to_owned() }))
    }
}

impl<'a> TalkerMaps<&'a Map> {
    /// The ones of a loaded program; `None` cannot be with the object that this build embeds.
    pub fn of(program: &'a Program) -> Option<Self> {
        let (talkers, samplers) = (program.map(TALKERS_MAP)?, program.map(SAMPLER_MAP)?);
        Some(Self { talkers, samplers, directory: PathBuf::new() })
    }
}

impl<M: Borrow<Map>> TalkerMaps<M> {
    /// See [`top`].
    pub fn top(&self, count: usize, by: By) -> Result<Vec<Talker>, StateError> {
        let failed = |source| self.failed(TALKERS_MAP, source);
        let map = self.talkers()?;
        // Where an entry is forgotten just as it is looked at, the kernel begins again from the front: hence
        // each source once, and an end.
        let mut seen = Seen::new();
        for source in map.keys().take(2 * TALKERS) {
            let source = source.map_err(failed)?;
            match map.get(&source, 0) {
                Ok(talker) => {
                    seen.insert(source, talker);
                }
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let samplers = self.samplers()?;
        let now = Now::read();
        let mut talkers: Vec<_> =
            seen.iter().filter_map(|(source, talker)| Talker::new(source, talker, &samplers, &now)).collect();
        talkers.sort_unstable_by_key(|talker| {
            let estimate = match by {
                By::Passed => talker.passed,
                By::Shed => talker.shed,
            };
            (Reverse(estimate.packets), talker.source)
        });
        talkers.truncate(count);
        Ok(talkers)
    }

    /// What is known of the source that an address belongs to, where so many bits make one.
    pub fn of_address(&self, address: IpAddr, bits: SourceBits) -> Result<Option<Talker>, StateError> {
        let address = address_of(address.to_canonical());
        let length = match address.family {
            Family::V4 => bits.v4,
            Family::V6 => bits.v6,
        };
        let source = Source::of(&address, length);
        match self.talkers()?.get(&source, 0) {
            Ok(talker) => Ok(Talker::new(&source, &talker, &self.samplers()?, &Now::read())),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(self.failed(TALKERS_MAP, error)),
        }
    }

    fn talkers(&self) -> Result<HashMap<&MapData, Source, sample::Talker<u64>>, StateError> {
        HashMap::try_from(self.talkers.borrow()).map_err(|source| self.failed(TALKERS_MAP, source))
    }

    /// The state of each CPU.
    fn samplers(&self) -> Result<Vec<Sampler>, StateError> {
        let failed = |source| self.failed(SAMPLER_MAP, source);
        let map = PerCpuArray::<_, Sampler>::try_from(self.samplers.borrow()).map_err(failed)?;
        Ok(map.get(&0, 0).map_err(failed)?.to_vec())
    }

    fn failed(&self, name: &str, source: MapError) -> StateError {
        StateError::Map { verb: "read", path: self.directory.join(name), source }
    }
}

// === impl Talker ===

impl Talker {
    /// `None`: the family is one that no build knows.
    fn new(source: &Source, talker: &sample::Talker<u64>, samplers: &[Sampler], now: &Now) -> Option<Self> {
        let sample::Talker { passed, shed, first_seen, last_seen } = *talker;
        let family = match source.family {
            4 => Family::V4,
            6 => Family::V6,
            _ => return None,
        };
        let address = Address { family, high: source.high, low: source.low };
        let heaviest = samplers.iter().map(|sampler| sampler.heaviest(first_seen)).max().unwrap_or(1);
        Some(Self {
            source: net_of(&address, source.length),
            passed: Estimate::new(passed, heaviest),
            shed: Estimate::new(shed, heaviest),
            first_seen: now.wall_of(first_seen),
            last_seen: now.wall_of(last_seen),
        })
    }
}

// === impl Estimate ===

impl Estimate {
    fn new(Traffic { packets, bytes, variance }: Traffic<u64>, heaviest: u64) -> Self {
        Self { packets, bytes, packets_error: sampler::error(variance, heaviest) }
    }
}

#[cfg(test)]
mod tests;
