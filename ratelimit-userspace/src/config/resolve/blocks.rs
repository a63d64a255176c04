//! `blocks`: how many, and whose decisions are blocks as well.

use std::path::Path;

use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Quoted, Reported},
    file::Node,
    policy::{Blocks, CrowdSec},
    section::Section,
    shape, token_file,
    value::{self, duration::between, number},
};

/// Reads `blocks`. The file with the key is looked for in `directory`.
pub(super) fn blocks(
    node: &Node,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Blocks, Reported> {
    let section = Section::open(&shape::BLOCKS, node, diagnostics)?;
    let capacity = section.one("capacity", diagnostics, number(Blocks::CAPACITY));
    let crowdsec = match section.node("crowdsec", diagnostics) {
        Ok(Some(node)) => crowdsec(node, directory, diagnostics).map(Some),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let capacity = capacity?.unwrap_or_else(|| Blocks::default().capacity);
    Ok(Blocks { capacity, crowdsec: crowdsec? })
}

fn crowdsec(node: &Node, directory: &Path, diagnostics: &mut Diagnostics<'_>) -> Result<CrowdSec, Reported> {
    let section = Section::open(&shape::CROWDSEC, node, diagnostics)?;
    let url = section.one("url", diagnostics, url);
    let url = section.required("url", diagnostics, url);
    let api_key_file = section.one("api_key_file", diagnostics, |text| {
        let path = value::path(directory)(text)?;
        token_file::check(&path).map(|()| path)
    });
    let api_key_file = section.required("api_key_file", diagnostics, api_key_file);
    let every = section.one("every", diagnostics, between(CrowdSec::EVERY));
    Ok(CrowdSec { url: url?, api_key_file: api_key_file?, every: every?.unwrap_or(CrowdSec::DEFAULT_EVERY) })
}

/// Reads where the API is. Without TLS: it stands on this host, or a tunnel leads to it.
fn url(text: &str) -> Result<String, Mistake> {
    let mistake = |words: &str| Mistake::new(Code::BadValue, format!("{} {words}", Quoted(text)));
    if text.starts_with("https://") {
        return Err(mistake("asks for TLS, which is not spoken here")
            .expected("the API on this host, or the end of a tunnel to it, by http://"));
    }
    let rest = text.strip_prefix(CrowdSec::SCHEME).ok_or_else(|| mistake("does not begin with http://"))?;
    let uri: http::Uri = text.parse().map_err(|_| mistake("is no URL"))?;
    let authority = uri.authority().ok_or_else(|| mistake("names no host"))?;
    if authority.port_u16().is_none() {
        return Err(mistake("names no port"));
    }
    if authority.as_str().contains('@') || uri.query().is_some() || text.contains('#') {
        return Err(mistake("holds more than a host, a port and a path"));
    }
    Ok(format!("{}{}", CrowdSec::SCHEME, rest.trim_end_matches('/')))
}
