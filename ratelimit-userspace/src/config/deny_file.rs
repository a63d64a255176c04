//! Deny files: one address or prefix a line, `#` comments, blank lines.

use std::path::Path;

use ipnet::IpNet;

use super::{
    diagnostic::{Code, Diagnostic, Diagnostics, MAX_LISTED_PER_DENY_FILE, Mistake, Place, Reported},
    value::address,
};

/// Entries that `deny` and all `deny_files` may hold together.
pub const MAX_DENY_ENTRIES: usize = 1_000_000;
/// Bytes that one deny file may hold: 128 for each entry it may have.
const MAX_BYTES: u64 = 128 * MAX_DENY_ENTRIES as u64;

/// Adds the entries of a deny file to `deny`. The outer error is the file's as a whole and belongs to the
/// place that names it; bad lines are reported at their own place in the deny file.
pub(super) fn read(
    path: &Path,
    deny: &mut Vec<IpNet>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Result<(), Reported>, Mistake> {
    let file = path.display().to_string();
    let unreadable = |why: String| {
        Mistake::new(Code::UnreadableFile, format!("the deny file {file} cannot be read: {why}"))
            .expected("a file that exists, relative to the directory of the rules file")
    };
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    // A pipe could block for ever, and could not be read again on the next start.
    if !metadata.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    let bytes = super::read_bounded(path, MAX_BYTES).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the deny file {file} is larger than {MAX_BYTES} bytes");
        return Err(Mistake::new(Code::TooLarge, message));
    }
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let mut bad = 0;
    let mut last = None;
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let Some((offset, entry)) = entry(line) else { continue };
        let full = deny.len() >= MAX_DENY_ENTRIES;
        let mistake = match text(entry).and_then(address::prefix) {
            Ok(net) if !full => {
                deny.push(net);
                continue;
            }
            Ok(_) => too_many("`deny` and `deny_files` hold"),
            Err(mistake) => mistake.or_expected("an address or a prefix a line, and comments after `#`"),
        };
        bad += 1;
        if full || bad <= MAX_LISTED_PER_DENY_FILE {
            let line = String::from_utf8_lossy(line);
            let place =
                Place::new(index + 1, line.get(..offset).map_or(0, |before| before.chars().count()) + 1);
            last = Some(diagnostics.error_elsewhere(Diagnostic::at(&file, place, &line, mistake)));
        }
        if full {
            break;
        }
    }
    if let Some(unlisted) = bad.checked_sub(MAX_LISTED_PER_DENY_FILE).filter(|&unlisted| unlisted > 0) {
        let message = format!("{unlisted} more bad lines of this file are not listed");
        diagnostics.error_elsewhere(Diagnostic::whole_file(&file, Mistake::new(Code::MoreErrors, message)));
    }
    Ok(last.map_or(Ok(()), Err))
}

/// One entry above [`MAX_DENY_ENTRIES`].
pub(super) fn too_many(what: &str) -> Mistake {
    Mistake::new(Code::TooMany, format!("{what} more than {MAX_DENY_ENTRIES} entries"))
        .expected(format!("at most {MAX_DENY_ENTRIES} entries in all; neighbouring prefixes can be merged"))
}

/// What stands in a line besides blanks and comments, and at which byte.
fn entry(line: &[u8]) -> Option<(usize, &[u8])> {
    let comment = line.iter().position(|&byte| byte == b'#').unwrap_or(line.len());
    let entry = line[..comment].trim_ascii_start();
    let offset = comment - entry.len();
    let entry = entry.trim_ascii_end();
    (!entry.is_empty()).then_some((offset, entry))
}

fn text(entry: &[u8]) -> Result<&str, Mistake> {
    str::from_utf8(entry).map_err(|_| Mistake::new(Code::InvalidUtf8, "this line is not UTF-8 text"))
}
