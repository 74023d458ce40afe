//! One shard of the in-process store.

use hashbrown::HashTable;

use crate::limit::{Key, Policy, State};
use crate::time::Timestamp;

/// How many entries are looked at to find one to push out.
const CANDIDATES: usize = 16;

/// What stands for one (policy, key): the key mixed with the policy's own 128 bits. Both are hashes, so
/// that the mix is as good as a hash over the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryId(u128);

#[derive(Debug)]
struct Entry {
    id: EntryId,
    state: State,
    /// From when on the state equals no state.
    expires: Timestamp,
}

/// A table of entries, at most `max` of them.
#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    max: usize,
}

impl EntryId {
    pub(super) fn new(policy: &Policy, key: Key) -> Self {
        Self(u128::from_le_bytes(key.0) ^ policy.salt())
    }

    /// Which of `shards` shards it lives in, by its upper half; the table places it by a hash of all.
    pub(super) fn shard(self, shards: usize) -> usize {
        let upper = self.0 >> 64;
        usize::try_from((upper * shards as u128) >> 64).unwrap_or(0)
    }
}

impl Shard {
    pub(super) fn new(max: usize) -> Self {
        Self { table: HashTable::new(), max }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn get(&self, id: EntryId, hash: u64) -> Option<&State> {
        self.table.find(hash, |entry| entry.id == id).map(|entry| &entry.state)
    }

    /// Remembers a state until `expires`.
    pub(super) fn put(
        &mut self,
        id: EntryId,
        state: State,
        expires: Timestamp,
        now: Timestamp,
        hash: impl Fn(&EntryId) -> u64,
    ) {
        let own = hash(&id);
        if let Some(entry) = self.table.find_mut(own, |entry| entry.id == id) {
            entry.state = state;
            entry.expires = expires;
            return;
        }
        if self.table.len() >= self.max {
            self.push_one_out(own, now);
        }
        self.table.insert_unique(own, Entry { id, state, expires }, |entry| hash(&entry.id));
    }

    /// Removes what has expired, and gives memory back when little is left.
    pub(super) fn sweep(&mut self, now: Timestamp, hash: impl Fn(&EntryId) -> u64) {
        self.table.retain(|entry| entry.expires > now);
        if self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |entry| hash(&entry.id));
        }
    }

    /// Removes one entry: of a few, looked at from a place that the new key's hash picks, the first that has
    /// expired, or else the one that expires soonest.
    fn push_one_out(&mut self, hash: u64, now: Timestamp) {
        let buckets = self.table.num_buckets();
        let start = usize::try_from(hash).unwrap_or(0) % buckets.max(1);
        let around = (start..buckets).chain(0..start);
        let seen =
            around.filter_map(|place| Some((place, self.table.get_bucket(place)?.expires))).take(CANDIDATES);
        let mut victim: Option<(usize, Timestamp)> = None;
        for (place, expires) in seen {
            if victim.is_none_or(|(_, soonest)| expires < soonest) {
                victim = Some((place, expires));
            }
            if expires <= now {
                break;
            }
        }
        if let Some(entry) = victim.and_then(|(place, _)| self.table.get_bucket_entry(place).ok()) {
            entry.remove();
        }
    }
}
