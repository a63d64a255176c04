//! Limits and states as bytes. Numbers are little-endian; what has no fixed length begins with it.

use std::num::NonZeroU64;

use jiff::tz::TimeZone;

use crate::{
    config::http::{Algorithm, Align, CalendarUnit, Limit, MAX_WINDOW_NANOS, Window},
    http::algorithm::{Kind, Log, State},
};

/// What is left of the bytes that are read. Everything that is read is `None` where they are too few or
/// make no sense.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

/// The small states, by the byte that stands for them.
const KINDS: [Kind; 4] = [Kind::Level, Kind::Refill, Kind::Count, Kind::Pair];
/// The byte of a log.
const LOG: u8 = 255;

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.u8()?);
        str::from_utf8(self.take(length)?).ok()
    }
}

// === Limits ===

/// The bytes of a limit. `None`: its time zone has no name, so nobody could read it.
pub(super) fn limit_bytes(limit: &Limit) -> Option<Vec<u8>> {
    let Limit { units, window, algorithm, align, count_denied, soft_margin_permille } = limit;
    let mut bytes = units.to_le_bytes().to_vec();
    match window {
        Window::Fixed(nanos) => {
            bytes.push(0);
            bytes.extend(nanos.get().to_le_bytes());
        }
        Window::Calendar(unit, zone) => {
            let name = zone.iana_name()?;
            bytes.extend([
                match unit {
                    CalendarUnit::Day => 1,
                    CalendarUnit::Week => 2,
                    CalendarUnit::Month => 3,
                },
                u8::try_from(name.len()).ok()?,
            ]);
            bytes.extend(name.as_bytes());
        }
    }
    match *algorithm {
        Algorithm::SlidingWindow { round_up } => bytes.extend([0, u8::from(round_up)]),
        Algorithm::Segments { segments } => {
            bytes.push(1);
            bytes.extend(segments.to_le_bytes());
        }
        Algorithm::SlidingLog => bytes.push(2),
        Algorithm::FixedWindow => bytes.push(3),
        Algorithm::EnvoyWindow => bytes.push(6),
        Algorithm::TokenBucket { burst, interval } => {
            bytes.extend([4, u8::from(interval)]);
            bytes.extend(burst.to_le_bytes());
        }
        Algorithm::LeakyBucket { burst, max_delay } => {
            bytes.extend([5, u8::from(max_delay.is_some())]);
            bytes.extend(burst.to_le_bytes());
            bytes.extend(max_delay.unwrap_or(0).to_le_bytes());
        }
    }
    bytes.extend([u8::from(*align == Align::First), u8::from(*count_denied)]);
    bytes.extend(soft_margin_permille.to_le_bytes());
    Some(bytes)
}

pub(super) fn read_limit(reader: &mut Reader<'_>) -> Option<Limit> {
    let units = reader.u64()?;
    let window = match reader.u8()? {
        0 => Window::Fixed(NonZeroU64::new(reader.u64()?).filter(|nanos| nanos.get() <= MAX_WINDOW_NANOS)?),
        1 => Window::Calendar(CalendarUnit::Day, read_zone(reader)?),
        2 => Window::Calendar(CalendarUnit::Week, read_zone(reader)?),
        3 => Window::Calendar(CalendarUnit::Month, read_zone(reader)?),
        _ => return None,
    };
    let algorithm = match reader.u8()? {
        0 => Algorithm::SlidingWindow { round_up: reader.flag()? },
        1 => Algorithm::Segments { segments: reader.u32().filter(|segments| *segments >= 2)? },
        2 => Algorithm::SlidingLog,
        3 => Algorithm::FixedWindow,
        4 => {
            let interval = reader.flag()?;
            Algorithm::TokenBucket { burst: reader.u64()?, interval }
        }
        5 => {
            let delays = reader.flag()?;
            let (burst, max_delay) = (reader.u64()?, reader.u64()?);
            Algorithm::LeakyBucket { burst, max_delay: delays.then_some(max_delay) }
        }
        6 => Algorithm::EnvoyWindow,
        _ => return None,
    };
    let align = if reader.flag()? { Align::First } else { Align::Epoch };
    let (count_denied, soft_margin_permille) = (reader.flag()?, reader.u32()?);
    Some(Limit { units, window, algorithm, align, count_denied, soft_margin_permille })
}

fn read_zone(reader: &mut Reader<'_>) -> Option<TimeZone> {
    TimeZone::get(reader.text()?).ok()
}

// === States ===

/// Appends a state.
pub(super) fn write_state(bytes: &mut Vec<u8>, state: &State) {
    if let State::Log(log) = state {
        bytes.push(LOG);
        bytes.extend((log.entries().count() as u64).to_le_bytes());
        for (at, units) in log.entries() {
            bytes.extend(at.to_le_bytes());
            bytes.extend(units.to_le_bytes());
        }
    } else if let Ok((kind, words)) = state.clone().pack() {
        bytes.extend((0_u8..).zip(KINDS).find(|(_, known)| *known == kind).map(|(byte, _)| byte));
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

pub(super) fn read_state(reader: &mut Reader<'_>) -> Option<State> {
    let kind = match reader.u8()? {
        LOG => return read_log(reader).map(|log| State::Log(Box::new(log))),
        byte => *KINDS.get(usize::from(byte))?,
    };
    Some(State::unpack(kind, [reader.u64()?, reader.u64()?, reader.u64()?]))
}

fn read_log(reader: &mut Reader<'_>) -> Option<Log> {
    let entries = usize::try_from(reader.u64()?).ok()?;
    let mut bytes = Reader(reader.take(entries.checked_mul(16)?)?);
    let mut pairs = Vec::with_capacity(entries);
    while let (Some(at), Some(units)) = (bytes.u64(), bytes.u64()) {
        if pairs.last().is_some_and(|&(before, _)| at <= before) {
            return None;
        }
        pairs.push((at, units));
    }
    (!pairs.is_empty()).then(|| Log::from_entries(pairs))
}
