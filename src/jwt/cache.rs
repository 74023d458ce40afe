//! What was made of tokens: checking a signature takes longer than all the rest of a request.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::{Claims, TokenError, Verdict};

/// Locks, so that workers hardly ever meet at one.
const SHARDS: usize = 64;
/// Entries of each kind and generation in a shard: 16,384 tokens of each kind in all.
const GENERATION: usize = 128;

/// The hash of a token.
pub(super) type TokenId = [u8; 32];

/// Verdicts by token, bounded in number.
#[derive(Debug)]
pub(super) struct Cache([Mutex<Shard>; SHARDS]);

/// Good and bad tokens are kept apart: whoever sends made-up ones in numbers drives out no good one.
#[derive(Debug, Default)]
struct Shard {
    good: Generations<Arc<Claims>>,
    bad: Generations<TokenError>,
}

/// A map that forgets what was not asked for since it was last half full.
#[derive(Debug)]
struct Generations<V> {
    young: HashMap<TokenId, V>,
    old: HashMap<TokenId, V>,
}

impl Default for Cache {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Cache {
    pub fn get(&self, id: &TokenId) -> Option<Verdict> {
        let mut shard = self.shard(id).lock();
        shard.good.get(id).map(Ok).or_else(|| shard.bad.get(id).map(Err))
    }

    pub fn put(&self, id: TokenId, verdict: Verdict) {
        let mut shard = self.shard(&id).lock();
        match verdict {
            Ok(claims) => shard.good.put(id, claims),
            Err(error) => shard.bad.put(id, error),
        }
    }

    fn shard(&self, id: &TokenId) -> &Mutex<Shard> {
        &self.0[usize::from(id[0]) % SHARDS]
    }
}

impl<V: Clone> Generations<V> {
    fn get(&mut self, id: &TokenId) -> Option<V> {
        if let Some(value) = self.young.get(id) {
            return Some(value.clone());
        }
        let value = self.old.remove(id)?;
        self.put(*id, value.clone());
        Some(value)
    }

    fn put(&mut self, id: TokenId, value: V) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, value);
    }
}

impl<V> Default for Generations<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> TokenId {
        *blake3::hash(&number.to_le_bytes()).as_bytes()
    }

    #[test]
    fn a_flood_of_bad_tokens_is_bounded_and_drives_out_no_good_one() {
        let cache = Cache::default();
        let good = Arc::new(Claims::new(serde_json::Map::default()).unwrap());
        cache.put(id(0), Ok(Arc::clone(&good)));
        for number in 1..100_000 {
            cache.put(id(number), Err(TokenError::Signature));
        }
        assert_eq!(cache.get(&id(0)), Some(Ok(good)));
        assert_eq!(cache.get(&id(99_999)), Some(Err(TokenError::Signature)));
        assert_eq!(cache.get(&id(1)), None);
        let kept = cache.0.iter().map(|shard| {
            let shard = shard.lock();
            shard.bad.young.len() + shard.bad.old.len()
        });
        assert!(kept.sum::<usize>() <= 2 * SHARDS * GENERATION);
    }

    #[test]
    fn what_is_asked_for_stays() {
        let mut map = Generations::default();
        map.put(id(0), 0);
        for number in 1..10 * GENERATION {
            map.put(id(number), number);
            assert_eq!(map.get(&id(0)), Some(0));
        }
        assert_eq!(map.get(&id(1)), None);
    }
}
