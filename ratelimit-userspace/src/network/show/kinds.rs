//! The kinds of packets that the rules tell apart, and which rule each of them meets when it comes from one
//! address.

use std::{collections::BTreeSet, net::IpAddr, ops::RangeInclusive};

use ratelimit_common::packet::{Fragment, Packet};

use crate::{
    config::policy::{FragmentKind, IcmpType, Match, Rule, Vlan},
    network::{
        description,
        explain::{Question, Unclear},
        in_force::Policy,
    },
};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const SCTP: u8 = 132;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// A protocol number that nobody has (RFC 3692).
const UNNAMED: u8 = 253;
/// ICMP types that nobody has.
const UNNAMED_TYPE: u8 = 254;
/// Ranges of ports that are written out.
const SHOWN: usize = 5;
/// One more than the last port.
const PORTS: u32 = 1 << 16;

/// Packets that meet one rule, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Which packets.
    pub(super) words: String,
    /// The index of the rule.
    pub(super) met: Option<usize>,
}

/// All kinds of packets from a source that the rules tell apart, as far as examples show. `under`: the rule that
/// it is put under.
pub(super) fn kinds(policy: &Policy, source: IpAddr, under: Option<usize>) -> Vec<Kind> {
    let asker = Asker { policy, source, under };
    let named = |number: u8| {
        let protocols = policy.network.rules.iter().filter_map(|rule| rule.matches.protocol.as_ref());
        protocols.flatten().any(|named| *named == number)
    };
    let (syn, data) = (asker.by_port(TCP, Some(SYN)), asker.by_port(TCP, Some(ACK)));
    let mut kinds = if syn == data {
        to_ports("tcp", &data)
    } else {
        [to_ports("tcp syn", &syn), to_ports("other tcp", &data)].concat()
    };
    kinds.extend(to_ports("udp", &asker.by_port(UDP, None)));
    if named(SCTP) {
        kinds.extend(to_ports("sctp", &asker.by_port(SCTP, None)));
    }
    kinds.extend(asker.by_icmp_type());
    kinds.extend(asker.by_protocol());
    let met: BTreeSet<_> = kinds.iter().filter_map(|kind| kind.met).collect();
    let rules = policy.network.rules.iter().enumerate();
    kinds.extend(
        rules
            .filter(|(index, _)| !met.contains(index))
            .filter_map(|(index, rule)| asker.example(index, rule)),
    );
    kinds
}

/// Destination ports whose packets meet one rule, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    ranges: Vec<RangeInclusive<u16>>,
    met: Option<usize>,
}

/// Asks which rule a packet of the source meets.
struct Asker<'a> {
    policy: &'a Policy,
    source: IpAddr,
    /// The rule that it is put under.
    under: Option<usize>,
}

// === impl Asker ===

impl Asker<'_> {
    /// The rule that this packet meets, if any; `None`: there is no such packet.
    #[expect(clippy::option_option, reason = "no packet is not the same as no rule")]
    fn met(&self, packet: Unclear) -> Option<Option<usize>> {
        let Question { packet, length, .. } = packet.clear(self.source).ok()?;
        // Never limited, so no rule is met.
        (!packet.neighbour).then(|| self.policy.compiled.classify_under(&packet, length, self.under))
    }

    fn ipv4(&self) -> bool {
        self.source.to_canonical().is_ipv4()
    }

    /// By destination port, as finely as the rules tell them apart.
    fn by_port(&self, protocol: u8, flags: Option<u8>) -> Vec<Ports> {
        let ranges =
            self.policy.network.rules.iter().filter_map(|rule| rule.matches.destination_port.as_ref());
        let mut starts = BTreeSet::from([0]);
        for range in ranges.flatten() {
            starts.insert(u32::from(*range.start()));
            starts.insert(u32::from(*range.end()) + 1);
        }
        starts.remove(&PORTS);
        let mut all: Vec<Ports> = Vec::new();
        let ends = starts.iter().skip(1).copied().chain([PORTS]);
        for (start, end) in starts.iter().zip(ends) {
            let (Ok(first), Ok(last)) = (u16::try_from(*start), u16::try_from(end - 1)) else { continue };
            let destination_port = Some(first);
            let packet = Unclear { protocol: Some(protocol), destination_port, flags, ..Unclear::default() };
            let Some(met) = self.met(packet) else { continue };
            match all.iter_mut().find(|ports| ports.met == met) {
                Some(ports) => ports.add(first..=last),
                None => all.push(Ports { ranges: vec![first..=last], met }),
            }
        }
        all
    }

    /// By ICMP type, those that rules name apart from the others.
    fn by_icmp_type(&self) -> Vec<Kind> {
        let (name, protocol) = if self.ipv4() { ("icmp", ICMP) } else { ("icmpv6", ICMP_V6) };
        let types = self.policy.network.rules.iter().filter_map(|rule| rule.matches.icmp_type.as_ref());
        let named: BTreeSet<u8> = types
            .flatten()
            .filter_map(|kind| match *kind {
                IcmpType::V4(number) => self.ipv4().then_some(number),
                IcmpType::V6(number) => (!self.ipv4()).then_some(number),
            })
            .collect();
        let ask = |number| {
            self.met(Unclear { protocol: Some(protocol), icmp_type: Some(number), ..Unclear::default() })
        };
        let Some(others) = ask(UNNAMED_TYPE) else { return Vec::new() };
        let mut kinds: Vec<Kind> = Vec::new();
        for number in named {
            if let Some(met) = ask(number).filter(|met| *met != others) {
                kinds.push(Kind { words: format!("{name} type {number}"), met });
            }
        }
        let words = if kinds.is_empty() { name.to_owned() } else { format!("other {name}") };
        kinds.push(Kind { words, met: others });
        kinds
    }

    /// Protocols that rules name and that have neither ports nor types, and all that they do not name.
    fn by_protocol(&self) -> Vec<Kind> {
        let protocols = self.policy.network.rules.iter().filter_map(|rule| rule.matches.protocol.as_ref());
        let mut named: BTreeSet<u8> = protocols.flatten().copied().collect();
        for covered in [ICMP, TCP, UDP, ICMP_V6, SCTP] {
            named.remove(&covered);
        }
        let ask = |number| self.met(Unclear { protocol: Some(number), ..Unclear::default() });
        let mut kinds: Vec<Kind> = named
            .into_iter()
            .filter_map(|number| Some(Kind { words: description::protocol_name(number), met: ask(number)? }))
            .collect();
        kinds.extend(ask(UNNAMED).map(|met| Kind { words: "other protocols".to_owned(), met }));
        kinds
    }

    /// A packet made of a rule's own conditions, if it meets that rule.
    fn example(&self, index: usize, rule: &Rule) -> Option<Kind> {
        let examples = [Pick::First, Pick::Last].map(|pick| self.made_of(&rule.matches, pick));
        let met = examples.into_iter().flatten().any(|(packet, length)| {
            let met = self.policy.compiled.classify_under(&packet, length, self.under);
            !packet.neighbour && met == Some(index)
        });
        met.then(|| Kind { words: description::matches(&rule.matches), met: Some(index) })
    }

    /// A packet that meets conditions as far as they can be met from this source.
    fn made_of(&self, matches: &Match, pick: Pick) -> Option<(Packet, u32)> {
        let own_family = |prefix: &&ipnet::IpNet| prefix.addr().is_ipv4() == self.ipv4();
        let protocol = match &matches.protocol {
            Some(protocols) => *pick.of(protocols.iter())?,
            None if matches.icmp_type.is_some() => {
                if self.ipv4() {
                    ICMP
                } else {
                    ICMP_V6
                }
            }
            None if matches.tcp_flags.is_some() => TCP,
            None => UDP,
        };
        let port = |condition: &Option<Vec<RangeInclusive<u16>>>| {
            Some(*pick.of(condition.as_ref()?.iter())?.start())
        };
        let destination = match &matches.destination {
            Some(prefixes) => Some(pick.of(prefixes.iter().filter(own_family))?.addr()),
            None => None,
        };
        let packet = Unclear {
            protocol: Some(protocol),
            destination,
            source_port: port(&matches.source_port),
            destination_port: port(&matches.destination_port),
            flags: matches.tcp_flags.as_ref().and_then(|it| pick.of(it.iter())).map(|pattern| pattern.set),
            icmp_type: matches.icmp_type.as_ref().and_then(|it| pick.of(it.iter())).map(|kind| match *kind {
                IcmpType::V4(number) | IcmpType::V6(number) => number,
            }),
            fragment: matches.fragment.as_ref().and_then(|it| pick.of(it.iter())).map(|kind| match kind {
                FragmentKind::None => Fragment::None,
                FragmentKind::First => Fragment::First,
                FragmentKind::Later => Fragment::Later,
            }),
            vlan: match matches.vlan.as_ref().and_then(|it| pick.of(it.iter())) {
                Some(Vlan::Id(id)) => Some(*id),
                Some(Vlan::Untagged) | None => None,
            },
            length: matches.length.as_ref().and_then(|it| pick.of(it.iter())).map(|range| *range.start()),
        };
        let Question { packet, length, .. } = packet.clear(self.source).ok()?;
        Some((packet, length))
    }
}

// === impl Ports ===

impl Ports {
    /// Adds the ports that follow.
    fn add(&mut self, more: RangeInclusive<u16>) {
        match self.ranges.last_mut() {
            Some(range) if u32::from(*range.end()) + 1 == u32::from(*more.start()) => {
                *range = *range.start()..=*more.end();
            }
            _ => self.ranges.push(more),
        }
    }

    fn count(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Packets by their ports: the largest group is called the others, and comes last.
fn to_ports(name: &str, all: &[Ports]) -> Vec<Kind> {
    if let [only] = all {
        return vec![Kind { words: name.to_owned(), met: only.met }];
    }
    let largest = all.iter().map(Ports::count).max().unwrap_or(0);
    let (others, named): (Vec<&Ports>, Vec<&Ports>) = all.iter().partition(|ports| ports.count() == largest);
    let words = |ports: &Ports| match &ports.ranges[..] {
        [one] if one.start() == one.end() => format!("{name} to port {}", one.start()),
        ranges => format!("{name} to ports {}", list(ranges)),
    };
    let named = named.into_iter().map(|ports| Kind { words: words(ports), met: ports.met });
    let others =
        others.into_iter().map(|ports| Kind { words: format!("{name} to other ports"), met: ports.met });
    named.chain(others).collect()
}

/// Which of several values an example has.
#[derive(Clone, Copy)]
enum Pick {
    First,
    Last,
}

impl Pick {
    fn of<T>(self, mut values: impl DoubleEndedIterator<Item = T>) -> Option<T> {
        match self {
            Self::First => values.next(),
            Self::Last => values.next_back(),
        }
    }
}

// === words ===

/// A port, or a range of them.
pub(super) fn range(range: &RangeInclusive<u16>) -> String {
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{}-{}", range.start(), range.end())
    }
}

fn list(ranges: &[RangeInclusive<u16>]) -> String {
    let shown: Vec<_> = ranges.iter().take(SHOWN).map(range).collect();
    let more = ranges.len().saturating_sub(SHOWN);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}
