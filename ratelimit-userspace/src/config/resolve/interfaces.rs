//! The interfaces to protect: names and patterns of names, no two of which may mean the same interface.

use super::{Names, name};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported},
    file::Node,
    interface_pattern::{self, Pattern},
    policy::{AttachMode, Interface},
    section::{Section, all},
    shape,
    value::choice,
};

/// Patterns are compared each with each.
const MAX_PATTERNS: usize = 64;

/// Reads `interfaces`.
pub(super) fn interfaces(
    file: &Section<'_>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Interface>, Reported> {
    let Some(nodes) = file.some_nodes("interfaces", diagnostics)? else { return Ok(Vec::new()) };
    let mut names = Names::new();
    let read: Vec<_> = nodes.iter().map(|node| interface(node, &mut names, diagnostics)).collect();
    let good: Vec<_> = read.iter().filter_map(|read| read.as_ref().ok()).collect();
    let apart = overlaps(&good, &names, diagnostics);
    let interfaces = all(read.into_iter())?;
    apart.map(|()| interfaces)
}

fn interface(
    node: &Node,
    names: &mut Names,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Interface, Reported> {
    let section = Section::open(&shape::INTERFACE, node, diagnostics)?;
    let name = name(&section, names, diagnostics, interface_name);
    let mode = section.one(
        "mode",
        diagnostics,
        choice(&[
            ("auto", AttachMode::Auto),
            ("native", AttachMode::Native),
            ("generic", AttachMode::Generic),
        ]),
    );
    Ok(Interface { name: name?, mode: mode?.unwrap_or_default() })
}

/// An interface that two entries mean would have two modes.
fn overlaps(
    interfaces: &[&Interface],
    names: &Names,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<(), Reported> {
    let place = |name: &str| names.get(name).copied().unwrap_or(Place::START);
    let patterns: Vec<_> = interfaces.iter().filter(|interface| interface.is_pattern()).collect();
    if let Some(beyond) = patterns.get(MAX_PATTERNS) {
        let message = format!("there are {} patterns of interfaces", patterns.len());
        let mistake =
            Mistake::new(Code::TooMany, message).expected(format!("at most {MAX_PATTERNS} patterns"));
        return Err(diagnostics.error(place(&beyond.name), mistake));
    }
    let parsed: Vec<_> =
        interfaces.iter().filter_map(|it| Some((*it, Pattern::new(&it.name).ok()?))).collect();
    let mut outcome = Ok(());
    for (index, (later, pattern)) in parsed.iter().enumerate() {
        let shared = parsed[..index].iter().find_map(|(earlier, other)| {
            // Two plain names that differ have nothing in common.
            let either = later.is_pattern() || earlier.is_pattern();
            either.then(|| pattern.common(other)).flatten().map(|common| (earlier, common))
        });
        if let Some((earlier, common)) = shared {
            let Place { line, column } = place(&earlier.name);
            let message = format!(
                "an interface such as {} is meant here and by {} at line {line}, column {column}",
                Quoted(&common),
                Quoted(&earlier.name)
            );
            let mistake = Mistake::new(Code::Conflict, message)
                .expected("names and patterns that have no interface in common");
            outcome = Err(diagnostics.error(place(&later.name), mistake));
        }
    }
    outcome
}

/// Reads the name of an interface as the kernel allows it (`dev_valid_name`, net/core/dev.c), or a pattern
/// of such names.
fn interface_name(text: &str) -> Result<String, Mistake> {
    const MAX_BYTES: usize = interface_pattern::MAX_BYTES;
    let mistake = |words: &str| Mistake::new(Code::BadName, format!("{} {words}", Quoted(text)));
    let stray = text.chars().find(|c| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control());
    let pattern = Pattern::new(text)
        .map_err(|error| mistake(&error.to_string()).expected("brackets such as [0-9], [abc] or [!x]"))?;
    match stray {
        _ if text.is_empty() => Err(mistake("is empty")),
        _ if pattern.shortest() > MAX_BYTES && interface_pattern::is_pattern(text) => {
            Err(mistake("means only names that are longer than 15 bytes"))
        }
        _ if pattern.shortest() > MAX_BYTES => Err(mistake("is longer than 15 bytes")),
        _ if text == "." || text == ".." => Err(mistake("cannot be an interface")),
        Some(_) => Err(mistake("holds a character that no interface name has")),
        None => Ok(text.to_owned()),
    }
}
