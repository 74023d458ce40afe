//! A sharded table: each shard has its own lock, so that workers seldom wait for each other.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};

/// A table of `N` shards; a key always belongs to the same shard.
#[derive(Debug)]
pub struct Sharded<T, const N: usize> {
    shards: [Mutex<T>; N],
    /// Randomly seeded, so that a client can't aim its keys at one shard.
    hasher: DefaultHashBuilder,
}

impl<T: Default, const N: usize> Default for Sharded<T, N> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: DefaultHashBuilder::default() }
    }
}

impl<T, const N: usize> Sharded<T, N> {
    /// Locks the shard that `key` belongs to.
    pub fn lock(&self, key: &impl Hash) -> MutexGuard<'_, T> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash will do")]
        let hash = self.hasher.hash_one(key) as usize;
        self.shards[hash % N].lock()
    }

    /// All shards, each locked when the iterator reaches it.
    pub fn lock_each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(Mutex::lock)
    }
}
