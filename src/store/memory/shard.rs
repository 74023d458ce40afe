//! One shard of the in-process store, and its eviction.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::present::Present;
use crate::limit::{Debt, EntryId, Key, Penalty, Policy, Record, State};
use crate::time::Timestamp;

/// How many entries of a class are compared to find the one to evict.
const CANDIDATES: usize = 16;
/// After how many buckets fewer candidates are enough, which bounds the work if a class is rare.
const MAX_VISITED: usize = 512;

/// Hashes entries with a secret of the process, so that no client can aim its keys at one shard or bucket.
#[derive(Clone, Debug)]
pub(super) struct EntryHasher {
    secret: u128,
    mix: DefaultHashBuilder,
}

/// An entry's identity with its hash, which determines shard and bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub id: EntryId,
    hash: u64,
}

/// The entry of one policy and key.
#[derive(Debug)]
struct Entry {
    id: EntryId,
    record: PackedRecord,
    meta: Meta,
}

/// A record; the most common state takes 24 bytes.
#[derive(Debug)]
enum PackedRecord {
    /// A debt without penalty and time of creation. Its unit is at most 2^53, which leaves a byte for the discriminant.
    Debt {
        stamp: u64,
        ticks: u64,
        unit: [u8; 7],
    },
    Record(Box<Record>),
}

/// A record is not a debt alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotOnlyDebt;

/// The properties of an entry that eviction, sweep and list need, in one word: when it expires, in steps of
/// 2^14 µs (40 bits); whether that is by the wall clock; whether it is strict; and 22 bits of its policy's salt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta(u64);

/// How many entries a policy has in a shard.
#[derive(Debug)]
struct EntryCount {
    /// The policy, as in [`Meta::policy`].
    policy: u64,
    /// Entries with nothing but a count.
    plain: usize,
    /// Entries with a ban, a block or slots.
    strict: usize,
}

/// A table of entries, at most `max` of them.
#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    hasher: EntryHasher,
    counts: Vec<EntryCount>,
    /// Entries that were evicted before they had expired.
    evictions: u64,
    max: usize,
}

impl EntryCount {
    /// The count of the class that an entry with `meta` belongs to.
    fn of_class(&mut self, meta: Meta) -> &mut usize {
        if meta.is_strict() { &mut self.strict } else { &mut self.plain }
    }
}

impl PackedRecord {
    fn new(record: Record) -> Self {
        if let Record { state: Some(State::Debt(debt)), penalty: None, created: Timestamp(0) } = &record {
            return Self::of_debt(*debt);
        }
        Self::Record(Box::new(record))
    }

    fn of_debt(debt: Debt) -> Self {
        let [unit @ .., _] = debt.unit.get().to_le_bytes();
        Self::Debt { stamp: debt.stamp.0, ticks: debt.ticks, unit }
    }

    /// The debt, if the record has nothing else.
    fn debt(&self) -> Option<Debt> {
        let Self::Debt { stamp, ticks, unit } = self else { return None };
        let mut bytes = [0; 8];
        bytes[..unit.len()].copy_from_slice(unit);
        // The unit was packed from a `NonZeroU64` of at most 2^53.
        let unit = NonZeroU64::new(u64::from_le_bytes(bytes))?;
        Some(Debt { stamp: Timestamp(*stamp), ticks: *ticks, unit })
    }

    fn unpack(&self) -> Cow<'_, Record> {
        match self {
            Self::Record(record) => Cow::Borrowed(record),
            Self::Debt { .. } => {
                Cow::Owned(Record { state: self.debt().map(State::Debt), ..Record::default() })
            }
        }
    }
}

impl Meta {
    const POLICY: u64 = (1 << 22) - 1;
    const STRICT: u64 = 1 << 22;
    const BY_WALL: u64 = 1 << 23;

    /// The properties of a record of the policy with this salt, which expires at `expires`; by the wall clock if `by_wall`.
    pub fn new(salt: u128, record: &Record, expires: Timestamp, by_wall: bool) -> Self {
        let is_held = record.penalty.as_ref().and_then(Penalty::end).is_some();
        let is_strict = is_held || matches!(record.state, Some(State::Leases(_)));
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(by_wall, Self::BY_WALL) | flag(is_strict, Self::STRICT);
        Self(flags | policy_bits(salt)).expiring(expires)
    }

    /// These properties with another expiry.
    fn expiring(self, expires: Timestamp) -> Self {
        // Rounded up: no entry may expire early.
        Self(((expires.0 >> 14) + 1) << 24 | self.0 & (Self::POLICY | Self::STRICT | Self::BY_WALL))
    }

    fn policy(self) -> u64 {
        self.0 & Self::POLICY
    }

    /// Whether the entry has a ban, a block or slots.
    fn is_strict(self) -> bool {
        self.0 & Self::STRICT != 0
    }

    fn expires(self) -> u64 {
        self.0 >> 24
    }

    fn has_expired(self, now: Timestamp, wall: Timestamp) -> bool {
        let now = if self.0 & Self::BY_WALL == 0 { now } else { wall };
        self.expires() <= now.0 >> 14
    }
}

fn policy_bits(salt: u128) -> u64 {
    (salt >> 106) as u64
}

impl EntryHasher {
    pub fn new() -> Self {
        // From the system's random numbers: the default seed of `mix` depends on nothing but addresses and the time.
        let random = RandomState::new();
        let secret = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
        Self { secret, mix: DefaultHashBuilder::default() }
    }

    pub fn address(&self, id: EntryId) -> Address {
        Address { id, hash: self.hash(id) }
    }

    fn hash(&self, id: EntryId) -> u64 {
        self.mix.hash_one(id.bits() ^ self.secret)
    }
}

impl Address {
    /// Which of `shards` shards the entry belongs to. The table selects buckets by the lowest bits of the hash and compares
    /// the highest 7, so neither may be the same for all entries of a shard.
    pub fn shard(self, shards: usize) -> usize {
        let middle = u128::from(self.hash >> 24 & u64::from(u32::MAX));
        ((middle * shards as u128) >> 32) as usize
    }
}

impl Shard {
    pub fn new(max: usize, hasher: EntryHasher) -> Self {
        Self { table: HashTable::new(), hasher, counts: Vec::new(), evictions: 0, max }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// How many entries were evicted before they had expired.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    pub fn get(&self, at: Address) -> Option<Cow<'_, Record>> {
        self.table.find(at.hash, |entry| entry.id == at.id).map(|entry| entry.record.unpack())
    }

    /// The debt of a key; none for a key without a record.
    ///
    /// # Errors
    /// The record of the key is not a debt alone.
    pub fn debt(&self, at: Address) -> Result<Option<Debt>, NotOnlyDebt> {
        match self.table.find(at.hash, |entry| entry.id == at.id) {
            Some(entry) => entry.record.debt().map(Some).ok_or(NotOnlyDebt),
            None => Ok(None),
        }
    }

    /// Replaces the debt of a key that has nothing else; returns whether there was one. It expires at `expires`, by
    /// monotonic time.
    pub fn replace_debt(&mut self, at: Address, debt: Debt, expires: Timestamp) -> bool {
        // The class of the entry and its policy do not change, so no counts are updated.
        let found = self.table.find_mut(at.hash, |entry| entry.id == at.id);
        let Some(entry @ Entry { record: PackedRecord::Debt { .. }, .. }) = found else { return false };
        entry.record = PackedRecord::of_debt(debt);
        entry.meta = entry.meta.expiring(expires);
        true
    }

    /// Stores a record for as long as it differs from none.
    pub fn store(&mut self, policy: &Policy, at: Address, record: Record, now: Present<'_>) {
        match now.expiry(policy, &record) {
            Some((expires, by_wall)) => {
                let meta = Meta::new(policy.salt(), &record, expires, by_wall);
                self.put(at, record, meta, now);
            }
            None => self.remove(at),
        }
    }

    /// Stores a record.
    pub fn put(&mut self, at: Address, record: Record, meta: Meta, now: Present<'_>) {
        let record = PackedRecord::new(record);
        if let Some(entry) = self.table.find_mut(at.hash, |entry| entry.id == at.id) {
            let before = std::mem::replace(&mut entry.meta, meta);
            entry.record = record;
            // A ban that starts or ends moves the entry to the other class of eviction.
            if before.is_strict() != meta.is_strict() {
                remove_from(&mut self.counts, before);
                add_to(&mut self.counts, meta);
            }
            return;
        }
        if self.table.len() >= self.max {
            self.evict(at.hash, meta.policy(), now);
            // Only tombstones of removed entries are left, and the table would double its capacity.
            if self.table.len() == self.table.capacity() {
                self.rebuild();
            }
        }
        let hasher = &self.hasher;
        self.table.insert_unique(at.hash, Entry { id: at.id, record, meta }, |entry| hasher.hash(entry.id));
        add_to(&mut self.counts, meta);
    }

    /// Removes the entry of a record that equals none.
    pub fn remove(&mut self, at: Address) {
        if let Ok(entry) = self.table.find_entry(at.hash, |entry| entry.id == at.id) {
            let (entry, _) = entry.remove();
            remove_from(&mut self.counts, entry.meta);
        }
    }

    /// The keys of `policy`, at most `max` of them.
    pub fn keys(&self, policy: &Policy, now: Present<'_>, max: usize) -> Vec<Key> {
        let (bits, wall) = (policy_bits(policy.salt()), now.wall());
        let own = |entry: &&Entry| entry.meta.policy() == bits && !entry.meta.has_expired(now.time, wall);
        self.table.iter().filter(own).map(|entry| entry.id.key(policy.salt())).take(max).collect()
    }

    /// Removes expired entries, and shrinks the table if few are left.
    pub fn sweep(&mut self, now: Present<'_>) {
        let (wall, counts, hasher) = (now.wall(), &mut self.counts, &self.hasher);
        self.table.retain(|entry| {
            let has_expired = entry.meta.has_expired(now.time, wall);
            if has_expired {
                remove_from(counts, entry.meta);
            }
            !has_expired
        });
        // Far below the capacity only, so that a table does not shrink and grow in turn.
        if self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |entry| hasher.hash(entry.id));
        }
    }

    /// Evicts one entry for a new one of the policy `newcomer`. The search starts at a bucket that the new entry's hash
    /// selects, and takes the first expired entry; otherwise, of some candidates of the class to evict from, the one that
    /// expires first.
    fn evict(&mut self, hash: u64, newcomer: u64, now: Present<'_>) {
        let (policy, strict) = self.largest_class(newcomer);
        let (wall, buckets) = (now.wall(), self.table.num_buckets());
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash do")]
        let start = hash as usize % buckets.max(1);
        let (mut victim, mut candidates): (Option<(usize, Meta)>, _) = (None, 0);
        for (visited, bucket) in (start..buckets).chain(0..start).enumerate() {
            if candidates >= CANDIDATES || (visited >= MAX_VISITED && candidates > 0) {
                break;
            }
            let Some(Entry { meta, .. }) = self.table.get_bucket(bucket) else { continue };
            if meta.has_expired(now.time, wall) {
                victim = Some((bucket, *meta));
                break;
            }
            if meta.policy() == policy && meta.is_strict() == strict {
                // The one that expires first: the least is lost of its count.
                candidates += 1;
                victim =
                    victim.filter(|(_, best)| best.expires() <= meta.expires()).or(Some((bucket, *meta)));
            }
        }
        let Some((bucket, meta)) = victim else { return };
        if let Ok(entry) = self.table.get_bucket_entry(bucket) {
            entry.remove();
            remove_from(&mut self.counts, meta);
            self.evictions += u64::from(!meta.has_expired(now.time, wall));
        }
    }

    /// Moves all entries into a table without tombstones, with spare capacity so that this is rare.
    fn rebuild(&mut self) {
        let (hasher, room) = (&self.hasher, HashTable::with_capacity(self.max + self.max / 32));
        for entry in std::mem::replace(&mut self.table, room) {
            self.table.insert_unique(hasher.hash(entry.id), entry, |entry| hasher.hash(entry.id));
        }
    }

    /// The policy and class of entries to evict from: the plain entries of the policy that has the most of them, so that a
    /// flood of keys evicts only such keys. Strict entries are spared until they fill three quarters of the shard: a client
    /// can cause these as well, by bans of made-up keys, and must not displace all other limits. Among equals it is the
    /// policy of the new entry.
    fn largest_class(&self, newcomer: u64) -> (u64, bool) {
        let all_strict: usize = self.counts.iter().map(|count| count.strict).sum();
        let strict = all_strict == self.table.len() || all_strict * 4 > self.max * 3;
        let size =
            |count: &&EntryCount| (if strict { count.strict } else { count.plain }, count.policy == newcomer);
        let largest = self.counts.iter().max_by_key(size);
        (largest.map_or(newcomer, |count| count.policy), strict)
    }
}

fn add_to(counts: &mut Vec<EntryCount>, meta: Meta) {
    let index = counts.iter().position(|count| count.policy == meta.policy()).unwrap_or_else(|| {
        counts.push(EntryCount { policy: meta.policy(), plain: 0, strict: 0 });
        counts.len() - 1
    });
    *counts[index].of_class(meta) += 1;
}

fn remove_from(counts: &mut Vec<EntryCount>, meta: Meta) {
    let Some(index) = counts.iter().position(|count| count.policy == meta.policy()) else { return };
    let of_class = counts[index].of_class(meta);
    *of_class = of_class.saturating_sub(1);
    if (counts[index].plain, counts[index].strict) == (0, 0) {
        counts.swap_remove(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Clock;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 48);
    }

    /// A shard that is full and changes all the time takes no more memory than one that has just been filled.
    #[test]
    fn a_full_table_does_not_grow() {
        let (hasher, clock) = (EntryHasher::new(), Clock::manual(Timestamp(1)));
        let (max, now) = (super::super::SHARD_KEYS, Present::of(&clock));
        let mut shard = Shard::new(max, hasher.clone());
        for number in 0..20 * max as u128 {
            let at = hasher.address(EntryId::salted(0, Key((number + 1).to_le_bytes())));
            let meta = Meta::new(0, &Record::default(), Timestamp(1_000_000), false);
            shard.put(at, Record::default(), meta, now);
        }
        assert_eq!((shard.len(), shard.table.num_buckets()), (max, 1 << 14));
    }
}
