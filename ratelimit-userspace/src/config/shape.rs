//! Which keys exist, where, and what their values look like: the one table behind unknown keys, the
//! nearest valid name, and what a message says is expected.

pub(super) mod http;

/// A mapping of the rules file or of a rule file.
#[derive(Debug)]
pub(super) struct Shape {
    /// What the mapping describes, with its article.
    pub(super) what: &'static str,
    /// Its keys and what their values look like.
    pub(super) keys: &'static [(&'static str, &'static str)],
}

const ADDRESSES: &str = "addresses or prefixes such as 192.0.2.0/24 or 2001:db8::/32";
const PORTS: &str = "ports, 0 to 65535, or inclusive ranges such as \"5000-5010\"";
const IPV4_PREFIX: &str = "a prefix length, 1 to 32";
const IPV6_PREFIX: &str = "a prefix length, 1 to 128";
const TOKEN_FILE: &str = "the path of a file that holds one token of at least 16 bytes";

/// The whole file.
pub(super) const FILE: Shape = Shape {
    what: "the file",
    keys: &[
        ("interfaces", "a list of interfaces such as { name: eth0 }"),
        ("network", "a mapping with the layer 3/4 policy"),
        ("http", "a mapping with the limits on requests, such as { listen: 127.0.0.1:8081, rules: rules.d }"),
        ("admin", "a mapping such as { listen: 127.0.0.1:9100, token_file: admin.token }"),
    ],
};

/// One of `interfaces`.
pub(super) const INTERFACE: Shape = Shape {
    what: "an interface",
    keys: &[
        (
            "name",
            "an interface name such as eth0, or a pattern such as \"eth*\" (`*` any characters, `?` one, `[0-9]` \
             one of those): 1 to 15 bytes without `/`, `:` and spaces",
        ),
        ("mode", "auto, native or generic"),
    ],
};

/// `network`.
pub(super) const NETWORK: Shape = Shape {
    what: "network",
    keys: &[
        ("mode", "enforce or monitor"),
        ("on_stop", "keep or detach"),
        (
            "sources",
            "a mapping such as { ipv4_prefix: 32, ipv6_prefix: 64, capacity: 1048576, when_full: pass }",
        ),
        ("malformed", "drop or pass"),
        ("allow", ADDRESSES),
        ("management", "a list of entries such as { prefix: 192.0.2.0/24, ports: 22 }"),
        ("deny", ADDRESSES),
        ("deny_files", "paths, relative to the directory of the rules file"),
        ("blocks", "a mapping such as { capacity: 1048576 }"),
        ("rules", "a list of rules such as { name: web, match: { protocol: tcp }, limits: [...] }"),
        ("next", "the absolute path of a pinned XDP program, such as /sys/fs/bpf/other"),
    ],
};

/// One of `management`.
pub(super) const MANAGEMENT: Shape =
    Shape { what: "a management entry", keys: &[("prefix", ADDRESSES), ("ports", PORTS)] };

/// `blocks`.
pub(super) const BLOCKS: Shape = Shape {
    what: "blocks",
    keys: &[
        ("capacity", "a number of single addresses, and of prefixes, 1024 to 4194304"),
        ("crowdsec", "a mapping such as { url: \"http://127.0.0.1:8080\", api_key_file: crowdsec.key }"),
    ],
};

/// `crowdsec`.
pub(super) const CROWDSEC: Shape = Shape {
    what: "crowdsec",
    keys: &[
        ("url", "http://HOST:PORT, such as http://127.0.0.1:8080"),
        ("api_key_file", TOKEN_FILE),
        ("every", "a time such as 10s, from 1s to 1h"),
    ],
};

/// `sources`.
pub(super) const SOURCES: Shape = Shape {
    what: "sources",
    keys: &[
        ("ipv4_prefix", IPV4_PREFIX),
        ("ipv6_prefix", IPV6_PREFIX),
        ("capacity", "a number of buckets, 1024 to 16777216"),
        ("when_full", "pass, share or drop"),
    ],
};

/// One of `rules`.
pub(super) const RULE: Shape = Shape {
    what: "a rule",
    keys: &[
        ("name", "1 to 63 letters, digits, `_`, `-` and `.`, the first a letter or a digit"),
        ("match", "a mapping of conditions such as { protocol: udp, destination_port: 53 }"),
        ("limits", "1 to 4 limits such as { per: source, rate: 50/s, burst: 100 }"),
        ("action", "shed or count"),
        ("block", "a mapping such as { after: 1000, within: 10s, for: 10m }"),
    ],
};

/// `block`.
pub(super) const BLOCK: Shape = Shape {
    what: "block",
    keys: &[
        ("after", "a number of shed packets, 1 to 4294967295"),
        ("within", "a time such as 10s, from 1s to 1d"),
        ("for", "a time such as 10m, from 1s to 365d"),
    ],
};

/// `match`.
pub(super) const MATCH: Shape = Shape {
    what: "match",
    keys: &[
        ("source", ADDRESSES),
        ("destination", ADDRESSES),
        ("protocol", "IP protocols: names such as tcp, udp, icmp, icmpv6, sctp, or numbers, 0 to 255"),
        ("source_port", PORTS),
        ("destination_port", PORTS),
        (
            "tcp_flags",
            "syn, syn-ack, null, xmas, or flags (fin, syn, rst, psh, ack, urg, ece, cwr) joined by commas, \
             `!` before those that must be clear, such as \"ack,!syn\"",
        ),
        ("icmp_type", "types, 0 to 255, or names such as echo-request"),
        ("fragment", "none, first, later or any"),
        ("vlan", "VLAN ids, 0 to 4094, or untagged"),
        ("length", "frame lengths in bytes, 0 to 65535, or inclusive ranges such as \"64-128\" or \"1500-\""),
    ],
};

/// One of `limits`.
pub(super) const LIMIT: Shape = Shape {
    what: "a limit",
    keys: &[
        ("per", "source, rule, or a mapping such as { ipv4_prefix: 24, ipv6_prefix: 48 }"),
        (
            "rate",
            "packets per time: N, Nk, NM or NG, and /s, /m, /h or /d, such as 50/s; 1/d to 100M/s, or 0/s",
        ),
        ("bandwidth", "Nbit/s, Nkbit/s, NMbit/s or NGbit/s, such as 200Mbit/s; up to 400Gbit/s, or 0bit/s"),
        ("burst", "packets, such as 100, for a rate; bytes, such as 64kB or 10MB, for a bandwidth"),
    ],
};

/// `per`, as a mapping.
pub(super) const PREFIX: Shape =
    Shape { what: "per", keys: &[("ipv4_prefix", IPV4_PREFIX), ("ipv6_prefix", IPV6_PREFIX)] };

/// `admin`.
pub(super) const ADMIN: Shape = Shape {
    what: "admin",
    keys: &[
        ("listen", "a loopback address and a port such as 127.0.0.1:9100 or [::1]:9100"),
        ("token_file", TOKEN_FILE),
        ("write_token_file", TOKEN_FILE),
    ],
};

// === impl Shape ===

impl Shape {
    /// What the value of a key looks like.
    pub(super) fn expected(&self, key: &str) -> &'static str {
        self.keys.iter().find(|(name, _)| *name == key).map_or("", |(_, expected)| expected)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|(name, _)| *name)
    }
}
