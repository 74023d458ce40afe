//! The consumers of credentials that were seen lately: SHA-256 takes longer than all other work on a credential.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::consumer::Consumer;
use crate::generations::Generations;
use crate::sharded::Sharded;

/// Locks; so many that workers hardly ever contend for one.
const SHARDS: usize = 64;
/// Entries of each generation in a shard: 32,768 credentials in all.
const GENERATION: usize = 256;

/// Valid credentials and their consumers, bounded in number. Unknown credentials are not in it, so a flood of them evicts
/// none.
#[derive(Default)]
pub(super) struct Cache {
    shards: Sharded<Generations<u64, Arc<Verified>, GENERATION>, SHARDS>,
    /// The key of the hash by which entries are found: an attacker can't choose credentials whose hash is that of another.
    key: RandomState,
}

/// A credential that is known to be valid.
struct Verified {
    credential: Box<[u8]>,
    consumer: Arc<Consumer>,
}

impl Cache {
    /// The consumer of a credential; `find` finds one that is not in the cache.
    pub fn get(
        &self,
        credential: &[u8],
        find: impl FnOnce() -> Option<Arc<Consumer>>,
    ) -> Option<Arc<Consumer>> {
        let mut hasher = self.key.build_hasher();
        hasher.write(credential);
        let hash = hasher.finish();
        let verified = self.shards.lock(&hash).get(&hash);
        // In constant time, so that the time of a lookup reveals nothing about another credential.
        if let Some(verified) = verified
            && verify_slices_are_equal(&verified.credential, credential).is_ok()
        {
            return Some(Arc::clone(&verified.consumer));
        }
        let consumer = find()?;
        let verified = Verified { credential: credential.into(), consumer: Arc::clone(&consumer) };
        self.shards.lock(&hash).put(hash, Arc::new(verified));
        Some(consumer)
    }
}
