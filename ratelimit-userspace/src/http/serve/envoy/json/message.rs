//! [`RateLimitRequest`] in the JSON form of protobufs: names in either case, `null` for what is absent, numbers
//! also as strings, enums by name or number.

use std::fmt;

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{self, RateLimitOverride},
        },
        service::ratelimit::v3::RateLimitRequest,
        r#type::v3::RateLimitUnit,
    },
    google::protobuf::UInt64Value,
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// The request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    domain: Option<String>,
    descriptors: Option<Vec<Descriptor>>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    entries: Option<Vec<Entry>>,
    limit: Option<Override>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<Number>,
    #[serde(alias = "isNegativeHits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Override {
    #[serde(alias = "requestsPerUnit")]
    requests_per_unit: Option<Number>,
    unit: Option<Unit>,
}

/// A number that is whole and not negative.
#[derive(Clone, Copy, Debug)]
struct Number(u64);

#[derive(Clone, Copy, Debug)]
struct Unit(i32);

// === impl Message ===

impl From<Message> for RateLimitRequest {
    fn from(message: Message) -> Self {
        let Message { domain, descriptors, hits_addend } = message;
        Self {
            domain: domain.unwrap_or_default(),
            descriptors: descriptors.unwrap_or_default().into_iter().map(Into::into).collect(),
            hits_addend: hits_addend.map_or(0, Number::narrow),
        }
    }
}

// === impl Descriptor ===

impl From<Descriptor> for RateLimitDescriptor {
    fn from(descriptor: Descriptor) -> Self {
        let Descriptor { entries, limit, hits_addend, is_negative_hits } = descriptor;
        Self {
            entries: entries.unwrap_or_default().into_iter().map(Into::into).collect(),
            limit: limit.map(Into::into),
            hits_addend: hits_addend.map(|Number(value)| UInt64Value { value }),
            is_negative_hits: is_negative_hits.unwrap_or_default(),
        }
    }
}

// === impl Entry ===

impl From<Entry> for rate_limit_descriptor::Entry {
    fn from(Entry { key, value }: Entry) -> Self {
        Self { key: key.unwrap_or_default(), value: value.unwrap_or_default() }
    }
}

// === impl Override ===

impl From<Override> for RateLimitOverride {
    fn from(Override { requests_per_unit, unit }: Override) -> Self {
        Self {
            requests_per_unit: requests_per_unit.map_or(0, Number::narrow),
            unit: unit.map_or(0, |Unit(unit)| unit),
        }
    }
}

// === impl Number ===

impl Number {
    /// For fields of 32 bits. What is beyond them is as much as they hold.
    fn narrow(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number that is not negative")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                let number = text.parse().map(Number);
                number.map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Digits)
    }
}

// === impl Unit ===

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Unit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Unit, E> {
                // Which numbers there are is not said here, for all ways to ask alike.
                Ok(Unit(i32::try_from(number).unwrap_or(i32::MAX)))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Unit, E> {
                Ok(Unit(i32::try_from(number).unwrap_or(i32::MIN)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Unit, E> {
                match RateLimitUnit::from_str_name(text) {
                    Some(unit) => Ok(Unit(unit.into())),
                    None => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(Name)
    }
}
