//! Limits on requests: what is allowed but probably not meant.

use std::{collections::BTreeSet, path::Path};

use ipnet::IpNet;

use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted},
    http::{
        Algorithm, ClientAddress, Descriptor, Domain, EntrySource, Identify, Limit, Missing, RequestMatch,
        Source, ValuePattern,
    },
    section::Section,
    warnings::no_effect,
};

/// Bytes that a log keeps for a hit.
const LOG_BYTES: u64 = 16;
/// Hits above which a log is large.
const LARGE_LOG: u64 = 100_000;

/// Warns about a forwarding header that nobody may send.
pub(in crate::config) fn client_address(
    section: &Section<'_>,
    header: ClientAddress,
    trusted_proxies: &[IpNet],
    diagnostics: &mut Diagnostics<'_>,
) {
    let misspelt = section.misspelt("trusted_proxies").is_some();
    if header == ClientAddress::Peer || !trusted_proxies.is_empty() || misspelt {
        return;
    }
    let message =
        "no proxy is trusted, so that this header is never believed and the client is always the peer";
    let mistake = Mistake::new(Code::NoTrustedProxies, message)
        .expected("trusted_proxies: the addresses of the proxies in front");
    diagnostics.warn(section.value_place("client_address"), mistake);
}

/// Says what Envoy's way of counting costs.
pub(in crate::config) fn envoy(place: Place, path: &Path, diagnostics: &mut Diagnostics<'_>) {
    let message = format!(
        "the rules of {} count as Envoy does: up to twice a limit may pass within a moment around the edge of a \
         window; a denied request is charged to every counter it meets, so that a narrow limit eats up a broad \
         one; and of several wildcards the first in the file decides, not the longest",
        path.display()
    );
    let mistake = Mistake::new(Code::EnvoyCompatibility, message)
        .expected("compatibility: native, once the migration is done");
    diagnostics.warn(place, mistake);
}

/// Warns about settings for metrics that do not exist here.
pub(in crate::config) fn metric(key: &str, place: Place, diagnostics: &mut Diagnostics<'_>) {
    no_effect(key, "metrics carry the ids of rules and never values of requests", place, diagnostics);
}

/// Warns about a rule file whose domain limits nothing.
pub(in crate::config) fn no_rules(domain: &str, place: Place, diagnostics: &mut Diagnostics<'_>) {
    let message = format!("the domain {} has no rule, so that it limits nothing", Quoted(domain));
    let mistake = Mistake::new(Code::NoRules, message).expected("a descriptor with a rate_limit");
    diagnostics.warn(place, mistake);
}

/// Warns about a `*` that stands for itself.
pub(in crate::config) fn literal_wildcard(
    pattern: &ValuePattern,
    place: Place,
    diagnostics: &mut Diagnostics<'_>,
) {
    let (ValuePattern::Exact(text) | ValuePattern::Prefix(text)) = pattern else { return };
    if text.contains('*') {
        let message = "only a `*` at the end is a wildcard; this one is met by a `*` in the value alone";
        let mistake =
            Mistake::new(Code::LiteralWildcard, message).expected("the start of a value and one `*`");
        diagnostics.warn(place, mistake);
    }
}

/// Warns about an override for a value that never meets its rule.
pub(in crate::config) fn override_never_matches(place: Place, diagnostics: &mut Diagnostics<'_>) {
    let message = "this override never applies: its descriptor is for other values";
    let mistake = Mistake::new(Code::NeverMatches, message).expected("a value that the descriptor matches");
    diagnostics.warn(place, mistake);
}

/// Warns about a hit that costs more than its limit holds.
pub(in crate::config) fn cost(cost: u64, limit: &Limit, place: Place, diagnostics: &mut Diagnostics<'_>) {
    if limit.units > 0 && cost > limit.capacity() {
        let message = format!("a hit costs {cost}, and the limit never holds more than {}", limit.capacity());
        let mistake = Mistake::new(Code::NeverPasses, format!("every request is denied: {message}"))
            .expected("a lower cost, a higher limit, or requests_per_unit: 0 to block");
        diagnostics.warn(place, mistake);
    }
}

/// Warns about what a limit costs or lets pass, where it says so itself.
pub(in crate::config) fn limit(limit: &Limit, section: &Section<'_>, diagnostics: &mut Diagnostics<'_>) {
    let own = |key| section.entry(key).is_some();
    match limit.algorithm {
        Algorithm::FixedWindow if limit.units > 0 && own("algorithm") => {
            let twice = u128::from(limit.units) * 2;
            let message = format!(
                "a fixed window lets up to {twice} units pass within a moment: {} before its edge and as many after",
                limit.units
            );
            let mistake = Mistake::new(Code::WindowEdge, message)
                .expected("algorithm: sliding_window, unless that is meant");
            diagnostics.warn(section.value_place("algorithm"), mistake);
        }
        Algorithm::SlidingLog
            if limit.units >= LARGE_LOG && (own("algorithm") || own("requests_per_unit")) =>
        {
            let bytes = u128::from(limit.units) * u128::from(LOG_BYTES);
            let message = format!(
                "a log of {} hits takes up to {} for every key: {LOG_BYTES} bytes a hit",
                limit.units,
                size(bytes)
            );
            let mistake = Mistake::new(Code::LargeLog, message)
                .expected("algorithm: sliding_window, with `segments` if it must be close to exact");
            let key = if own("requests_per_unit") { "requests_per_unit" } else { "algorithm" };
            diagnostics.warn(section.value_place(key), mistake);
        }
        _ => {}
    }
}

fn size(bytes: u128) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1_000_000, "MB"));
    format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit)
}

/// Warns about items of `identify`, in file order with their places.
pub(in crate::config) fn identify(items: &[(Place, &Identify)], diagnostics: &mut Diagnostics<'_>) {
    for (index, (place, item)) in items.iter().enumerate() {
        let shadow = items[..index].iter().find(|(_, earlier)| covers(&earlier.matches, &item.matches));
        if let Some((_, earlier)) = shadow {
            let message = format!(
                "this identify item never matches: the one at line {} comes first and matches all it does",
                earlier.line
            );
            let mistake = Mistake::new(Code::NeverMatches, message).expected("the narrower item first");
            diagnostics.warn(*place, mistake);
        }
        if item.descriptors.iter().all(|entries| entries.iter().any(may_be_missing)) {
            let message = "a request may end with no descriptor here, and then nothing limits it";
            let mistake = Mistake::new(Code::NoDescriptor, message).expected(
                "a descriptor that every request has, such as [client_ip], or `missing: empty` or `missing: deny`",
            );
            diagnostics.warn(*place, mistake);
        }
    }
}

/// Warns about wildcards for values that are secret: their keyed form starts with nothing in particular.
pub(in crate::config) fn secrets(
    items: &[(Place, &Identify)],
    domains: &[Domain],
    diagnostics: &mut Diagnostics<'_>,
) {
    for (place, item) in items {
        let Some(domain) = domains.iter().find(|domain| domain.name == item.domain) else { continue };
        let secret = item.descriptors.iter().flatten().filter(|entry| entry.secret);
        let keys: BTreeSet<_> = secret.map(|entry| entry.key.as_str()).collect();
        for key in keys {
            let Some((pattern, line)) = wildcard(&domain.descriptors, key) else { continue };
            let message = format!(
                "{} is secret, so that {} at line {line} of {} never matches",
                Quoted(key),
                Quoted(&format!("{pattern}*")),
                domain.file.display()
            );
            let mistake = Mistake::new(Code::NeverMatches, message)
                .expected("whole values, or `map` to turn the values into labels that rules may name");
            diagnostics.warn(*place, mistake);
        }
    }
}

/// The first wildcard for some of a key's values.
fn wildcard<'a>(descriptors: &'a [Descriptor], key: &str) -> Option<(&'a str, u32)> {
    descriptors.iter().find_map(|descriptor| {
        let overrides = descriptor.rule.iter().flat_map(|rule| &rule.overrides);
        let patterns = overrides.filter_map(|choice| choice.value.as_ref());
        let own = std::iter::once(&descriptor.value).chain(patterns).find_map(|pattern| match pattern {
            ValuePattern::Prefix(start) if !start.is_empty() && descriptor.key == key => Some(start.as_str()),
            _ => None,
        });
        own.map(|start| (start, descriptor.line)).or_else(|| wildcard(&descriptor.descriptors, key))
    })
}

/// Whether every request that meets `narrow` meets `wide`, as far as lists of patterns tell.
fn covers(wide: &RequestMatch, narrow: &RequestMatch) -> bool {
    let every = |wide: &[String], narrow: &[String]| {
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(|pattern| wide.contains(pattern)))
    };
    let all_paths = wide.paths.iter().any(|pattern| pattern == "/**");
    (all_paths || every(&wide.paths, &narrow.paths))
        && every(&wide.methods, &narrow.methods)
        && every(&wide.hosts, &narrow.hosts)
}

/// Whether some requests leave a descriptor out because of this entry. Requests have a client, a method, a
/// host and a path in all but odd cases.
fn may_be_missing(entry: &EntrySource) -> bool {
    let always = match &entry.source {
        Source::ClientIp { .. } | Source::Method | Source::Host | Source::Path | Source::Constant(_) => true,
        // One such prefix for each family.
        Source::Network(labels) => {
            labels.prefixes.iter().filter(|(prefix, _)| prefix.prefix_len() == 0).count() == 2
        }
        _ => false,
    };
    entry.missing == Missing::Skip && !always
}
