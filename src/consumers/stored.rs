//! Consumers that are stored in Redis, where another program can add them at run time.
//!
//! Consumers are read by `HGETALL`, with a bound of lookups for each client, and one for each credential of a client (`Lookups`, shared
//! by all workers). They do not pass through the batcher, since they need no script: fred writes the commands that are queued in
//! one turn of the event loop together.

use std::hash::Hash;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{self, Semaphore};
use tokio::time::Instant;

use super::consumer::{Consumer, ConsumerError};
use super::credential::{CredentialCache, CredentialHash};
use super::record::parse_record;
use crate::limiter::Limiter;
use crate::sharded::Sharded;
use crate::telemetry::LogThrottle;
use crate::time::{cached_now, monotonic};

/// The longest credential that is looked up, in bytes. A longer one is unknown: the cache is bounded in entries, so their size
/// must be bounded as well.
const MAX_CREDENTIAL: usize = 1_024;
/// How long a failure to read Redis is cached.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The consumers in Redis, as far as their credentials were seen lately: at most 32,768 known and as many unknown
/// credentials.
pub struct StoredConsumers {
    /// How long an entry is used before it is read again.
    lifetime: Duration,
    /// Credentials that belonged to a consumer when they were first read.
    known: CredentialCache<CachedConsumer>,
    /// All others. They are in a cache of their own, so that a flood of them evicts no consumer.
    unknown: CredentialCache<CachedConsumer>,
    lookups: Lookups,
    warnings: Mutex<LogThrottle>,
}

/// The consumer of a credential, or why there is none, until it is read again.
#[derive(Clone)]
struct CachedConsumer {
    consumer: Result<Arc<Consumer>, ConsumerError>,
    expires: Instant,
}

impl StoredConsumers {
    /// No consumers yet; entries are used for `lifetime` before they are read again.
    #[must_use]
    pub fn new(lifetime: Duration) -> Self {
        let (known, unknown, warnings) =
            (CredentialCache::default(), CredentialCache::default(), Mutex::default());
        Self { lifetime, known, unknown, lookups: Lookups::default(), warnings }
    }

    /// How long an entry is used before it is read again.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// The consumer of a credential, without I/O.
    ///
    /// # Errors
    /// [`ConsumerError::NotFetched`] if [`Self::fetch`] must be called first, [`ConsumerError::Unknown`], or
    /// [`ConsumerError::Unavailable`].
    pub fn find(&self, credential: &[u8]) -> Result<Arc<Consumer>, ConsumerError> {
        if credential.len() > MAX_CREDENTIAL {
            return Err(ConsumerError::Unknown);
        }
        let now = cached_now();
        let of = |cache: &CredentialCache<CachedConsumer>| {
            cache.get(credential).filter(|entry| entry.expires > now)
        };
        let entry = of(&self.known).or_else(|| of(&self.unknown));
        entry.map_or(Err(ConsumerError::NotFetched), |entry| entry.consumer)
    }

    /// Reads the consumer of a credential that `client` has sent from Redis, unless another request of the client does. If Redis
    /// can't be read, a consumer that is known stays so.
    ///
    /// # Errors
    /// [`ConsumerError::TooManyLookups`] if too many of the client's credentials are to be read.
    pub async fn fetch(
        &self,
        credential: &[u8],
        client: IpAddr,
        limiter: &Limiter,
    ) -> Result<(), ConsumerError> {
        let hash = CredentialHash::of(credential);
        let lookup = self.lookups.of_credential(client, hash);
        let _only = lookup.lock().await;
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        if self.find(credential) == Err(ConsumerError::NotFetched) {
            let permits = self.lookups.of_client(client)?;
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            self.read(credential, hash, limiter).await;
        }
        Ok(())
    }

    async fn read(&self, credential: &[u8], hash: CredentialHash, limiter: &Limiter) {
        let read = limiter.consumer_record(&hash.to_string()).await;
        let now = cached_now();
        let (consumer, lifetime) = match read {
            Ok(fields) if fields.is_empty() => (Err(ConsumerError::Unknown), self.lifetime),
            Ok(fields) => match parse_record(&fields) {
                Ok(consumer) => (Ok(Arc::new(consumer)), self.lifetime),
                Err(error) => {
                    self.warn(|| {
                        format!("the consumer in Redis with the credential sha256:{hash} is ignored: {error}")
                    });
                    (Err(ConsumerError::Unknown), self.lifetime)
                }
            },
            Err(error) => {
                self.warn(|| format!("a consumer can't be read from Redis: {error}"));
                let last = self.known.get(credential).map(|last| last.consumer);
                (last.unwrap_or(Err(ConsumerError::Unavailable)), RETRY_INTERVAL)
            }
        };
        let is_known = consumer.is_ok() || self.known.get(credential).is_some();
        let cache = if is_known { &self.known } else { &self.unknown };
        cache.put(credential, CachedConsumer { consumer, expires: now + lifetime });
    }

    fn warn(&self, message: impl FnOnce() -> String) {
        if self.warnings.lock().is_due() {
            tracing::warn!("{}", message());
        }
    }
}

impl std::fmt::Debug for StoredConsumers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredConsumers").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// Lookups of one client at once.
const MAX_AT_ONCE: usize = 4;
/// Further lookups of a client that wait for those.
const MAX_WAITING: usize = 64;
/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 16;

/// The lookups in progress, of all workers.
#[derive(Default)]
struct Lookups {
    credentials: SharedValues<(IpAddr, CredentialHash), sync::Mutex<()>>,
    clients: SharedValues<IpAddr, Semaphore>,
}

/// Values that are shared by their present users: the last one removes its value.
struct SharedValues<K, V>(Sharded<HashMap<K, Arc<V>>, SHARDS>);

/// A user of a value.
struct SharedValue<'u, K: Copy + Eq + Hash, V> {
    users: &'u SharedValues<K, V>,
    key: K,
    value: Arc<V>,
}

impl Lookups {
    /// The lock of a credential of a client: only its owner looks the credential up, and the others of the client wait for it.
    pub fn of_credential(
        &self,
        client: IpAddr,
        hash: CredentialHash,
    ) -> SharedValue<'_, (IpAddr, CredentialHash), sync::Mutex<()>> {
        self.credentials.join((client, hash), sync::Mutex::default)
    }

    /// The permits for the lookups of a client.
    ///
    /// # Errors
    /// [`ConsumerError::TooManyLookups`].
    pub fn of_client(&self, client: IpAddr) -> Result<SharedValue<'_, IpAddr, Semaphore>, ConsumerError> {
        let permits = self.clients.join(client, || Semaphore::new(MAX_AT_ONCE));
        if permits.count() > MAX_AT_ONCE + MAX_WAITING {
            return Err(ConsumerError::TooManyLookups);
        }
        Ok(permits)
    }
}

impl<K: Copy + Eq + Hash, V> SharedValues<K, V> {
    fn join(&self, key: K, new: impl FnOnce() -> V) -> SharedValue<'_, K, V> {
        let mut shard = self.0.lock(&key);
        let value = Arc::clone(shard.entry(key).or_insert_with(|| Arc::new(new())));
        SharedValue { users: self, key, value }
    }
}

impl<K: Copy + Eq + Hash, V> SharedValue<'_, K, V> {
    /// The number of users, with this one.
    fn count(&self) -> usize {
        // The table has the value as well.
        Arc::strong_count(&self.value) - 1
    }
}

impl<K, V> Default for SharedValues<K, V> {
    fn default() -> Self {
        Self(Sharded::default())
    }
}

impl<K: Copy + Eq + Hash, V> Deref for SharedValue<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<K: Copy + Eq + Hash, V> Drop for SharedValue<'_, K, V> {
    fn drop(&mut self) {
        // No request joins the lookup while the shard is locked.
        let mut shard = self.users.0.lock(&self.key);
        if self.count() == 1 {
            shard.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_bounded_number_of_lookups_and_its_entry_is_removed_with_the_last() {
        let lookups = Lookups::default();
        let [one, other] = [1, 2].map(|number| IpAddr::from([192, 0, 2, number]));
        let held: Vec<_> = (0..MAX_AT_ONCE + MAX_WAITING).map(|_| lookups.of_client(one).unwrap()).collect();
        assert!(matches!(lookups.of_client(one), Err(ConsumerError::TooManyLookups)));
        assert!(lookups.of_client(other).is_ok());
        assert_eq!(held[0].available_permits(), MAX_AT_ONCE);
        drop(held);
        assert!(lookups.clients.0.lock_each().all(|shard| shard.is_empty()));
        let hash = CredentialHash::of(b"k");
        let (first, second) = (lookups.of_credential(one, hash), lookups.of_credential(one, hash));
        let locked = first.try_lock().unwrap();
        assert!(second.try_lock().is_err() && lookups.of_credential(other, hash).try_lock().is_ok());
        drop(locked);
        drop((first, second));
        assert!(lookups.credentials.0.lock_each().all(|shard| shard.is_empty()));
    }
}
