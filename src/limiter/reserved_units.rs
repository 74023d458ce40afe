//! Units that the requests in flight of this process have reserved, by the keys of limits that settle costs: an operator and a
//! client are shown them beside the units that are spent. Nothing is decided by them.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::limit::{EntryId, Key, Policy};
use crate::sharded::Sharded;

/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 64;

/// The reserved units of each key, shared by all workers. A key is in the table as long as a request has units of it.
#[derive(Debug, Default)]
pub struct ReservedUnits(Sharded<HashMap<EntryId, u64>, SHARDS>);

impl ReservedUnits {
    /// How many units of a key are reserved.
    #[must_use]
    pub fn units(&self, policy: &Policy, key: Key) -> u64 {
        let id = EntryId::new(policy, key);
        self.0.lock(&id).get(&id).copied().unwrap_or_default()
    }

    /// Adds units that a request has reserved.
    pub(super) fn add(&self, policy: &Policy, key: Key, units: u64) {
        let id = EntryId::new(policy, key);
        let mut shard = self.0.lock(&id);
        let reserved = shard.entry(id).or_default();
        *reserved = reserved.saturating_add(units);
    }

    /// Removes units that a request had reserved.
    pub(super) fn remove(&self, policy: &Policy, key: Key, units: u64) {
        let id = EntryId::new(policy, key);
        if let Entry::Occupied(mut reserved) = self.0.lock(&id).entry(id) {
            *reserved.get_mut() = reserved.get().saturating_sub(units);
            if *reserved.get() == 0 {
                reserved.remove();
            }
        }
    }
}
