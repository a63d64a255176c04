//! Where to listen, and who may ask.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use ipnet::IpNet;

use super::{Access, Listen};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    read_regular,
    section::{Section, all, scalar},
    value::{self, address, listen},
};

/// The keys of listeners.
const LISTENERS: [&str; 2] = ["listen", "grpc_listen"];
/// Fewer bytes could be guessed.
const MIN_TOKEN: usize = 16;
/// More than any token needs.
const MAX_TOKEN: usize = 4096;
/// Read and write for others, as in `chmod`.
const OTHERS: u32 = 0o006;

/// An address to listen on, if there is one.
type Listener = Result<Option<Listen>, Reported>;

/// Reads `listen` and `grpc_listen`.
pub(super) fn listeners(
    section: &Section<'_>,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> [Listener; 2] {
    LISTENERS.map(|key| section.one(key, diagnostics, listen::listen(directory)))
}

/// Reads who may ask.
pub(super) fn access(
    section: &Section<'_>,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Access, Reported> {
    let allow_from = prefixes(section, "allow_from", diagnostics);
    let [token_file, write_token_file] = ["token_file", "write_token_file"].map(|key| {
        section.one(key, diagnostics, |text| {
            let path = value::path(directory)(text)?;
            token(&path).map(|()| path)
        })
    });
    let access =
        Access { allow_from: allow_from?, token_file: token_file?, write_token_file: write_token_file? };
    if access.token_file.is_some() && access.token_file == access.write_token_file {
        let message = "one file holds both tokens, so that whoever may ask may also write";
        let mistake = Mistake::new(Code::Conflict, message).expected("a file of its own for each token");
        return Err(diagnostics.error(section.place("write_token_file"), mistake));
    }
    Ok(access)
}

/// Reads a list of prefixes, which may be empty.
pub(super) fn prefixes(
    section: &Section<'_>,
    key: &str,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<IpNet>, Reported> {
    let Some(nodes) = section.nodes(key, diagnostics)? else { return Ok(Vec::new()) };
    all(nodes.iter().map(|node| scalar(node, section.expected(key), diagnostics, address::prefix)))
}

/// Two listeners need two addresses, and one that other hosts reach must know who may ask. `access` is
/// `None` where it has mistakes.
pub(super) fn check(
    section: &Section<'_>,
    listeners: &[Listener; 2],
    access: Option<&Access>,
    diagnostics: &mut Diagnostics<'_>,
) {
    if let [Ok(Some(listen)), Ok(Some(grpc))] = listeners
        && listen == grpc
        && !matches!(listen, Listen::Tcp(address) if address.port() == 0)
    {
        let message = "`listen` and `grpc_listen` are one address";
        let mistake =
            Mistake::new(Code::Conflict, message).expected("a port or a socket of its own for each");
        diagnostics.error(section.value_place("grpc_listen"), mistake);
    }
    let rights = ["allow_from", "token_file", "write_token_file"];
    let closed = access.is_some_and(|Access { allow_from, token_file, write_token_file }| {
        allow_from.is_empty() && token_file.is_none() && write_token_file.is_none()
    });
    if !closed || rights.iter().any(|key| section.misspelt(key).is_some()) {
        return;
    }
    for (key, listener) in LISTENERS.into_iter().zip(listeners) {
        let Ok(Some(Listen::Tcp(address))) = listener else { continue };
        if !address.ip().to_canonical().is_loopback() {
            let message = format!("other hosts reach `{key}`, and nothing says which of them may ask");
            let mistake = Mistake::new(Code::MissingKey, message)
                .expected("`allow_from` or `token_file`; or a loopback address or unix:PATH here");
            diagnostics.error(section.value_place(key), mistake);
        }
    }
}

/// Checks a token file. Nothing of what it holds is kept or shown.
fn token(path: &Path) -> Result<(), Mistake> {
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
