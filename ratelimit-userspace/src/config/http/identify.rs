//! `identify`: which requests, and their descriptors.

use std::path::Path;

use super::{
    Domain, EntrySource, Identify, RequestMatch, Source,
    entry::{self, Written},
    labels::LabelFiles,
    rule_files::Domains,
};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported, nearest},
    file::{Node, Value},
    section::{Section, all},
    shape,
    value::{self, request},
    warnings,
};

/// Entries that a descriptor may have.
const MAX_ENTRIES: usize = 16;

/// Reads all items. `loaded` is what the rule files say, where they have no mistakes.
pub(super) fn items(
    section: &Section<'_>,
    domains: &Domains,
    loaded: &[Domain],
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Identify>, Reported> {
    let Some(nodes) = section.nodes("identify", diagnostics)? else { return Ok(Vec::new()) };
    let mut files = LabelFiles::default();
    let read: Vec<_> = nodes
        .iter()
        .map(|node| (node.place, item(node, domains, directory, &mut files, diagnostics)))
        .collect();
    let good: Vec<_> = read.iter().filter_map(|(place, item)| Some((*place, item.as_ref().ok()?))).collect();
    warnings::http::identify(&good, diagnostics);
    warnings::http::secrets(&good, loaded, diagnostics);
    all(read.into_iter().map(|(_, item)| item))
}

fn item(
    node: &Node,
    domains: &Domains,
    directory: &Path,
    files: &mut LabelFiles,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Identify, Reported> {
    let section = Section::open(&shape::http::IDENTIFY, node, diagnostics)?;
    let matches = match section.node("match", diagnostics) {
        Ok(Some(node)) => request_match(node, diagnostics),
        Ok(None) => section.misspelt("match").map_or_else(|| Ok(RequestMatch::default()), Err),
        Err(reported) => Err(reported),
    };
    let domain = section.one("domain", diagnostics, |text| domain(text, domains));
    let domain = section.required("domain", diagnostics, domain);
    let descriptors = descriptors(&section, directory, files, diagnostics);
    Ok(Identify { matches: matches?, domain: domain?, descriptors: descriptors?, line: node.place.line })
}

fn domain(text: &str, domains: &Domains) -> Result<String, Mistake> {
    let name = value::label(text)?;
    if domains.has(&name) != Some(false) {
        return Ok(name);
    }
    let known: Vec<_> = domains.names().take(10).map(|name| Quoted(name).to_string()).collect();
    Err(Mistake::new(Code::BadValue, format!("no rule file is for the domain {}", Quoted(text)))
        .expected(format!("the domain of a rule file: {}", known.join(", ")))
        .nearest(nearest(text, domains.names())))
}

fn request_match(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<RequestMatch, Reported> {
    let section = Section::open(&shape::http::REQUEST, node, diagnostics)?;
    let paths = section.some("path", diagnostics, request::path_pattern);
    let methods = section.some("method", diagnostics, request::method);
    let hosts = section.some("host", diagnostics, request::host_pattern);
    Ok(RequestMatch {
        paths: paths?.unwrap_or_default(),
        methods: methods?.unwrap_or_default(),
        hosts: hosts?.unwrap_or_default(),
    })
}

/// Reads a list of lists. Neither may be left out: `[client_ip, method]` could mean one descriptor or two.
fn descriptors(
    section: &Section<'_>,
    directory: &Path,
    files: &mut LabelFiles,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Vec<EntrySource>>, Reported> {
    const KEY: &str = "descriptors";
    let nodes = section.some_nodes(KEY, diagnostics);
    let nodes = section.required(KEY, diagnostics, nodes)?;
    let read = all(nodes.iter().map(|node| match &node.value {
        Value::Sequence(entries) if (1..=MAX_ENTRIES).contains(&entries.len()) => {
            all(entries.iter().map(|node| entry::entry(node, directory, files, diagnostics)))
        }
        Value::Sequence(entries) => {
            let (code, message) = match entries.get(MAX_ENTRIES) {
                Some(_) => (Code::TooMany, format!("the descriptor has {} entries", entries.len())),
                None => (Code::EmptyList, "a descriptor without entries matches no rule".to_owned()),
            };
            let mistake = Mistake::new(code, message).expected(format!("1 to {MAX_ENTRIES} entries"));
            Err(diagnostics.error(node.place, mistake))
        }
        Value::Invalid(reported) => Err(*reported),
        _ => {
            let mistake = Mistake::new(Code::BadType, "a descriptor is a list of entries, and this is none")
                .expected(
                    "brackets around the entries of each descriptor: [[client_ip], [client_ip, method]]",
                );
            Err(diagnostics.error(node.place, mistake))
        }
    }))?;
    mapped(&read, diagnostics)?;
    Ok(read.into_iter().map(|entries| entries.into_iter().map(|entry| entry.source).collect()).collect())
}

/// What is mapped goes by the first entry of a key. Such an entry must exist, and not be mapped by what it
/// maps.
fn mapped(descriptors: &[Vec<Written>], diagnostics: &mut Diagnostics<'_>) -> Result<(), Reported> {
    let entries: Vec<_> = descriptors.iter().flatten().collect();
    let find = |key: &str| entries.iter().copied().find(|entry| entry.source.key == key);
    let by = |entry: &Written| match &entry.source.source {
        Source::Mapped { by, .. } => Some(by.clone()),
        _ => None,
    };
    let check = |entry: &Written, place: Place, diagnostics: &mut Diagnostics<'_>| {
        let mut current = entry;
        for _ in 0..entries.len() {
            let Some(key) = by(current) else { return Ok(()) };
            match find(&key) {
                Some(next) => current = next,
                // Reported where it is written, if it is not this one.
                None if !std::ptr::eq(current, entry) => return Ok(()),
                None => {
                    let message = format!("no entry of this identify item has the key {}", Quoted(&key));
                    let keys = entries.iter().map(|entry| entry.source.key.as_str());
                    let keys = keys.filter(|known| *known != entry.source.key);
                    let mistake = Mistake::new(Code::BadValue, message)
                        .expected("the key of an entry that stands in one of the descriptors")
                        .nearest(nearest(&key, keys));
                    return Err(diagnostics.error(place, mistake));
                }
            }
        }
        let message = format!("{} is mapped by itself in the end", Quoted(&entry.source.key));
        let mistake =
            Mistake::new(Code::Conflict, message).expected("the key of an entry that has a value of its own");
        Err(diagnostics.error(place, mistake))
    };
    let checked = entries.iter().map(|entry| check(entry, entry.by, diagnostics));
    all(checked).map(|_| ())
}
