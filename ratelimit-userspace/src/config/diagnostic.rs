//! What is wrong with a rules file, where, and what would be right.

mod code;

use std::fmt::{self, Write as _};

use serde::Serialize;

pub use self::code::Code;

/// Errors that are listed for the rules file and for each rule file; the rest is counted.
pub const MAX_LISTED: usize = 1000;
/// Errors that are listed for one deny, prefix or map file; the rest is counted.
pub const MAX_LISTED_PER_LIST_FILE: usize = 100;
/// Characters of the rules file that a quotation shows.
const MAX_QUOTED: usize = 60;
/// Characters of a line that an excerpt shows.
const MAX_EXCERPT: usize = 100;

/// One finding. It serialises to exactly `{file, line, column, code, message, expected, nearest}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1, in characters.
    pub column: Option<u32>,
    /// What kind of finding it is, for programs.
    pub code: Code,
    /// What is wrong, for people.
    pub message: String,
    /// What may stand there.
    pub expected: Option<String>,
    /// What was probably meant.
    pub nearest: Option<String>,
    /// Whether the file can be loaded all the same.
    #[serde(skip)]
    pub severity: Severity,
    /// The line it stands in, for people.
    #[serde(skip)]
    excerpt: Option<String>,
}

/// Whether a file with this finding can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but probably does not do what was meant.
    Warning,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// From 1.
    pub(super) line: u32,
    /// From 1, in characters.
    pub(super) column: u32,
}

/// A finding that has no place yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    code: Code,
    message: String,
    expected: Option<String>,
    nearest: Option<String>,
}

/// Proof that a mistake has been noted, so that whoever meets it need not say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reported(());

/// Collects the findings of one file and of the files that it names.
#[derive(Debug)]
pub(super) struct Diagnostics<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    errors: Vec<Diagnostic>,
    unlisted: usize,
    warnings: Vec<Diagnostic>,
    /// Errors and warnings of other files.
    elsewhere: (Vec<Diagnostic>, Vec<Diagnostic>),
}

/// Text of the file as a message shows it: short, and without control characters.
pub(super) struct Quoted<'a>(pub(super) &'a str);

// === impl Diagnostic ===

impl Diagnostic {
    pub(super) fn whole_file(file: &str, mistake: Mistake) -> Self {
        let Mistake { code, message, expected, nearest } = mistake;
        Self {
            file: file.to_owned(),
            line: None,
            column: None,
            code,
            message,
            expected,
            nearest,
            severity: Severity::Error,
            excerpt: None,
        }
    }

    pub(super) fn at(file: &str, place: Place, line: &str, mistake: Mistake) -> Self {
        Self {
            line: Some(place.line),
            column: Some(place.column),
            excerpt: excerpt(line, place.column),
            ..Self::whole_file(file, mistake)
        }
    }
}

/// `file:line:column: error: message`, then what is expected, what was probably meant, and the line
/// itself with a mark under the place.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, code: _, message, expected, nearest, severity, excerpt } = self;
        write!(f, "{}:", printable(file))?;
        for number in [line, column].into_iter().flatten() {
            write!(f, "{number}:")?;
        }
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, " {severity}: {message}")?;
        if let Some(nearest) = nearest {
            write!(f, "\n  did you mean `{nearest}`?")?;
        }
        if let Some(expected) = expected {
            write!(f, "\n  expected: {expected}")?;
        }
        if let Some(excerpt) = excerpt {
            write!(f, "\n{excerpt}")?;
        }
        Ok(())
    }
}

/// The characters of a line around a column, and a caret under it.
fn excerpt(line: &str, column: u32) -> Option<String> {
    let at = usize::try_from(column).ok()?.checked_sub(1)?;
    let from = at.saturating_sub(MAX_EXCERPT / 2);
    let shown: String = line.chars().skip(from).take(MAX_EXCERPT).map(tame).collect();
    (!shown.trim().is_empty()).then(|| format!("    | {shown}\n    | {:>1$}", '^', at - from + 1))
}

// === impl Place ===

impl Place {
    /// The first character.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    pub(super) fn new(line: usize, column: usize) -> Self {
        let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Self { line: narrow(line), column: narrow(column) }
    }

    /// The place right after some text.
    pub(super) fn after(text: &[u8]) -> Self {
        let last = text.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = text.split(|&byte| byte == b'\n').count();
        Self::new(line, String::from_utf8_lossy(last).chars().count() + 1)
    }
}

// === impl Mistake ===

impl Mistake {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), expected: None, nearest: None }
    }

    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// As [`Self::expected`], where nothing more precise is known already.
    pub(super) fn or_expected(self, expected: &str) -> Self {
        if self.expected.is_some() { self } else { self.expected(expected) }
    }

    pub(super) fn nearest(self, nearest: Option<impl Into<String>>) -> Self {
        Self { nearest: nearest.map(Into::into), ..self }
    }

    /// All that is known of it, where it stands in no file.
    pub(super) fn in_a_line(self) -> String {
        let Self { code: _, message, expected, nearest } = self;
        match (nearest, expected) {
            (Some(nearest), _) => format!("{message}; did you mean `{nearest}`?"),
            (None, Some(expected)) => format!("{message}; expected: {expected}"),
            (None, None) => message,
        }
    }
}

// === impl Diagnostics ===

impl<'a> Diagnostics<'a> {
    /// For a file of this name and text.
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            lines: text.lines().collect(),
            errors: Vec::new(),
            unlisted: 0,
            warnings: Vec::new(),
            elsewhere: (Vec::new(), Vec::new()),
        }
    }

    /// Notes an error in the file.
    pub(super) fn error(&mut self, place: Place, mistake: Mistake) -> Reported {
        if self.errors.len() < MAX_LISTED {
            let error = self.at(place, mistake);
            // A node that several aliases stand for is read several times.
            if !self.errors.contains(&error) {
                self.errors.push(error);
            }
        } else {
            self.unlisted += 1;
        }
        Reported(())
    }

    /// Notes an error in another file.
    pub(super) fn error_elsewhere(&mut self, error: Diagnostic) -> Reported {
        self.elsewhere.0.push(error);
        Reported(())
    }

    /// Takes over the findings of a file that this one names.
    pub(super) fn absorb(&mut self, other: Diagnostics<'_>) {
        let (errors, warnings) = other.finish();
        self.elsewhere.0.extend(errors);
        self.elsewhere.1.extend(warnings);
    }

    /// Notes a warning.
    pub(super) fn warn(&mut self, place: Place, mistake: Mistake) {
        let warning = Diagnostic { severity: Severity::Warning, ..self.at(place, mistake) };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Errors and warnings, each in the order of the file; those of other files come last.
    pub(super) fn finish(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        for findings in [&mut self.errors, &mut self.warnings] {
            findings.sort_by_key(|finding| (finding.line, finding.column));
        }
        if self.unlisted > 0 {
            let message = format!("{} more errors in this file are not listed", self.unlisted);
            self.errors.push(Diagnostic::whole_file(self.file, Mistake::new(Code::MoreErrors, message)));
        }
        self.errors.extend(self.elsewhere.0);
        self.warnings.extend(self.elsewhere.1);
        (self.errors, self.warnings)
    }

    fn at(&self, place: Place, mistake: Mistake) -> Diagnostic {
        let line = place.line.checked_sub(1).and_then(|index| self.lines.get(usize::try_from(index).ok()?));
        Diagnostic::at(self.file, place, line.unwrap_or(&""), mistake)
    }
}

// === impl Quoted ===

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('`')?;
        for character in self.0.chars().take(MAX_QUOTED) {
            f.write_char(tame(character))?;
        }
        f.write_str(if self.0.chars().nth(MAX_QUOTED).is_some() { "…`" } else { "`" })
    }
}

fn printable(text: &str) -> String {
    text.chars().map(tame).collect()
}

/// No text from a file may steer the terminal that shows it.
fn tame(character: char) -> char {
    match character {
        '\t' => ' ',
        // Bidirectional overrides and isolates reorder what follows them.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    }
}

/// The candidate that `typed` was probably meant to be.
pub(super) fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if typed.len() > MAX_QUOTED {
        return None;
    }
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    let typed = fold(typed.trim());
    let (distance, candidate) = candidates
        .into_iter()
        .map(|candidate| {
            let folded = fold(candidate);
            // A part of the right name (`port` for `destination_port`) counts as one slip.
            let part = typed.len() >= 4 && folded.split('_').any(|part| part == typed);
            let distance = if part { 1 } else { strsim::damerau_levenshtein(&typed, &folded) };
            (distance, candidate)
        })
        .min_by_key(|&(distance, _)| distance)?;
    let slips = (typed.chars().count().max(candidate.len()) / 3).max(1);
    (distance <= slips && distance < typed.chars().count()).then_some(candidate)
}
