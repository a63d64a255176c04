//! Files that hold a token.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    read_regular,
    section::Section,
    value,
};

/// Fewer bytes could be guessed.
const MIN_TOKEN: usize = 16;
/// More than any token needs.
const MAX_TOKEN: usize = 4096;
/// Read and write for others, as in `chmod`.
const OTHERS: u32 = 0o006;

/// The keys of the two token files, the lesser right first.
pub(super) const KEYS: [&str; 2] = ["token_file", "write_token_file"];

/// Reads both keys and checks the files that they name, which are looked for in `directory`.
pub(super) fn pair(
    section: &Section<'_>,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<[Option<PathBuf>; 2], Reported> {
    let [ask, write] = KEYS.map(|key| {
        section.one(key, diagnostics, |text| {
            let path = value::path(directory)(text)?;
            check(&path).map(|()| path)
        })
    });
    let (ask, write) = (ask?, write?);
    if ask.is_some() && ask == write {
        let message = "one file holds both tokens, so that whoever may ask may also write";
        let mistake = Mistake::new(Code::Conflict, message).expected("a file of its own for each token");
        return Err(diagnostics.error(section.place("write_token_file"), mistake));
    }
    Ok([ask, write])
}

/// Checks a token file. Nothing of what it holds is kept or shown.
pub(super) fn check(path: &Path) -> Result<(), Mistake> {
    let file = path.display();
    let unreadable = |error: io::Error| {
        Mistake::new(Code::UnreadableFile, format!("the token file {file} cannot be read: {error}"))
            .expected("a file that exists, relative to the directory of the rules file")
    };
    let bytes = read_regular(path, MAX_TOKEN as u64 + 2).map_err(unreadable)?;
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
    if mode & OTHERS != 0 {
        let message = format!("every user of this host can read or write the token file {file}");
        return Err(Mistake::new(Code::ExposedToken, message).expected(format!("chmod o= {}", quoted(path))));
    }
    let token = bytes.trim_ascii();
    let mistake = |words: String| Mistake::new(Code::BadValue, format!("the token file {file} {words}"));
    if token.len() > MAX_TOKEN {
        Err(mistake(format!("holds more than {MAX_TOKEN} bytes")))
    } else if token.iter().any(|byte| !byte.is_ascii_graphic()) {
        Err(mistake("holds more than one word of printable ASCII".to_owned())
            .expected("one token and nothing else"))
    } else if token.len() < MIN_TOKEN {
        Err(mistake(format!("holds a token of {} bytes", token.len()))
            .expected(format!("at least {MIN_TOKEN} bytes, such as from: openssl rand -hex 32")))
    } else {
        Ok(())
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = PathBuf::from(path).to_string_lossy().into_owned();
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
