//! One shard of the in-process store, and which entry it evicts when it is full.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::present::Present;
use crate::limit::{Debt, Key, Penalty, Policy, Record, State};
use crate::time::Timestamp;

/// How many entries of a class are compared to find the one to evict.
const CANDIDATES: usize = 16;
/// After how many buckets fewer will do, which bounds the work where a class is rare.
const MOST_VISITED: usize = 512;

/// What identifies one (policy, key): the key mixed with the policy's own 128 bits. Both are hashes, so
/// that the mix is as good as a hash over the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId(u128);

/// Hashes entries with a secret of the process, so that no client can aim its keys at one shard or bucket.
#[derive(Clone, Debug)]
pub(super) struct EntryHasher {
    secret: u128,
    mix: DefaultHashBuilder,
}

/// An entry's identity with its hash, which decides about shard and bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub id: EntryId,
    hash: u64,
}

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

/// What eviction, sweep and list need of an entry, in one word: from when on its record equals none, in steps of
/// 2^14 µs (40 bits); whether that is by the wall clock; whether it is strict; and 22 bits of its policy's salt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta(u64);

/// How many entries a policy has in a shard.
#[derive(Debug)]
struct Share {
    /// The policy, as [`Meta::policy`] has it.
    policy: u64,
    /// Entries that only count.
    plain: usize,
    /// Entries with a ban, a block or slots.
    strict: usize,
}

/// A table of entries, at most `max` of them.
#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    hasher: EntryHasher,
    shares: Vec<Share>,
    /// Entries that were evicted before they had expired.
    evictions: u64,
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
    const POLICY: u64 = (1 << 22) - 1;
    const STRICT: u64 = 1 << 22;
    const BY_WALL: u64 = 1 << 23;

    /// Of a record of the policy with this salt, which equals none from `expires` on; by the wall clock if `by_wall`.
    pub fn new(salt: u128, record: &Record, expires: Timestamp, by_wall: bool) -> Self {
        let is_held = record.hold.as_ref().and_then(Penalty::end).is_some();
        let is_strict = is_held || matches!(record.state, Some(State::Leases(_)));
        // Rounded up: nothing may go before its time.
        let expires = ((expires.0 >> 14) + 1) << 24;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        Self(expires | flag(by_wall, Self::BY_WALL) | flag(is_strict, Self::STRICT) | policy_bits(salt))
    }

    fn policy(self) -> u64 {
        self.0 & Self::POLICY
    }

    /// Whether the entry is a ban, a block or slots, and not merely a count.
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
    u64::try_from(salt >> 106).unwrap_or(0)
}

impl EntryHasher {
    pub fn new() -> Self {
        // The system's randomness: the seed of the mix is made of addresses and the time alone.
        let random = RandomState::new();
        let secret = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
        Self { secret, mix: DefaultHashBuilder::default() }
    }

    /// Where the entry of this key is, and with which salt.
    pub fn address(&self, salt: u128, key: Key) -> Address {
        let id = EntryId(u128::from_le_bytes(key.0) ^ salt);
        Address { id, hash: self.hash(id) }
    }

    fn hash(&self, id: EntryId) -> u64 {
        self.mix.hash_one(id.0 ^ self.secret)
    }
}

impl EntryId {
    /// The key of an entry that belongs to the policy with this salt.
    fn key(self, salt: u128) -> Key {
        Key((self.0 ^ salt).to_le_bytes())
    }
}

impl Address {
    /// Which of `shards` shards it lives in. The table beneath places entries by the lowest bits of the hash and
    /// compares the highest 7, so neither may be the same for all entries of a shard.
    pub fn shard(self, shards: usize) -> usize {
        let middle = u128::from(self.hash >> 24 & u64::from(u32::MAX));
        usize::try_from((middle * shards as u128) >> 32).unwrap_or(0)
    }
}

impl Shard {
    pub fn new(max: usize, hasher: EntryHasher) -> Self {
        Self { table: HashTable::new(), hasher, shares: Vec::new(), evictions: 0, max }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// How many entries were evicted before they had expired.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    pub fn get(&self, at: Address) -> Option<Cow<'_, Record>> {
        self.table.find(at.hash, |entry| entry.id == at.id).map(|entry| entry.held.record())
    }

    /// Keeps a record.
    pub fn put(&mut self, at: Address, record: Record, meta: Meta, now: Present<'_>) {
        let held = Held::new(record);
        if let Some(entry) = self.table.find_mut(at.hash, |entry| entry.id == at.id) {
            let before = std::mem::replace(&mut entry.meta, meta);
            entry.held = held;
            if before.is_strict() != meta.is_strict() {
                discount(&mut self.shares, before);
                count(&mut self.shares, meta);
            }
            return;
        }
        if self.table.len() >= self.max {
            self.evict(at.hash, meta.policy(), now);
            // No bucket is free but those that removed entries have left, for which the table would double.
            if self.table.len() == self.table.capacity() {
                self.rebuild();
            }
        }
        let hasher = &self.hasher;
        self.table.insert_unique(at.hash, Entry { id: at.id, held, meta }, |entry| hasher.hash(entry.id));
        count(&mut self.shares, meta);
    }

    /// Forgets a record that equals none.
    pub fn remove(&mut self, at: Address) {
        if let Ok(entry) = self.table.find_entry(at.hash, |entry| entry.id == at.id) {
            let (entry, _) = entry.remove();
            discount(&mut self.shares, entry.meta);
        }
    }

    /// The keys of `policy`, at most `max` of them.
    pub fn keys(&self, policy: &Policy, now: Present<'_>, max: usize) -> Vec<Key> {
        let (bits, wall) = (policy_bits(policy.salt()), now.wall());
        let own = |entry: &&Entry| entry.meta.policy() == bits && !entry.meta.has_expired(now.time, wall);
        self.table.iter().filter(own).map(|entry| entry.id.key(policy.salt())).take(max).collect()
    }

    /// Removes what has expired, and gives memory back when little is left.
    pub fn sweep(&mut self, now: Present<'_>) {
        let (wall, shares, hasher) = (now.wall(), &mut self.shares, &self.hasher);
        self.table.retain(|entry| {
            let has_expired = entry.meta.has_expired(now.time, wall);
            if has_expired {
                discount(shares, entry.meta);
            }
            !has_expired
        });
        if self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(self.table.len() * 2, |entry| hasher.hash(entry.id));
        }
    }

    /// Removes one entry to make room for one of the policy `newcomer`: the first that has expired of those that are
    /// looked at, from a place that the newcomer's hash picks; or else of some of the class that has to give way,
    /// the one that expires soonest.
    fn evict(&mut self, hash: u64, newcomer: u64, now: Present<'_>) {
        let (policy, strict) = self.largest_class(newcomer);
        let (wall, buckets) = (now.wall(), self.table.num_buckets());
        let start = usize::try_from(hash).unwrap_or(0) % buckets.max(1);
        let (mut victim, mut candidates): (Option<(usize, Meta)>, _) = (None, 0);
        for (visited, bucket) in (start..buckets).chain(0..start).enumerate() {
            if candidates >= CANDIDATES || (visited >= MOST_VISITED && candidates > 0) {
                break;
            }
            let Some(Entry { meta, .. }) = self.table.get_bucket(bucket) else { continue };
            if meta.has_expired(now.time, wall) {
                victim = Some((bucket, *meta));
                break;
            }
            if meta.policy() == policy && meta.is_strict() == strict {
                candidates += 1;
                victim =
                    victim.filter(|(_, best)| best.expires() <= meta.expires()).or(Some((bucket, *meta)));
            }
        }
        let Some((bucket, meta)) = victim else { return };
        if let Ok(entry) = self.table.get_bucket_entry(bucket) {
            entry.remove();
            discount(&mut self.shares, meta);
            self.evictions += u64::from(!meta.has_expired(now.time, wall));
        }
    }

    /// Moves all entries into a table without removed ones, with some room so that this is seldom done.
    fn rebuild(&mut self) {
        let (hasher, room) = (&self.hasher, HashTable::with_capacity(self.max + self.max / 32));
        for entry in std::mem::replace(&mut self.table, room) {
            self.table.insert_unique(hasher.hash(entry.id), entry, |entry| hasher.hash(entry.id));
        }
    }

    /// Which entries have to give way: the plain ones of the policy that has the most, so that a flood of keys evicts
    /// nothing but such keys. Strict ones are spared until they take three quarters of the room, since a client can make
    /// those up as well, with bans of made-up keys, and must not leave other limits without room. Of equals the policy
    /// of the newcomer gives way.
    fn largest_class(&self, newcomer: u64) -> (u64, bool) {
        let all_strict: usize = self.shares.iter().map(|share| share.strict).sum();
        let strict = all_strict == self.table.len() || all_strict * 4 > self.max * 3;
        let size =
            |share: &&Share| (if strict { share.strict } else { share.plain }, share.policy == newcomer);
        let largest = self.shares.iter().max_by_key(size);
        (largest.map_or(newcomer, |share| share.policy), strict)
    }
}

fn count(shares: &mut Vec<Share>, meta: Meta) {
    let known = shares.iter_mut().find(|share| share.policy == meta.policy());
    let number = |is_own| usize::from(is_own);
    let (plain, strict) = (number(!meta.is_strict()), number(meta.is_strict()));
    match known {
        Some(share) => (share.plain, share.strict) = (share.plain + plain, share.strict + strict),
        None => shares.push(Share { policy: meta.policy(), plain, strict }),
    }
}

fn discount(shares: &mut Vec<Share>, meta: Meta) {
    let Some(place) = shares.iter().position(|share| share.policy == meta.policy()) else { return };
    let share = &mut shares[place];
    let count = if meta.is_strict() { &mut share.strict } else { &mut share.plain };
    *count = count.saturating_sub(1);
    if (share.plain, share.strict) == (0, 0) {
        shares.swap_remove(place);
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
            let at = hasher.address(0, Key((number + 1).to_le_bytes()));
            let meta = Meta::new(0, &Record::default(), Timestamp(1_000_000), false);
            shard.put(at, Record::default(), meta, now);
        }
        assert_eq!((shard.len(), shard.table.num_buckets()), (max, 1 << 14));
    }
}
