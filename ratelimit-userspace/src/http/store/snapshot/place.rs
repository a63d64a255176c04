//! Where a limit is written, so that it is found again in rules that were read since.

use std::collections::HashMap;

use super::codec::Reader;
use crate::{
    config::http::{Override, ValuePattern},
    http::rules::{Metered, RuleBook},
};

/// Where a limit is written.
pub(super) enum Place {
    /// In no rule file: the asker sent it.
    Own,
    /// In a rule, or in one of its overrides.
    Rule(RulePlace),
}

/// A place in the rule files.
pub(super) struct RulePlace {
    rule: String,
    choice: Option<(Option<ValuePattern>, Option<String>)>,
}

/// The bytes of [`Place::Own`].
pub(super) const OWN_BYTES: [u8; 1] = [OWN];

const OWN: u8 = 0;
const RULE: u8 = 1;
const OVERRIDE: u8 = 2;

const ABSENT: u8 = 0;
const EXACT: u8 = 1;
const PREFIX: u8 = 2;

/// The bytes of the places of all limits that are in force, by version.
pub(super) fn all(book: &RuleBook) -> HashMap<u32, Vec<u8>> {
    let mut places = HashMap::new();
    for rule in book.rules() {
        let place = |kind| {
            let mut bytes = vec![kind];
            write_text(&mut bytes, &rule.id);
            bytes
        };
        places.extend(rule.meter.iter().map(|metered| (metered.version, place(RULE))));
        for (Override { value, tier, .. }, metered) in &rule.overrides {
            let mut bytes = place(OVERRIDE);
            match value {
                Some(ValuePattern::Exact(value)) => {
                    bytes.push(EXACT);
                    write_text(&mut bytes, value);
                }
                Some(ValuePattern::Prefix(prefix)) => {
                    bytes.push(PREFIX);
                    write_text(&mut bytes, prefix);
                }
                Some(ValuePattern::Any) | None => bytes.push(ABSENT),
            }
            match tier {
                Some(tier) => {
                    bytes.push(EXACT);
                    write_text(&mut bytes, tier);
                }
                None => bytes.push(ABSENT),
            }
            places.extend(metered.iter().map(|metered| (metered.version, bytes.clone())));
        }
    }
    places
}

/// Reads one.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Place> {
    let kind = reader.u8()?;
    if kind == OWN {
        return Some(Place::Own);
    }
    let rule = read_text(reader)?;
    let choice = match kind {
        RULE => None,
        OVERRIDE => {
            let value = match reader.u8()? {
                ABSENT => None,
                EXACT => Some(ValuePattern::Exact(read_text(reader)?)),
                PREFIX => Some(ValuePattern::Prefix(read_text(reader)?)),
                _ => return None,
            };
            let tier = match reader.u8()? {
                ABSENT => None,
                EXACT => Some(read_text(reader)?),
                _ => return None,
            };
            Some((value, tier))
        }
        _ => return None,
    };
    Some(Place::Rule(RulePlace { rule, choice }))
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn read_text(reader: &mut Reader<'_>) -> Option<String> {
    let length = usize::try_from(reader.u64()?).ok()?;
    str::from_utf8(reader.take(length)?).ok().map(str::to_owned)
}

// === impl RulePlace ===

impl RulePlace {
    /// The limit that is there now. `None`: the rule is gone, or unlimited.
    pub(super) fn in_force<'a>(&self, book: &'a RuleBook) -> Option<&'a Metered> {
        let rule = book.rule(&self.rule)?;
        let Some((value, tier)) = &self.choice else { return rule.meter.as_ref() };
        let mut overrides = rule.overrides.iter();
        let (_, metered) = overrides.find(|(choice, _)| choice.value == *value && choice.tier == *tier)?;
        metered.as_ref()
    }
}
