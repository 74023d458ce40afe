//! Limits the connections to one listener, over all workers: in total, and for each client.
//!
//! When the total is reached, a new connection evicts an idle one of the client that has the most connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use super::head_budget::ClientHeads;
use crate::body::ClientBodies;
use crate::sharded::Sharded;
use crate::telemetry::ListenerCounts;

/// Shards of the table of clients, so that workers that accept at the same time seldom wait for each other.
const SHARDS: usize = 16;
/// Up to this part of all connections, a 16th, may be evicted and not yet closed at the same time.
const CLOSING_PART: usize = 16;

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyConnections {
    /// The listener has `max_connections`.
    #[error("{0} connections to the listener are open (`max_connections`)")]
    Listener(usize),
    /// The client has `max_connections_per_client`.
    #[error("{0} connections of this client are open (`max_connections_per_client`)")]
    Client(NonZeroUsize),
}

type ClientTable = HashMap<IpAddr, ClientEntry>;

/// What is known of a client with connections.
#[derive(Debug, Default)]
struct ClientEntry {
    connections: Vec<Arc<ConnectionStatus>>,
    memory: ClientMemory,
}

/// What bounds the memory that the requests of a client take, over its connections.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientMemory {
    pub heads: Arc<ClientHeads>,
    pub bodies: Arc<ClientBodies>,
}

/// Counts the connections to one listener.
#[derive(Debug, Default)]
pub struct ConnectionLimiter {
    /// Open connections that were not evicted.
    open: AtomicUsize,
    /// Connections that were evicted, and are not closed yet.
    closing: AtomicUsize,
    /// Connections by client; clients without one are not kept.
    clients: Sharded<ClientTable, SHARDS>,
    /// Connections that were refused, by the variants of [`TooManyConnections`].
    refused: [AtomicU64; 2],
    counts: ListenerCounts,
}

/// Counts an open connection of a client until it is dropped.
#[derive(Debug)]
pub(super) struct ClientConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    /// The client of the connection, if it is known and limited.
    client: Option<IpAddr>,
    status: Arc<ConnectionStatus>,
}

impl ConnectionLimiter {
    /// Acquires a permit for one of `max` connections. `client` is the client that connects, if it is known already. Fails when
    /// `max` connections are open, and no client with more connections than `client` has an idle one to evict.
    pub(super) fn acquire(
        self: &Arc<Self>,
        max: usize,
        client: Option<IpAddr>,
    ) -> Result<ClientConnectionPermit, TooManyConnections> {
        let permit =
            ClientConnectionPermit { limiter: Arc::clone(self), client: None, status: Arc::default() };
        if self.open.fetch_add(1, Ordering::Relaxed) < max || self.evict_one(max, client) {
            return Ok(permit);
        }
        self.refused[0].fetch_add(1, Ordering::Relaxed);
        Err(TooManyConnections::Listener(max))
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed) + self.closing.load(Ordering::Relaxed)
    }

    /// How many connections were refused: because of the limit of the listener, and because of that of their client.
    #[must_use]
    pub fn refused(&self) -> [u64; 2] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Counters of the listener's connections.
    #[must_use]
    pub fn counts(&self) -> &ListenerCounts {
        &self.counts
    }

    /// Evicts an idle connection of the client that has the most, if those are more than the new client has; returns whether
    /// there was one.
    fn evict_one(&self, max: usize, new_client: Option<IpAddr>) -> bool {
        if self.closing.load(Ordering::Relaxed) > max / CLOSING_PART {
            return false;
        }
        let own = new_client
            .and_then(|client| self.clients.lock(&client).get(&client).map(|known| known.connections.len()));
        let mut largest = (own.unwrap_or(0), None);
        for shard in self.clients.lock_each() {
            for (client, ClientEntry { connections, .. }) in shard.iter() {
                if connections.len() > largest.0 && connections.iter().any(|connection| connection.is_idle())
                {
                    largest = (connections.len(), Some(*client));
                }
            }
        }
        let Some(client) = largest.1 else { return false };
        let mut shard = self.clients.lock(&client);
        let Some(ClientEntry { connections, .. }) = shard.get_mut(&client) else { return false };
        let Some(idle) = connections.iter().position(|connection| connection.is_idle()) else { return false };
        let evicted = connections.remove(idle);
        if connections.is_empty() {
            shard.remove(&client);
        }
        evicted.evict();
        self.closing.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
        drop(shard);
        evicted.wake();
        tracing::debug!(%client, "an idle connection is evicted for a new client");
        true
    }
}

impl ClientConnectionPermit {
    /// Counts the connection as one of this client, which may have `max` of them if that is limited. Fails when the client has as
    /// many already.
    pub fn assign_to(&mut self, client: IpAddr, max: Option<NonZeroUsize>) -> Result<(), TooManyConnections> {
        let mut shard = self.limiter.clients.lock(&client);
        let ClientEntry { connections, memory } = shard.entry(client).or_default();
        if let Some(max) = max.filter(|max| connections.len() >= max.get()) {
            self.limiter.refused[1].fetch_add(1, Ordering::Relaxed);
            return Err(TooManyConnections::Client(max));
        }
        connections.push(Arc::clone(&self.status));
        self.status.set_client_memory(memory);
        self.client = Some(client);
        Ok(())
    }

    /// Counters of the listener's connections.
    pub fn counts(&self) -> &ListenerCounts {
        &self.limiter.counts
    }

    /// The status of the connection.
    pub fn status(&self) -> &Arc<ConnectionStatus> {
        &self.status
    }
}

impl Drop for ClientConnectionPermit {
    fn drop(&mut self) {
        let limiter = &self.limiter;
        // Locked to the end, so that the connection is not evicted meanwhile.
        let mut shard = self.client.map(|client| (client, limiter.clients.lock(&client)));
        if self.status.is_evicted() {
            limiter.closing.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        limiter.open.fetch_sub(1, Ordering::Relaxed);
        let Some((client, shard)) = &mut shard else { return };
        if let Some(ClientEntry { connections, .. }) = shard.get_mut(client) {
            connections.retain(|connection| !Arc::ptr_eq(connection, &self.status));
            if connections.is_empty() {
                shard.remove(client);
            }
        }
        if shard.len() < shard.capacity() / 8 {
            // Frees the memory after a peak.
            shard.shrink_to_fit();
        }
    }
}

/// Whether a connection is idle, so that it can be evicted, and whether it was.
#[derive(Debug, Default)]
pub(super) struct ConnectionStatus {
    is_idle: AtomicBool,
    is_evicted: AtomicBool,
    /// Wakes the connection's task.
    waker: Mutex<Option<Waker>>,
    /// The memory of its client, once that is known and unless it is a trusted proxy.
    client_memory: OnceLock<ClientMemory>,
}

impl ConnectionStatus {
    /// Records the memory of its client.
    pub fn set_client_memory(&self, memory: &ClientMemory) {
        // A connection has one client.
        let _ = self.client_memory.set(memory.clone());
    }

    /// The memory of its client, unless it is a trusted proxy.
    pub fn client_memory(&self) -> Option<&ClientMemory> {
        self.client_memory.get()
    }

    /// Whether no request is in progress.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// Records whether no request is in progress.
    pub fn set_idle(&self, is_idle: bool) {
        // Read first: a cache line that is not written stays valid for other cores.
        if self.is_idle() != is_idle {
            self.is_idle.store(is_idle, Ordering::Relaxed);
        }
    }

    /// Whether the connection has to close for another client's.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    /// Makes the connection close as soon as its task is woken.
    pub fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
    }

    /// Sets the task that is woken.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_connections_are_open_than_allowed() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let [first, second] = [(); 2].map(|()| limiter.acquire(2, None).unwrap());
        assert_eq!(limiter.acquire(2, None).unwrap_err(), TooManyConnections::Listener(2));
        assert_eq!((limiter.open(), limiter.refused()), (2, [1, 0]));
        drop(first);
        assert!(limiter.acquire(2, None).is_ok());
        drop(second);
        assert_eq!(limiter.open(), 0);
    }

    #[test]
    fn a_client_has_a_limit_and_its_entry_is_removed_with_its_last_connection() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let two = NonZeroUsize::new(2).unwrap();
        let take = |client: &str| {
            let mut permit = limiter.acquire(1_000, None)?;
            permit.assign_to(client.parse().unwrap(), Some(two)).map(|()| permit)
        };
        let known = || limiter.clients.lock_each().map(|shard| shard.len()).sum::<usize>();
        let mut kept = vec![take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap()];
        assert_eq!(take("192.0.2.1").unwrap_err(), TooManyConnections::Client(two));
        kept.extend((0..500).map(|number| take(&format!("2001:db8::{number:x}")).unwrap()));
        assert_eq!((limiter.open(), known(), limiter.refused()), (502, 501, [0, 1]));
        kept.remove(0);
        kept.push(take("192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_err());
        drop(kept);
        assert_eq!((limiter.open(), known()), (0, 0));
        let capacity = limiter.clients.lock_each().map(|shard| shard.capacity()).sum::<usize>();
        // Each shard shrinks when it has six entries at most, for which seven are allocated.
        assert!(capacity <= 7 * SHARDS, "{capacity}");
    }

    #[test]
    fn a_new_client_evicts_an_idle_connection_of_the_client_that_has_the_most() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let take = |number: u8| {
            let client = [192, 0, 2, number].into();
            let mut permit = limiter.acquire(8, Some(client))?;
            permit.assign_to(client, None).map(|()| permit)
        };
        let held: Vec<ClientConnectionPermit> =
            [1, 2, 2, 2, 2, 3, 3, 3].map(|client| take(client).unwrap()).into();
        let idle = |number: usize| held[number].status().set_idle(true);
        let evicted = || held.iter().filter(|permit| permit.status().is_evicted()).count();
        assert_eq!(take(4).unwrap_err(), TooManyConnections::Listener(8));
        [0, 5, 6].into_iter().for_each(idle);
        assert!(take(3).is_err(), "the client has as many itself");
        let new = take(4).unwrap();
        assert!(held[5].status().is_evicted() && evicted() == 1);
        // Of so few connections only one may be evicted at a time.
        assert!(take(5).is_err());
        assert_eq!((limiter.open(), limiter.refused()), (9, [3, 0]));
        drop(held);
        drop(new);
        assert_eq!(limiter.open(), 0);
        assert!(limiter.clients.lock_each().all(|shard| shard.is_empty()));
    }
}
