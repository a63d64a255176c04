//! The tables of the `http` section and of rule files.

use super::{ADDRESSES, IPV4_PREFIX, IPV6_PREFIX, Shape, TOKEN_FILE};

/// A key and what its value looks like.
type Key = (&'static str, &'static str);

const LISTEN: &str = "an address and a port such as 127.0.0.1:8081 or [::1]:8081, or unix:PATH";
const FLAG: &str = "true or false";
const VALUE: &str = "a value, or the start of one and `*`, such as partner-*";
const TRUE: &str = "true";

/// `http`.
pub(in crate::config) const HTTP: Shape = Shape {
    what: "http",
    keys: &[
        ("listen", LISTEN),
        ("grpc_listen", LISTEN),
        (
            "rules",
            "a directory of rule files, relative to the directory of the rules file, or a list of directories, \
             files and { path: rules.d, compatibility: envoy }",
        ),
        ("trusted_proxies", ADDRESSES),
        ("client_address", "peer, x-forwarded-for or forwarded"),
        ("max_keys", "a number of counters, 1 to 100000000"),
        ("on_full", "evict, deny or allow"),
        ("identify", "a list of items such as { domain: api, descriptors: [[client_ip]] }"),
        ("allow_from", ADDRESSES),
        ("token_file", TOKEN_FILE),
        ("write_token_file", TOKEN_FILE),
        ("state_dir", "the path of a directory"),
        ("answer", "a mapping such as { headers: [retry-after], text: \"Slow down.\" }"),
    ],
};

/// One of `rules`, as a mapping.
pub(in crate::config) const RULES: Shape = Shape {
    what: "an entry of rules",
    keys: &[
        ("path", "a directory of rule files, or a rule file, relative to the directory of the rules file"),
        ("compatibility", "native or envoy"),
    ],
};

/// `answer`.
pub(in crate::config) const ANSWER: Shape = Shape {
    what: "answer",
    keys: &[
        ("headers", "a list of x-ratelimit, retry-after and ratelimit; [] for none"),
        ("text", "what a refused client is told"),
    ],
};

/// One of `identify`.
pub(in crate::config) const IDENTIFY: Shape = Shape {
    what: "an identify item",
    keys: &[
        ("match", "a mapping of conditions such as { path: \"/api/**\", method: [GET, POST] }"),
        ("domain", "the domain of one of the rule files"),
        ("descriptors", "a list of descriptors, each a list of entries: [[client_ip], [client_ip, method]]"),
    ],
};

/// `match` of an `identify` item.
pub(in crate::config) const REQUEST: Shape = Shape {
    what: "match",
    keys: &[
        (
            "path",
            "paths from their first slash on, such as \"/api/**\"; `*` within a segment, `**` over segments",
        ),
        ("method", "methods such as GET or POST"),
        ("host", "host names without port, such as example.org or \"*.example.org\""),
    ],
};

/// An entry of a descriptor, as a mapping.
pub(in crate::config) const ENTRY: Shape = Shape {
    what: "an entry",
    keys: &[
        ("key", "the key of the entry"),
        ("client_ip", "true, or prefix lengths such as { ipv4_prefix: 24, ipv6_prefix: 48 }"),
        ("ipv4_prefix", IPV4_PREFIX),
        ("ipv6_prefix", IPV6_PREFIX),
        ("header", "the name of a header such as x-api-key"),
        ("cookie", "the name of a cookie"),
        ("query", "the name of a query parameter"),
        ("method", TRUE),
        ("host", TRUE),
        ("path", TRUE),
        ("path_template", "a path whose variable segments are in braces, such as \"/api/users/{id}\""),
        ("capture", "one of the names in braces"),
        ("api_version", "path, accept or { header: x-api-version }"),
        ("network", "the path of a prefix file: `PREFIX LABEL` a line"),
        ("map", "the path of a map file: `VALUE LABEL` a line"),
        ("by", "the key of another entry of this identify item"),
        ("value", "a text"),
        ("secret", FLAG),
        ("missing", "skip, empty or deny"),
    ],
};

/// `client_ip`, as a mapping.
pub(in crate::config) const CLIENT_IP: Shape =
    Shape { what: "client_ip", keys: &[("ipv4_prefix", IPV4_PREFIX), ("ipv6_prefix", IPV6_PREFIX)] };

/// `api_version`, as a mapping.
pub(in crate::config) const API_VERSION: Shape =
    Shape { what: "api_version", keys: &[("header", "the name of a header such as x-api-version")] };

/// A rule file.
pub(in crate::config) const RULE_FILE: Shape = Shape {
    what: "a rule file",
    keys: &[
        ("domain", "the name of the domain"),
        ("descriptors", "a list of descriptors such as { key: client_ip, rate_limit: { ... } }"),
    ],
};

const DESCRIPTOR_KEYS: [Key; 9] = [
    ("key", "the key of an entry"),
    ("value", VALUE),
    ("rate_limit", "a mapping such as { unit: minute, requests_per_unit: 60 }"),
    ("descriptors", "a list of descriptors for the entries that follow"),
    ("shadow_mode", FLAG),
    ("detailed_metric", FLAG),
    ("share_threshold", FLAG),
    ("value_to_metric", FLAG),
    ("quota_mode", FLAG),
];

/// A descriptor of a rule file.
pub(in crate::config) const DESCRIPTOR: Shape = Shape {
    what: "a descriptor",
    keys: &joined::<9, 1, 10>(
        DESCRIPTOR_KEYS,
        [("overrides", "a list such as [{ value: partner-1, requests_per_unit: 10000 }]")],
    ),
};

/// A descriptor with `compatibility: envoy`.
pub(in crate::config) const ENVOY_DESCRIPTOR: Shape =
    Shape { what: "a descriptor of Envoy's format", keys: &DESCRIPTOR_KEYS };

const UNIT: Key = ("unit", "second, minute, hour, day, week, month or year");
const REQUESTS_PER_UNIT: Key = ("requests_per_unit", "a whole number, 0 to 18446744073709551615; 0 blocks");
const UNLIMITED: Key = ("unlimited", FLAG);
const NAME: Key = ("name", "a name that `replaces` of other rules refers to");
const REPLACES: Key = ("replaces", "a list of names of other rules, such as [{ name: per-address }]");

/// The keys that make a limit.
const LIMIT_KEYS: [Key; 15] = [
    REQUESTS_PER_UNIT,
    UNIT,
    ("window", "a time such as 30s: N and ns, us, ms, s, m, h, d or w; up to 10 years of 365 days"),
    ("algorithm", "sliding_window, sliding_log, fixed_window, token_bucket or leaky_bucket"),
    ("burst", "a whole number, at least 1"),
    ("refill", "continuous or interval"),
    ("segments", "a whole number, 2 to 3600, of segments that divide the window"),
    ("rounding", "down or up"),
    ("count_denied", FLAG),
    ("align", "epoch, first or calendar"),
    ("timezone", "the name of a time zone such as Europe/Berlin"),
    ("enforcement", "hard or soft"),
    ("soft_margin", "a percentage, 0.1% to 100%, such as 10%"),
    ("on_limit", "deny or delay"),
    ("max_delay", "a time such as 500ms"),
];

/// `rate_limit`.
pub(in crate::config) const RATE_LIMIT: Shape = Shape {
    what: "rate_limit",
    keys: &joined::<15, 5, 20>(
        LIMIT_KEYS,
        [
            UNLIMITED,
            NAME,
            ("cost", "the units that one hit costs, at least 1"),
            REPLACES,
            ("escalate", "a mapping such as { after: 20, within: 1m, block: 10m }"),
        ],
    ),
};

/// `escalate`.
pub(in crate::config) const ESCALATE: Shape = Shape {
    what: "escalate",
    keys: &[
        ("after", "a number of denied requests, 1 to 65535"),
        ("within", "a time such as 1m, from 1s to 1d"),
        ("block", "a time such as 10m, from 1s to 365d"),
        ("factor", "a whole number, 1 to 100: how many times as long each time that follows"),
        ("max", "a time such as 24h, from `block` to 365d"),
        ("shed", "the name of a rule of `network`"),
        ("identities", "a number of verified identities behind one address, 2 to 8"),
    ],
};

/// `rate_limit` with `compatibility: envoy`.
pub(in crate::config) const ENVOY_RATE_LIMIT: Shape = Shape {
    what: "rate_limit of Envoy's format",
    keys: &[UNIT, REQUESTS_PER_UNIT, UNLIMITED, NAME, REPLACES],
};

/// One of `overrides`.
pub(in crate::config) const OVERRIDE: Shape = Shape {
    what: "an override",
    keys: &joined::<15, 3, 18>(LIMIT_KEYS, [("value", VALUE), ("tier", "the name of a tier"), UNLIMITED]),
};

/// One of `replaces`.
pub(in crate::config) const REPLACED: Shape =
    Shape { what: "an entry of replaces", keys: &[("name", "the name of another rule of this file")] };

/// The names of the keys that make a limit.
pub(in crate::config) fn limit_keys() -> [&'static str; 15] {
    LIMIT_KEYS.map(|(name, _)| name)
}

/// One table after the other.
const fn joined<const A: usize, const B: usize, const N: usize>(
    first: [Key; A],
    second: [Key; B],
) -> [Key; N] {
    assert!(A + B == N);
    let mut all = [("", ""); N];
    let mut index = 0;
    while index < N {
        all[index] = if index < A { first[index] } else { second[index - A] };
        index += 1;
    }
    all
}
