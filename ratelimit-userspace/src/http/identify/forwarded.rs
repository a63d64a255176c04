//! Who a client is, as far as trusted proxies tell it.
//!
//! Every proxy adds the peer it heard from at the right, so what stands there is the word of the nearest
//! one. The walk goes from right to left and believes an address only on the word of a proxy that it
//! trusts. What stands further left may be anything, and has no influence on how the rest is read.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};

use super::{address, prefixes::PrefixTable};
use crate::config::http::ClientAddress;

/// How clients are found.
#[derive(Debug)]
pub(super) struct Clients {
    source: ClientAddress,
    trusted: PrefixTable<()>,
    /// No peer's header would ever be believed.
    trusts_nobody: bool,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

// === impl Clients ===

impl Clients {
    pub(super) fn new(source: ClientAddress, trusted: &[ipnet::IpNet]) -> Self {
        Self {
            source,
            trusted: PrefixTable::new(trusted.iter().map(|prefix| (*prefix, ()))),
            trusts_nobody: source == ClientAddress::Peer || trusted.is_empty(),
        }
    }

    /// The first address that no trusted proxy has, or else the last one reached: the furthest, where all
    /// are trusted, or the one that wrote something that is no address. `None`: a Unix socket, whose peer
    /// is trusted and has no address.
    pub(super) fn find(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.map(|peer| peer.to_canonical());
        match self.source {
            ClientAddress::Peer => peer,
            ClientAddress::XForwardedFor => {
                let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
                let mut elements = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
                self.walk(peer, || address::node(elements.next()?.trim_ascii()))
            }
            ClientAddress::Forwarded => {
                let lines = headers.get_all(header::FORWARDED).iter().rev();
                let mut elements = lines.flat_map(|line| Elements::of(line.as_bytes()));
                self.walk(peer, || forwarded_for(elements.next()?))
            }
        }
    }

    /// From the peer on, as long as who is reached is trusted and `next` tells of another one.
    fn walk(&self, peer: Option<IpAddr>, mut next: impl FnMut() -> Option<IpAddr>) -> Option<IpAddr> {
        let mut client = peer;
        while client.is_none_or(|client| self.trusted.get(client).is_some()) {
            match next() {
                Some(address) => client = Some(address),
                None => break,
            }
        }
        client
    }

    /// Whether a header tells of another client, but nobody is trusted to say so: if there is a proxy in
    /// front, all its clients are taken for one.
    pub(super) fn overlooks(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> bool {
        let forwarded = headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(header::FORWARDED);
        self.trusts_nobody && peer.is_some() && forwarded
    }
}

/// The elements of a `Forwarded` line from right to left: separated by commas outside of quoted strings.
struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

// === impl Elements ===

impl<'a> Elements<'a> {
    fn of(line: &'a [u8]) -> Self {
        Self { rest: Some(line) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut quoted = false;
        for (index, byte) in rest.iter().enumerate().rev() {
            match byte {
                b',' if !quoted => {
                    self.rest = Some(&rest[..index]);
                    return Some(&rest[index + 1..]);
                }
                b'"' if !quoted || !is_escaped(rest, index) => quoted = !quoted,
                _ => {}
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// Whether an odd number of backslashes stands before it.
fn is_escaped(text: &[u8], index: usize) -> bool {
    text[..index].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in `for=` of one element. None if there is none, or two, or if the element is malformed.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element.trim_ascii();
    while !rest.is_empty() {
        // An empty pair is allowed.
        if let Some(after) = rest.strip_prefix(b";") {
            rest = after.trim_ascii_start();
            continue;
        }
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let name = rest[..equals].trim_ascii();
        let (value, after) = value(rest[equals + 1..].trim_ascii_start())?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b";") {
            return None;
        }
    }
    address::node(&found?)
}

/// A token or the text of a quoted string, and what follows.
fn value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| b"; \t\"".contains(byte)).unwrap_or(text.len());
        return Some((text[..end].to_vec(), &text[end..]));
    };
    let mut unquoted = Vec::new();
    loop {
        match rest {
            [b'"', after @ ..] => return Some((unquoted, after)),
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                unquoted.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests;
