//! What the file means. Each function reads all keys of one mapping before it gives up on any, so that
//! one run finds every mistake.

mod admin;
mod blocks;
mod escalate;
mod interfaces;
mod management;
mod rule;

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use ratelimit_common::policy::{MAX_RULES, range};

use super::{
    deny_file::{self, MAX_DENY_ENTRIES},
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported},
    file::{Entry, Node},
    http,
    policy::{Admin, Blocks, Config, Match, Network, OnStop, Rule, Sources, WhenFull},
    section::{Section, all, scalar},
    shape,
    value::{self, address, choice, number},
    warnings,
};

/// Names that stand in the file, and where.
type Names = HashMap<String, Place>;
/// What a rule says about ports or lengths.
type Ranges = Option<Vec<RangeInclusive<u32>>>;
/// A key of `match` and how to read its ranges.
type Dimension = (&'static str, fn(&Match) -> Ranges);

/// Reads the whole file. The files that it names are looked for in `directory`.
pub(super) fn config(
    root: &Node,
    directory: &Path,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Config, Reported> {
    let section = Section::open(&shape::FILE, root, diagnostics)?;
    let interfaces = interfaces::interfaces(&section, diagnostics);
    let http = match section.node("http", diagnostics) {
        Ok(Some(node)) => http::read(node, directory, diagnostics).map(Some),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let for_clients = http.as_ref().ok().and_then(Option::as_ref).map(escalate::rules).unwrap_or_default();
    let network = match section.node("network", diagnostics) {
        Ok(Some(node)) => network(node, directory, &for_clients, diagnostics).map(Some),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    if let (Ok(Some(http)), Ok(network)) = (&http, &network) {
        // A misspelt section is reported already.
        if network.is_some() || section.misspelt("network").is_none() {
            // What is wrong is in the findings.
            let _ = escalate::check(http, network.as_ref(), diagnostics);
        }
    }
    let admin = match section.node("admin", diagnostics) {
        Ok(Some(node)) => {
            let requests = http.as_ref().ok().and_then(Option::as_ref);
            admin::admin(node, directory, requests, diagnostics)
        }
        Ok(None) => Ok(Admin::default()),
        Err(reported) => Err(reported),
    };
    let named = section.entry("interfaces").is_some() || section.misspelt("interfaces").is_some();
    if let Some(Entry { place, .. }) = section.entry("network").filter(|_| !named) {
        let mistake = Mistake::new(
            Code::NoInterfaces,
            "no interface is named, so the policy is attached nowhere",
        )
        .expected(
            "interfaces: a list such as [{ name: eth0 }], unless the file is for `ratelimit replay` alone",
        );
        diagnostics.warn(*place, mistake);
    }
    Ok(Config { interfaces: interfaces?, network: network?, http: http?, admin: admin? })
}

/// Reads a `name` that no other of `names` has.
fn name(
    section: &Section<'_>,
    names: &mut Names,
    diagnostics: &mut Diagnostics<'_>,
    parse: fn(&str) -> Result<String, Mistake>,
) -> Result<String, Reported> {
    let name = section.one("name", diagnostics, parse);
    let name = section.required("name", diagnostics, name)?;
    let place = section.entry("name").map_or_else(|| section.place("name"), |entry| entry.value.place);
    if let Some(Place { line, column }) = names.get(&name) {
        let message = format!("the name {} is taken at line {line}, column {column}", Quoted(&name));
        let mistake = Mistake::new(Code::DuplicateName, message).expected("each name once");
        return Err(diagnostics.error(place, mistake));
    }
    names.insert(name.clone(), place);
    Ok(name)
}

/// Reads `network`. `for_clients` are the names of rules that clients are put under.
fn network(
    node: &Node,
    directory: &Path,
    for_clients: &BTreeSet<&str>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Network, Reported> {
    let section = Section::open(&shape::NETWORK, node, diagnostics)?;
    let monitor = section.one("mode", diagnostics, choice(&[("enforce", false), ("monitor", true)]));
    let on_stop =
        section.one("on_stop", diagnostics, choice(&[("keep", OnStop::Keep), ("detach", OnStop::Detach)]));
    let sources = match section.node("sources", diagnostics) {
        Ok(Some(node)) => sources(node, diagnostics),
        Ok(None) => Ok(Sources::default()),
        Err(reported) => Err(reported),
    };
    let malformed_pass = section.one("malformed", diagnostics, choice(&[("drop", false), ("pass", true)]));
    let allow = prefixes(&section, "allow", diagnostics);
    let management = management::management(&section, allow.as_deref().unwrap_or_default(), diagnostics);
    let mut deny = prefixes(&section, "deny", diagnostics);
    let deny_files = deny_files(&section, directory, deny.as_mut().ok(), diagnostics);
    let listed = [&allow, &deny].map(|list| list.as_deref().unwrap_or_default());
    let blocks = match section.node("blocks", diagnostics) {
        Ok(Some(node)) => blocks::blocks(node, directory, diagnostics),
        Ok(None) => Ok(Blocks::default()),
        Err(reported) => Err(reported),
    };
    let rules = rules(&section, sources.as_ref().ok(), &listed, for_clients, diagnostics);
    let next = section.one("next", diagnostics, value::absolute_path);
    Ok(Network {
        monitor: monitor?.unwrap_or(false),
        on_stop: on_stop?.unwrap_or_default(),
        sources: sources?,
        malformed_pass: malformed_pass?.unwrap_or(false),
        allow: allow?,
        deny: deny?,
        rules: rules?,
        deny_files: deny_files?,
        management: management?,
        blocks: blocks?,
        next: next?,
    })
}

fn sources(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Sources, Reported> {
    let section = Section::open(&shape::SOURCES, node, diagnostics)?;
    let default = Sources::default();
    let ipv4_prefix = section.one("ipv4_prefix", diagnostics, prefix_length(32));
    let ipv6_prefix = section.one("ipv6_prefix", diagnostics, prefix_length(128));
    let capacity = section.one("capacity", diagnostics, number(Sources::CAPACITY));
    let when_full = section.one(
        "when_full",
        diagnostics,
        choice(&[("pass", WhenFull::Pass), ("share", WhenFull::Share), ("drop", WhenFull::Drop)]),
    );
    Ok(Sources {
        ipv4_prefix: ipv4_prefix?.unwrap_or(default.ipv4_prefix),
        ipv6_prefix: ipv6_prefix?.unwrap_or(default.ipv6_prefix),
        capacity: capacity?.unwrap_or(default.capacity),
        when_full: when_full?.unwrap_or(default.when_full),
    })
}

/// Reads how many bits of an address make one client.
fn prefix_length(bits: u8) -> impl Fn(&str) -> Result<u8, Mistake> {
    move |text| number(1..=u32::from(bits))(text).map(|length| u8::try_from(length).unwrap_or(bits))
}

/// Reads `allow` or `deny`, which may be empty.
fn prefixes(
    section: &Section<'_>,
    key: &str,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<IpNet>, Reported> {
    let Some(nodes) = section.nodes(key, diagnostics)? else { return Ok(Vec::new()) };
    if let Some(node) = nodes.get(MAX_DENY_ENTRIES) {
        return Err(diagnostics.error(node.place, deny_file::too_many(&format!("`{key}` holds"))));
    }
    all(nodes.iter().map(|node| scalar(node, section.expected(key), diagnostics, address::prefix)))
}

/// Reads `deny_files` and adds their entries to `deny`, or only checks them where `deny` has mistakes.
fn deny_files(
    section: &Section<'_>,
    directory: &Path,
    deny: Option<&mut Vec<IpNet>>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<PathBuf>, Reported> {
    const KEY: &str = "deny_files";
    let Some(nodes) = section.nodes(KEY, diagnostics)? else { return Ok(Vec::new()) };
    let mut unused = Vec::new();
    let deny = deny.unwrap_or(&mut unused);
    all(nodes.iter().map(|node| {
        let path = scalar(node, section.expected(KEY), diagnostics, value::path(directory))?;
        match deny_file::read(&path, deny, diagnostics) {
            Ok(read) => read.map(|()| path),
            Err(mistake) => Err(diagnostics.error(node.place, mistake)),
        }
    }))
}

fn rules(
    network: &Section<'_>,
    sources: Option<&Sources>,
    listed: &[&[IpNet]],
    for_clients: &BTreeSet<&str>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Rule>, Reported> {
    let Some(nodes) = network.nodes("rules", diagnostics)? else { return Ok(Vec::new()) };
    if let Some(node) = nodes.get(MAX_RULES) {
        let message = format!("there are {} rules", nodes.len());
        let mistake = Mistake::new(Code::TooMany, message).expected(format!("at most {MAX_RULES} rules"));
        return Err(diagnostics.error(node.place, mistake));
    }
    let mut names = Names::new();
    let mut read: Vec<_> =
        nodes.iter().map(|node| (node.place, rule::rule(node, &mut names, sources, diagnostics))).collect();
    for rule in read.iter_mut().filter_map(|(_, rule)| rule.as_mut().ok()) {
        rule.for_clients = for_clients.contains(rule.name.as_str());
    }
    let good: Vec<_> = read.iter().filter_map(|(place, rule)| Some((*place, rule.as_ref().ok()?))).collect();
    warnings::rules(&good, listed, diagnostics);
    let rules = all(read.into_iter().map(|(_, rule)| rule))?;
    classes(&rules, network.place("rules"), diagnostics)?;
    Ok(rules)
}

/// Ports and lengths reach the program as one class byte for each value, so that the sets of rules that
/// meet in a value must not be more than a byte tells apart.
fn classes(rules: &[Rule], place: Place, diagnostics: &mut Diagnostics<'_>) -> Result<(), Reported> {
    let dimensions: [Dimension; 3] = [
        ("source_port", |matches| widened(matches.source_port.as_deref())),
        ("destination_port", |matches| widened(matches.destination_port.as_deref())),
        ("length", |matches| matches.length.clone()),
    ];
    let counts = dimensions.map(|(key, ranges)| {
        let ranges: Vec<_> = rules.iter().map(|rule| ranges(&rule.matches)).collect();
        let count = distinct(&ranges);
        if count <= range::CLASSES {
            return Ok(());
        }
        let message = format!("the conditions on {key} cut the values into {count} sets");
        let mistake = Mistake::new(Code::TooMany, message)
            .expected(format!("at most {} sets of values that meet the same rules", range::CLASSES));
        Err(diagnostics.error(place, mistake))
    });
    counts.into_iter().collect()
}

fn widened(ports: Option<&[RangeInclusive<u16>]>) -> Ranges {
    let wide = |range: &RangeInclusive<u16>| u32::from(*range.start())..=u32::from(*range.end());
    ports.map(|ports| ports.iter().map(wide).collect())
}

/// How many different sets of rules the values from 0 to 65,535 meet.
fn distinct(rules: &[Ranges]) -> usize {
    // Where ranges of a rule open (+1) and close (-1).
    let mut steps: Vec<(u32, usize, i32)> = Vec::new();
    for (rule, ranges) in rules.iter().enumerate() {
        for range in ranges.iter().flatten() {
            steps.push((*range.start(), rule, 1));
            steps.push((range.end().saturating_add(1), rule, -1));
        }
    }
    steps.sort_unstable();
    let mut depth = [0_i32; MAX_RULES];
    let mut mask = 0_u64;
    let mut masks = BTreeSet::new();
    if steps.first().is_none_or(|&(value, ..)| value > 0) {
        masks.insert(mask);
    }
    for step in steps.chunk_by(|a, b| a.0 == b.0) {
        for &(_, rule, change) in step {
            depth[rule] += change;
            let bit = 1 << rule;
            mask = if depth[rule] > 0 { mask | bit } else { mask & !bit };
        }
        if step.iter().all(|&(value, ..)| value <= value::MAX_LENGTH) {
            masks.insert(mask);
        }
    }
    masks.len()
}
