//! Values and patterns of values, looked up in a time that does not grow with their number.

use hashbrown::HashMap;

use crate::config::http::ValuePattern;

/// One item for each pattern.
#[derive(Debug)]
pub(super) struct Patterns<T> {
    exact: HashMap<Box<str>, T>,
    prefixes: HashMap<Box<str>, Prefix<T>>,
    /// The lengths of the prefixes, longest first: each costs a look-up.
    lengths: Vec<usize>,
    any: Option<T>,
}

#[derive(Debug)]
struct Prefix<T> {
    /// How many were written before it.
    place: usize,
    item: T,
}

// === impl Patterns ===

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), prefixes: HashMap::new(), lengths: Vec::new(), any: None }
    }
}

impl<T: Default> Patterns<T> {
    /// The item of a pattern, a new one if it has none.
    pub(super) fn entry(&mut self, pattern: &ValuePattern) -> &mut T {
        match pattern {
            ValuePattern::Any => self.any.get_or_insert_default(),
            ValuePattern::Exact(value) => self.exact.entry(value.as_str().into()).or_default(),
            ValuePattern::Prefix(prefix) => {
                let place = self.prefixes.len();
                if let Err(index) = self.lengths.binary_search_by(|length| prefix.len().cmp(length)) {
                    self.lengths.insert(index, prefix.len());
                }
                let prefix = self.prefixes.entry(prefix.as_str().into());
                &mut prefix.or_insert_with(|| Prefix { place, item: T::default() }).item
            }
        }
    }
}

impl<T> Patterns<T> {
    /// The items whose patterns match, the most specific first.
    pub(super) fn matching(&self, value: &str) -> impl Iterator<Item = &T> {
        let prefixes = self.prefixes(value).map(|prefix| &prefix.item);
        self.exact.get(value).into_iter().chain(prefixes).chain(&self.any)
    }

    /// The item of the exact value, else of the first prefix that was written, else of any.
    pub(super) fn first_written(&self, value: &str) -> Option<&T> {
        let prefix = || self.prefixes(value).min_by_key(|prefix| prefix.place).map(|prefix| &prefix.item);
        self.exact.get(value).or_else(prefix).or(self.any.as_ref())
    }

    fn prefixes(&self, value: &str) -> impl Iterator<Item = &Prefix<T>> {
        self.lengths.iter().filter_map(|&length| self.prefixes.get(value.get(..length)?))
    }
}
