//! The rows of the benchmark: what is measured, and the figures.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::bench::report::{Outcome, Summary};

/// One figure, or the reason why there is none. Serialised, these are the elements of the JSON array.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "bench", rename_all = "snake_case")]
pub(super) enum Row {
    /// What a decision costs in process, the keys coming in random order.
    Decision {
        /// Who decides, how, over how many keys.
        #[serde(flatten)]
        case: Keyed,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<PerDecision>,
    },
    /// What a key takes.
    KeyMemory {
        /// Who keeps it, how it is counted, how many there are.
        #[serde(flatten)]
        case: Keyed,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<PerKey>,
    },
    /// What a decision costs in process, among rules.
    Rules {
        /// Who decides, and how many rules there are.
        #[serde(flatten)]
        case: Ruled,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<PerDecision>,
    },
    /// What a request costs the server.
    Request {
        /// Who serves which endpoint.
        #[serde(flatten)]
        case: Served,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<PerRequest>,
    },
    /// What the daemon takes with connections that have been used once and are kept.
    IdleConnections {
        /// How many.
        connections: u32,
        /// The figure.
        #[serde(flatten)]
        outcome: Outcome<Resident>,
    },
}

/// What tells one series over many keys from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Keyed {
    /// Who decides.
    pub(super) contender: Contender,
    /// How it counts.
    pub(super) algorithm: Algorithm,
    /// Keys, all of which have a counter.
    pub(super) keys: u32,
}

/// What tells one series among rules from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ruled {
    /// Who decides.
    pub(super) contender: Contender,
    /// Rules of the domain, one of which matches.
    pub(super) rules: u32,
}

/// What tells one series of requests from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Served {
    /// Which endpoint.
    pub(super) endpoint: Endpoint,
    /// Who serves it.
    pub(super) contender: Contender,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contender {
    /// The limiter and the daemon of this workspace.
    Ratelimit,
    /// The crate of that name, keyed by one text of the whole descriptor, made beforehand.
    Governor,
    /// The crate of that name, in memory, asked about a context made beforehand.
    Limitador,
    /// A server that reads the same request and has its answer ready.
    Reference,
}

/// How a contender counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Algorithm {
    /// Governor counts so, too.
    TokenBucket,
    /// With the weighted previous window.
    SlidingWindow,
}

/// A way to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Endpoint {
    /// `POST /v1/check`, over HTTP/1.1.
    Check,
    /// Envoy's rate-limit service.
    Grpc,
}

/// The median of several runs in process.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(super) struct PerDecision {
    /// CPU nanoseconds a decision, with reading the clock and hashing.
    pub(super) ns_per_decision: f64,
    /// How many runs.
    pub(super) runs: u32,
    /// (slowest - fastest) / median.
    pub(super) spread: f64,
}

/// The median of several runs over an endpoint.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(super) struct PerRequest {
    /// CPU nanoseconds of the server's process a request.
    pub(super) cpu_ns_per_request: f64,
    /// How many runs.
    pub(super) runs: u32,
    /// (slowest - fastest) / median.
    pub(super) spread: f64,
}

/// Bytes a key.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PerKey {
    /// Everything that the limiter has allocated, as asked for, over its keys.
    pub(super) bytes_per_key: f64,
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Resident {
    /// Its resident set.
    pub(super) rss_bytes: u64,
}

/// Keys that decisions are measured over.
pub(super) const KEYS: u32 = 1_000_000;

/// Numbers of rules that decisions are measured among.
pub(super) const RULES: [u32; 2] = [1, 1_000];

/// Connections that idle.
pub(super) const CONNECTIONS: u32 = 10_000;

/// Who decides over many keys, and how.
pub(super) const DECISIONS: [(Contender, Algorithm); 3] = [
    (Contender::Ratelimit, Algorithm::TokenBucket),
    (Contender::Ratelimit, Algorithm::SlidingWindow),
    (Contender::Governor, Algorithm::TokenBucket),
];

// === impl Row ===

impl Row {
    /// What the figure is of.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Decision { case, .. } => format!("decision, {case}"),
            Self::KeyMemory { case, .. } => format!("key, {case}"),
            Self::Rules { case, .. } => format!("decision, {case}"),
            Self::Request { case, .. } => format!("request, {case}"),
            Self::IdleConnections { connections, .. } => format!("{connections} idle connections"),
        }
    }
}

// === impl Keyed ===

impl Display for Keyed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { contender, algorithm, keys } = self;
        write!(f, "{contender}, {algorithm}, {keys} keys")
    }
}

// === impl Ruled ===

impl Ruled {
    /// Who is measured among how many rules.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let contenders = [Contender::Ratelimit, Contender::Limitador].into_iter();
        contenders.flat_map(|contender| RULES.map(|rules| Self { contender, rules }))
    }
}

impl Display for Ruled {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { contender, rules } = *self;
        let s = if rules == 1 { "" } else { "s" };
        write!(f, "{contender}, {rules} rule{s}")
    }
}

// === impl Served ===

impl Display for Served {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { endpoint, contender } = self;
        write!(f, "{}, {contender}", endpoint.name())
    }
}

// === impl Contender ===

impl Display for Contender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ratelimit => "ratelimit",
            Self::Governor => "governor",
            Self::Limitador => "limitador",
            Self::Reference => "reference",
        })
    }
}

// === impl Algorithm ===

impl Display for Algorithm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenBucket => "token bucket",
            Self::SlidingWindow => "sliding window",
        })
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Every endpoint that is measured.
    pub(super) const ALL: [Self; 2] = [Self::Check, Self::Grpc];

    /// What it is called, by the benchmark's contenders too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Grpc => "grpc",
        }
    }
}

// === impl PerDecision ===

impl PerDecision {
    /// Sums up the runs of one series.
    pub(super) fn of(costs: &[f64]) -> Option<Self> {
        let Summary { median: ns_per_decision, runs, spread } = Summary::of(costs)?;
        Some(Self { ns_per_decision, runs, spread })
    }
}

impl Display for PerDecision {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { ns_per_decision: median, runs, spread } = *self;
        Summary { median, runs, spread }.fmt(f)
    }
}

// === impl PerRequest ===

impl PerRequest {
    /// Sums up the runs of one series.
    pub(super) fn of(costs: &[f64]) -> Option<Self> {
        let Summary { median: cpu_ns_per_request, runs, spread } = Summary::of(costs)?;
        Some(Self { cpu_ns_per_request, runs, spread })
    }
}

impl Display for PerRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { cpu_ns_per_request: median, runs, spread } = *self;
        Summary { median, runs, spread }.fmt(f)
    }
}

// === impl PerKey ===

impl PerKey {
    /// Of one measurement.
    pub(super) fn of(bytes: &[f64]) -> Option<Self> {
        let Summary { median: bytes_per_key, .. } = Summary::of(bytes)?;
        Some(Self { bytes_per_key })
    }
}

impl Display for PerKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.1}", self.bytes_per_key)
    }
}

// === impl Resident ===

impl Resident {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    /// In MiB.
    pub(super) fn mebibytes(self) -> f64 {
        self.rss_bytes as f64 / f64::from(1 << 20)
    }
}

impl Display for Resident {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.1}", self.mebibytes())
    }
}
