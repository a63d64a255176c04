//! Where to listen, and who may ask.

use std::path::Path;

use ipnet::IpNet;

use super::{Access, Listen};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    section::{Section, all, scalar},
    token_file,
    value::{address, listen},
};

/// The keys of listeners.
const LISTENERS: [&str; 2] = ["listen", "grpc_listen"];

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
    let tokens = token_file::pair(section, directory, diagnostics);
    let ([token_file, write_token_file], allow_from) = (tokens?, allow_from?);
    Ok(Access { allow_from, token_file, write_token_file })
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
