//! Where the values of entries come from.

use std::{borrow::Cow, cell::OnceCell, collections::HashMap, net::IpAddr, sync::Arc};

use cookie::Cookie;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    Request, address, forwarded::Clients, path::Target, prefixes::PrefixTable, template::PathTemplate,
    version,
};
use crate::config::http::{self as config, ApiVersion, EntrySource, NetworkLabels, ValueLabels};

/// What the values of one request come from.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) method: &'a str,
    pub(super) path: Cow<'a, str>,
    pub(super) host: Option<String>,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    peer: Option<IpAddr>,
    clients: &'a Clients,
    client: OnceCell<Option<IpAddr>>,
}

/// The sources of one `identify` item, in order of their entries.
#[derive(Debug)]
pub(super) struct Sources(Vec<Source>);

/// A [`config::Source`], ready to be read.
#[derive(Debug)]
enum Source {
    ClientIp { ipv4_prefix: u8, ipv6_prefix: u8 },
    Header(Option<HeaderName>),
    Cookie(String),
    Query(String),
    Method,
    Host,
    Path,
    PathTemplate(PathTemplate),
    PathVersion,
    AcceptVersion,
    Network(Arc<NetworkTable>),
    Mapped { by: Option<usize>, labels: Arc<ValueLabels> },
    Constant(String),
}

/// Labels by prefix.
#[derive(Debug)]
pub(super) struct NetworkTable {
    labels: Arc<NetworkLabels>,
    /// Indices into `labels`.
    table: PrefixTable<u32>,
}

/// The tables made so far: several entries may have the same file.
pub(super) type NetworkTables = HashMap<*const NetworkLabels, Arc<NetworkTable>>;

// === impl Facts ===

impl<'a> Facts<'a> {
    pub(super) fn of(request: &'a Request, clients: &'a Clients) -> Self {
        let Request { method, target, host, headers, peer } = request;
        let Target { authority, path, query } = Target::parse(target);
        let in_header = || headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
        let authority =
            authority.map(Cow::Borrowed).or_else(in_header).or_else(|| host.as_deref().map(Cow::Borrowed));
        let host = authority.map(|authority| host_of(&authority)).filter(|host| !host.is_empty());
        Self { method, path, host, query, headers, peer: *peer, clients, client: OnceCell::new() }
    }

    pub(super) fn client(&self) -> Option<IpAddr> {
        *self.client.get_or_init(|| self.clients.find(self.peer, self.headers))
    }

    /// The lines of a header, joined.
    fn header(&self, name: &HeaderName) -> Option<Cow<'_, [u8]>> {
        let lines = self.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        match lines.collect::<Vec<_>>().as_slice() {
            [] => None,
            [line] => Some(Cow::Borrowed(line)),
            lines => Some(Cow::Owned(lines.join(&b", "[..]))),
        }
    }

    /// The first cookie of a name. Quotes around a value are no part of it to servers, so neither here.
    fn cookie(&self, name: &str) -> Option<String> {
        let lines = self.headers.get_all(header::COOKIE).iter();
        lines.flat_map(|line| split_cookies(line.as_bytes())).find_map(|cookie| {
            let cookie = cookie.ok()?;
            (cookie.name() == name).then(|| cookie.value_trimmed().to_owned())
        })
    }

    /// The first query parameter of a name, decoded.
    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut parameters = form_urlencoded::parse(self.query?.as_bytes());
        parameters.find_map(|(key, value)| (key == name).then_some(value))
    }
}

/// Cookies are ASCII (RFC 6265, section 4.1.1); what is no text is shown as U+FFFD.
fn split_cookies(line: &[u8]) -> cookie::SplitCookies<'_> {
    Cookie::split_parse(String::from_utf8_lossy(line))
}

/// The host of an authority: in lower case, without user, port and the dot of the root.
fn host_of(authority: &str) -> String {
    let authority = authority.trim();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match authority.rfind([':', ']']) {
        Some(colon) if authority[colon..].starts_with(':') => colon,
        _ => authority.len(),
    };
    let host = &authority[..port];
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

// === impl Sources ===

impl Sources {
    /// The sources of entries. One that is mapped goes by the first entry of the key that it names.
    pub(super) fn new<'a>(
        entries: &(impl Iterator<Item = &'a EntrySource> + Clone),
        tables: &mut NetworkTables,
    ) -> Self {
        let index = |key: &str| entries.clone().position(|entry| entry.key == key);
        Self(entries.clone().map(|entry| Source::new(&entry.source, index, tables)).collect())
    }

    /// The value of the source at an index, before anything is hidden of it.
    pub(super) fn value<'a>(&'a self, index: usize, facts: &'a Facts<'_>) -> Option<Cow<'a, [u8]>> {
        self.follow(index, facts, self.0.len())
    }

    /// Follows sources that are mapped by others. Sources in a circle have no value.
    fn follow<'a>(&'a self, index: usize, facts: &'a Facts<'_>, steps: usize) -> Option<Cow<'a, [u8]>> {
        match self.0.get(index)? {
            Source::Mapped { by, labels } => {
                let value = self.follow((*by)?, facts, steps.checked_sub(1)?)?;
                let found = labels.values.binary_search_by(|(key, _)| key.as_bytes().cmp(&value));
                found.ok().map(|index| text(&*labels.values[index].1))
            }
            source => source.value(facts),
        }
    }
}

// === impl Source ===

impl Source {
    fn new(
        source: &config::Source,
        index: impl Fn(&str) -> Option<usize>,
        tables: &mut NetworkTables,
    ) -> Self {
        match source {
            config::Source::ClientIp { ipv4_prefix, ipv6_prefix } => {
                Self::ClientIp { ipv4_prefix: *ipv4_prefix, ipv6_prefix: *ipv6_prefix }
            }
            config::Source::Header(name) | config::Source::ApiVersion(ApiVersion::Header(name)) => {
                Self::Header(HeaderName::from_bytes(name.as_bytes()).ok())
            }
            config::Source::Cookie(name) => Self::Cookie(name.clone()),
            config::Source::Query(name) => Self::Query(name.clone()),
            config::Source::Method => Self::Method,
            config::Source::Host => Self::Host,
            config::Source::Path => Self::Path,
            config::Source::PathTemplate { template, capture } => {
                Self::PathTemplate(PathTemplate::new(template, capture.as_deref()))
            }
            config::Source::ApiVersion(ApiVersion::Path) => Self::PathVersion,
            config::Source::ApiVersion(ApiVersion::Accept) => Self::AcceptVersion,
            config::Source::Network(labels) => {
                let table = tables.entry(Arc::as_ptr(labels)).or_insert_with(|| NetworkTable::new(labels));
                Self::Network(Arc::clone(table))
            }
            config::Source::Mapped { by, labels } => {
                Self::Mapped { by: index(by), labels: Arc::clone(labels) }
            }
            config::Source::Constant(value) => Self::Constant(value.clone()),
        }
    }

    /// The value, unless it is mapped by another's.
    fn value<'a>(&'a self, facts: &'a Facts<'_>) -> Option<Cow<'a, [u8]>> {
        Some(match self {
            Self::ClientIp { ipv4_prefix, ipv6_prefix } => {
                text(address::client(facts.client()?, *ipv4_prefix, *ipv6_prefix))
            }
            Self::Header(name) => facts.header(name.as_ref()?)?,
            Self::Cookie(name) => text(facts.cookie(name)?),
            Self::Query(name) => text(facts.parameter(name)?),
            Self::Method => text(facts.method),
            Self::Host => text(facts.host.as_deref()?),
            Self::Path => text(&*facts.path),
            Self::PathTemplate(template) => text(template.value(&facts.path)?),
            Self::PathVersion => text(version::of_path(&facts.path)?),
            Self::AcceptVersion => {
                let accept = facts.header(&header::ACCEPT)?;
                text(version::of_accept(&String::from_utf8_lossy(&accept))?)
            }
            Self::Network(networks) => text(networks.label(facts.client()?)?),
            Self::Constant(value) => text(value.as_str()),
            Self::Mapped { .. } => return None,
        })
    }
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> Cow<'a, [u8]> {
    match text.into() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

// === impl NetworkTable ===

impl NetworkTable {
    fn new(labels: &Arc<NetworkLabels>) -> Arc<Self> {
        let prefixes = labels.prefixes.iter().map(|(prefix, _)| *prefix).zip(0..);
        Arc::new(Self { labels: Arc::clone(labels), table: PrefixTable::new(prefixes) })
    }

    fn label(&self, address: IpAddr) -> Option<&str> {
        let index = usize::try_from(self.table.get(address)?).ok()?;
        self.labels.prefixes.get(index).map(|(_, label)| &**label)
    }
}
