//! The number of concurrent requests of each client to an upstream, over all workers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::sharded::Sharded;

/// The number of shards, so that workers seldom wait for each other's lock.
const SHARDS: usize = 16;

/// Concurrent requests by client, if `max_requests_per_client` is set. There are no more entries than requests.
#[derive(Debug, Default)]
pub(super) struct ClientCounts {
    counts: Sharded<HashMap<IpAddr, usize>, SHARDS>,
}

/// Counts a request until the value is dropped.
#[derive(Debug)]
pub(super) struct ClientPermit {
    clients: Arc<ClientCounts>,
    client: IpAddr,
}

impl ClientCounts {
    /// Counts a request of this client; none if the client has `max` concurrent requests.
    pub fn acquire(self: &Arc<Self>, client: IpAddr, max: NonZeroUsize) -> Option<ClientPermit> {
        let mut shard = self.counts.lock(&client);
        let count = shard.entry(client).or_default();
        if *count >= max.get() {
            return None;
        }
        *count += 1;
        Some(ClientPermit { clients: Arc::clone(self), client })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut shard = self.clients.counts.lock(&self.client);
        if let Some(count) = shard.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.client);
            }
        }
        if shard.len() < shard.capacity() / 8 {
            // Frees the memory after a peak.
            shard.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_client_are_bounded_and_finished_ones_leave_no_entry() {
        let (clients, two) = (Arc::new(ClientCounts::default()), NonZeroUsize::new(2).unwrap());
        let acquire = |number: u8| clients.acquire([192, 0, 2, number].into(), two);
        let mut held = vec![acquire(1).unwrap(), acquire(1).unwrap()];
        assert!(acquire(1).is_none());
        held.push(acquire(2).unwrap());
        held.remove(0);
        held.push(acquire(1).unwrap());
        assert!(acquire(1).is_none());
        drop(held);
        assert!(clients.counts.lock_each().all(|shard| shard.is_empty()));
    }
}
