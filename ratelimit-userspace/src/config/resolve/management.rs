//! Whose packets are never shed, on which ports.

use ipnet::IpNet;

use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Reported},
    file::Node,
    policy::Management,
    section::{Section, all, scalar},
    shape,
    value::{self, address},
    warnings,
};

/// Reads `management`. `allow` is what never gets as far.
pub(super) fn management(
    network: &Section<'_>,
    allow: &[IpNet],
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Management>, Reported> {
    const KEY: &str = "management";
    let Some(nodes) = network.nodes(KEY, diagnostics)? else { return Ok(Vec::new()) };
    let entries = all(nodes.iter().map(|node| entry(node, diagnostics)))?.concat();
    if let Some((place, _)) = entries.get(Management::MAX) {
        let message = format!("`{KEY}` has {} prefixes", entries.len());
        let mistake =
            Mistake::new(Code::TooMany, message).expected(format!("at most {} prefixes", Management::MAX));
        return Err(diagnostics.error(*place, mistake));
    }
    warnings::management(&entries, allow, diagnostics);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// One entry, as one for each of its prefixes.
fn entry(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Vec<(Place, Management)>, Reported> {
    let section = Section::open(&shape::MANAGEMENT, node, diagnostics)?;
    let prefixes = prefixes(&section, diagnostics);
    let prefixes = section.required("prefix", diagnostics, prefixes);
    let ports = section.some("ports", diagnostics, value::ports);
    let ports = section.required("ports", diagnostics, ports);
    let (prefixes, ports) = (prefixes?, ports?);
    let entry = |(place, prefix)| (place, Management { prefix, ports: ports.clone() });
    Ok(prefixes.into_iter().map(entry).collect())
}

fn prefixes(
    section: &Section<'_>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Option<Vec<(Place, IpNet)>>, Reported> {
    const KEY: &str = "prefix";
    let Some(nodes) = section.some_nodes(KEY, diagnostics)? else { return Ok(None) };
    let read = nodes.iter().map(|node| {
        scalar(node, section.expected(KEY), diagnostics, address::prefix).map(|prefix| (node.place, prefix))
    });
    all(read).map(Some)
}
