//! What a rules file means: checked, in base units, with every default filled in.

use std::{
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use ratelimit_common::gcra;
use serde::{Deserialize, Serialize};

use super::interface_pattern::Pattern;
pub(crate) use super::interface_pattern::is_pattern;

/// A whole rules file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Interfaces to protect, in file order; no two mean the same one.
    pub interfaces: Vec<Interface>,
    /// The layer 3/4 policy, if the file has one.
    pub network: Option<Network>,
    /// The limits on requests, if the file has any.
    pub http: Option<super::http::Http>,
    /// Who may ask the daemon over TCP.
    pub admin: Admin,
}

impl Config {
    /// The files and directories that it was read from, for a watcher.
    pub fn files(&self, rules_file: &Path) -> Vec<PathBuf> {
        let deny_files = self.network.iter().flat_map(|network| network.deny_files.iter().cloned());
        let http = self.http.iter().flat_map(|http| http.files().into_iter().map(Path::to_owned));
        let Admin { listen: _, token_file, write_token_file } = &self.admin;
        let admin = token_file.iter().chain(write_token_file).cloned();
        std::iter::once(rules_file.to_owned()).chain(deny_files).chain(http).chain(admin).collect()
    }
}

/// The admin API beside its Unix socket, which is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// A loopback address to listen on; absent: none.
    pub listen: Option<SocketAddr>,
    /// The file with the token that may look.
    pub token_file: Option<PathBuf>,
    /// The file with the token that may also change.
    pub write_token_file: Option<PathBuf>,
}

/// One interface, or a pattern of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name; or a pattern, in which `*` stands for any characters, `?` for one and `[…]` for one of those.
    pub name: String,
    /// How to attach to it.
    pub mode: AttachMode,
}

impl Interface {
    /// Whether the name is a pattern, which may mean no interface or many.
    pub fn is_pattern(&self) -> bool {
        is_pattern(&self.name)
    }

    /// Whether an interface of this name is meant. A pattern never means `lo`.
    pub fn matches(&self, name: &str) -> bool {
        Pattern::new(&self.name).is_ok_and(|pattern| pattern.matches(name))
    }
}

/// How to attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// Native, else generic with a warning that says why.
    #[default]
    Auto,
    /// In the driver, before a buffer is allocated; else an error.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

/// The layer 3/4 policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// `monitor`: count what would be shed, shed nothing.
    pub monitor: bool,
    /// What a clean stop leaves behind.
    pub on_stop: OnStop,
    /// How sources are told apart and kept.
    pub sources: Sources,
    /// Malformed frames pass instead of being dropped.
    pub malformed_pass: bool,
    /// Prefixes that beat everything, host bits zero.
    pub allow: Vec<IpNet>,
    /// Prefixes that are shed, from `deny` and all `deny_files`, host bits zero.
    pub deny: Vec<IpNet>,
    /// The rules, in file order; names are unique. At most [`ratelimit_common::policy::MAX_RULES`].
    pub rules: Vec<Rule>,
    /// The deny files as resolved against the rules file's directory, for messages and for watching.
    pub deny_files: Vec<PathBuf>,
    /// Who is never shed, on which ports.
    pub management: Vec<Management>,
    /// Blocks that commands make.
    pub blocks: Blocks,
    /// A pinned XDP program that gets what passes.
    pub next: Option<PathBuf>,
}

/// Packets of these sources to these ports are never shed; both must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Management {
    /// The sources, host bits zero.
    pub prefix: IpNet,
    /// Destination ports of TCP, UDP and SCTP.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// Blocks that commands make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// How many there may be, single addresses and prefixes each. The memory grows as they come.
    pub capacity: u32,
    /// Whose decisions are blocks as well.
    #[serde(default)]
    pub crowdsec: Option<CrowdSec>,
}

/// The local API of `CrowdSec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrowdSec {
    /// `http://HOST:PORT`, perhaps with a path, without a slash at its end.
    pub url: String,
    /// The file with the key that `cscli bouncers add` made.
    pub api_key_file: PathBuf,
    /// Between two questions.
    pub every: Duration,
}

impl CrowdSec {
    /// What [`Self::every`] may be.
    pub const EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);
    /// What it is unless the file says so.
    pub const DEFAULT_EVERY: Duration = Duration::from_secs(10);
    /// What [`Self::url`] begins with.
    pub const SCHEME: &str = "http://";

    /// Host and port.
    pub fn host(&self) -> &str {
        let rest = self.url.strip_prefix(Self::SCHEME).unwrap_or(&self.url);
        rest.split('/').next().unwrap_or_default()
    }

    /// The path before `/v1`.
    pub fn path(&self) -> &str {
        let rest = self.url.strip_prefix(Self::SCHEME).unwrap_or(&self.url);
        rest.find('/').map_or("", |slash| &rest[slash..])
    }
}

impl Management {
    /// How many prefixes there may be.
    pub const MAX: usize = ratelimit_common::policy::MAX_MANAGEMENT;
}

impl Block {
    /// What [`Self::within`] may be.
    pub const WITHIN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24);
    /// What [`Self::duration`] may be.
    pub const DURATION: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(365 * 24);
}

impl Blocks {
    /// The capacities that may be asked for.
    pub const CAPACITY: RangeInclusive<u32> = 1024..=1 << 22;
}

impl Default for Blocks {
    fn default() -> Self {
        Self { capacity: 1 << 20, crowdsec: None }
    }
}

/// What a clean stop leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnStop {
    /// Enforcement goes on with the last policy.
    #[default]
    Keep,
    /// Everything is detached and removed.
    Detach,
}

/// How sources are told apart and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Bits of an IPv4 source that make one client, 1 to 32. Default 32.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 source that make one client, 1 to 128. Default 64.
    pub ipv6_prefix: u8,
    /// Buckets to hold. Default 1,048,576.
    pub capacity: u32,
    /// What happens to a new source when the table is full of live buckets.
    pub when_full: WhenFull,
}

impl Sources {
    /// The capacities that a table may have.
    pub const CAPACITY: RangeInclusive<u32> = 1024..=1 << 24;
}

impl Default for Sources {
    fn default() -> Self {
        Self { ipv4_prefix: 32, ipv6_prefix: 64, capacity: 1 << 20, when_full: WhenFull::Pass }
    }
}

/// What happens to a new source when the table is full of live buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenFull {
    /// It starts with room for one packet.
    #[default]
    Pass,
    /// It inherits the debt of the bucket it displaces.
    Share,
    /// Its packets are shed.
    Drop,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Unique in the file.
    pub name: String,
    /// What it applies to.
    pub matches: Match,
    /// 1 to 4 limits; all must admit a packet.
    pub limits: Vec<Limit>,
    /// `action: count`: refusals are counted, not shed.
    pub count_only: bool,
    /// When a source is blocked altogether.
    pub block: Option<Block>,
    /// A rule on requests puts clients under it: `shed` of its `escalate`.
    #[serde(default)]
    pub for_clients: bool,
    /// Where the rule stands in the file, 1-based.
    pub line: u32,
}

/// A source of which a rule sheds this many packets within this time is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Shed packets, 1 to 2^32 - 1.
    pub after: u32,
    /// The time to count them in, 1 s to 1 day.
    pub within: Duration,
    /// How long it is blocked, 1 s to 365 days. The key is `for`.
    pub duration: Duration,
}

/// What a rule applies to. `None` means any; conditions are ANDed, values within one are ORed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// Source prefixes, host bits zero.
    pub source: Option<Vec<IpNet>>,
    /// Destination prefixes, host bits zero.
    pub destination: Option<Vec<IpNet>>,
    /// IP protocol numbers.
    pub protocol: Option<Vec<u8>>,
    /// Source ports of TCP, UDP and SCTP.
    pub source_port: Option<Vec<RangeInclusive<u16>>>,
    /// Destination ports of TCP, UDP and SCTP.
    pub destination_port: Option<Vec<RangeInclusive<u16>>>,
    /// Which TCP flags must be set and which clear; any of the patterns.
    pub tcp_flags: Option<Vec<TcpFlags>>,
    /// ICMP types (with protocol icmp) and ICMPv6 types (with protocol icmpv6).
    pub icmp_type: Option<Vec<IcmpType>>,
    /// Which parts of datagrams.
    pub fragment: Option<Vec<FragmentKind>>,
    /// Outer VLAN ids, 0 to 4094, or untagged.
    pub vlan: Option<Vec<Vlan>>,
    /// Frame lengths in bytes.
    pub length: Option<Vec<RangeInclusive<u32>>>,
}

/// TCP flags that must be set and that must be clear; the others are ignored. Bits as in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFlags {
    /// Must be set.
    pub set: u8,
    /// Must be clear.
    pub clear: u8,
}

/// An ICMP type of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IcmpType {
    /// ICMP for IPv4.
    V4(u8),
    /// ICMPv6.
    V6(u8),
}

/// Which part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FragmentKind {
    /// A whole datagram.
    None,
    /// The first fragment.
    First,
    /// A later fragment.
    Later,
}

/// A VLAN condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vlan {
    /// The outer tag has this id.
    Id(u16),
    /// There is no tag.
    Untagged,
}

/// One limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Who shares a bucket.
    pub per: Per,
    /// Packets or bytes.
    pub unit: Unit,
    /// The rate and the burst; `None` is a rate of zero: every packet is refused.
    pub bucket: Option<Bucket>,
}

/// Who shares a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Per {
    /// One client, as [`Sources`] tells them apart.
    Source,
    /// All sources of one prefix.
    Prefix {
        /// Bits of an IPv4 source, 1 to 32.
        ipv4_prefix: u8,
        /// Bits of an IPv6 source, 1 to 128.
        ipv6_prefix: u8,
    },
    /// Everyone who meets the rule.
    Rule,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes of whole frames.
    Bytes,
}

/// A rate and a burst, known to be representable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Packets or bytes per time.
    #[serde(with = "Rate")]
    pub rate: gcra::Rate,
    /// Packets or bytes that a full bucket holds.
    pub burst: u64,
}

/// [`gcra::Rate`], as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(remote = "gcra::Rate")]
struct Rate {
    units: u64,
    nanos: u64,
}
