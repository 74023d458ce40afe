//! The cache of verdicts: checking a signature takes longer than all the rest of a request.

use std::sync::Arc;

use super::claims::Claims;
use super::error::TokenError;
use crate::generations::Generations;
use crate::sharded::Sharded;

/// Locks; so many that workers hardly ever contend for one.
const SHARDS: usize = 64;
/// Entries of each kind and generation in a shard: 16,384 tokens of each kind in all.
const GENERATION: usize = 128;

/// The result of verifying a token, but for its times (`exp`, `nbf`).
pub(super) type Verification = Result<Arc<Claims>, TokenError>;

/// The hash of a token.
pub(super) type TokenId = [u8; 32];

/// Verdicts by token, bounded in number.
#[derive(Debug, Default)]
pub(super) struct TokenCache(Sharded<TokenShard, SHARDS>);

/// Valid and invalid tokens have separate bounds, so that a flood of invalid ones evicts no valid one.
#[derive(Debug, Default)]
struct TokenShard {
    valid: Generations<TokenId, Arc<Claims>, GENERATION>,
    invalid: Generations<TokenId, TokenError, GENERATION>,
}

impl TokenCache {
    pub fn get(&self, id: &TokenId) -> Option<Verification> {
        let mut shard = self.0.lock(id);
        shard.valid.get(id).map(Ok).or_else(|| shard.invalid.get(id).map(Err))
    }

    pub fn put(&self, id: TokenId, verdict: Verification) {
        let mut shard = self.0.lock(&id);
        match verdict {
            Ok(claims) => shard.valid.put(id, claims),
            Err(error) => shard.invalid.put(id, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> TokenId {
        *blake3::hash(&number.to_le_bytes()).as_bytes()
    }

    #[test]
    fn a_flood_of_invalid_tokens_is_bounded_and_evicts_no_valid_one() {
        let cache = TokenCache::default();
        let valid = Arc::new(Claims::new(serde_json::Map::default()).unwrap());
        cache.put(id(0), Ok(Arc::clone(&valid)));
        for number in 1..100_000 {
            cache.put(id(number), Err(TokenError::Signature));
        }
        assert_eq!(cache.get(&id(0)), Some(Ok(valid)));
        assert_eq!(cache.get(&id(99_999)), Some(Err(TokenError::Signature)));
        assert_eq!(cache.get(&id(1)), None);
        let kept = cache.0.lock_each().map(|shard| shard.invalid.len());
        assert!(kept.sum::<usize>() <= 2 * SHARDS * GENERATION);
    }
}
