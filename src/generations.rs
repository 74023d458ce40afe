//! A bounded map that evicts entries which were not read for a while.

use std::borrow::Borrow;
use std::hash::Hash;

use hashbrown::HashMap;

/// A bounded map in two generations: when the young one is full, entries of the old one that were not read since are
/// evicted. It holds at most `2 * N` entries.
#[derive(Debug)]
pub struct Generations<K, V, const N: usize> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V: Clone, const N: usize> Generations<K, V, N> {
    /// The value of a key, which counts as read.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.put(key, value.clone());
        Some(value)
    }

    /// Adds an entry, or replaces its value.
    pub fn put(&mut self, key: K, value: V) {
        if self.young.len() >= N {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, V, const N: usize> Default for Generations<K, V, N> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_read_stay_and_the_number_is_bounded() {
        let mut map = Generations::<usize, usize, 16>::default();
        map.put(0, 0);
        for number in 1..160 {
            map.put(number, number);
            assert_eq!(map.get(&0), Some(0));
            assert!(map.len() <= 32);
        }
        assert_eq!(map.get(&1), None);
    }
}
