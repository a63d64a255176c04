//! Refused packets, as the program tells of some of them: read from the pinned ring `samples`, which has one
//! reader at a time, the daemon.
//!
//! A CPU writes fifty records a second for each reason at most. What it does not write, the next record of
//! that kind stands for as well.

use std::{
    collections::HashMap,
    fmt, io,
    net::IpAddr,
    os::fd::{AsRawFd, RawFd},
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use aya::maps::{Map, MapData, RingBuf};
use ratelimit_common::{
    address::{Address, Family},
    record::Reason,
    sample::Refused,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    blocks::Now,
    description::Description,
    state::{StateDir, StateError, open},
};

const RING: &str = "samples";

/// For how long names of rules are taken to be right: a reload may change them.
const NAMES_KEPT: Duration = Duration::from_secs(1);

/// A refused packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it came.
    pub time: SystemTime,
    /// Why it was refused.
    pub reason: Reason,
    /// It was shed; else it passed because something only monitors.
    pub shed: bool,
    /// The rule that it met, by name.
    pub rule: Option<String>,
    /// The index of the limit that refused it, among those of the rule.
    pub limit: Option<usize>,
    /// Where it came from; `None` if its addresses could not be read.
    pub source: Option<IpAddr>,
    /// Where it went to, likewise.
    pub destination: Option<IpAddr>,
    /// The number of its protocol, if that could be read.
    pub protocol: Option<u8>,
    /// Its source port, if it has one.
    pub source_port: Option<u16>,
    /// Its destination port, likewise.
    pub destination_port: Option<u16>,
    /// Bytes of the whole frame.
    pub length: u32,
    /// How many refused packets it stands for, itself among them: those with the same reason on the same CPU
    /// since the last one told. An estimate where packets are more than a CPU can look at.
    pub weight: u64,
    /// Index of the interface where it came in.
    pub interface: u32,
}

/// Refused packets as they come.
#[derive(Debug)]
pub struct Samples {
    ring: AsyncFd<Ring>,
    rules: Rules,
}

/// A ring that can be printed.
struct Ring(RingBuf<MapData>);

/// Names of rules by their counter slots.
#[derive(Debug)]
struct Rules {
    directory: PathBuf,
    names: HashMap<u32, String>,
    read: Option<Instant>,
}

// === impl Samples ===

impl Samples {
    /// Opens the pinned ring. Needs a Tokio runtime.
    pub fn open(state: &StateDir) -> Result<Self, StateError> {
        let directory = state.state();
        let path = directory.join(RING);
        let data = open(&path)?.ok_or_else(|| StateError::File {
            verb: "open",
            path: path.clone(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        let ring = Map::from_map_data(data)
            .and_then(RingBuf::try_from)
            .map_err(|source| StateError::Map { verb: "use", path: path.clone(), source })?;
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe, for types that may change their descriptor: a ring keeps its own"
        )]
        let ring = AsyncFd::with_interest(Ring(ring), Interest::READABLE)
            .map_err(|source| StateError::File { verb: "wait on", path, source })?;
        Ok(Self { ring, rules: Rules { directory, names: HashMap::new(), read: None } })
    }

    /// The next one; waits for it. Dropping the future loses nothing.
    pub async fn next(&mut self) -> io::Result<Sample> {
        loop {
            let mut record = self.ring.get_mut().take();
            if record.is_none() {
                let mut guard = self.ring.readable_mut().await?;
                record = guard.get_inner_mut().take();
                // Only when it is empty: the kernel tells of a record only when all before it were read.
                if record.is_none() {
                    guard.clear_ready();
                }
            }
            let sample = record.and_then(|record| {
                let rule = self.rules.name(record.counter_slot);
                Sample::new(&record, rule, &Now::read())
            });
            if let Some(sample) = sample {
                return Ok(sample);
            }
        }
    }
}

// === impl Ring ===

impl Ring {
    /// The next record, if there is one. What is no record is passed over.
    fn take(&mut self) -> Option<Refused> {
        while let Some(bytes) = self.0.next() {
            if let Some(record) = Refused::from_bytes(&bytes) {
                return Some(record);
            }
        }
        None
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ring").field(&self.as_raw_fd()).finish()
    }
}

// === impl Rules ===

impl Rules {
    /// The rule that has a counter slot, if any rule has.
    fn name(&mut self, slot: u32) -> Option<String> {
        if slot == Refused::NONE {
            return None;
        }
        if self.read.is_none_or(|read| read.elapsed() > NAMES_KEPT) {
            // Where it cannot be read, the names are those of before. The same for rules that are gone: records
            // of theirs may still be in the ring.
            if let Ok(Some(description)) = Description::read(&self.directory) {
                self.names.extend(description.rules.into_iter().map(|rule| (rule.counter_slot, rule.name)));
            }
            self.read = Some(Instant::now());
        }
        self.names.get(&slot).cloned()
    }
}

// === impl Sample ===

impl Sample {
    /// `None`: a record that this build's program does not write.
    fn new(record: &Refused, rule: Option<String>, now: &Now) -> Option<Self> {
        let Refused {
            time,
            weight,
            source,
            destination,
            length,
            interface,
            reason,
            counter_slot: _,
            limit,
            shed,
            family,
            protocol,
            source_port,
            destination_port,
        } = *record;
        let address = |[high, low]: [u64; 2]| match family {
            0 => Some(None),
            4 => Some(Some(IpAddr::from(Address { family: Family::V4, high, low }.v4_octets()))),
            6 => Some(Some(IpAddr::from(Address { family: Family::V6, high, low }.v6_octets()))),
            _ => None,
        };
        let port = |port| u16::try_from(port).ok().filter(|_| family != 0);
        Some(Self {
            time: now.wall_of(time),
            reason: *Reason::ALL.get(reason as usize)?,
            shed: shed != 0,
            rule,
            limit: (limit != Refused::NONE).then_some(limit as usize),
            source: address(source)?,
            destination: address(destination)?,
            protocol: u8::try_from(protocol).ok().filter(|_| family != 0),
            source_port: port(source_port),
            destination_port: port(destination_port),
            length,
            weight,
            interface,
        })
    }
}

#[cfg(test)]
mod tests;
