//! Headers as a JSON object: a value, or a list of values, by name.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};

#[derive(Deserialize)]
#[serde(untagged, expecting = "a header's value is a string or a list of strings")]
enum Values {
    One(String),
    Many(Vec<String>),
}

/// Reads the object. A name that stands there twice has the values of both.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
    deserializer.deserialize_map(Headers)
}

struct Headers;

impl<'de> Visitor<'de> for Headers {
    type Value = HeaderMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of headers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderMap, A::Error> {
        let mut headers = HeaderMap::new();
        while let Some((name, values)) = map.next_entry::<String, Values>()? {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| A::Error::custom(format_args!("{name:?} is no name of a header")))?;
            let values = match values {
                Values::One(value) => vec![value],
                Values::Many(values) => values,
            };
            for value in values {
                // The value may be a secret, so it is not shown.
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                    A::Error::custom(format_args!("the value of {name:?} has control characters"))
                })?;
                headers.try_append(&header, value).map_err(|_| A::Error::custom("too many headers"))?;
            }
        }
        Ok(headers)
    }
}
