//! Recorded requests, a JSON object a line, and the answers to them.

mod time;

use std::{
    io::{self, BufRead, Read as _},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::time::{Time, TimeError};
use super::{
    ask,
    wire::{self, Descriptor, Question, QuestionError, Request},
};

/// Bytes that a line may hold.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// A trace, read line by line.
#[derive(Debug)]
pub struct Trace<R> {
    path: PathBuf,
    reader: R,
    line: u64,
    bytes: Vec<u8>,
}

/// One recorded question.
#[derive(Clone, Debug)]
pub struct Line {
    /// When it was asked.
    pub time: Time,
    /// What was asked.
    pub question: Question,
}

/// The answer to a line, for programs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Answered<'a> {
    t: &'a RawValue,
    #[serde(flatten)]
    answer: wire::Answer<'a>,
}

/// Why a trace cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Reading fails.
    #[error("failed to read {} after line {line}", path.display())]
    Read {
        /// The trace.
        path: PathBuf,
        /// Lines read before.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line is not of the format.
    #[error("{}:{line}{}: {what}", path.display(), column.map_or_else(String::new, |column| format!(":{column}")))]
    Malformed {
        /// The trace.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: Option<usize>,
        /// What is wrong, and what is expected.
        what: String,
    },
}

/// A line as it is written: a time, and beside it all that a [`Question`] has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow)]
    t: &'a RawValue,
    domain: Option<String>,
    descriptors: Option<Vec<Descriptor>>,
    request: Option<Request>,
    hits: Option<i64>,
    #[serde(default)]
    peek: bool,
}

// === impl Trace ===

impl<R: BufRead> Trace<R> {
    /// A trace. `path` stands for it in messages.
    pub fn new(path: PathBuf, reader: R) -> Self {
        Self { path, reader, line: 0, bytes: Vec::new() }
    }

    /// The next line that is not blank; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<Line>, TraceError> {
        loop {
            self.bytes.clear();
            let mut limited = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 1);
            let read = limited.read_until(b'\n', &mut self.bytes);
            read.map_err(|source| TraceError::Read { path: self.path.clone(), line: self.line, source })?;
            if self.bytes.is_empty() {
                return Ok(None);
            }
            self.line += 1;
            if self.bytes.len() > MAX_LINE_BYTES {
                let what = format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20);
                return Err(self.malformed(None, what));
            }
            if !self.bytes.trim_ascii().is_empty() {
                return self.parse().map(Some);
            }
        }
    }

    /// Word that the line read last asks for what cannot be decided.
    pub fn undecidable(&self, error: &QuestionError) -> TraceError {
        self.malformed(None, error.to_string())
    }

    fn parse(&self) -> Result<Line, TraceError> {
        let Written { t, domain, descriptors, request, hits, peek } = serde_json::from_slice(&self.bytes)
            .map_err(|error| {
                // Its text ends in a place within the line, which it takes for a file of its own.
                let text = error.to_string();
                let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
                self.malformed(Some(error.column()), what.to_owned())
            })?;
        let time = Time::parse(t).map_err(|error| self.malformed(None, error.to_string()))?;
        Ok(Line { time, question: Question { domain, descriptors, request, hits, peek } })
    }

    fn malformed(&self, column: Option<usize>, what: String) -> TraceError {
        TraceError::Malformed { path: self.path.clone(), line: self.line, column, what }
    }
}

// === impl Answered ===

impl<'a> Answered<'a> {
    /// The answer to what was asked at a time.
    pub fn new(time: &'a Time, answer: &'a ask::Answer) -> Self {
        Self { t: time.as_written(), answer: answer.into() }
    }
}

#[cfg(test)]
mod tests;
