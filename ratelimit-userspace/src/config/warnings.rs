//! What is allowed but probably not meant: rules that no packet can reach, rules that also meet replies to
//! the host's own connections, limits that another limit makes idle.

mod block;
pub(super) mod http;
mod management;
mod reach;

use ipnet::IpNet;

use self::reach::Reach;
pub(super) use self::{block::block, management::management};
use super::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted},
    policy::{Bucket, Limit, Match, Per, Rule, Sources},
    value::header::{TCP, UDP},
};

/// Linux' default `net.ipv4.ip_local_port_range`: where replies to the host's own connections arrive.
const EPHEMERAL_PORTS: [u16; 2] = [32_768, 60_999];
/// A TCP reply has ACK set; these are the flags of its first packet and of one with data.
const REPLY_FLAGS: [u8; 2] = [0x12, 0x18];

/// Warns about rules, in file order with their places, given the prefixes that no rule ever sees.
pub(super) fn rules(rules: &[(Place, &Rule)], listed: &[&[IpNet]], diagnostics: &mut Diagnostics<'_>) {
    let reaches: Vec<_> = rules.iter().map(|(_, rule)| Reach::of(&rule.matches)).collect();
    let has_source = rules.iter().any(|(_, rule)| rule.matches.source.is_some());
    let listed = if has_source { reach::merged(&listed.concat()) } else { Vec::new() };
    for (index, (place, rule)) in rules.iter().enumerate() {
        let met = reaches[index].possible();
        let shadow = rules[..index].iter().zip(&reaches).find(|(_, earlier)| met.is_within(earlier));
        let shadow = shadow.filter(|_| !rule.for_clients);
        let (why, expected) = if met.is_empty() {
            ("its conditions exclude each other".to_owned(), "conditions that one packet can meet")
        } else if let Some(((_, earlier), _)) = shadow {
            let name = Quoted(&earlier.name);
            let line = earlier.line;
            (format!("{name} at line {line} comes first and matches all it does"), "the narrower rule first")
        } else if rule.matches.source.is_some() && met.sources_are_within(&listed) {
            (
                "`allow` and `deny` come first and cover all its sources".to_owned(),
                "sources that are on neither",
            )
        } else {
            if meets_replies(&rule.matches, &met) && rules[..index].iter().all(|(_, rule)| !exempts(rule)) {
                diagnostics.warn(*place, catch_all(rule));
            }
            continue;
        };
        let message = format!("the rule {} never matches: {why}", Quoted(&rule.name));
        diagnostics.warn(*place, Mistake::new(Code::NeverMatches, message).expected(expected));
    }
}

/// Warns about the limits of one rule.
pub(super) fn limits(
    limits: &[(Place, Limit)],
    sources: Option<&Sources>,
    diagnostics: &mut Diagnostics<'_>,
) {
    for (index, (place, limit)) in limits.iter().enumerate() {
        let other = limits.iter().enumerate().position(|(other_index, (_, other))| {
            // Of two equal ones, the first is the one that bites.
            other_index != index
                && is_idle_beside(limit, other, sources)
                && (other_index < index || !is_idle_beside(other, limit, sources))
        });
        if let Some(other) = other {
            let message = format!(
                "this limit never refuses a packet: limit {} of the rule refuses it before",
                other + 1
            );
            let expected = "a lower rate or burst than that limit has, or one of the two alone";
            diagnostics.warn(*place, Mistake::new(Code::NeverBites, message).expected(expected));
        }
    }
}

/// Warns about a setting that changes nothing.
pub(super) fn no_effect(key: &str, why: &str, place: Place, diagnostics: &mut Diagnostics<'_>) {
    let mistake = Mistake::new(Code::NoEffect, format!("`{key}` changes nothing here: {why}"));
    diagnostics.warn(place, mistake.expected(format!("no `{key}`")));
}

/// Both are charged with the same packets, or neither: the one that holds less at every moment refuses
/// first.
fn is_idle_beside(limit: &Limit, other: &Limit, sources: Option<&Sources>) -> bool {
    let bits = |per| match per {
        Per::Source => sources.map(|sources| (sources.ipv4_prefix, sources.ipv6_prefix)),
        Per::Prefix { ipv4_prefix, ipv6_prefix } => Some((ipv4_prefix, ipv6_prefix)),
        Per::Rule => Some((0, 0)),
    };
    let same = limit.per == other.per || (bits(limit.per).is_some() && bits(limit.per) == bits(other.per));
    match (limit.bucket, other.bucket) {
        // A rate of zero refuses everything, whatever the other limits are.
        (Some(_), None) => true,
        (None, _) => false,
        (Some(slow), Some(fast)) => same && limit.unit == other.unit && holds_no_less(&slow, &fast),
    }
}

fn holds_no_less(bucket: &Bucket, other: &Bucket) -> bool {
    let speed = |a: &Bucket, b: &Bucket| u128::from(a.rate.units) * u128::from(b.rate.nanos);
    speed(bucket, other) >= speed(other, bucket) && bucket.burst >= other.burst
}

/// Whether answers from servers that the host talks to meet the rule.
fn meets_replies(matches: &Match, met: &Reach) -> bool {
    let narrow = matches.source_port.is_some() || matches.length.is_some();
    let arrives =
        met.has_whole_datagrams() && met.has_destination_ports(EPHEMERAL_PORTS) && met.has_every_address();
    let tcp = met.has_protocol(TCP) && REPLY_FLAGS.iter().any(|&flags| met.has_tcp_flags(flags));
    // A condition on TCP flags leaves no UDP.
    !narrow && arrives && (tcp || met.has_protocol(UDP))
}

/// A rule on source ports is how replies are taken out.
fn exempts(rule: &Rule) -> bool {
    rule.matches.source_port.is_some()
}

fn catch_all(rule: &Rule) -> Mistake {
    let message = format!(
        "the rule {} also meets replies to connections that this host opens: answers of name servers, downloads",
        Quoted(&rule.name)
    );
    Mistake::new(Code::CatchAll, message).expected(
        "a rule before it that takes replies out, such as match: { protocol: [tcp, udp], source_port: [53, 443] } \
         with limits of its own; or the servers' addresses in `allow`",
    )
}
