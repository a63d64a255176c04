//! `escalate`: when a client that requests are denied to has its packets shed.

use std::{ops::RangeInclusive, time::Duration};

use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Quoted, Reported},
    file::Node,
    section::Section,
    shape,
    value::{self, duration::between, number},
};

/// Keys of entries that hold the address of a client, where whoever asks sends descriptors: as we call it and
/// as Envoy does.
pub const ADDRESS_KEYS: [&str; 2] = ["client_ip", "remote_address"];

/// A client to which a rule denies this much has its packets shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escalate {
    /// Denied requests, at least 1.
    pub after: u16,
    /// The time that they fall into.
    pub within: Duration,
    /// How long a client is blocked the first time.
    pub block: Duration,
    /// How many times as long each time that follows, as long as the client is remembered.
    pub factor: u32,
    /// The longest time; at least [`Self::block`].
    pub max: Duration,
    /// The rule on packets that an address is put under, instead of being blocked, behind which
    /// [`Self::identities`] live.
    pub shed: Option<String>,
    /// So many verified identities make an address one of several clients.
    pub identities: u8,
    /// Where `escalate` stands in its file, 1-based.
    pub line: u32,
    /// The column there.
    pub column: u32,
}

// === impl Escalate ===

impl Escalate {
    /// What [`Self::after`] may be.
    pub const AFTER: RangeInclusive<u32> = 1..=u16::MAX as u32;
    /// What [`Self::within`] may be.
    pub const WITHIN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24);
    /// What [`Self::block`] and [`Self::max`] may be.
    pub const BLOCK: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(365 * 24);
    /// What [`Self::factor`] may be.
    pub const FACTOR: RangeInclusive<u32> = 1..=100;

    /// What [`Self::identities`] may be.
    pub const IDENTITIES: RangeInclusive<u32> = 2..=8;

    const DEFAULT_IDENTITIES: u8 = 2;
    const DEFAULT_WITHIN: Duration = Duration::from_mins(1);
    const DEFAULT_FACTOR: u32 = 2;
    const DEFAULT_MAX: Duration = Duration::from_hours(24);
}

/// Reads the `escalate` of a `rate_limit`.
pub(super) fn escalate(
    rate_limit: &Section<'_>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Option<Escalate>, Reported> {
    const KEY: &str = "escalate";
    if !rate_limit.knows(KEY) {
        return Ok(None);
    }
    let Some(node) = rate_limit.node(KEY, diagnostics)? else { return Ok(None) };
    let place = rate_limit.place(KEY);
    terms(node, diagnostics).map(|terms| Some(Escalate { line: place.line, column: place.column, ..terms }))
}

fn terms(node: &Node, diagnostics: &mut Diagnostics<'_>) -> Result<Escalate, Reported> {
    let section = Section::open(&shape::http::ESCALATE, node, diagnostics)?;
    let after = section.one("after", diagnostics, number(Escalate::AFTER));
    let after = section.required("after", diagnostics, after);
    let within = section.one("within", diagnostics, between(Escalate::WITHIN));
    let block = section.one("block", diagnostics, between(Escalate::BLOCK));
    let block = section.required("block", diagnostics, block);
    let factor = section.one("factor", diagnostics, number(Escalate::FACTOR));
    let max = section.one("max", diagnostics, |text| {
        let max = between(Escalate::BLOCK)(text)?;
        match block {
            Ok(block) if max < block => {
                let message = format!("{} is shorter than `block`, the first time", Quoted(text));
                Err(Mistake::new(Code::OutOfRange, message).expected("a time no shorter than `block`"))
            }
            _ => Ok(max),
        }
    });
    let shed = section.one("shed", diagnostics, value::rule_name);
    let identities = section.one("identities", diagnostics, number(Escalate::IDENTITIES));
    let block = block?;
    Ok(Escalate {
        after: u16::try_from(after?).unwrap_or(u16::MAX),
        within: within?.unwrap_or(Escalate::DEFAULT_WITHIN),
        block,
        factor: factor?.unwrap_or(Escalate::DEFAULT_FACTOR),
        // A first time that is longer than the default is the longest.
        max: max?.unwrap_or_else(|| Escalate::DEFAULT_MAX.max(block)),
        shed: shed?,
        identities: identities?
            .and_then(|count| u8::try_from(count).ok())
            .unwrap_or(Escalate::DEFAULT_IDENTITIES),
        line: 0,
        column: 0,
    })
}
