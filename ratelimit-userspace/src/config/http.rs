//! What the `http:` section and its rule files mean: checked, in base units, with every default filled in.

mod access;
mod domain;
mod entry;
mod escalate;
mod identify;
mod labels;
mod limit;
mod overrides;
mod read;
mod rule;
mod rule_files;

use std::{
    fmt,
    net::SocketAddr,
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::Arc,
};

use ipnet::IpNet;
use jiff::tz::TimeZone;

pub use self::escalate::{ADDRESS_KEYS, Escalate};
pub(super) use self::read::read;

/// The whole `http:` section.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Where check, forward authentication and `/json` listen.
    pub listen: Option<Listen>,
    /// Where Envoy's rate-limit service listens.
    pub grpc_listen: Option<Listen>,
    /// The directories or files that `rules` names, as resolved, for messages and for watching.
    pub rule_paths: Vec<PathBuf>,
    /// What the rule files say, one entry a domain; names are unique.
    pub domains: Vec<Domain>,
    /// Peers whose forwarding headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Where the address of a client stands.
    pub client_address: ClientAddress,
    /// Counters that memory holds at most.
    pub max_keys: usize,
    /// What happens to a new counter when memory is full.
    pub on_full: OnFull,
    /// What a request is; the first that matches decides.
    pub identify: Vec<Identify>,
    /// Who may ask from elsewhere than this host.
    pub access: Access,
    /// What a refusal looks like to a client.
    pub answer: Answer,
    /// Where counters of long windows and the key of identities outlive a restart; absent: they do not.
    pub state_dir: Option<PathBuf>,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket, `unix:PATH`.
    Unix(PathBuf),
}

/// Where the address of a client stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// It is the peer of the connection.
    #[default]
    Peer,
    /// `X-Forwarded-For`, as far as trusted proxies wrote it.
    XForwardedFor,
    /// `Forwarded` (RFC 7239), as far as trusted proxies wrote it.
    Forwarded,
}

/// What happens to a new counter when memory is full of counters that are not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It displaces the counter that is nearest to whole, of a sample.
    #[default]
    Evict,
    /// Its request is refused.
    Deny,
    /// Its request passes uncounted.
    Allow,
}

/// Who may ask from elsewhere than this host. Loopback peers and peers on a Unix socket may do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Peers that may ask for decisions.
    pub allow_from: Vec<IpNet>,
    /// A file with the bearer token that lets any peer ask for decisions.
    pub token_file: Option<PathBuf>,
    /// A file with the bearer token that also allows refunds, overrides, commits and resets.
    pub write_token_file: Option<PathBuf>,
}

/// What a refusal looks like to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `X-Ratelimit-Limit`, `-Remaining`, `-Retry-After`.
    pub x_ratelimit: bool,
    /// `Retry-After`.
    pub retry_after: bool,
    /// The IETF fields `RateLimit` and `RateLimit-Policy`.
    pub ietf: bool,
    /// The `detail` of the problem body, in place of the built-in words.
    pub text: Option<String>,
}

/// One domain: the rules of one rule file.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Whose matching, windows and charging.
    pub compatibility: Compatibility,
    /// The descriptor tree, in file order.
    pub descriptors: Vec<Descriptor>,
}

/// Whose matching, windows and charging a domain follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compatibility {
    /// Ours: longest wildcard first, all counters charged or none.
    #[default]
    Native,
    /// Envoy's: fixed windows aligned to the epoch, first wildcard in file order, every counter charged.
    Envoy,
}

/// A node of the descriptor tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// The key of the entry that it matches.
    pub key: String,
    /// The value of the entry that it matches.
    pub value: ValuePattern,
    /// All values that a wildcard matches share one counter.
    pub share_threshold: bool,
    /// The rule at this depth.
    pub rule: Option<Rule>,
    /// What follows.
    pub descriptors: Vec<Descriptor>,
    /// Where it stands in its file, 1-based.
    pub line: u32,
}

/// Which values match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValuePattern {
    /// Every one, each with its own counter.
    Any,
    /// This one.
    Exact(String),
    /// Those that start so (`prefix*`), each with its own counter.
    Prefix(String),
}

/// A `rate_limit` with everything around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// `name`, which also is what `replaces` refers to.
    pub name: Option<String>,
    /// The limit; `None`: unlimited.
    pub limit: Option<Arc<Limit>>,
    /// Evaluated and charged, but never denies and never shows.
    pub shadow: bool,
    /// Denies only if all quota descriptors of the request do.
    pub quota: bool,
    /// Names of rules that do not apply while this one does.
    pub replaces: Vec<String>,
    /// Units that one hit costs; at least 1.
    pub cost: u64,
    /// Limits for some values or tiers, in file order.
    pub overrides: Vec<Override>,
    /// When clients that it denies have their packets shed.
    pub escalate: Option<Escalate>,
}

/// Another limit for some values or tiers. At least one of `value` and `tier` is there, and all that are
/// there must match. The most specific wins: exact value and tier, exact value, longest prefix and tier,
/// longest prefix, tier; among equals the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The value of the rule's own (last) entry. Never [`ValuePattern::Any`].
    pub value: Option<ValuePattern>,
    /// The tier of the request.
    pub tier: Option<String>,
    /// The limit, with what it leaves out taken from the rule; `None`: unlimited.
    pub limit: Option<Arc<Limit>>,
}

/// How much in what time, and how it is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Units a window, `requests_per_unit`; 0 blocks.
    pub units: u64,
    /// The window.
    pub window: Window,
    /// How it is counted.
    pub algorithm: Algorithm,
    /// Where windows and refills begin. [`Align::Epoch`] where the algorithm has none.
    pub align: Align,
    /// Requests are charged whatever the outcome.
    pub count_denied: bool,
    /// `enforcement: soft`: thousandths of the limit that are admitted above it, flagged. 0: hard.
    pub soft_margin_permille: u32,
}

/// The length of a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Window {
    /// Always the same, in nanoseconds; at most [`MAX_WINDOW_NANOS`].
    Fixed(NonZeroU64),
    /// As the calendar has it (`align: calendar`). Only for fixed and sliding windows.
    Calendar(CalendarUnit, TimeZone),
}

/// Ten years, so that `units * nanoseconds` stays below 2^123.
pub const MAX_WINDOW_NANOS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// A unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From midnight.
    Day,
    /// From Monday.
    Week,
    /// From the first.
    Month,
}

/// Where windows and refills begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At multiples of the window since the Unix epoch (or where the calendar says).
    #[default]
    Epoch,
    /// At the first request that was charged while the counter was whole.
    First,
}

/// How a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `floor(previous * overlap + current) + cost <= units`; `ceil` with `round_up`.
    SlidingWindow {
        /// `rounding: up`.
        round_up: bool,
    },
    /// The sum over this segment and the ones before it that make a window. The window is a whole number
    /// of nanoseconds times `segments`.
    Segments {
        /// Segments a window; at least 2.
        segments: u32,
    },
    /// Every request of the half-open window `(t - window, t]`, one by one.
    SlidingLog,
    /// Everything since the window began.
    FixedWindow,
    /// The same, and the count goes on above the limit (`compatibility: envoy`).
    EnvoyWindow,
    /// Room for `burst`, filled at `units` a window.
    TokenBucket {
        /// The capacity.
        burst: u64,
        /// `refill: interval`: `units` at once when a window ends, instead of evenly.
        interval: bool,
    },
    /// A queue of `burst` that drains evenly at `units` a window.
    LeakyBucket {
        /// The capacity.
        burst: u64,
        /// `on_limit: delay`: the request is told to wait for those before it, at most this many
        /// nanoseconds. `None`: it is admitted or refused at once.
        max_delay: Option<u64>,
    },
}

/// What a request is.
#[derive(Clone, Debug, PartialEq)]
pub struct Identify {
    /// Which requests.
    pub matches: RequestMatch,
    /// The domain whose rules apply.
    pub domain: String,
    /// The descriptors to make, each a list of entries.
    pub descriptors: Vec<Vec<EntrySource>>,
    /// Where it stands in the file, 1-based.
    pub line: u32,
}

/// Which requests an [`Identify`] is for. What is empty matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestMatch {
    /// Patterns for the normalised path: `*` within a segment, `**` over segments.
    pub paths: Vec<String>,
    /// Methods, as in the request.
    pub methods: Vec<String>,
    /// Hosts in lower case, without ports; a leading `*.` stands for any one or more labels.
    pub hosts: Vec<String>,
}

/// One entry of a descriptor and where its value comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct EntrySource {
    /// The key of the entry.
    pub key: String,
    /// Where the value comes from.
    pub source: Source,
    /// The value is replaced by its HMAC before anything else sees it.
    pub secret: bool,
    /// What becomes of the descriptor when there is no value.
    pub missing: Missing,
}

/// Where the value of an entry comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The client's address, cut to a prefix.
    ClientIp {
        /// Bits that are kept of an IPv4 address, 1 to 32. Default 32.
        ipv4_prefix: u8,
        /// Bits that are kept of an IPv6 address, 1 to 128. Default 64.
        ipv6_prefix: u8,
    },
    /// A header, its lines joined by `, `.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A query parameter, decoded; the first of its name.
    Query(String),
    /// The method.
    Method,
    /// The host, in lower case and without port.
    Host,
    /// The normalised path.
    Path,
    /// A path template such as `/api/users/{id}`: missing unless the path has its form. The value is the
    /// template's text, or what stands in the place of `capture`.
    PathTemplate {
        /// The template.
        template: String,
        /// Which placeholder is the value.
        capture: Option<String>,
    },
    /// The first path segment of the form `v` and digits, or the version in a header or in the media type
    /// of `Accept` (`application/vnd.example.v2+json`, `; version=2`).
    ApiVersion(ApiVersion),
    /// The label of the longest prefix in a file that holds the client's address.
    Network(Arc<NetworkLabels>),
    /// The label in a map file of another entry's value.
    Mapped {
        /// Key of the entry, which stands in some descriptor of the same `identify` item.
        by: String,
        /// The map.
        labels: Arc<ValueLabels>,
    },
    /// Always the same.
    Constant(String),
}

/// Where a request says which version of an API it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    /// The first path segment of the form `v` and digits.
    Path,
    /// A header.
    Header(String),
    /// The media type of `Accept`.
    Accept,
}

/// A prefix file: `PREFIX LABEL` a line.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkLabels {
    /// The file.
    pub file: PathBuf,
    /// Prefixes (host bits zero) and their labels, sorted by prefix, each prefix once.
    pub prefixes: Vec<(IpNet, Arc<str>)>,
}

/// A map file: `VALUE LABEL` a line.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueLabels {
    /// The file.
    pub file: PathBuf,
    /// Values and their labels, sorted by value, each value once.
    pub values: Vec<(String, Arc<str>)>,
}

/// What becomes of a descriptor when one of its entries has no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The descriptor is left out (Envoy's rule).
    #[default]
    Skip,
    /// The value is the empty text.
    Empty,
    /// The request is refused.
    Deny,
}

// === impl Listen ===

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

// === impl Domain ===

impl Domain {
    /// Rules in the whole tree.
    pub fn rule_count(&self) -> usize {
        fn count(descriptors: &[Descriptor]) -> usize {
            let one = |descriptor: &Descriptor| {
                usize::from(descriptor.rule.is_some()) + count(&descriptor.descriptors)
            };
            descriptors.iter().map(one).sum()
        }
        count(&self.descriptors)
    }

    /// Whether any rule of the tree has clients' packets shed.
    pub fn escalates(&self) -> bool {
        self.escalating().next().is_some()
    }

    /// What the rules of the tree that have clients' packets shed say of it.
    pub fn escalating(&self) -> impl Iterator<Item = &Escalate> {
        let mut left: Vec<_> = self.descriptors.iter().collect();
        std::iter::from_fn(move || {
            let descriptor = left.pop()?;
            left.extend(&descriptor.descriptors);
            Some(descriptor.rule.as_ref().and_then(|rule| rule.escalate.as_ref()))
        })
        .flatten()
    }
}

// === impl Http ===

impl Http {
    /// What the configuration was read from besides the rules file itself: rule directories and files, prefix
    /// files, map files, token files. Each once, for a watcher.
    pub fn files(&self) -> Vec<&Path> {
        let entries = self.identify.iter().flat_map(|item| item.descriptors.iter().flatten());
        let labels = entries.filter_map(|entry| match &entry.source {
            Source::Network(labels) => Some(labels.file.as_path()),
            Source::Mapped { labels, .. } => Some(labels.file.as_path()),
            _ => None,
        });
        let tokens = [&self.access.token_file, &self.access.write_token_file].into_iter().flatten();
        let named = self.rule_paths.iter().chain(tokens).map(PathBuf::as_path);
        let mut files: Vec<_> = named.chain(labels).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}
