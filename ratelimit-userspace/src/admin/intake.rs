//! Many sources to block, read line by line as they come, so that the text is never there as a whole.
//!
//! A line holds an address or a prefix, or a JSON object `{"prefix": …, "for": …, "reason": …}`; blank lines
//! and what stands after `#` do not count. A line that is wrong is noted and keeps no other one from being
//! blocked.

use std::{borrow::Cow, time::Duration};

use ipnet::IpNet;
use serde::Deserialize;

use super::{
    command::{Batch, Blocked, NewBlock},
    schema::{BlockError, BulkBlocked, text},
};
use crate::{
    config::{self, policy::Blocks},
    network::blocks::{BlocksError, MAX_REASON},
};

/// Bytes of a line.
const MAX_LINE: usize = 4096;

/// Errors that are told one by one.
pub(super) const MAX_ERRORS: usize = 10_000;

/// Characters of an entry that are told with its error.
const MAX_QUOTED: usize = 120;

/// More entries than there can ever be room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {} entries: no capacity has room for them, and nothing was changed", MAX_ENTRIES)]
pub struct TooMany;

const MAX_ENTRIES: u32 = *Blocks::CAPACITY.end();

/// What was read so far.
#[derive(Debug, Default)]
pub struct Intake {
    batch: Batch,
    /// How long entries without a duration of their own are blocked.
    duration: Option<Duration>,
    /// The line of each entry.
    lines: Vec<u32>,
    failed: usize,
    errors: Vec<BlockError>,
    /// The beginning of a line that has not come to its end; no more of it than can be used.
    partial: Vec<u8>,
    line: u32,
}

/// An entry in JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    #[serde(borrow)]
    prefix: Cow<'a, str>,
    #[serde(rename = "for", default, with = "text::optional_duration")]
    duration: Option<Duration>,
    #[serde(default)]
    reason: String,
}

// === impl Intake ===

impl Intake {
    /// With what holds for entries that do not say otherwise.
    pub fn new(duration: Option<Duration>, reason: String) -> Result<Self, String> {
        check(duration, &reason)?;
        Ok(Self { batch: Batch { entries: Vec::new(), reason }, duration, ..Self::default() })
    }

    /// Reads on.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooMany> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.partial.is_empty() {
                self.take(line)?;
            } else {
                self.keep(line);
                let mut whole = std::mem::take(&mut self.partial);
                self.take(&whole)?;
                whole.clear();
                self.partial = whole;
            }
        }
        self.keep(bytes);
        Ok(())
    }

    /// Everything is there; the last line need not end.
    pub fn finish(&mut self) -> Result<Batch, TooMany> {
        let last = std::mem::take(&mut self.partial);
        self.take(&last)?;
        Ok(std::mem::take(&mut self.batch))
    }

    /// What to answer, once the daemon has told what became of the entries, whose prefixes are these.
    pub fn answer(mut self, prefixes: &[IpNet], blocked: Blocked) -> BulkBlocked {
        let Blocked { added, replaced, errors } = blocked;
        let failed = self.failed + errors.len();
        for (index, message) in errors.into_iter().take(MAX_ERRORS) {
            let line = self.lines.get(index).copied().unwrap_or_default();
            let entry = prefixes.get(index).map(ToString::to_string).unwrap_or_default();
            self.errors.push(BlockError { line: u64::from(line), entry, message });
        }
        self.errors.sort_by_key(|error| error.line);
        self.errors.truncate(MAX_ERRORS);
        BulkBlocked { added, replaced, failed, errors: self.errors }
    }

    /// Adds to a line that has not ended, one byte more than a line may have at most.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (MAX_LINE + 1).saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn take(&mut self, line: &[u8]) -> Result<(), TooMany> {
        self.line = self.line.saturating_add(1);
        match entry(line, self.duration) {
            Ok(None) => {}
            Ok(Some(_)) if self.lines.len() == MAX_ENTRIES as usize => return Err(TooMany),
            Ok(Some(entry)) => {
                self.batch.entries.push(entry);
                self.lines.push(self.line);
            }
            Err(message) => {
                self.failed += 1;
                if self.errors.len() < MAX_ERRORS {
                    let text = String::from_utf8_lossy(line);
                    let entry = text.trim().chars().take(MAX_QUOTED).collect();
                    self.errors.push(BlockError { line: u64::from(self.line), entry, message });
                }
            }
        }
        Ok(())
    }
}

/// What a line holds, if anything.
fn entry(line: &[u8], duration: Option<Duration>) -> Result<Option<NewBlock>, String> {
    if line.len() > MAX_LINE {
        return Err(format!("the line has more than {MAX_LINE} bytes"));
    }
    let line = str::from_utf8(line).map_err(|_| "the line is not UTF-8 text".to_owned())?.trim();
    if line.starts_with('{') {
        let entry: Entry<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let Entry { prefix, duration: own, reason } = entry;
        check(own, &reason)?;
        return Ok(Some(NewBlock { prefix: config::prefix(&prefix)?, duration: own.or(duration), reason }));
    }
    let bare = line.split_once('#').map_or(line, |(before, _)| before).trim_end();
    if bare.is_empty() {
        return Ok(None);
    }
    Ok(Some(NewBlock { prefix: config::prefix(bare)?, duration, reason: String::new() }))
}

/// Whether a source can be blocked for this time and with this reason, as far as they alone can tell.
pub(super) fn check(duration: Option<Duration>, reason: &str) -> Result<(), String> {
    let error = if duration.is_some_and(|duration| duration.is_zero()) {
        BlocksError::NoTime
    } else if reason.len() > MAX_REASON {
        BlocksError::LongReason { length: reason.len() }
    } else if reason.chars().any(char::is_control) {
        BlocksError::ControlCharacters
    } else {
        return Ok(());
    };
    Err(error.to_string())
}

#[cfg(test)]
mod tests;
