//! The `http` section: its keys, and what ties them together.

use std::path::Path;

use super::{Answer, ClientAddress, Http, OnFull, access, identify, rule_files};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    file::Node,
    section::{Section, all, scalar},
    shape,
    value::{self, choice, number},
    warnings,
};

/// Counters, when the file does not say.
const MAX_KEYS: u32 = 1_000_000;
/// Counters that a file may ask for.
const MOST_KEYS: u32 = 100_000_000;

/// Reads the `http` section and the files that it names, which are looked for in `directory`.
pub(in crate::config) fn read(
    node: &Node,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Http, Reported> {
    let section = Section::open(&shape::http::HTTP, node, diagnostics)?;
    let listeners = access::listeners(&section, directory, diagnostics);
    let access = access::access(&section, directory, diagnostics);
    access::check(&section, &listeners, access.as_ref().ok(), diagnostics);
    let (rules, domains) = rule_files::read(&section, directory, diagnostics);
    let trusted_proxies = access::prefixes(&section, "trusted_proxies", diagnostics);
    let client_address = section.one(
        "client_address",
        diagnostics,
        choice(&[
            ("peer", ClientAddress::Peer),
            ("x-forwarded-for", ClientAddress::XForwardedFor),
            ("forwarded", ClientAddress::Forwarded),
        ]),
    );
    if let (Ok(proxies), Ok(Some(header))) = (&trusted_proxies, client_address) {
        warnings::http::client_address(&section, header, proxies, diagnostics);
    }
    let max_keys = section.one("max_keys", diagnostics, number(1..=MOST_KEYS));
    let on_full = section.one(
        "on_full",
        diagnostics,
        choice(&[("evict", OnFull::Evict), ("deny", OnFull::Deny), ("allow", OnFull::Allow)]),
    );
    let loaded = rules.as_ref().map_or(&[][..], |(_, domains)| domains);
    let identify = identify::items(&section, &domains, loaded, directory, diagnostics);
    let state_dir = section.one("state_dir", diagnostics, |text| {
        let path = value::path(directory)(text)?;
        match std::fs::metadata(&path) {
            Ok(found) if !found.is_dir() => {
                let message = format!("{} is no directory", path.display());
                Err(Mistake::new(Code::BadValue, message))
            }
            _ => Ok(path),
        }
    });
    let answer = match section.node("answer", diagnostics) {
        Ok(Some(node)) => answer(node, diagnostics),
        Ok(None) => Ok(Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None }),
        Err(reported) => Err(reported),
    };
    let [listen, grpc_listen] = listeners;
    let (rule_paths, domains) = rules?;
    Ok(Http {
        listen: listen?,
        grpc_listen: grpc_listen?,
        rule_paths,
        domains,
        trusted_proxies: trusted_proxies?,
        client_address: client_address?.unwrap_or_default(),
        max_keys: usize::try_from(max_keys?.unwrap_or(MAX_KEYS)).unwrap_or(usize::MAX),
        on_full: on_full?.unwrap_or_default(),
        identify: identify?,
        access: access?,
        answer: answer?,
        state_dir: state_dir?,
    })
}

fn answer(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Answer, Reported> {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Field {
        XRatelimit,
        RetryAfter,
        Ietf,
    }
    use Field::{Ietf, RetryAfter, XRatelimit};

    let section = Section::open(&shape::http::ANSWER, node, diagnostics)?;
    let names = [("x-ratelimit", XRatelimit), ("retry-after", RetryAfter), ("ratelimit", Ietf)];
    let fields = match section.nodes("headers", diagnostics) {
        Ok(Some(nodes)) => all(nodes
            .iter()
            .map(|node| scalar(node, section.expected("headers"), diagnostics, choice(&names)))),
        Ok(None) => Ok(names.map(|(_, field)| field).to_vec()),
        Err(reported) => Err(reported),
    };
    let text = section.one("text", diagnostics, |text| match text {
        "" => Err(Mistake::new(Code::BadValue, "the text is empty")),
        _ => Ok(text.to_owned()),
    });
    let fields = fields?;
    Ok(Answer {
        x_ratelimit: fields.contains(&XRatelimit),
        retry_after: fields.contains(&RetryAfter),
        ietf: fields.contains(&Ietf),
        text: text?,
    })
}
