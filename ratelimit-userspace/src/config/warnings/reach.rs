//! The packets that a match accepts, as one set of values for each dimension.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::{
    policy::{FragmentKind, IcmpType, Match, Vlan},
    value::{
        MAX_LENGTH,
        header::{ICMP, ICMPV6, TCP, WITH_PORTS},
    },
};

/// The values of a dimension within [`Reach::bits`]; the last one stands for packets without the value,
/// where there can be such.
#[derive(Clone, Copy)]
struct Dimension {
    start: usize,
    len: usize,
}

const PROTOCOL: Dimension = Dimension { start: 0, len: 257 };
const TCP_FLAGS: Dimension = PROTOCOL.then(257);
const ICMP_TYPE: Dimension = TCP_FLAGS.then(513);
const FRAGMENT: Dimension = ICMP_TYPE.then(3);
const VLAN: Dimension = FRAGMENT.then(4096);
const SOURCE_PORT: Dimension = VLAN.then(65_537);
const DESTINATION_PORT: Dimension = SOURCE_PORT.then(65_537);
const LENGTH: Dimension = DESTINATION_PORT.then(65_536);
const DIMENSIONS: [Dimension; 8] =
    [PROTOCOL, TCP_FLAGS, ICMP_TYPE, FRAGMENT, VLAN, SOURCE_PORT, DESTINATION_PORT, LENGTH];

/// Untagged packets are the last value of [`VLAN`].
const UNTAGGED: usize = 4095;
/// The least IP packet: an Ethernet header and an IPv4 header.
const MIN_LENGTH: usize = 34;

/// A set of packets.
#[derive(Clone)]
pub(super) struct Reach {
    /// One bit for each value of each dimension.
    bits: Vec<u64>,
    /// Merged and sorted.
    source: Vec<IpNet>,
    /// Merged and sorted.
    destination: Vec<IpNet>,
    /// A condition needs a transport header of one of these protocols.
    needs: Vec<Vec<u8>>,
}

impl Dimension {
    const fn then(self, len: usize) -> Self {
        // Whole words, so that two dimensions never share one.
        Self { start: (self.start + self.len).next_multiple_of(64), len }
    }
}

// === impl Reach ===

impl Reach {
    /// What the conditions accept, each taken for itself.
    pub(super) fn of(matches: &Match) -> Self {
        let Match {
            source,
            destination,
            protocol,
            source_port,
            destination_port,
            tcp_flags,
            icmp_type,
            fragment,
            vlan,
            length,
        } = matches;
        let everything = || vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let mut reach = Self {
            bits: vec![0; (LENGTH.start + LENGTH.len).div_ceil(64)],
            source: source.as_deref().map_or_else(everything, merged),
            destination: destination.as_deref().map_or_else(everything, merged),
            needs: Vec::new(),
        };
        reach.accept(PROTOCOL, protocol.as_deref(), |&number| {
            [(usize::from(number), usize::from(number))].into()
        });
        for (dimension, ports) in [(SOURCE_PORT, source_port), (DESTINATION_PORT, destination_port)] {
            reach.accept(dimension, ports.as_deref(), |range| {
                [(usize::from(*range.start()), usize::from(*range.end()))].into()
            });
            if ports.is_some() {
                reach.needs.push(WITH_PORTS.to_vec());
            }
        }
        reach.accept(TCP_FLAGS, tcp_flags.as_deref(), |pattern| {
            let fits = |flags: &u8| flags & pattern.set == pattern.set && flags & pattern.clear == 0;
            (0..=u8::MAX).filter(fits).map(|flags| (usize::from(flags), usize::from(flags))).collect()
        });
        if tcp_flags.is_some() {
            reach.needs.push(vec![TCP]);
        }
        let icmp = |icmp_type: &IcmpType| match icmp_type {
            IcmpType::V4(number) => (ICMP, usize::from(*number)),
            IcmpType::V6(number) => (ICMPV6, 256 + usize::from(*number)),
        };
        reach.accept(ICMP_TYPE, icmp_type.as_deref(), |icmp_type| {
            vec![(icmp(icmp_type).1, icmp(icmp_type).1)]
        });
        if let Some(types) = icmp_type {
            reach.needs.push(types.iter().map(|icmp_type| icmp(icmp_type).0).collect());
        }
        reach.accept(FRAGMENT, fragment.as_deref(), |kind| {
            let kind = kind_bit(*kind);
            vec![(kind, kind)]
        });
        reach.accept(VLAN, vlan.as_deref(), |vlan| match vlan {
            Vlan::Id(id) => vec![(usize::from(*id), usize::from(*id))],
            Vlan::Untagged => vec![(UNTAGGED, UNTAGGED)],
        });
        reach.accept(LENGTH, length.as_deref(), |range| {
            let cap = |length: u32| usize::try_from(length.min(MAX_LENGTH)).unwrap_or(usize::MAX);
            vec![(cap(*range.start()), cap(*range.end()))]
        });
        reach
    }

    /// What can really be met: what one condition implies for the other dimensions is taken into account.
    pub(super) fn possible(&self) -> Self {
        let mut met = self.clone();
        for protocols in &self.needs {
            met.keep(PROTOCOL, |value| protocols.iter().any(|&number| usize::from(number) == value));
            // A later fragment has no transport header.
            met.keep(FRAGMENT, |kind| kind != kind_bit(FragmentKind::Later));
        }
        met.keep(LENGTH, |length| length >= MIN_LENGTH);
        // Both addresses of a packet are of one family.
        let families =
            |nets: &[IpNet]| [true, false].map(|v4| nets.iter().any(|net| net.addr().is_ipv4() == v4));
        let (source, destination) = (families(&self.source), families(&self.destination));
        let both = |net: &IpNet| {
            let family = usize::from(!net.addr().is_ipv4());
            source[family] && destination[family]
        };
        met.source.retain(both);
        met.destination.retain(both);
        met
    }

    /// No packet at all.
    pub(super) fn is_empty(&self) -> bool {
        self.source.is_empty()
            || self.destination.is_empty()
            || DIMENSIONS.iter().any(|&dimension| self.words(dimension).iter().all(|&word| word == 0))
    }

    /// Every packet of this set is also in the other.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).all(|(a, b)| a & !b == 0)
            && nets_are_within(&self.source, &other.source)
            && nets_are_within(&self.destination, &other.destination)
    }

    /// Every source is in one of these prefixes, which are merged and sorted.
    pub(super) fn sources_are_within(&self, nets: &[IpNet]) -> bool {
        nets_are_within(&self.source, nets)
    }

    pub(super) fn has_protocol(&self, protocol: u8) -> bool {
        self.has(PROTOCOL, usize::from(protocol))
    }

    pub(super) fn has_tcp_flags(&self, flags: u8) -> bool {
        self.has(TCP_FLAGS, usize::from(flags))
    }

    /// Nothing but TCP, in segments that have ACK set and SYN clear.
    pub(super) fn is_established_tcp(&self) -> bool {
        const SYN: usize = 0x02;
        const ACK: usize = 0x10;
        (0..PROTOCOL.len).all(|value| value == usize::from(TCP) || !self.has(PROTOCOL, value))
            && (0..TCP_FLAGS.len).all(|flags| {
                let fits = flags < 256 && flags & (SYN | ACK) == ACK;
                fits || !self.has(TCP_FLAGS, flags)
            })
    }

    pub(super) fn has_whole_datagrams(&self) -> bool {
        self.has(FRAGMENT, kind_bit(FragmentKind::None))
    }

    /// All ports from the first to the last.
    pub(super) fn has_destination_ports(&self, [first, last]: [u16; 2]) -> bool {
        (first..=last).all(|port| self.has(DESTINATION_PORT, usize::from(port)))
    }

    /// All sources and destinations of at least one family.
    pub(super) fn has_every_address(&self) -> bool {
        let every = |nets: &[IpNet], v4: bool| {
            nets.iter().any(|net| net.prefix_len() == 0 && net.addr().is_ipv4() == v4)
        };
        [true, false].into_iter().any(|v4| every(&self.source, v4) && every(&self.destination, v4))
    }

    /// Accepts the inclusive ranges of all values of a condition, or all there are without one.
    fn accept<T>(
        &mut self,
        dimension: Dimension,
        values: Option<&[T]>,
        ranges: impl Fn(&T) -> Vec<(usize, usize)>,
    ) {
        match values {
            None => self.fill(dimension, 0, dimension.len - 1),
            Some(values) => {
                for (first, last) in values.iter().flat_map(ranges) {
                    self.fill(dimension, first, last);
                }
            }
        }
    }

    fn fill(&mut self, dimension: Dimension, first: usize, last: usize) {
        let (first, last) = (dimension.start + first, dimension.start + last);
        for word in first / 64..=last / 64 {
            let from = first.max(word * 64) % 64;
            let to = last.min(word * 64 + 63) % 64;
            self.bits[word] |= (u64::MAX << from) & (u64::MAX >> (63 - to));
        }
    }

    fn keep(&mut self, dimension: Dimension, wanted: impl Fn(usize) -> bool) {
        for value in 0..dimension.len {
            if !wanted(value) {
                let bit = dimension.start + value;
                self.bits[bit / 64] &= !(1 << (bit % 64));
            }
        }
    }

    fn has(&self, dimension: Dimension, value: usize) -> bool {
        let bit = dimension.start + value;
        self.bits[bit / 64] & (1 << (bit % 64)) != 0
    }

    fn words(&self, dimension: Dimension) -> &[u64] {
        &self.bits[dimension.start / 64..(dimension.start + dimension.len).div_ceil(64)]
    }
}

const fn kind_bit(kind: FragmentKind) -> usize {
    match kind {
        FragmentKind::None => 0,
        FragmentKind::First => 1,
        FragmentKind::Later => 2,
    }
}

/// Disjoint prefixes in order that cover the same addresses.
pub(super) fn merged(nets: &[IpNet]) -> Vec<IpNet> {
    let mut merged = IpNet::aggregate(&nets.to_vec());
    merged.sort_unstable();
    merged
}

/// Each prefix lies in one of the others, which are merged and sorted.
pub(super) fn nets_are_within(nets: &[IpNet], others: &[IpNet]) -> bool {
    nets.iter().all(|net| {
        let before = others.partition_point(|other| other.network() <= net.network());
        before.checked_sub(1).is_some_and(|index| others[index].contains(net))
    })
}
