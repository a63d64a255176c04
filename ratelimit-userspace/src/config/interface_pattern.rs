//! Patterns of interface names: `*` stands for any bytes, `?` for one, `[a-c0]` for one of those and `[!a]`
//! for one that is not. Everything else stands for itself, and `[*]` for a star.
//!
//! A pattern never means the loopback interface: nothing there comes from outside. Its name alone does.

use std::collections::BTreeMap;

/// `IFNAMSIZ` without the final zero.
pub(super) const MAX_BYTES: usize = 15;
/// What no pattern means.
const LOOPBACK: &str = "lo";

/// A pattern, or a plain name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    plain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Any bytes.
    Star,
    /// One of these bytes.
    One(Bytes),
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes([u64; 4]);

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("has a `[` without a `]` after it")]
    Open,
    #[error("has brackets with nothing in them")]
    Empty,
    #[error("has a range in brackets that runs from high to low")]
    Reversed,
    #[error("has a character in brackets that is not ASCII")]
    NotAscii,
}

/// Whether a name is a pattern.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

// === impl Pattern ===

impl Pattern {
    /// Reads a pattern.
    pub(super) fn new(text: &str) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&first, mut after)) = rest.split_first() {
            parts.push(match first {
                b'*' => Part::Star,
                b'?' => Part::One(Bytes::ALL),
                b'[' => {
                    // A bracket that comes first stands for itself, as in a shell.
                    let start = 1 + usize::from(after.starts_with(b"!"));
                    let end = after.iter().skip(start).position(|byte| *byte == b']').map(|end| end + start);
                    let end = match end {
                        Some(end) => end,
                        None if after.contains(&b']') => return Err(PatternError::Empty),
                        None => return Err(PatternError::Open),
                    };
                    let set = Bytes::in_brackets(&after[..end])?;
                    after = &after[end + 1..];
                    Part::One(set)
                }
                byte => Part::One(Bytes::only(byte)),
            });
            rest = after;
        }
        // Two stars in a row say no more than one.
        parts.dedup_by(|a, b| *a == Part::Star && *b == Part::Star);
        Ok(Self { parts, plain: !is_pattern(text) })
    }

    /// The bytes of the shortest name that it means.
    pub(super) fn shortest(&self) -> usize {
        self.parts.iter().filter(|part| **part != Part::Star).count()
    }

    /// Whether it means this interface.
    pub(super) fn matches(&self, name: &str) -> bool {
        let Self { parts, plain } = self;
        if name == LOOPBACK && !plain {
            return false;
        }
        // Where to go on if what follows the last star does not fit: the star takes one byte more.
        let (mut part, mut at, mut retry) = (0, 0, None);
        let name = name.as_bytes();
        while at < name.len() {
            match parts.get(part) {
                Some(Part::Star) => {
                    part += 1;
                    retry = Some((part, at));
                }
                Some(Part::One(set)) if set.has(name[at]) => (part, at) = (part + 1, at + 1),
                _ => {
                    let Some((after_star, from)) = retry else { return false };
                    (part, at) = (after_star, from + 1);
                    retry = Some((part, at));
                }
            }
        }
        parts[part..].iter().all(|part| *part == Part::Star)
    }

    /// The shortest name that both mean.
    pub(super) fn common(&self, other: &Self) -> Option<String> {
        let (a, b) = (&self.parts, &other.parts);
        // How far both are behind a name, which is as long as the layer's number.
        let mut layer = BTreeMap::from([((0, 0), Vec::new())]);
        for _ in 0..=MAX_BYTES {
            let mut next = BTreeMap::new();
            // A step that takes no byte goes to a state that comes later in the order.
            while let Some(((i, j), name)) = layer.pop_first() {
                if (i, j) == (a.len(), b.len()) {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    if self.matches(&name) && other.matches(&name) {
                        return Some(name);
                    }
                    continue;
                }
                if a.get(i) == Some(&Part::Star) {
                    layer.entry((i + 1, j)).or_insert_with(|| name.clone());
                }
                if b.get(j) == Some(&Part::Star) {
                    layer.entry((i, j + 1)).or_insert_with(|| name.clone());
                }
                let (byte, to) = match (a.get(i), b.get(j)) {
                    (Some(Part::One(a)), Some(Part::One(b))) => (a.and(*b).any(), (i + 1, j + 1)),
                    (Some(Part::One(set)), Some(Part::Star)) => (set.any(), (i + 1, j)),
                    (Some(Part::Star), Some(Part::One(set))) => (set.any(), (i, j + 1)),
                    (Some(Part::Star), Some(Part::Star)) => (Bytes::ALL.any(), (i, j)),
                    _ => (None, (i, j)),
                };
                if let Some(byte) = byte {
                    let longer = name.iter().copied().chain([byte]).collect();
                    next.entry(to).or_insert(longer);
                }
            }
            layer = next;
        }
        None
    }
}

// === impl Bytes ===

impl Bytes {
    const ALL: Self = Self([u64::MAX; 4]);

    fn only(byte: u8) -> Self {
        let mut set = Self([0; 4]);
        set.insert(byte);
        set
    }

    /// Reads what stands between brackets.
    fn in_brackets(text: &[u8]) -> Result<Self, PatternError> {
        let (negated, mut rest) = match text.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if !text.is_ascii() {
            return Err(PatternError::NotAscii);
        }
        let mut set = Self([0; 4]);
        while let Some((&first, after)) = rest.split_first() {
            let (last, after) = match after {
                [b'-', last, after @ ..] => (*last, after),
                _ => (first, after),
            };
            if last < first {
                return Err(PatternError::Reversed);
            }
            (first..=last).for_each(|byte| set.insert(byte));
            rest = after;
        }
        Ok(if negated { Self(set.0.map(|word| !word)) } else { set })
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] & (1 << (byte % 64)) != 0
    }

    fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// One of them, if possible one that names have.
    fn any(self) -> Option<u8> {
        let usual = (b'0'..=b'9').chain(b'a'..=b'z').chain(b'A'..=b'Z');
        usual.chain(b'!'..=u8::MAX).find(|byte| self.has(*byte))
    }
}

#[cfg(test)]
mod tests;
