//! The kinds of findings.

use serde::Serialize;

/// The kinds of findings. Their names in `snake_case` are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The rules file, or a file that it names, cannot be read.
    UnreadableFile,
    /// The file is not UTF-8.
    InvalidUtf8,
    /// The file, or what its aliases stand for, is too large.
    TooLarge,
    /// The file is not YAML.
    Syntax,
    /// The file says nothing.
    EmptyFile,
    /// The file holds more than one YAML document.
    MultipleDocuments,
    /// A YAML feature that rules files do not use: tags, keys that are no plain words.
    Unsupported,
    /// An alias without an anchor before it, or within its own anchor.
    UnknownAlias,
    /// A mapping where a list or a single value is due, or the other way about.
    BadType,
    /// A key that does not exist here.
    UnknownKey,
    /// A key that stands twice in one mapping.
    DuplicateKey,
    /// A key that must be here and is not.
    MissingKey,
    /// A key with nothing behind it.
    MissingValue,
    /// Not one of the words, or not of the form, that may stand here.
    BadValue,
    /// A number that is too small or too large.
    OutOfRange,
    /// A list that needs an entry and has none.
    EmptyList,
    /// A list with too many entries.
    TooMany,
    /// A name that cannot be used.
    BadName,
    /// A name that is taken.
    DuplicateName,
    /// Neither an address nor a prefix.
    BadAddress,
    /// A range from high to low.
    ReversedRange,
    /// A rate or bandwidth that cannot be read or held.
    BadRate,
    /// A burst that cannot be read or held.
    BadBurst,
    /// Two settings that exclude each other.
    Conflict,
    /// More errors than are listed.
    MoreErrors,
    /// A rule that no packet can reach. An error when a condition needs a protocol that the same match
    /// excludes, else a warning. Also a warning: an `identify` item or an override that no request reaches.
    NeverMatches,
    /// Warning: a rule that also meets replies to the host's own connections.
    CatchAll,
    /// Warning: a limit that another one of the rule makes idle.
    NeverBites,
    /// Warning: a rule that blocks sources for packets whose source nobody proves, so that a forger can have
    /// others blocked.
    SpoofedBlock,
    /// Warning: a rule that blocks sources for what others send, since its limits are shared by many.
    SharedBlock,
    /// Warning: a rule with a `block` that never comes about.
    NeverBlocks,
    /// Warning: a `management` entry that takes in much of the internet.
    WideManagement,
    /// Warning: a policy, but no interface to attach it to. `ratelimit replay` needs none; the daemon
    /// refuses such a file.
    NoInterfaces,
    /// A token that other users of the host can read.
    ExposedToken,
    /// Warning: a domain without any rule.
    NoRules,
    /// Warning: a setting that changes nothing here.
    NoEffect,
    /// Warning: a `*` that is no wildcard, since it is not the last character.
    LiteralWildcard,
    /// Warning: a rule that refuses every request, since one costs more than the limit holds.
    NeverPasses,
    /// Warning: a log that may take much memory.
    LargeLog,
    /// Warning: up to twice the limit may pass around the edge of a fixed window.
    WindowEdge,
    /// Warning: what Envoy's way of counting costs.
    EnvoyCompatibility,
    /// Warning: requests that an `identify` item may leave without a descriptor, and so without a limit.
    NoDescriptor,
    /// Warning: a forwarding header that is never believed.
    NoTrustedProxies,
}
