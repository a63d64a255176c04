//! Blocks in a file, to outlive a boot: a line of JSON for each, after one that says when they were saved.
//!
//! ```text
//! {"saved":1790000000}
//! {"prefix":"192.0.2.7/32","until":1790000600,"since":1789999999,"reason":"probes"}
//! {"prefix":"2001:db8::/32","since":1780000000}
//! ```
//!
//! Times are those of the wall clock, in seconds since 1970. Only the operator's blocks are saved. A line
//! that cannot be read is told and keeps no other from being restored.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Blocks, BlocksError, Change, Now, Origin, source::canonical};
use crate::whole_file;

/// Bytes of a line, at most; ours are far shorter.
const MAX_LINE: u64 = 4096;

/// What a file held.
#[derive(Debug, Default)]
pub struct Saved {
    /// When it was written, if it says so.
    at: Option<u64>,
    lines: Vec<(usize, Line)>,
    /// Lines that cannot be read.
    pub errors: Vec<BadLine>,
}

/// A line that is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

/// What was restored.
#[derive(Debug, Default)]
pub struct Restored {
    /// Blocks that hold again.
    pub blocks: usize,
    /// Those that have ended meanwhile.
    pub ended: usize,
    /// Lines that could not be restored.
    pub errors: Vec<BadLine>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    saved: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    prefix: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    since: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
}

// === impl Saved ===

impl Saved {
    /// Reads a file; `None` if there is none.
    pub fn read(file: &Path) -> Result<Option<Self>, BlocksError> {
        match File::open(file).and_then(|opened| Self::parse(BufReader::new(opened))) {
            Ok(saved) => Ok(Some(saved)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(BlocksError::File { verb: "read", path: file.to_owned(), source }),
        }
    }

    fn parse(mut from: impl io::BufRead) -> io::Result<Self> {
        let mut saved = Self::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let is_whole = line.ends_with(b"\n");
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            if let Ok(Head { saved: at }) = serde_json::from_slice(text) {
                saved.at = Some(at);
                continue;
            }
            match serde_json::from_slice(text) {
                Ok(entry) => saved.lines.push((number, entry)),
                Err(error) => saved.errors.push(BadLine { line: number, message: error.to_string() }),
            }
            if !is_whole && line.len() as u64 == MAX_LINE {
                from.skip_until(b'\n')?;
            }
        }
        Ok(saved)
    }

    /// What is to be blocked, to ask whether there is room.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.lines.iter().map(|(_, line)| &line.prefix)
    }

    /// How many single addresses there may be, to make a table of that size.
    pub fn singles(&self) -> usize {
        self.prefixes().filter(|prefix| prefix.prefix_len() == prefix.max_prefix_len()).count()
    }
}

// === impl Blocks ===

impl Blocks {
    /// Writes the operator's blocks to a file, which is there as a whole or not at all. How many there are.
    pub fn save(&self, file: &Path) -> Result<usize, BlocksError> {
        let mut count = 0;
        // The map may fail, too; then nothing is written.
        let mut unread = Ok(());
        let written = whole_file::replace(file, |out| {
            line(out, &Head { saved: seconds(self.now().wall) })?;
            let mut result = Ok(());
            unread = self.for_each(|block| {
                if block.origin != Origin::Command || result.is_err() {
                    return;
                }
                let entry = Line {
                    prefix: block.prefix,
                    // Rounded up: not shorter for having been saved.
                    until: block.until.map(|until| seconds(until + Duration::from_nanos(999_999_999))),
                    since: seconds(block.since),
                    reason: block.reason,
                };
                result = line(out, &entry);
                count += 1;
            });
            if unread.is_err() { Err(io::ErrorKind::Other.into()) } else { result }
        });
        unread?;
        written.map_err(|source| BlocksError::File { verb: "write", path: file.to_owned(), source })?;
        Ok(count)
    }

    /// Blocks again what was saved, for the time that is left of it by the wall clock. If that runs behind
    /// the time of saving, for no longer than was left then.
    pub fn restore(&mut self, saved: Saved) -> Restored {
        let now = self.now();
        let wall = seconds(now.wall).max(saved.at.unwrap_or(0));
        let mut restored = Restored { errors: saved.errors, ..Restored::default() };
        for (number, line) in saved.lines {
            match self.restore_line(&line, wall, &now) {
                Ok(Some(_)) => restored.blocks += 1,
                Ok(None) => restored.ended += 1,
                Err(error) => {
                    restored.errors.push(BadLine { line: number, message: error.to_string() });
                }
            }
        }
        restored.errors.sort_by_key(|error| error.line);
        restored
    }

    fn restore_line(&mut self, line: &Line, wall: u64, now: &Now) -> Result<Option<Change>, BlocksError> {
        let left = match line.until {
            Some(until) if until <= wall => return Ok(None),
            Some(until) => Some(Duration::from_secs(until - wall)),
            None => None,
        };
        let since = UNIX_EPOCH.checked_add(Duration::from_secs(line.since)).unwrap_or(now.wall);
        let prefix = canonical(line.prefix)?;
        self.put(&prefix, now.end(left)?, since, &line.reason, now.seconds()).map(Some)
    }
}

fn line(out: &mut impl io::Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
