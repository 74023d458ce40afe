//! Where arrivals are played: a store with a clock of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::{Key, Policy, PolicyId};
use crate::store::redis::Target;
use crate::store::{Change, Memory, Redis, RedisSpec, Store, StoreError};
use crate::time::{Clock, Timestamp};

/// Keys that a store in memory has room for whatever the arrivals are, so that none pushes another out.
const ROOM: usize = 1_000_000;
/// How long a Redis may take to be there.
const REACH: Duration = Duration::from_secs(2);
/// How long it may take to answer; nobody waits behind this.
const PATIENCE: Duration = Duration::from_secs(5);

/// A store, and the clock that it decides by.
#[derive(Debug)]
pub(super) struct Backend {
    pub store: Store,
    clock: Arc<Clock>,
    /// How stored keys begin, where they are stored elsewhere.
    prefix: Option<Box<str>>,
}

impl Backend {
    /// A store for so many keys: a Redis, or memory.
    pub async fn open(target: Option<&Target>, keys: usize) -> Result<Self, StoreError> {
        let clock = Clock::manual(Timestamp::default());
        let Some(target) = target else {
            // Shards fill unevenly.
            let memory = Memory::new(keys.saturating_mul(4).max(ROOM), clock);
            return Ok(Self { store: Store::Memory(Arc::new(memory)), clock: Arc::default(), prefix: None });
        };
        let clock = Arc::new(clock);
        let prefix: Box<str> = format!("tidegate-simulate-{:016x}", fastrand::u64(..)).into();
        let spec = RedisSpec {
            target: target.clone(),
            timeout: PATIENCE,
            prefix: prefix.clone(),
            client_clock: true,
        };
        let redis = Redis::connect_at(&spec, Arc::clone(&clock));
        redis.reach(REACH).await?;
        Ok(Self { store: Store::Redis(redis), clock, prefix: Some(prefix) })
    }

    /// Moves the clock.
    pub fn set(&self, now: Timestamp) {
        match &self.store {
            Store::Memory(memory) => memory.clock().set(now),
            Store::Redis(_) => self.clock.set(now),
        }
    }

    /// How stored keys begin, where somebody else could see them.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Deletes these keys, where they would outlive this process.
    pub async fn clear(&self, policies: &[Policy], keys: &[(PolicyId, Key)]) -> Result<(), StoreError> {
        if self.prefix.is_some() {
            self.store.change(policies, keys, Change::Reset).await?;
        }
        Ok(())
    }
}
