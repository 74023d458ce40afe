//! Lookups of consumers in Redis that are in progress: a few of each client, and one of each credential.
//!
//! Consumers are read by `HGETALL`, with a bound of lookups for each client, and one for each credential of a client
//! (`consumers::lookups`, shared by all workers). They do not pass through the batcher, since they need no script: fred writes
//! the commands that are queued in one turn of the event loop together.

use std::hash::Hash;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use hashbrown::HashMap;
use tokio::sync::{Mutex, Semaphore};

use super::credential::CredentialHash;
use super::error::ConsumerError;
use crate::sharded::Sharded;

/// Lookups of one client at once.
const MAX_AT_ONCE: usize = 4;
/// Further lookups of a client that wait for those.
const MAX_WAITING: usize = 64;
/// Enough that two workers seldom contend for a lock.
const SHARDS: usize = 16;

/// The lookups in progress, of all workers.
#[derive(Default)]
pub(super) struct Lookups {
    credentials: SharedValues<(IpAddr, CredentialHash), Mutex<()>>,
    clients: SharedValues<IpAddr, Semaphore>,
}

/// Values that are shared by their present users: the last one removes its value.
struct SharedValues<K, V>(Sharded<HashMap<K, Arc<V>>, SHARDS>);

/// A user of a value.
pub(super) struct SharedValue<'u, K: Copy + Eq + Hash, V> {
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
    ) -> SharedValue<'_, (IpAddr, CredentialHash), Mutex<()>> {
        self.credentials.join((client, hash), Mutex::default)
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
