//! What the XDP program writes and userspace reads: counters, and the exchange of a replayed packet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::policy::MAX_LIMITS;

/// Version of every layout in this crate that outlives a process. It is part of the directory in which
/// state maps are pinned, so two builds that disagree never use the same pins.
///
/// A build takes over the maps of another version that look the same to the kernel. So a map whose contents
/// come to mean something else in the same sizes must get another name as well.
pub const ABI_VERSION: u32 = if cfg!(feature = "next-abi") { 4 } else { 3 };

/// Packets and bytes of whole frames. Per CPU, so adding is one plain instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Their whole length as XDP sees it, in bytes.
    pub bytes: u64,
}

/// What became of the packets that met one rule. Every packet is in exactly one tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RuleCounters {
    /// Within all limits.
    pub passed: Tally,
    /// Shed, by the limit that refused.
    pub shed: [Tally; MAX_LIMITS],
    /// Let pass although that limit refused, because the policy or the rule only monitors.
    pub would_shed: [Tally; MAX_LIMITS],
}

/// What became of the packets whose verdict has one reason. Every packet is in exactly one tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReasonCounters {
    /// Passed.
    pub passed: Tally,
    /// Shed.
    pub shed: Tally,
    /// Passed only because the policy or the rule monitors.
    pub would_shed: Tally,
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name that people and programs see.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

numbered! {
    /// Why a packet got its verdict: an index into `reason_counters`.
    Reason {
        /// The source is on the allow list.
        Allowed = "allowed",
        /// The source is on the deny list.
        Denied = "denied",
        /// The source is blocked: by a command, or by a rule that it broke too often.
        Blocked = "blocked",
        /// The source and the port are those of `management`.
        Management = "management",
        /// No rule matches.
        NoRule = "no_rule",
        /// All limits of the matching rule admit it.
        WithinLimit = "within_limit",
        /// A limit refuses it.
        Limited = "limited",
        /// The matching rule has a limit with a rate of zero.
        ZeroRate = "zero_rate",
        /// Neither IPv4 nor IPv6: ARP, LLC, LLDP, EAPOL and the like are never limited.
        NotIp = "not_ip",
        /// Neighbour discovery or multicast listener discovery, which a host needs to be reachable.
        Neighbour = "neighbour",
        /// Admitted after losing the race for a bucket several times; charged all the same.
        Raced = "raced",
        /// The frame ends within a VLAN tag, or holds more than two.
        MalformedVlan = "malformed_vlan",
        /// The IPv4 header is cut short or contradicts itself.
        MalformedIpv4 = "malformed_ipv4",
        /// The IPv6 header is cut short or contradicts itself.
        MalformedIpv6 = "malformed_ipv6",
        /// An IPv6 extension header is cut short.
        MalformedExtension = "malformed_extension",
        /// The TCP header is cut short or its length is impossible.
        MalformedTcp = "malformed_tcp",
        /// The UDP header is cut short or its length is impossible.
        MalformedUdp = "malformed_udp",
        /// The SCTP header is cut short.
        MalformedSctp = "malformed_sctp",
        /// The ICMP or ICMPv6 header is cut short.
        MalformedIcmp = "malformed_icmp",
    }
}

numbered! {
    /// Things worth counting that are no verdict: an index into `events`.
    Event {
        /// A new bucket displaced one that was not full.
        LiveEvicted = "live_evicted",
        /// A new key found only live buckets and `when_full: drop` refused the packet.
        TableFull = "table_full",
        /// The IPv6 extension header chain was longer than the walk; judged at layer 3 only.
        Ipv6ChainTooLong = "ipv6_chain_too_long",
        /// A rule blocked a source.
        BlockedByRule = "blocked_by_rule",
        /// A rule would have blocked a source, but there is no room for one more.
        NoRoomToBlock = "no_room_to_block",
        /// The transport header lies beyond the frame's first buffer; judged at layer 3 only.
        BeyondFirstBuffer = "beyond_first_buffer",
        /// A refused packet was to be told of, and the ring of records was full.
        SamplesLost = "samples_lost",
    }
}

/// The exchange of one replayed packet, used only by programs loaded with [`crate::policy::stage::REPLAY`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Replay {
    /// In: nanoseconds on the virtual clock.
    pub now: u64,
    /// In: length of the frame on the wire; bytes of it that are not in the data were cut by the capture.
    pub length: u32,
    /// Out: a [`Reason`].
    pub reason: u32,
    /// Out: index of the rule that matched, or [`Replay::NONE`].
    pub rule: u32,
    /// Out: index of the limit that refused, or [`Replay::NONE`].
    pub limit: u32,
    /// Out: 1 when the packet passes only because something monitors.
    pub would_drop: u32,
    /// Out: 1 when the capture's cut hid a header that the packet has.
    pub cut: u32,
}

impl Replay {
    /// No rule, or no limit.
    pub const NONE: u32 = u32::MAX;
}

#[cfg(feature = "user")]
mod pod {
    use super::{ReasonCounters, Replay, RuleCounters, Tally};

    // SAFETY: repr(C), no padding and no invalid bit pattern, both checked by zerocopy's derives.
    unsafe impl aya::Pod for Tally {}
    // SAFETY: as above.
    unsafe impl aya::Pod for RuleCounters {}
    // SAFETY: as above.
    unsafe impl aya::Pod for ReasonCounters {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Replay {}
}
