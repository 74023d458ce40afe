//! Values of credentials that were seen lately: SHA-256 takes longer than all other work on a credential.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use hashbrown::DefaultHashBuilder;

use crate::generations::Generations;
use crate::sharded::Sharded;

/// Locks; so many that workers hardly ever contend for one.
const SHARDS: usize = 64;
/// Entries of each generation in a shard: 32,768 credentials in all.
const GENERATION: usize = 256;

/// The values of credentials, bounded in number.
pub(super) struct Cache<V> {
    shards: Sharded<Generations<u64, Arc<Entry<V>>, GENERATION>, SHARDS>,
    /// The hash by which entries are found. It is randomly seeded; credentials with equal hashes only evict each other.
    hasher: DefaultHashBuilder,
}

/// A credential and its value.
struct Entry<V> {
    credential: Box<[u8]>,
    value: V,
}

impl<V: Clone> Cache<V> {
    /// The value of a credential.
    pub fn get(&self, credential: &[u8]) -> Option<V> {
        let hash = self.hash(credential);
        let entry = self.shards.lock(&hash).get(&hash)?;
        // In constant time, so that the time of a lookup reveals nothing about another credential.
        verify_slices_are_equal(&entry.credential, credential).is_ok().then(|| entry.value.clone())
    }

    /// Adds the value of a credential, or replaces it.
    pub fn put(&self, credential: &[u8], value: V) {
        let hash = self.hash(credential);
        self.shards.lock(&hash).put(hash, Arc::new(Entry { credential: credential.into(), value }));
    }

    fn hash(&self, credential: &[u8]) -> u64 {
        self.hasher.hash_one(credential)
    }
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self { shards: Sharded::default(), hasher: DefaultHashBuilder::default() }
    }
}
