//! One shard of the in-process store.

use std::borrow::Cow;
use std::num::NonZeroU64;

use hashbrown::HashTable;

use crate::limit::{Debt, Key, Policy, Record, State};
use crate::time::Timestamp;

/// How many entries are looked at to find one to push out.
const CANDIDATES: usize = 16;

/// What stands for one (policy, key): the key mixed with the policy's own 128 bits. Both are hashes, so
/// that the mix is as good as a hash over the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryId(u128);

/// What is kept of one key.
#[derive(Debug)]
struct Entry {
    id: EntryId,
    held: Held,
    meta: Meta,
}

/// A record, small where it can be: the most common state takes 24 bytes.
#[derive(Debug)]
enum Held {
    /// A debt and nothing else. Its unit is at most 2^53, which leaves a byte for telling the variants apart.
    Debt {
        stamp: u64,
        ticks: u64,
        unit: [u8; 7],
    },
    Record(Box<Record>),
}

/// From when on a record equals none, in steps of 2^14 µs, and 24 bits of its policy's salt.
#[derive(Clone, Copy, Debug)]
struct Meta(u64);

/// A table of entries, at most `max` of them.
#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    max: usize,
}

impl Held {
    fn new(record: Record) -> Self {
        if let Record { state: Some(State::Debt(debt)), hold: None } = &record {
            let [unit @ .., _] = debt.unit.get().to_le_bytes();
            return Self::Debt { stamp: debt.stamp.0, ticks: debt.ticks, unit };
        }
        Self::Record(Box::new(record))
    }

    fn record(&self) -> Cow<'_, Record> {
        match self {
            Self::Debt { stamp, ticks, unit } => {
                let mut bytes = [0; 8];
                bytes[..unit.len()].copy_from_slice(unit);
                let unit = u64::from_le_bytes(bytes);
                let unit = NonZeroU64::new(unit).unwrap_or(NonZeroU64::MIN);
                let debt = Debt { stamp: Timestamp(*stamp), ticks: *ticks, unit };
                Cow::Owned(Record { state: Some(State::Debt(debt)), hold: None })
            }
            Self::Record(record) => Cow::Borrowed(record),
        }
    }
}

impl Meta {
    fn new(salt: u128, expires: Timestamp) -> Self {
        // Rounded up: nothing may go before its time.
        Self(((expires.0 >> 14) + 1) << 24 | Self::tag(salt))
    }

    fn tag(salt: u128) -> u64 {
        u64::try_from(salt >> 104).unwrap_or(0)
    }

    fn has_expired(self, now: Timestamp) -> bool {
        self.0 >> 24 <= now.0 >> 14
    }
}

impl EntryId {
    pub(super) fn new(salt: u128, key: Key) -> Self {
        Self(u128::from_le_bytes(key.0) ^ salt)
    }

    /// The key of an entry that belongs to the policy with this salt.
    fn key(self, salt: u128) -> Key {
        Key((self.0 ^ salt).to_le_bytes())
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

    pub(super) fn get(&self, id: EntryId, hash: u64) -> Option<Cow<'_, Record>> {
        self.table.find(hash, |entry| entry.id == id).map(|entry| entry.held.record())
    }

    /// Keeps a record of the policy with this salt until `expires`.
    pub(super) fn put(
        &mut self,
        id: EntryId,
        salt: u128,
        record: Record,
        expires: Timestamp,
        now: Timestamp,
        hash: impl Fn(&EntryId) -> u64,
    ) {
        let own = hash(&id);
        let (held, meta) = (Held::new(record), Meta::new(salt, expires));
        if let Some(entry) = self.table.find_mut(own, |entry| entry.id == id) {
            entry.held = held;
            entry.meta = meta;
            return;
        }
        if self.table.len() >= self.max {
            self.push_one_out(own, now);
        }
        self.table.insert_unique(own, Entry { id, held, meta }, |entry| hash(&entry.id));
    }

    /// Forgets a record that equals none.
    pub(super) fn remove(&mut self, id: EntryId, hash: u64) {
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.id == id) {
            entry.remove();
        }
    }

    /// The keys of `policy`, at most `max` of them.
    pub(super) fn keys(&self, policy: &Policy, now: Timestamp, max: usize) -> Vec<Key> {
        let own = |entry: &&Entry| {
            entry.meta.0 & 0xff_ffff == Meta::tag(policy.salt()) && !entry.meta.has_expired(now)
        };
        self.table.iter().filter(own).map(|entry| entry.id.key(policy.salt())).take(max).collect()
    }

    /// Removes what has expired, and gives memory back when little is left.
    pub(super) fn sweep(&mut self, now: Timestamp, hash: impl Fn(&EntryId) -> u64) {
        self.table.retain(|entry| !entry.meta.has_expired(now));
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
            around.filter_map(|place| Some((place, self.table.get_bucket(place)?.meta))).take(CANDIDATES);
        let mut victim: Option<(usize, Meta)> = None;
        for (place, meta) in seen {
            if victim.is_none_or(|(_, soonest)| meta.0 < soonest.0) {
                victim = Some((place, meta));
            }
            if meta.has_expired(now) {
                break;
            }
        }
        if let Some(entry) = victim.and_then(|(place, _)| self.table.get_bucket_entry(place).ok()) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 48);
    }
}
