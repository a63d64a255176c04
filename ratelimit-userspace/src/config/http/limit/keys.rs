//! The keys of a limit, as they are written.

use std::num::NonZeroU64;

use jiff::tz::{self, TimeZone};

use crate::config::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported, nearest},
    http::{CalendarUnit, Compatibility},
    section::Section,
    value::{choice, duration, flag, number, whole},
};

/// Segments that a window may have. Each is a number to keep for every counter.
const MAX_SEGMENTS: u32 = 3600;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// The value of a key, if it stands there.
pub(super) type Slot<T> = Result<Option<Written<T>>, Reported>;

/// A value that stands in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<T> {
    pub(super) value: T,
    /// Where its key stands, or the override that inherits it.
    pub(super) place: Place,
    /// It stands in the `rate_limit`, and these are the keys of an override.
    inherited: bool,
}

/// `unit` or `window`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Span {
    Unit(Unit),
    Window(NonZeroU64),
}

/// `unit`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// `algorithm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    SlidingWindow,
    SlidingLog,
    FixedWindow,
    /// No word stands for it: it comes with `compatibility: envoy`.
    EnvoyWindow,
    TokenBucket,
    LeakyBucket,
}

/// `align`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alignment {
    Epoch,
    First,
    Calendar,
}

/// The keys of a limit.
#[derive(Clone, Debug)]
pub(in crate::config::http) struct Keys {
    /// `requests_per_unit`.
    pub(super) units: Slot<u64>,
    span: Slot<Span>,
    /// `algorithm`.
    pub(super) kind: Slot<Kind>,
    pub(super) burst: Slot<u64>,
    /// `refill: interval`.
    pub(super) interval: Slot<bool>,
    pub(super) segments: Slot<u32>,
    /// `rounding: up`.
    pub(super) round_up: Slot<bool>,
    pub(super) count_denied: Slot<bool>,
    pub(super) align: Slot<Alignment>,
    pub(super) timezone: Slot<TimeZone>,
    /// `enforcement: soft`.
    pub(super) soft: Slot<bool>,
    pub(super) soft_margin: Slot<u32>,
    /// `on_limit: delay`.
    pub(super) delay: Slot<bool>,
    pub(super) max_delay: Slot<NonZeroU64>,
}

/// What a slot holds.
pub(super) fn value<T: Clone>(slot: &Slot<T>) -> Result<Option<T>, Reported> {
    slot.as_ref()
        .map(|written| written.as_ref().map(|written| written.value.clone()))
        .map_err(|reported| *reported)
}

/// Whether a slot holds this, or something that cannot be read.
pub(super) fn says<T: PartialEq>(slot: &Slot<T>, wanted: &T) -> bool {
    slot.as_ref().map_or(true, |written| written.as_ref().is_some_and(|written| written.value == *wanted))
}

/// Empties a slot whose key does not fit the others.
pub(super) fn only<T>(
    slot: &mut Slot<T>,
    fits: bool,
    diagnostics: &mut Diagnostics<'_>,
    mistake: impl FnOnce() -> Mistake,
) {
    if let Ok(Some(written)) = slot
        && !fits
    {
        let reported = (!written.inherited).then(|| diagnostics.error(written.place, mistake()));
        *slot = reported.map_or(Ok(None), Err);
    }
}

fn read<T>(
    section: &Section<'_>,
    key: &str,
    diagnostics: &mut Diagnostics<'_>,
    parse: impl FnOnce(&str) -> Result<T, Mistake>,
) -> Slot<T> {
    if !section.knows(key) {
        return Ok(None);
    }
    let value = section.one(key, diagnostics, parse)?;
    Ok(value.map(|value| Written { value, place: section.place(key), inherited: false }))
}

fn inherit<T: Clone>(own: Slot<T>, base: &Slot<T>, place: Place) -> Slot<T> {
    match (own, base) {
        (Ok(None), Ok(Some(written))) => Ok(Some(Written { inherited: true, place, ..written.clone() })),
        (Ok(None), Err(reported)) => Err(*reported),
        (own, _) => own,
    }
}

/// Reads `unit` or `window`.
fn span(section: &Section<'_>, diagnostics: &mut Diagnostics<'_>) -> Slot<Span> {
    let unit = read(section, "unit", diagnostics, unit);
    let window = read(section, "window", diagnostics, |text| duration::duration(text).map(Span::Window));
    match (unit?, window?) {
        (Some(unit), Some(window)) => {
            let message = "a limit has either `unit` or `window`, and here are both";
            let mistake = Mistake::new(Code::Conflict, message).expected("one of the two");
            Err(diagnostics.error(unit.place.max(window.place), mistake))
        }
        (unit, window) => Ok(unit.or(window)),
    }
}

/// Reads a unit in any case, as upstream does.
fn unit(text: &str) -> Result<Span, Mistake> {
    let units = [
        ("second", Unit::Second),
        ("minute", Unit::Minute),
        ("hour", Unit::Hour),
        ("day", Unit::Day),
        ("week", Unit::Week),
        ("month", Unit::Month),
        ("year", Unit::Year),
    ];
    choice(&units)(&text.to_ascii_lowercase()).map(Span::Unit)
}

fn burst(text: &str) -> Result<u64, Mistake> {
    match text {
        "0" => Err(Mistake::new(Code::BadBurst, "a burst of 0 lets nothing pass")
            .expected("at least 1, or requests_per_unit: 0, which blocks, and no burst")),
        _ => whole(1..=u64::MAX)(text),
    }
}

fn timezone(text: &str) -> Result<TimeZone, Mistake> {
    TimeZone::get(text).map_err(|_| {
        let known: Vec<_> = tz::db().available().map(|name| name.to_string()).collect();
        let mistake = Mistake::new(Code::BadValue, format!("no time zone has the name {}", Quoted(text)));
        mistake.nearest(nearest(text, known.iter().map(String::as_str)))
    })
}

// === impl Keys ===

impl Keys {
    pub(in crate::config::http) fn read(
        section: &Section<'_>,
        compatibility: Compatibility,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Self {
        let kinds = [
            ("sliding_window", Kind::SlidingWindow),
            ("sliding_log", Kind::SlidingLog),
            ("fixed_window", Kind::FixedWindow),
            ("token_bucket", Kind::TokenBucket),
            ("leaky_bucket", Kind::LeakyBucket),
        ];
        let alignments =
            [("epoch", Alignment::Epoch), ("first", Alignment::First), ("calendar", Alignment::Calendar)];
        let mut word = |key, no, yes| read(section, key, diagnostics, choice(&[(no, false), (yes, true)]));
        let interval = word("refill", "continuous", "interval");
        let round_up = word("rounding", "down", "up");
        let soft = word("enforcement", "hard", "soft");
        let delay = word("on_limit", "deny", "delay");
        let written = Self {
            units: read(section, "requests_per_unit", diagnostics, whole(0..=u64::MAX)),
            span: span(section, diagnostics),
            kind: read(section, "algorithm", diagnostics, choice(&kinds)),
            burst: read(section, "burst", diagnostics, burst),
            interval,
            segments: read(section, "segments", diagnostics, number(2..=MAX_SEGMENTS)),
            round_up,
            count_denied: read(section, "count_denied", diagnostics, flag),
            align: read(section, "align", diagnostics, choice(&alignments)),
            timezone: read(section, "timezone", diagnostics, timezone),
            soft,
            soft_margin: read(section, "soft_margin", diagnostics, duration::permille),
            delay,
            max_delay: read(section, "max_delay", diagnostics, duration::duration),
        };
        match compatibility {
            Compatibility::Native => written,
            Compatibility::Envoy => {
                let place = section.place("requests_per_unit");
                Self {
                    kind: Ok(Some(Written { value: Kind::EnvoyWindow, place, inherited: true })),
                    count_denied: Ok(Some(Written { value: true, place, inherited: true })),
                    ..written
                }
            }
        }
    }

    /// The keys of an override at `place`, whose rule has these others.
    pub(in crate::config::http) fn or(self, base: &Self, place: Place) -> Self {
        Self {
            units: inherit(self.units, &base.units, place),
            span: inherit(self.span, &base.span, place),
            kind: inherit(self.kind, &base.kind, place),
            burst: inherit(self.burst, &base.burst, place),
            interval: inherit(self.interval, &base.interval, place),
            segments: inherit(self.segments, &base.segments, place),
            round_up: inherit(self.round_up, &base.round_up, place),
            count_denied: inherit(self.count_denied, &base.count_denied, place),
            align: inherit(self.align, &base.align, place),
            timezone: inherit(self.timezone, &base.timezone, place),
            soft: inherit(self.soft, &base.soft, place),
            soft_margin: inherit(self.soft_margin, &base.soft_margin, place),
            delay: inherit(self.delay, &base.delay, place),
            max_delay: inherit(self.max_delay, &base.max_delay, place),
        }
    }

    /// `unit` or `window`, of which one must be there.
    pub(super) fn span(
        &self,
        section: &Section<'_>,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Span, Reported> {
        let missing = || {
            let misspelt = ["unit", "window"].into_iter().find_map(|key| section.misspelt(key));
            misspelt.unwrap_or_else(|| {
                let expected = if section.knows("window") {
                    format!("unit: {}; or window: {}", section.expected("unit"), section.expected("window"))
                } else {
                    format!("unit: {}", section.expected("unit"))
                };
                let mistake = Mistake::new(Code::MissingKey, "a limit needs a time").expected(expected);
                diagnostics.error(section.mapping_place(), mistake)
            })
        };
        value(&self.span)?.ok_or_else(missing)
    }
}

// === impl Span ===

impl Span {
    pub(super) fn nanos(self) -> NonZeroU64 {
        let nanos = match self {
            Self::Window(nanos) => return nanos,
            Self::Unit(Unit::Second) => SECOND,
            Self::Unit(Unit::Minute) => 60 * SECOND,
            Self::Unit(Unit::Hour) => 3600 * SECOND,
            Self::Unit(Unit::Day) => DAY,
            Self::Unit(Unit::Week) => 7 * DAY,
            Self::Unit(Unit::Month) => 30 * DAY,
            Self::Unit(Unit::Year) => 365 * DAY,
        };
        NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN)
    }

    pub(super) fn calendar(self) -> Option<CalendarUnit> {
        match self {
            Self::Unit(Unit::Day) => Some(CalendarUnit::Day),
            Self::Unit(Unit::Week) => Some(CalendarUnit::Week),
            Self::Unit(Unit::Month) => Some(CalendarUnit::Month),
            Self::Unit(_) | Self::Window(_) => None,
        }
    }
}
