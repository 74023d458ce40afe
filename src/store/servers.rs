//! The servers of a store, and which of them has a key.
//!
//! With `urls` the keys of limits are spread over several servers by rendezvous hashing: each server has a score for a key, a hash
//! of the key and of the server's name, and the server with the highest score has the key. So every proxy finds the same server,
//! in whatever order its file lists them; and when a server is added to N others, it gets a share of 1 in N + 1 of the keys, and no
//! other key moves. The keys of a server that is removed are spread over the others.

use std::sync::Arc;

use crate::limit::{Charge, Key};

/// A value for each server of a store, in the order of their names.
#[derive(Clone, Debug)]
pub struct Servers<T> {
    first: T,
    others: Vec<T>,
    /// A hash of the name of each server; none for a single server, which has all keys.
    names: Arc<[u64]>,
}

impl<T> Servers<T> {
    /// A single server.
    #[must_use]
    pub fn one(server: T) -> Self {
        Self { first: server, others: Vec::new(), names: Arc::default() }
    }

    /// Servers with their names; none without a server.
    #[must_use]
    pub fn named(mut servers: Vec<(String, T)>) -> Option<Self> {
        servers.sort_by(|(one, _), (other, _)| one.cmp(other));
        let names = servers.iter().map(|(name, _)| hash_of_name(name)).collect();
        let mut servers = servers.into_iter().map(|(_, server)| server);
        let (first, others): (T, Vec<T>) = (servers.next()?, servers.collect());
        Some(if others.is_empty() { Self::one(first) } else { Self { first, others, names } })
    }

    /// The first of them, which is the only one of most stores.
    #[must_use]
    pub fn first(&self) -> &T {
        &self.first
    }

    /// Whether there are several.
    #[must_use]
    #[inline]
    pub fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// The server that has a key.
    #[must_use]
    pub fn of(&self, key: Key) -> &T {
        match self.index(key).checked_sub(1) {
            Some(other) => &self.others[other],
            None => &self.first,
        }
    }

    /// The number of the server that has a key.
    #[must_use]
    pub fn index(&self, key: Key) -> usize {
        let scores = self.names.iter().map(|name| score(*name, key));
        // Of equal scores the last one counts, on every proxy.
        scores.enumerate().max_by_key(|(_, score)| *score).map_or(0, |(index, _)| index)
    }

    /// The server that has the keys of all these charges; none if several have them.
    #[inline]
    pub fn of_all(&self, charges: &[Charge]) -> Option<&T> {
        if self.are_several() { self.common(charges) } else { Some(&self.first) }
    }

    #[cold]
    fn common(&self, charges: &[Charge]) -> Option<&T> {
        let Some((first, others)) = charges.split_first() else { return Some(&self.first) };
        let index = self.index(first.key);
        let is_there = |charge: &Charge| charge.key == first.key || self.index(charge.key) == index;
        others.iter().all(is_there).then(|| self.of(first.key))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Another value for each of them.
    pub fn map<U>(&self, mut each: impl FnMut(&T) -> U) -> Servers<U> {
        Servers {
            first: each(&self.first),
            others: self.others.iter().map(each).collect(),
            names: Arc::clone(&self.names),
        }
    }

    /// Pairs of these values and those of the same servers in `there`. Both must be of the same store.
    #[must_use]
    pub fn zip<'a, U>(&'a self, there: &'a Servers<U>) -> Servers<(&'a T, &'a U)> {
        Servers {
            first: (&self.first, &there.first),
            others: self.others.iter().zip(&there.others).collect(),
            names: Arc::clone(&self.names),
        }
    }
}

/// The hash of a server's name. It decides which keys the server has, so it must stay the same in every version.
fn hash_of_name(name: &str) -> u64 {
    let hash = blake3::derive_key("tidegate 2026 names of servers", name.as_bytes());
    hash.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The score of a server for a key: equally distributed, and independent of that of other servers.
fn score(name: u64, key: Key) -> u64 {
    let (halves, _) = key.0.as_chunks();
    halves.iter().fold(name, |score, half| mix(score ^ u64::from_le_bytes(*half)))
}

/// The finalizer of `SplitMix64`: each bit of the result depends on all bits of the argument.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u32 = 40_000;

    fn key(number: u32) -> Key {
        let hash = blake3::hash(&number.to_le_bytes());
        Key(*hash.as_bytes().first_chunk().unwrap())
    }

    fn servers(names: &[String]) -> Servers<String> {
        Servers::named(names.iter().map(|name| (name.clone(), name.clone())).collect()).unwrap()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("redis-{number}.internal:6379/0")).collect()
    }

    #[test]
    fn keys_are_spread_equally() {
        for count in [2, 3, 8, 64] {
            let (servers, mut keys) = (servers(&names(count)), vec![0.0_f64; count]);
            (0..KEYS).for_each(|number| keys[servers.index(key(number))] += 1.0);
            let mean = f64::from(KEYS) / f64::from(u32::try_from(count).unwrap());
            // Six standard deviations of a binomial distribution.
            let bound = 6.0 * mean.sqrt();
            assert!(keys.iter().all(|keys| (keys - mean).abs() < bound), "{count} servers: {keys:?}");
        }
    }

    #[test]
    fn an_added_server_gets_its_share_and_no_other_key_moves() {
        for count in [1, 2, 3, 7, 63] {
            let before = servers(&names(count));
            let (after, added) = (servers(&names(count + 1)), names(count + 1).pop().unwrap());
            let mut moved = 0_u32;
            for key in (0..KEYS).map(key) {
                if before.of(key) != after.of(key) {
                    assert_eq!(*after.of(key), added, "a key moves to the added server only");
                    moved += 1;
                }
            }
            let share = f64::from(KEYS) / f64::from(u32::try_from(count + 1).unwrap());
            assert!((f64::from(moved) - share).abs() < 6.0 * share.sqrt(), "{moved} of {KEYS} for {count}");
        }
    }

    #[test]
    fn the_order_of_the_file_does_not_matter() {
        let (one, mut reversed) = (names(5), names(5));
        reversed.reverse();
        let (one, other) = (servers(&one), servers(&reversed));
        assert!((0..1_000).map(key).all(|key| one.of(key) == other.of(key)));
        assert!(one.iter().eq(other.iter()));
    }

    /// Another result would move keys between servers with an update of tidegate.
    #[test]
    fn keys_stay_on_their_servers_in_every_version() {
        let servers = servers(&names(4));
        let found: Vec<usize> = (0..16).map(|number| servers.index(key(number))).collect();
        assert_eq!(found, [2, 2, 2, 1, 3, 3, 0, 1, 2, 0, 0, 0, 0, 0, 2, 0]);
    }

    #[test]
    fn charges_on_several_servers_have_no_common_one() {
        use crate::limit::PolicyId;
        let servers = servers(&names(3));
        let other = (1..100).map(key).find(|other| servers.index(*other) != servers.index(key(0))).unwrap();
        let charge = |key| Charge::take(PolicyId(0), key, 1);
        assert!(servers.of_all(&[charge(key(0)), charge(key(0))]) == Some(servers.of(key(0))));
        assert!(servers.of_all(&[charge(key(0)), charge(other)]).is_none());
        assert!(servers.of_all(&[]).is_some());
        assert_eq!(*Servers::one(7).of_all(&[charge(key(0)), charge(other)]).unwrap(), 7);
    }
}
