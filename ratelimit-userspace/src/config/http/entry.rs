//! An entry of a descriptor, and where its value comes from.

use std::path::Path;

use super::{ApiVersion, EntrySource, Missing, Source, labels::LabelFiles};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported, nearest},
    file::{Node, Value},
    section::{Section, scalar},
    shape,
    value::{self, choice, flag, number, request},
};

/// Bits of an address that make a client, unless the file says otherwise.
const IPV4_PREFIX: u8 = 32;
const IPV6_PREFIX: u8 = 64;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClientIp,
    Header,
    Cookie,
    Query,
    Method,
    Host,
    Path,
    PathTemplate,
    ApiVersion,
    Network,
    Map,
    Value,
}

/// The keys that say where a value comes from.
const KINDS: [(&str, Kind); 12] = [
    ("client_ip", Kind::ClientIp),
    ("header", Kind::Header),
    ("cookie", Kind::Cookie),
    ("query", Kind::Query),
    ("method", Kind::Method),
    ("host", Kind::Host),
    ("path", Kind::Path),
    ("path_template", Kind::PathTemplate),
    ("api_version", Kind::ApiVersion),
    ("network", Kind::Network),
    ("map", Kind::Map),
    ("value", Kind::Value),
];
/// Entries whose key says it all.
const WORDS: [&str; 4] = ["client_ip", "method", "host", "path"];
/// Keys that belong to one source.
const BELONGING: [(&str, &str, Kind); 4] = [
    ("ipv4_prefix", "client_ip", Kind::ClientIp),
    ("ipv6_prefix", "client_ip", Kind::ClientIp),
    ("capture", "path_template", Kind::PathTemplate),
    ("by", "map", Kind::Map),
];

/// An entry, and where its `by` stands.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) source: EntrySource,
    pub(super) by: Place,
}

/// Reads an entry: a word, or a mapping.
pub(super) fn entry(
    node: &Node,
    directory: &Path,
    files: &mut LabelFiles,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Written, Reported> {
    if !matches!(node.value, Value::Mapping(_)) {
        return word(node, diagnostics).map(|source| Written { source, by: node.place });
    }
    let section = Section::open(&shape::http::ENTRY, node, diagnostics)?;
    let key = section.one("key", diagnostics, value::label);
    let key = section.required("key", diagnostics, key);
    let secret = section.one("secret", diagnostics, flag);
    let missing = section.one(
        "missing",
        diagnostics,
        choice(&[("skip", Missing::Skip), ("empty", Missing::Empty), ("deny", Missing::Deny)]),
    );
    let source = kind(&section, &key, diagnostics).and_then(|kind| {
        let belongs = belongs(&section, kind, diagnostics);
        let source = source(&section, kind, directory, files, diagnostics);
        belongs.and(source)
    });
    let source = EntrySource {
        key: key?,
        source: source?,
        secret: secret?.unwrap_or(false),
        missing: missing?.unwrap_or_default(),
    };
    Ok(Written { source, by: section.value_place("by") })
}

/// Reads an entry that is only its key.
fn word(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<EntrySource, Reported> {
    let expected =
        "client_ip, method, host or path; or a mapping such as { key: api_key, header: x-api-key }";
    let client_ip = Source::ClientIp { ipv4_prefix: IPV4_PREFIX, ipv6_prefix: IPV6_PREFIX };
    let (key, source) = scalar(node, expected, diagnostics, |key| {
        let source = match key {
            "client_ip" => client_ip,
            "method" => Source::Method,
            "host" => Source::Host,
            "path" => Source::Path,
            _ => return Err(no_source(Code::BadValue, key).nearest(nearest(key, WORDS))),
        };
        Ok((key.to_owned(), source))
    })?;
    Ok(EntrySource { key, source, secret: false, missing: Missing::default() })
}

fn no_source(code: Code, key: &str) -> Mistake {
    Mistake::new(code, format!("nothing says where the value of {} comes from", Quoted(key)))
}

/// The one source that an entry names, or that its key is.
fn kind(
    section: &Section<'_>,
    key: &Result<String, Reported>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Kind, Reported> {
    let present: Vec<_> = KINDS.into_iter().filter(|(name, _)| section.entry(name).is_some()).collect();
    match present.as_slice() {
        [(_, kind)] => Ok(*kind),
        [] => {
            let key = key.as_ref().map_err(|reported| *reported)?;
            if let Some(reported) = KINDS.into_iter().find_map(|(name, _)| section.misspelt(name)) {
                return Err(reported);
            }
            let implied = KINDS.into_iter().find(|(name, _)| name == key && WORDS.contains(name));
            implied.map(|(_, kind)| kind).ok_or_else(|| {
                let names = KINDS.map(|(name, _)| name).join(", ");
                let mistake = no_source(Code::MissingKey, key).expected(format!("one of {names}"));
                diagnostics.error(section.mapping_place(), mistake)
            })
        }
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| format!("`{name}`")).collect();
            let place = several.iter().map(|(name, _)| section.place(name)).max();
            let message = format!("a value comes from one source, and here are {}", names.join(" and "));
            let mistake = Mistake::new(Code::Conflict, message).expected("one of them");
            Err(diagnostics.error(place.unwrap_or_else(|| section.mapping_place()), mistake))
        }
    }
}

/// Keys of another source have no meaning.
fn belongs(section: &Section<'_>, kind: Kind, diagnostics: &mut Diagnostics<'_>) -> Result<(), Reported> {
    let mut outcome = Ok(());
    for (key, owner, of) in BELONGING {
        if of != kind && section.entry(key).is_some() {
            let message = format!("`{key}` belongs to `{owner}`, which this value does not come from");
            let mistake = Mistake::new(Code::Conflict, message).expected(format!("`{owner}`, or no `{key}`"));
            outcome = Err(diagnostics.error(section.place(key), mistake));
        }
    }
    outcome
}

fn source(
    section: &Section<'_>,
    kind: Kind,
    directory: &Path,
    files: &mut LabelFiles,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Source, Reported> {
    match kind {
        Kind::ClientIp => client_ip(section, diagnostics),
        Kind::Header => text(section, "header", diagnostics, request::header_name).map(Source::Header),
        Kind::Cookie => text(section, "cookie", diagnostics, request::cookie_name).map(Source::Cookie),
        Kind::Query => text(section, "query", diagnostics, value::label).map(Source::Query),
        Kind::Method => section.one("method", diagnostics, only_true).map(|_| Source::Method),
        Kind::Host => section.one("host", diagnostics, only_true).map(|_| Source::Host),
        Kind::Path => section.one("path", diagnostics, only_true).map(|_| Source::Path),
        Kind::PathTemplate => path_template(section, diagnostics),
        Kind::ApiVersion => api_version(section, diagnostics).map(Source::ApiVersion),
        Kind::Network => {
            let file = text(section, "network", diagnostics, value::path(directory))?;
            files.networks(file, section.value_place("network"), diagnostics).map(Source::Network)
        }
        Kind::Map => {
            let by = text(section, "by", diagnostics, value::label);
            let file = text(section, "map", diagnostics, value::path(directory));
            let labels = file.and_then(|file| files.values(file, section.value_place("map"), diagnostics));
            Ok(Source::Mapped { by: by?, labels: labels? })
        }
        Kind::Value => text(section, "value", diagnostics, |text| Ok(text.to_owned())).map(Source::Constant),
    }
}

/// A value that must be there.
fn text<T>(
    section: &Section<'_>,
    key: &str,
    diagnostics: &mut Diagnostics<'_>,
    parse: impl FnOnce(&str) -> Result<T, Mistake>,
) -> Result<T, Reported> {
    let value = section.one(key, diagnostics, parse);
    section.required(key, diagnostics, value)
}

/// `false` would name a source and not use it.
fn only_true(text: &str) -> Result<(), Mistake> {
    if flag(text)? { Ok(()) } else { Err(Mistake::new(Code::BadValue, "a source is named, and not used")) }
}

/// Prefix lengths stand beside the key or, as a mapping, behind it.
fn client_ip(section: &Section<'_>, diagnostics: &mut Diagnostics<'_>) -> Result<Source, Reported> {
    let beside = prefixes(section, diagnostics);
    let behind = match section.node("client_ip", diagnostics)? {
        Some(node) if matches!(node.value, Value::Mapping(_)) => {
            Section::open(&shape::http::CLIENT_IP, node, diagnostics)
                .and_then(|section| prefixes(&section, diagnostics))
        }
        Some(node) => scalar(node, section.expected("client_ip"), diagnostics, only_true).map(|()| [None; 2]),
        None => Ok([None; 2]),
    };
    let ([beside_v4, beside_v6], [behind_v4, behind_v6]) = (beside?, behind?);
    for (key, beside, behind) in
        [("ipv4_prefix", beside_v4, behind_v4), ("ipv6_prefix", beside_v6, behind_v6)]
    {
        if beside.is_some() && behind.is_some() {
            let message = format!("`{key}` stands here and in `client_ip`");
            let mistake = Mistake::new(Code::Conflict, message).expected("one of the two");
            return Err(diagnostics.error(section.place(key), mistake));
        }
    }
    Ok(Source::ClientIp {
        ipv4_prefix: beside_v4.or(behind_v4).unwrap_or(IPV4_PREFIX),
        ipv6_prefix: beside_v6.or(behind_v6).unwrap_or(IPV6_PREFIX),
    })
}

/// Reads `ipv4_prefix` and `ipv6_prefix`.
fn prefixes(section: &Section<'_>, diagnostics: &mut Diagnostics<'_>) -> Result<[Option<u8>; 2], Reported> {
    let [ipv4, ipv6] = [("ipv4_prefix", 32), ("ipv6_prefix", 128)].map(|(key, bits): (_, u8)| {
        section.one(key, diagnostics, |text| {
            number(1..=u32::from(bits))(text).map(|length| u8::try_from(length).unwrap_or(bits))
        })
    });
    Ok([ipv4?, ipv6?])
}

fn path_template(section: &Section<'_>, diagnostics: &mut Diagnostics<'_>) -> Result<Source, Reported> {
    let template = text(section, "path_template", diagnostics, request::path_template);
    let capture = section.one("capture", diagnostics, |text| match &template {
        Ok(template) => capture(text, template),
        Err(_) => Ok(text.to_owned()),
    });
    Ok(Source::PathTemplate { template: template?, capture: capture? })
}

/// Reads the name of a placeholder.
fn capture(text: &str, template: &str) -> Result<String, Mistake> {
    let names: Vec<_> = request::placeholders(template).collect();
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    let bare = text.trim_matches(['{', '}']);
    let meant =
        names.iter().copied().find(|name| *name == bare).or_else(|| nearest(bare, names.iter().copied()));
    let mistake =
        Mistake::new(Code::BadValue, format!("{} is no placeholder of this template", Quoted(text)));
    Err(mistake
        .expected(if names.is_empty() {
            "a template with a segment such as {id}".to_owned()
        } else {
            names.join(", ")
        })
        .nearest(meant))
}

fn api_version(section: &Section<'_>, diagnostics: &mut Diagnostics<'_>) -> Result<ApiVersion, Reported> {
    const KEY: &str = "api_version";
    match section.node(KEY, diagnostics)? {
        Some(node) if matches!(node.value, Value::Mapping(_)) => {
            let section = Section::open(&shape::http::API_VERSION, node, diagnostics)?;
            text(&section, "header", diagnostics, request::header_name).map(ApiVersion::Header)
        }
        _ => text(section, KEY, diagnostics, |text| {
            choice(&[("path", true), ("accept", false)])(text)
                .map(|path| if path { ApiVersion::Path } else { ApiVersion::Accept })
        }),
    }
}
