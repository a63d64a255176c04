//! Rules: what they match and how they limit it.

use ratelimit_common::policy::MAX_LIMITS;

use super::{Names, name, prefix_length};
use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Quoted, Reported},
    file::{Node, Value},
    policy::{Block, IcmpType, Limit, Match, Per, Rule, Sources, Unit},
    section::{Section, all, scalar},
    shape,
    value::{
        self, address, choice, duration,
        header::{self, ICMP, ICMPV6, TCP, WITH_PORTS},
        number, rate,
    },
    warnings,
};

/// Reads one rule. `sources` is `None` where it has mistakes.
pub(super) fn rule(
    node: &Node,
    names: &mut Names,
    sources: Option<&Sources>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Rule, Reported> {
    let section = Section::open(&shape::RULE, node, diagnostics)?;
    let name = name(&section, names, diagnostics, value::rule_name);
    let matches = match section.node("match", diagnostics) {
        Ok(Some(node)) => matches(node, diagnostics),
        Ok(None) => Ok(Match::default()),
        Err(reported) => Err(reported),
    };
    let limits = limits(&section, sources, diagnostics);
    let count_only = section.one("action", diagnostics, choice(&[("shed", false), ("count", true)]));
    let block = match section.node("block", diagnostics) {
        Ok(Some(node)) => block(node, diagnostics).map(Some),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let rule = Rule {
        name: name?,
        matches: matches?,
        limits: limits?,
        count_only: count_only?.unwrap_or(false),
        block: block?,
        for_clients: false,
        line: node.place.line,
    };
    warnings::block(&rule, section.place("block"), diagnostics);
    Ok(rule)
}

fn block(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Block, Reported> {
    let section = Section::open(&shape::BLOCK, node, diagnostics)?;
    let after = section.one("after", diagnostics, number(1..=u32::MAX));
    let after = section.required("after", diagnostics, after);
    let within = section.one("within", diagnostics, duration::between(Block::WITHIN));
    let within = section.required("within", diagnostics, within);
    let duration = section.one("for", diagnostics, duration::between(Block::DURATION));
    let duration = section.required("for", diagnostics, duration);
    Ok(Block { after: after?, within: within?, duration: duration? })
}

fn matches(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Match, Reported> {
    let section = Section::open(&shape::MATCH, node, diagnostics)?;
    let source = section.some("source", diagnostics, address::prefix);
    let destination = section.some("destination", diagnostics, address::prefix);
    let protocol = section.some("protocol", diagnostics, header::protocol);
    let source_port = section.some("source_port", diagnostics, value::ports);
    let destination_port = section.some("destination_port", diagnostics, value::ports);
    let tcp_flags = section.some("tcp_flags", diagnostics, header::tcp_flags);
    let fragment = section.some("fragment", diagnostics, header::fragments);
    let vlan = section.some("vlan", diagnostics, header::vlan);
    let length = section.some("length", diagnostics, value::lengths);
    // A protocol with a mistake says nothing about what needs it.
    let (protocol, icmp_type) = match protocol {
        Ok(protocol) => {
            let icmp_type = icmp_type(&section, protocol.as_deref(), diagnostics);
            let fits = protocols(&section, protocol.as_deref(), diagnostics);
            (fits.map(|()| protocol), icmp_type)
        }
        Err(reported) => (Err(reported), Err(reported)),
    };
    Ok(Match {
        source: source?,
        destination: destination?,
        protocol: protocol?,
        source_port: source_port?,
        destination_port: destination_port?,
        tcp_flags: tcp_flags?,
        icmp_type: icmp_type?,
        fragment: fragment?.map(|kinds| kinds.concat()),
        vlan: vlan?,
        length: length?,
    })
}

fn icmp_type(
    section: &Section<'_>,
    protocol: Option<&[u8]>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Option<Vec<IcmpType>>, Reported> {
    const KEY: &str = "icmp_type";
    let has = |number| protocol.is_some_and(|numbers| numbers.contains(&number));
    let (v4, v6) = (has(ICMP), has(ICMPV6));
    if v4 || v6 {
        let types = section.some(KEY, diagnostics, |text| header::icmp_types(text, v4, v6))?;
        return Ok(types.map(|types| types.concat()));
    }
    if section.node(KEY, diagnostics)?.is_none() {
        return Ok(None);
    }
    let message = "icmp_type needs protocol icmp or icmpv6 in the same match";
    let mistake = Mistake::new(Code::Conflict, message).expected("protocol: icmp, icmpv6, or both");
    Err(diagnostics.error(section.place(KEY), mistake))
}

/// Conditions that need a protocol which the match excludes are impossible; those that need one of several
/// make the others idle.
fn protocols(
    section: &Section<'_>,
    protocol: Option<&[u8]>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<(), Reported> {
    let needs: [(&str, &[u8], &str); 4] = [
        ("tcp_flags", &[TCP], "tcp"),
        ("source_port", &WITH_PORTS, "tcp, udp or sctp"),
        ("destination_port", &WITH_PORTS, "tcp, udp or sctp"),
        // icmp_type without either has been reported as a conflict.
        ("icmp_type", &[ICMP, ICMPV6], "icmp or icmpv6"),
    ];
    let Some(protocol) = protocol else { return Ok(()) };
    let mut outcome = Ok(());
    for (key, possible, names) in needs {
        if section.entry(key).is_none() {
            continue;
        }
        let idle = protocol.iter().filter(|number| !possible.contains(number)).count();
        let mistake = |message: String| {
            Mistake::new(Code::NeverMatches, message).expected(format!("protocol: {names}, or no `{key}`"))
        };
        if idle == protocol.len() && key != "icmp_type" {
            let message = format!("`{key}` is a condition on {names}, which `protocol` excludes");
            outcome = Err(diagnostics.error(section.place(key), mistake(message)));
        } else if idle > 0 && idle < protocol.len() {
            let message =
                format!("only {names} can meet `{key}`; the other protocols of this match never do");
            diagnostics.warn(section.place(key), mistake(message));
        }
    }
    outcome
}

fn limits(
    rule: &Section<'_>,
    sources: Option<&Sources>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Vec<Limit>, Reported> {
    let nodes = rule.some_nodes("limits", diagnostics);
    let nodes = rule.required("limits", diagnostics, nodes)?;
    if let Some(node) = nodes.get(MAX_LIMITS) {
        let message = format!("the rule has {} limits", nodes.len());
        let mistake = Mistake::new(Code::TooMany, message).expected(format!("at most {MAX_LIMITS} limits"));
        return Err(diagnostics.error(node.place, mistake));
    }
    let read: Vec<_> = nodes.iter().map(|node| (node.place, limit(node, diagnostics))).collect();
    let good: Vec<_> = read.iter().filter_map(|(place, limit)| Some((*place, limit.ok()?))).collect();
    warnings::limits(&good, sources, diagnostics);
    all(read.into_iter().map(|(_, limit)| limit))
}

fn limit(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Limit, Reported> {
    let section = Section::open(&shape::LIMIT, node, diagnostics)?;
    let per = match section.node("per", diagnostics) {
        Ok(Some(node)) => per(node, section.expected("per"), diagnostics).map(Some),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let per = section.required("per", diagnostics, per);
    let (unit, rate) = match (section.entry("rate"), section.entry("bandwidth")) {
        (Some(_), None) => (Unit::Packets, section.one("rate", diagnostics, rate::packets)),
        (None, Some(_)) => (Unit::Bytes, section.one("bandwidth", diagnostics, rate::bandwidth)),
        (None, None) => {
            if let Some(reported) = section.misspelt("rate").or_else(|| section.misspelt("bandwidth")) {
                return Err(reported);
            }
            let mistake =
                Mistake::new(Code::MissingKey, "a limit needs `rate` or `bandwidth`").expected(format!(
                    "rate: {}; or bandwidth: {}",
                    section.expected("rate"),
                    section.expected("bandwidth")
                ));
            return Err(diagnostics.error(node.place, mistake));
        }
        (Some(rate), Some(bandwidth)) => {
            let message = "a limit has either `rate` or `bandwidth`, and here are both";
            let mistake = Mistake::new(Code::Conflict, message).expected("two limits in the list");
            return Err(diagnostics.error(rate.place.max(bandwidth.place), mistake));
        }
    };
    let parse = match unit {
        Unit::Packets => rate::packet_burst,
        Unit::Bytes => rate::byte_burst,
    };
    let burst = section.one("burst", diagnostics, parse);
    let place = section.entry("burst").map_or(node.place, |entry| entry.value.place);
    let bucket = match (rate?, burst?) {
        (None | Some(None), None) => None,
        (None | Some(None), Some(_)) => {
            let mistake =
                Mistake::new(Code::BadBurst, "a rate of zero blocks every packet and takes no burst")
                    .expected("no `burst`, or a rate above zero");
            return Err(diagnostics.error(section.place("burst"), mistake));
        }
        (Some(Some(rate)), burst) => {
            let expected = section.expected("burst");
            let bucket = rate::bucket(unit, rate, burst);
            Some(bucket.map_err(|mistake| diagnostics.error(place, mistake.or_expected(expected)))?)
        }
    };
    Ok(Limit { per: per?, unit, bucket })
}

fn per(node: &Node, expected: &str, diagnostics: &mut Diagnostics<'_>) -> Result<Per, Reported> {
    if !matches!(node.value, Value::Mapping(_)) {
        return scalar(node, expected, diagnostics, |text| {
            choice(&[("source", Per::Source), ("rule", Per::Rule)])(text).map_err(|mistake| match text {
                "prefix" => Mistake::new(Code::BadValue, format!("{} needs its lengths", Quoted(text)))
                    .nearest(Some("{ ipv4_prefix: 24, ipv6_prefix: 48 }")),
                _ => mistake,
            })
        });
    }
    let section = Section::open(&shape::PREFIX, node, diagnostics)?;
    let ipv4_prefix = section.one("ipv4_prefix", diagnostics, prefix_length(32));
    let ipv4_prefix = section.required("ipv4_prefix", diagnostics, ipv4_prefix);
    let ipv6_prefix = section.one("ipv6_prefix", diagnostics, prefix_length(128));
    let ipv6_prefix = section.required("ipv6_prefix", diagnostics, ipv6_prefix);
    Ok(Per::Prefix { ipv4_prefix: ipv4_prefix?, ipv6_prefix: ipv6_prefix? })
}
