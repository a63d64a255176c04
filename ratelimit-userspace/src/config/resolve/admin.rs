//! Who may ask the daemon over TCP.

use std::path::Path;

use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    file::Node,
    http::{Http, Listen},
    policy::Admin,
    section::Section,
    shape, token_file,
    value::listen,
    warnings,
};

/// Reads `admin`. The token files are looked for in `directory`; `http` is what listens already.
pub(super) fn admin(
    node: &Node,
    directory: &Path,
    http: Option<&Http>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Admin, Reported> {
    let section = Section::open(&shape::ADMIN, node, diagnostics)?;
    let listen = section.one("listen", diagnostics, listen::loopback);
    let tokens = token_file::pair(&section, directory, diagnostics);
    let misspelt = |keys: &[&str]| keys.iter().any(|key| section.misspelt(key).is_some());
    if let (Ok(Some(listen)), Ok([None, None])) = (&listen, &tokens)
        && !misspelt(&token_file::KEYS)
    {
        let message =
            format!("every process of this host reaches {listen}, and nothing says which of them may ask");
        let mistake = Mistake::new(Code::MissingKey, message).expected(
            "`token_file` for a token that may look, `write_token_file` for one that may also change, or both",
        );
        return Err(diagnostics.error(section.value_place("listen"), mistake));
    }
    if let Ok(Some(listen)) = listen
        && listen.port() != 0
        && let Some(key) = http.and_then(|http| taken(http, &Listen::Tcp(listen)))
    {
        let message = format!("`{key}` of `http` is the same address");
        let mistake = Mistake::new(Code::Conflict, message).expected("a port of its own for each");
        return Err(diagnostics.error(section.value_place("listen"), mistake));
    }
    let (listen, [token_file, write_token_file]) = (listen?, tokens?);
    let named = token_file::KEYS.into_iter().find(|key| section.entry(key).is_some());
    if let Some(key) = named.filter(|_| listen.is_none() && !misspelt(&["listen"])) {
        let why = "who may open the Unix socket needs no token, and nothing else is listened on";
        warnings::no_effect(key, why, section.place(key), diagnostics);
    }
    Ok(Admin { listen, token_file, write_token_file })
}

/// The key of `http` that has this address.
fn taken(http: &Http, listen: &Listen) -> Option<&'static str> {
    let keys = [("listen", &http.listen), ("grpc_listen", &http.grpc_listen)];
    keys.into_iter().find(|(_, other)| other.as_ref() == Some(listen)).map(|(key, _)| key)
}
