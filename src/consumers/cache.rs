//! The consumers of credentials that were seen lately: SHA-256 takes longer than all other work on a credential.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::consumer::Consumer;
use crate::generations::Generations;
use crate::sharded::Sharded;

/// Locks; so many that workers hardly ever contend for one.
const SHARDS: usize = 64;
/// Entries of each generation in a shard: 32,768 credentials in all.
const GENERATION: usize = 256;

/// A keyed hash of a credential. Credentials are compared by it alone, so the time of a lookup reveals nothing about other
/// credentials; no one outside the process knows the keys.
type Tag = [u64; 2];

/// Valid credentials and their consumers, bounded in number. Unknown credentials are not in it, so a flood of them evicts
/// none.
#[derive(Debug, Default)]
pub(super) struct Cache {
    shards: Sharded<Generations<Tag, Arc<Consumer>, GENERATION>, SHARDS>,
    keys: [RandomState; 2],
}

impl Cache {
    /// The consumer of a credential; `find` finds one that is not in the cache.
    pub fn get(
        &self,
        credential: &[u8],
        find: impl FnOnce() -> Option<Arc<Consumer>>,
    ) -> Option<Arc<Consumer>> {
        let tag = self.keys.each_ref().map(|key| key.hash_one(credential));
        if let Some(consumer) = self.shards.lock(&tag).get(&tag) {
            return Some(consumer);
        }
        let consumer = find()?;
        self.shards.lock(&tag).put(tag, Arc::clone(&consumer));
        Some(consumer)
    }
}
