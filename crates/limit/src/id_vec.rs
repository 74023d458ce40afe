//! Typed indices: a list is indexed by the ID type of its items, so that indices of different lists can't be mixed up.

use std::marker::PhantomData;
use std::ops::{Deref, Index};

/// The index of an item in the list of all items of its kind, in the order of the configuration.
pub trait Id: Copy {
    /// The id with this number.
    fn new(number: u32) -> Self;

    /// The number of the id, from 0.
    fn number(self) -> u32;

    /// The id of the item at `index`.
    ///
    /// # Panics
    /// From 2^32 on. Each item takes some bytes of the configuration, which is far shorter than that.
    #[must_use]
    fn from_index(index: usize) -> Self {
        Self::new(u32::try_from(index).expect("a configuration has fewer than 2^32 items of a kind"))
    }

    /// The index of the item with this id.
    fn index(self) -> usize {
        self.number() as usize
    }
}

/// A list of items that are found by their id.
#[derive(Clone, Debug)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    ids: PhantomData<I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// Adds an item, and returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::from_index(self.items.len() - 1)
    }

    /// The item with this id; none if the id comes from a longer list.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// The item with this id, to change it; none if the id comes from a longer list.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.index())
    }

    /// All ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I, T> Deref for IdVec<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, ids: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(items: S) -> Self {
        Self::from(Vec::from_iter(items))
    }
}

impl<I, T> Extend<T> for IdVec<I, T> {
    fn extend<S: IntoIterator<Item = T>>(&mut self, items: S) {
        self.items.extend(items);
    }
}

impl<I, T> IntoIterator for IdVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'v, I, T> IntoIterator for &'v IdVec<I, T> {
    type Item = &'v T;
    type IntoIter = std::slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}
