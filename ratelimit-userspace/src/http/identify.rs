//! Who is asking: from a request to descriptors.

mod address;
mod forwarded;
mod literals;
mod path;
mod pattern;
mod prefixes;
mod secret;
mod source;
mod template;
mod version;

use std::{
    borrow::Cow,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use self::{
    forwarded::Clients,
    pattern::{HostPattern, PathPattern},
    secret::Keyed,
    source::{Facts, NetworkTables, Sources},
};
use super::ask::{Answer, Ask, Client, Decision, Descriptor, Entry, Refusal, Whose};
use crate::config::http::{Domain, EntrySource, Http, Identify, Missing, RequestMatch, Source};

/// The request to be judged, as its asker describes it.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target: path and query, or a whole URI.
    pub target: String,
    /// The host, if not in `headers` or `target`.
    pub host: Option<String>,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The peer of the connection that the request came over; `None`: a Unix socket.
    pub peer: Option<IpAddr>,
}

/// What a request is.
#[derive(Debug)]
pub enum Identity {
    /// Descriptors of a domain; perhaps none, then nothing limits it.
    Ask(Ask<'static>),
    /// No `identify` item matches: nothing limits it.
    Unmatched,
    /// It must be refused.
    Refused(Refusal),
}

/// Turns requests into descriptors.
#[derive(Debug)]
pub struct Identifier {
    clients: Clients,
    items: Vec<Item>,
    keyed: Keyed,
    /// The operator was told of a proxy that nobody trusts.
    warned: AtomicBool,
}

/// An [`Identify`], ready to be used.
#[derive(Debug)]
struct Item {
    paths: Vec<PathPattern>,
    methods: Vec<String>,
    hosts: Vec<HostPattern>,
    domain: String,
    sources: Sources,
    descriptors: Vec<Vec<Slot>>,
    /// Rules of the domain want to know whom they deny.
    escalates: bool,
}

/// An entry whose value is still to come.
#[derive(Debug)]
struct Slot {
    key: String,
    /// Index into the sources of the item.
    source: usize,
    secret: bool,
    missing: Missing,
    /// The key of the secret that is known when this has a value: a map file lists it.
    proves: Option<String>,
}

// === impl Identity ===

impl Identity {
    /// What there is to decide, or the answer where there is nothing to.
    pub fn into_ask(self) -> Result<Ask<'static>, Box<Answer>> {
        let (decision, refusal) = match self {
            Self::Ask(ask) => return Ok(ask),
            Self::Unmatched => (Decision::Allow, None),
            Self::Refused(refusal) => (Decision::Deny, Some(refusal)),
        };
        Err(Box::new(Answer {
            decision,
            rule: None,
            standing: None,
            retry_after: None,
            delay: None,
            statuses: Vec::new(),
            refusal,
        }))
    }
}

// === impl Identifier ===

impl Identifier {
    /// As the configuration has it. `key` keys what is secret.
    pub fn new(config: &Http, key: [u8; 32]) -> Self {
        let mut tables = NetworkTables::new();
        Self {
            clients: Clients::new(config.client_address, &config.trusted_proxies),
            items: config.identify.iter().map(|item| Item::new(item, config, &mut tables)).collect(),
            keyed: Keyed::new(key),
            warned: AtomicBool::new(false),
        }
    }

    /// What a request is, each of its descriptors with this many hits.
    pub fn identify(&self, request: &Request, hits: i64) -> Identity {
        self.warn_of_proxy(request);
        let facts = Facts::of(request, &self.clients);
        match self.items.iter().find(|item| item.matches(&facts)) {
            Some(item) => item.identify(&facts, &self.keyed, hits),
            None => Identity::Unmatched,
        }
    }

    /// The client's address, as far as trusted proxies tell it.
    pub fn client(&self, request: &Request) -> Option<IpAddr> {
        self.clients.find(request.peer, &request.headers)
    }

    /// The domains, where each value that a rule names of a secret entry is joined by what requests have in
    /// its place, so that a rule for one API key applies without anybody seeing the key. Values that only
    /// start so are not found in secrets.
    pub fn domains(&self, config: &Http) -> Vec<Domain> {
        config.domains.iter().map(|domain| literals::join_secrets(domain, config, &self.keyed)).collect()
    }

    /// Says once that all clients of a proxy are taken for one, if it looks so.
    fn warn_of_proxy(&self, request: &Request) {
        if self.clients.overlooks(request.peer, &request.headers)
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "requests come with X-Forwarded-For or Forwarded, which nobody is trusted to send: if a proxy \
                 is in front, all its clients share one limit; name it in `trusted_proxies` and choose the \
                 header with `client_address`"
            );
        }
    }
}

// === impl Item ===

impl Item {
    fn new(item: &Identify, config: &Http, tables: &mut NetworkTables) -> Self {
        let Identify { matches: RequestMatch { paths, methods, hosts }, domain, descriptors, line: _ } = item;
        let mut indices = 0..;
        let mut slot = |entry: &EntrySource| Slot {
            key: entry.key.clone(),
            source: indices.next().unwrap_or_default(),
            secret: entry.secret,
            missing: entry.missing,
            proves: proven(entry, descriptors),
        };
        Self {
            paths: paths.iter().map(|pattern| PathPattern::new(pattern)).collect(),
            methods: methods.clone(),
            hosts: hosts.iter().map(|pattern| HostPattern::new(pattern)).collect(),
            domain: domain.clone(),
            sources: Sources::new(&descriptors.iter().flatten(), tables),
            descriptors: descriptors.iter().map(|entries| entries.iter().map(&mut slot).collect()).collect(),
            escalates: config.domains.iter().any(|known| known.name == *domain && known.escalates()),
        }
    }

    fn matches(&self, facts: &Facts<'_>) -> bool {
        let host = || facts.host.as_deref().unwrap_or_default();
        (self.methods.is_empty() || self.methods.iter().any(|method| method == facts.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host())))
            && (self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.matches(&facts.path)))
    }

    fn identify(&self, facts: &Facts<'_>, keyed: &Keyed, hits: i64) -> Identity {
        let mut descriptors = Vec::with_capacity(self.descriptors.len());
        let mut proven = None;
        for slots in &self.descriptors {
            let mut entries = Vec::with_capacity(slots.len());
            for Slot { key, source, secret, missing, proves } in slots {
                let value = match (self.sources.value(*source, facts), missing) {
                    (Some(value), _) if *secret => keyed.secret(&value),
                    (Some(value), _) => {
                        proven = proven.or(proves.as_deref());
                        keyed.text(&value)
                    }
                    (None, Missing::Empty) => String::new(),
                    (None, Missing::Deny) => return Identity::Refused(Refusal::MissingEntry),
                    // The entries that follow may still demand that the request is refused.
                    (None, Missing::Skip) => continue,
                };
                entries.push(Entry { key: Cow::Owned(key.clone()), value: Cow::Owned(value) });
            }
            if entries.len() == slots.len() {
                descriptors.push(Descriptor { entries, hits, limit: None });
            }
        }
        let client = if self.escalates { facts.client() } else { None };
        let whose = Whose::Client(client.map(|address| {
            let identity = proven.and_then(|key| identity(&descriptors, key));
            Client { address, identity }
        }));
        Identity::Ask(Ask { domain: Cow::Owned(self.domain.clone()), descriptors, peek: false, whose })
    }
}

/// The key of the secret that an entry proves to be known: what it is mapped by, in the end.
fn proven(entry: &EntrySource, descriptors: &[Vec<EntrySource>]) -> Option<String> {
    let entries = || descriptors.iter().flatten();
    let mut current = entry;
    for _ in entries() {
        let Source::Mapped { by, .. } = &current.source else { break };
        current = entries().find(|other| other.key == *by)?;
        if current.secret {
            return Some(by.clone());
        }
    }
    None
}

/// A secret as a number: the first half of the HMAC that stands in its place.
fn identity(descriptors: &[Descriptor<'_>], key: &str) -> Option<u64> {
    let mut entries = descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let secret = entries.find(|entry| entry.key == key)?;
    u64::from_str_radix(secret.value.get(..16)?, 16).ok()
}

#[cfg(test)]
mod tests;
