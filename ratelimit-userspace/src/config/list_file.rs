//! Files with one entry a line, blank lines, and comments after `#`: deny files, prefix files, map files.

use std::path::Path;

use super::diagnostic::{Code, Diagnostic, Diagnostics, MAX_LISTED_PER_LIST_FILE, Mistake, Place, Reported};

/// Entries that a list file may hold, and bytes for each of them.
pub(super) const MAX_ENTRIES: usize = 1_000_000;
const MAX_BYTES: u64 = 128 * MAX_ENTRIES as u64;

/// What a file lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// What the file is called.
    pub(super) name: &'static str,
    /// What a line looks like.
    pub(super) line: &'static str,
}

/// Gives each entry and its line to `take`, in file order. The outer error is the file's as a whole and
/// belongs to the place that names it; what `take` rejects is reported at its own place in the file. A file
/// with [`Code::TooMany`] entries is not read to its end.
pub(super) fn read(
    path: &Path,
    kind: Kind,
    diagnostics: &mut Diagnostics<'_>,
    mut take: impl FnMut(&str, u32) -> Result<(), Mistake>,
) -> Result<Result<(), Reported>, Mistake> {
    let file = path.display().to_string();
    let Kind { name, line: expected } = kind;
    let unreadable = |why: String| {
        Mistake::new(Code::UnreadableFile, format!("the {name} {file} cannot be read: {why}"))
            .expected("a file that exists, relative to the directory of the rules file")
    };
    let bytes = super::read_regular(path, MAX_BYTES).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the {name} {file} is larger than {MAX_BYTES} bytes");
        return Err(Mistake::new(Code::TooLarge, message));
    }
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let mut bad = 0;
    let mut last = None;
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let Some((offset, entry)) = entry(line) else { continue };
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let Err(mistake) = text(entry).and_then(|entry| take(entry, number)) else { continue };
        let full = mistake.code() == Code::TooMany;
        bad += 1;
        if full || bad <= MAX_LISTED_PER_LIST_FILE {
            let line = String::from_utf8_lossy(line);
            let column = line.get(..offset).map_or(0, |before| before.chars().count()) + 1;
            let place = Place::new(index + 1, column);
            let error = Diagnostic::at(&file, place, &line, mistake.or_expected(expected));
            last = Some(diagnostics.error_elsewhere(error));
        }
        if full {
            break;
        }
    }
    if let Some(unlisted) = bad.checked_sub(MAX_LISTED_PER_LIST_FILE).filter(|&unlisted| unlisted > 0) {
        let message = format!("{unlisted} more bad lines of this file are not listed");
        diagnostics.error_elsewhere(Diagnostic::whole_file(&file, Mistake::new(Code::MoreErrors, message)));
    }
    Ok(last.map_or(Ok(()), Err))
}

/// What stands in a line besides blanks and a comment at its start or after a blank, and at which byte.
fn entry(line: &[u8]) -> Option<(usize, &[u8])> {
    let comment = (0..line.len())
        .find(|&at| {
            line[at] == b'#' && at.checked_sub(1).is_none_or(|before| line[before].is_ascii_whitespace())
        })
        .unwrap_or(line.len());
    let entry = line[..comment].trim_ascii_start();
    let offset = comment - entry.len();
    let entry = entry.trim_ascii_end();
    (!entry.is_empty()).then_some((offset, entry))
}

fn text(entry: &[u8]) -> Result<&str, Mistake> {
    str::from_utf8(entry).map_err(|_| Mistake::new(Code::InvalidUtf8, "this line is not UTF-8 text"))
}
