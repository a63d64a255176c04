//! What a map looks like to the kernel, pinned or in the object.

use std::fmt;

use aya::maps::{MapData, MapError};

use super::StateError;

/// `enum bpf_map_type` of linux/bpf.h, as far as state maps use it.
const TYPES: [(u32, &str); 6] = [
    (1, "hash"),
    (2, "array"),
    (6, "per-CPU array"),
    (9, "LRU hash"),
    (11, "prefix trie"),
    (27, "ring buffer"),
];

/// The shape of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

/// The first thing in which a pinned map differs from what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The map's type.
    Kind {
        /// In the pinned map.
        found: u32,
        /// In this build.
        expected: u32,
    },
    /// Bytes in a key.
    KeySize {
        /// In the pinned map.
        found: u32,
        /// In this build.
        expected: u32,
    },
    /// Bytes in a value.
    ValueSize {
        /// In the pinned map.
        found: u32,
        /// In this build.
        expected: u32,
    },
    /// The map's flags.
    Flags {
        /// In the pinned map.
        found: u32,
        /// In this build.
        expected: u32,
    },
    /// How many entries it has.
    Entries {
        /// In the pinned map.
        found: u32,
        /// In this build.
        expected: u32,
    },
}

/// The layouts of `names` in a BPF object.
pub(in crate::network) fn expected<'a>(
    object: &[u8],
    names: &[&'a str],
) -> Result<Vec<(&'a str, Layout)>, StateError> {
    let object = aya_obj::Object::parse(object).map_err(|error| StateError::Object(error.to_string()))?;
    names
        .iter()
        .map(|&name| {
            let map = object
                .maps
                .get(name)
                .ok_or_else(|| StateError::Object(format!("it has no map named `{name}`")))?;
            Ok((
                name,
                Layout {
                    kind: map.map_type(),
                    key_size: map.key_size(),
                    value_size: map.value_size(),
                    entries: map.max_entries(),
                    flags: map.map_flags(),
                },
            ))
        })
        .collect()
}

// === impl Layout ===

impl Layout {
    /// The layout of a map in the kernel.
    pub fn of(map: &MapData) -> Result<Self, MapError> {
        let info = map.info()?;
        Ok(Self {
            kind: info.map_type().map_or(0, |kind| kind as u32),
            key_size: info.key_size(),
            value_size: info.value_size(),
            entries: info.max_entries(),
            flags: info.map_flags(),
        })
    }

    /// A longest-prefix trie of addresses of so many octets, with `u32` values.
    pub(in crate::network) const fn trie(octets: u32, entries: u32) -> Self {
        /// `BPF_F_NO_PREALLOC` of linux/bpf.h: the kernel refuses a trie without it.
        const NO_PREALLOC: u32 = 1;
        Self { kind: 11, key_size: 4 + octets, value_size: 4, entries, flags: NO_PREALLOC }
    }

    /// An array.
    pub(in crate::network) const fn array(value_size: u32, entries: u32) -> Self {
        Self { kind: 2, key_size: 4, value_size, entries, flags: 0 }
    }

    /// A new map that looks like this.
    pub(super) fn create(&self, name: &str) -> Result<MapData, MapError> {
        let Self { kind, key_size, value_size, entries, flags } = *self;
        let map = aya_obj::Map::new_from_params(kind, key_size, value_size, entries, flags);
        MapData::create(map, name, None)
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    pub(super) fn with_entries(self, entries: u32) -> Self {
        Self { entries, ..self }
    }

    /// In what this differs from `expected`; the number of entries comes last, since it alone can be
    /// changed by the policy.
    pub fn difference(&self, expected: &Self) -> Option<Difference> {
        let Self { kind, key_size, value_size, entries, flags } = *self;
        if kind != expected.kind {
            Some(Difference::Kind { found: kind, expected: expected.kind })
        } else if key_size != expected.key_size {
            Some(Difference::KeySize { found: key_size, expected: expected.key_size })
        } else if value_size != expected.value_size {
            Some(Difference::ValueSize { found: value_size, expected: expected.value_size })
        } else if flags != expected.flags {
            Some(Difference::Flags { found: flags, expected: expected.flags })
        } else if entries != expected.entries {
            Some(Difference::Entries { found: entries, expected: expected.entries })
        } else {
            None
        }
    }
}

// === impl Difference ===

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind: u32| {
            TYPES
                .iter()
                .find(|(number, _)| *number == kind)
                .map_or_else(|| format!("type {kind}"), |(_, name)| (*name).to_owned())
        };
        match *self {
            Self::Kind { found, expected } => {
                write!(f, "it is a map of the kind {}, expected {}", name(found), name(expected))
            }
            Self::KeySize { found, expected } => {
                write!(f, "its keys have {found} bytes, expected {expected}")
            }
            Self::ValueSize { found, expected } => {
                write!(f, "its values have {found} bytes, expected {expected}")
            }
            Self::Flags { found, expected } => {
                write!(f, "its flags are {found:#x}, expected {expected:#x}")
            }
            Self::Entries { found, expected } => {
                write!(f, "it has {found} entries, expected {expected}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { kind: 2, key_size: 4, value_size: 64, entries: 8, flags: 0x400 };

    #[test]
    fn each_field_is_compared_and_named() {
        assert_eq!(LAYOUT.difference(&LAYOUT), None);
        let cases = [
            (Layout { kind: 9, ..LAYOUT }, "LRU hash"),
            (Layout { key_size: 8, ..LAYOUT }, "keys have 8 bytes, expected 4"),
            (Layout { value_size: 72, ..LAYOUT }, "values have 72 bytes, expected 64"),
            (Layout { flags: 0, ..LAYOUT }, "flags are 0x0, expected 0x400"),
            (Layout { entries: 16, ..LAYOUT }, "16 entries, expected 8"),
        ];
        for (pinned, words) in cases {
            let difference = pinned.difference(&LAYOUT).expect("a difference").to_string();
            assert!(difference.contains(words), "{difference}");
        }
    }

    #[test]
    fn another_value_size_outweighs_another_number_of_entries() {
        let pinned = Layout { value_size: 72, entries: 16, ..LAYOUT };
        assert_eq!(pinned.difference(&LAYOUT), Some(Difference::ValueSize { found: 72, expected: 64 }));
    }
}
