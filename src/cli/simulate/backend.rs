//! The store that counts in a simulation, with a manual clock.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::{Key, Policy, PolicyId};
use crate::store::redis::RedisTarget;
use crate::store::{Memory, Redis, RedisSpec, StateChange, Store, StoreError};
use crate::time::{Clock, Timestamp};

/// The fewest keys that the in-process store has room for, so that none is evicted.
const MIN_KEYS: usize = 1_000_000;
/// How long connecting to Redis may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long Redis may take to respond: long, since no client waits for a simulation.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A store, and the clock that it uses.
#[derive(Debug)]
pub(super) struct Backend {
    pub store: Store,
    clock: Arc<Clock>,
    /// The prefix of keys in Redis.
    prefix: Option<Box<str>>,
}

impl Backend {
    /// A store for this many keys: Redis, or memory.
    pub async fn open(target: Option<&RedisTarget>, keys: usize) -> Result<Self, StoreError> {
        let clock = Clock::manual(Timestamp::default());
        let Some(target) = target else {
            // Shards fill unevenly, and a full one would evict keys.
            let memory = Memory::new(keys.saturating_mul(4).max(MIN_KEYS), clock);
            return Ok(Self { store: Store::Memory(Arc::new(memory)), clock: Arc::default(), prefix: None });
        };
        let clock = Arc::new(clock);
        let prefix: Box<str> = format!("tidegate-simulate-{:016x}", fastrand::u64(..)).into();
        let spec = RedisSpec {
            target: target.clone(),
            timeout: TIMEOUT,
            prefix: prefix.clone(),
            client_clock: true,
        };
        let redis = Redis::connect_at(&spec, Arc::clone(&clock));
        redis.wait_connected(CONNECT_TIMEOUT).await?;
        Ok(Self { store: Store::Redis(redis), clock, prefix: Some(prefix) })
    }

    /// Sets the clock.
    pub fn set_time(&self, now: Timestamp) {
        match &self.store {
            Store::Memory(memory) => memory.clock().set(now),
            Store::Redis(_) => self.clock.set(now),
        }
    }

    /// The prefix of keys in Redis; none in memory.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Deletes these keys from Redis.
    pub async fn clear(&self, policies: &[Policy], keys: &[(PolicyId, Key)]) -> Result<(), StoreError> {
        if self.prefix.is_some() {
            self.store.change(policies, keys, StateChange::Reset).await?;
        }
        Ok(())
    }
}
