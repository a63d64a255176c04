//! Counters in a file, so that long windows outlive a restart.
//!
//! The file is a header, then limits and counters (a counter names the limit that it was written under by
//! its number among them), then an end mark and a digest of everything before it.

use std::{
    collections::HashMap,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use sha2::{Digest, Sha256};
use thiserror::Error;

use self::{
    codec::{Reader, limit_bytes, read_limit, read_state, write_state},
    place::Place,
};
use super::{
    Identity,
    memory::{Memory, OWN, Seen},
};
use crate::{
    config::http::{Limit, Window},
    http::{
        algorithm::{Meter, State},
        clock::Now,
        rules::{Metered, RuleBook},
    },
    whole_file,
};

mod codec;
mod place;

const MAGIC: &[u8; 8] = b"rlcounts";
const FORMAT: u32 = 1;
/// Bytes of the digest.
const DIGEST: usize = 32;

// What a record is.
const END: u8 = 0;
const LIMIT: u8 = 1;
const COUNTER: u8 = 2;

/// Counters of shorter windows that are whole sooner are not worth keeping.
const MINUTE: u64 = 60 * 1_000_000_000;

/// Why a file cannot be restored. Nothing of it is.
#[derive(Debug, Error)]
enum SnapshotError {
    #[error("this is not a file of saved counters: name another one, or remove it")]
    Foreign,
    #[error("counters saved in format {0}, which this version cannot read: remove the file to start anew")]
    Format(u32),
    #[error("the saved counters are damaged: remove the file to start anew")]
    Damaged,
    #[error(
        "counters saved under another key, so none could be found: put the key back, or remove the file to \
         start anew"
    )]
    OtherKey,
}

/// Puts counters into records.
struct Writer<'a> {
    book: &'a RuleBook,
    now: Now,
    places: HashMap<u32, Vec<u8>>,
    /// The numbers of the limits that are written, by what is written.
    limits: HashMap<Vec<u8>, u32>,
    /// The same by version; `None` where none can be written.
    versions: HashMap<u32, Option<u32>>,
    records: Vec<u8>,
}

/// What a file holds.
struct Contents {
    /// When it was written.
    saved: Now,
    limits: Vec<(Place, Limit)>,
    /// Each with the place of its limit among the limits.
    counters: Vec<(Identity, usize, State)>,
}

/// A limit of a file, and the one that is in force in its place.
struct Succession {
    old: Meter,
    new: Option<Metered>,
}

// === Saving ===

/// Writes the counters that are worth it to a file, in the place of the one before. `check` tells keys apart.
pub(crate) fn save(
    file: &Path,
    memory: &Memory,
    book: &RuleBook,
    check: [u8; 16],
    now: Now,
) -> io::Result<()> {
    whole_file::replace(file, |out| {
        let mut digest = Sha256::new();
        let mut write = |bytes: &[u8]| {
            digest.update(bytes);
            out.write_all(bytes)
        };
        write(MAGIC)?;
        write(&FORMAT.to_le_bytes())?;
        write(&check)?;
        write(&now.steady.to_le_bytes())?;
        write(&now.utc.to_le_bytes())?;
        let mut writer = Writer::new(book, now);
        for shard in 0..memory.shards() {
            memory.visit(shard, book, |seen| writer.counter(&seen));
            write(&writer.records)?;
            writer.records.clear();
        }
        write(&[END])?;
        out.write_all(&digest.finalize())
    })
}

// === impl Writer ===

impl<'a> Writer<'a> {
    fn new(book: &'a RuleBook, now: Now) -> Self {
        Self {
            book,
            now,
            places: place::all(book),
            limits: HashMap::new(),
            versions: HashMap::new(),
            records: Vec::new(),
        }
    }

    fn counter(&mut self, seen: &Seen<'_>) {
        let Seen { identity, state, version, meter } = *seen;
        let left = meter.whole_at(state).saturating_sub(meter.time(self.now));
        if left == 0 || left <= MINUTE && !is_long(&meter.limit().window) {
            return;
        }
        match self.book.successor(version) {
            None => self.record(seen),
            // Nobody has asked about it since its limit changed.
            Some(Metered { version, meter: new }) => {
                if let Some(state) = &new.convert(meter, state.clone(), self.now) {
                    self.record(&Seen { identity, state, version: *version, meter: new });
                }
            }
        }
    }

    fn record(&mut self, seen: &Seen<'_>) {
        // A rule that is gone takes its counters along.
        let Some(limit) = self.limit(seen) else { return };
        self.records.push(COUNTER);
        self.records.extend(seen.identity.hash().iter().flat_map(|half| half.to_le_bytes()));
        self.records.extend(limit.to_le_bytes());
        write_state(&mut self.records, seen.state);
    }

    /// The number of a counter's limit, which is written before it is first named.
    fn limit(&mut self, seen: &Seen<'_>) -> Option<u32> {
        if seen.version == OWN {
            return self.write_limit(place::OWN_BYTES.to_vec(), seen.meter.limit());
        }
        if let Some(known) = self.versions.get(&seen.version) {
            return *known;
        }
        let place = self.places.get(&seen.version).cloned();
        let number = place.and_then(|place| self.write_limit(place, seen.meter.limit()));
        self.versions.insert(seen.version, number);
        number
    }

    fn write_limit(&mut self, place: Vec<u8>, limit: &Limit) -> Option<u32> {
        let mut bytes = place;
        bytes.extend(limit_bytes(limit)?);
        if let Some(number) = self.limits.get(&bytes) {
            return Some(*number);
        }
        let number = u32::try_from(self.limits.len()).ok()?;
        self.records.push(LIMIT);
        self.records.extend(&bytes);
        self.limits.insert(bytes, number);
        Some(number)
    }
}

fn is_long(window: &Window) -> bool {
    match window {
        Window::Fixed(nanos) => nanos.get() > MINUTE,
        Window::Calendar(..) => true,
    }
}

// === Restoring ===

/// Adds the counters of a file that are not there; how many. Nothing is added unless the whole file is sound.
pub(crate) fn restore(
    file: &Path,
    memory: &Memory,
    book: &RuleBook,
    check: [u8; 16],
    now: Now,
) -> io::Result<usize> {
    let bytes = std::fs::read(file)?;
    let contents = read(&bytes, check).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let shift = steady_shift(contents.saved, now);
    let successions = contents.limits.into_iter().map(|(place, limit)| place.succeed(limit, book));
    let successions: Vec<Succession> = successions.collect();
    let restored = contents.counters.into_iter().filter_map(|(identity, limit, state)| {
        let Succession { old, new } = &successions[limit];
        let new = new.as_ref()?;
        let state = if old.goes_by_utc() { state } else { state.shifted(shift) };
        let state = if *old == *new.meter { Some(state) } else { new.meter.convert(old, state, now) };
        let state = state.filter(|state| new.meter.whole_at(state) > new.meter.time(now))?;
        memory.put(identity, state, new).then_some(())
    });
    Ok(restored.count())
}

/// How much later the steady clock shows the same instant than the one of the process that wrote the file.
/// While no process ran, the time of day tells how long it was; backwards is no time at all.
fn steady_shift(saved: Now, now: Now) -> i64 {
    let passed = now.utc.saturating_sub(saved.utc);
    let shift = i128::from(now.steady) - i128::from(passed) - i128::from(saved.steady);
    i64::try_from(shift).unwrap_or(if shift < 0 { i64::MIN } else { i64::MAX })
}

fn read(bytes: &[u8], check: [u8; 16]) -> Result<Contents, SnapshotError> {
    let mut reader = Reader(bytes);
    if reader.array().as_ref() != Some(MAGIC) {
        return Err(SnapshotError::Foreign);
    }
    let format = reader.u32().ok_or(SnapshotError::Damaged)?;
    if format != FORMAT {
        return Err(SnapshotError::Format(format));
    }
    let (body, digest) = bytes.split_last_chunk::<DIGEST>().ok_or(SnapshotError::Damaged)?;
    if *Sha256::digest(body) != *digest {
        return Err(SnapshotError::Damaged);
    }
    if reader.array() != Some(check) {
        return Err(SnapshotError::OtherKey);
    }
    reader.0 = &reader.0[..reader.0.len() - DIGEST];
    read_contents(reader).ok_or(SnapshotError::Damaged)
}

fn read_contents(mut reader: Reader<'_>) -> Option<Contents> {
    let saved = Now { steady: reader.u64()?, utc: reader.u64()? };
    let mut contents = Contents { saved, limits: Vec::new(), counters: Vec::new() };
    loop {
        match reader.u8()? {
            END => return reader.0.is_empty().then_some(contents),
            LIMIT => contents.limits.push((place::read(&mut reader)?, read_limit(&mut reader)?)),
            COUNTER => {
                let identity = Identity::new([reader.u64()?, reader.u64()?]);
                let limit = usize::try_from(reader.u32()?).ok()?;
                let state = read_state(&mut reader)?;
                contents.limits.get(limit)?;
                contents.counters.push((identity, limit, state));
            }
            _ => return None,
        }
    }
}

// === impl Place ===

impl Place {
    fn succeed(self, limit: Limit, book: &RuleBook) -> Succession {
        let old = Meter::new(limit);
        let new = match self {
            Self::Own => Some(Metered { version: OWN, meter: Arc::new(old.clone()) }),
            Self::Rule(place) => place.in_force(book).cloned(),
        };
        Succession { old, new }
    }
}

#[cfg(test)]
mod tests;
