//! Consumers that are stored in Redis, where another program can add them at run time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::cache::Cache;
use super::consumer::Consumer;
use super::credential::CredentialHash;
use super::error::ConsumerError;
use super::lookups::Lookups;
use super::record::parse_record;
use crate::limiter::Limiter;
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
    known: Cache<Entry>,
    /// All others. They are in a cache of their own, so that a flood of them evicts no consumer.
    unknown: Cache<Entry>,
    lookups: Lookups,
    warnings: Mutex<LogThrottle>,
}

/// What is known of a credential.
#[derive(Clone)]
struct Entry {
    consumer: Result<Arc<Consumer>, ConsumerError>,
    expires: Instant,
}

impl StoredConsumers {
    /// No consumers yet; entries are used for `lifetime` before they are read again.
    #[must_use]
    pub fn new(lifetime: Duration) -> Self {
        let (known, unknown, warnings) = (Cache::default(), Cache::default(), Mutex::default());
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
        let of = |cache: &Cache<Entry>| cache.get(credential).filter(|entry| entry.expires > now);
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
        cache.put(credential, Entry { consumer, expires: now + lifetime });
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
