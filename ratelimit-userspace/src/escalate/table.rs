//! A bounded table that forgets who matters least.
//!
//! A key has a few places that its hash chooses, and a new key that finds them taken displaces the least of
//! those that are there. The hash is keyed, so nobody can choose addresses that displace a certain one.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    iter,
};

/// Places that a key may be in.
const WAYS: usize = 8;

/// Values by keys. Memory is taken with the first of them.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    places: Vec<Option<(K, V)>>,
    sets: usize,
    hash: RandomState,
}

// === impl Table ===

impl<K: Hash + Eq + Clone, V: Default> Table<K, V> {
    /// A table for at most this many, at least [`WAYS`].
    pub(super) fn new(capacity: usize) -> Self {
        Self { places: Vec::new(), sets: (capacity / WAYS).max(1), hash: RandomState::new() }
    }

    /// The value of a key, which may be new. Then it is in the place of the one that `weight` finds lightest.
    pub(super) fn entry<W: Ord>(&mut self, key: &K, weight: impl Fn(&V) -> W) -> &mut V {
        if self.places.is_empty() {
            self.places.extend(iter::repeat_with(|| None).take(self.sets * WAYS));
        }
        let first = self.first(key);
        let set = &mut self.places[first..first + WAYS];
        let is_key = |place: &Option<(K, V)>| place.as_ref().is_some_and(|(known, _)| known == key);
        let index = set.iter().position(is_key).unwrap_or_else(|| {
            let lightest = (0..WAYS).min_by_key(|index| set[*index].as_ref().map(|(_, value)| weight(value)));
            let index = lightest.unwrap_or_default();
            set[index] = None;
            index
        });
        &mut set[index].get_or_insert_with(|| (key.clone(), V::default())).1
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let first = self.first(key);
        let set = self.places.get(first..first + WAYS)?;
        set.iter().flatten().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Forgets those of the places of a key of whom this holds: of keys that hash alike, all.
    pub(super) fn forget_near(&mut self, key: &K, forgotten: impl Fn(&K) -> bool) {
        let first = self.first(key);
        for place in self.places.get_mut(first..first + WAYS).into_iter().flatten() {
            place.take_if(|(key, _)| forgotten(key));
        }
    }

    /// Forgets all of whom this holds.
    pub(super) fn forget(&mut self, forgotten: impl Fn(&K) -> bool) {
        for place in &mut self.places {
            place.take_if(|(key, _)| forgotten(key));
        }
    }

    fn first(&self, key: &K) -> usize {
        let sets = self.sets as u64;
        usize::try_from(self.hash.hash_one(key) % sets).unwrap_or_default() * WAYS
    }
}

#[cfg(test)]
mod tests;
