//! How many requests of each client are under way to an upstream, over all workers.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;

/// Parts of the table, so that workers seldom wait for each other.
const SHARDS: usize = 16;

/// Requests under way by client, where those are bounded: there are no more entries than requests.
#[derive(Debug, Default)]
pub(super) struct ClientCounts {
    shards: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
    hasher: RandomState,
}

/// A request that is counted until the value is dropped.
#[derive(Debug)]
pub(super) struct ClientPermit {
    clients: Arc<ClientCounts>,
    client: IpAddr,
}

impl ClientCounts {
    /// Counts a request of this client; none if it has `max` under way.
    pub fn acquire(self: &Arc<Self>, client: IpAddr, max: NonZeroUsize) -> Option<ClientPermit> {
        let mut shard = self.shard(client).lock();
        let count = shard.entry(client).or_default();
        if *count >= max.get() {
            return None;
        }
        *count += 1;
        Some(ClientPermit { clients: Arc::clone(self), client })
    }

    fn shard(&self, client: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        let hash = self.hasher.hash_one(client);
        // The remainder is below the number of shards.
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut shard = self.clients.shard(self.client).lock();
        if let Some(count) = shard.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.client);
            }
        }
        if shard.len() < shard.capacity() / 8 {
            // Many were here at once, and are gone.
            shard.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_so_many_requests_and_leaves_nothing_behind() {
        let (clients, two) = (Arc::new(ClientCounts::default()), NonZeroUsize::new(2).unwrap());
        let begin = |number: u8| clients.acquire([192, 0, 2, number].into(), two);
        let mut held = vec![begin(1).unwrap(), begin(1).unwrap()];
        assert!(begin(1).is_none());
        held.push(begin(2).unwrap());
        held.remove(0);
        held.push(begin(1).unwrap());
        assert!(begin(1).is_none());
        drop(held);
        assert!(clients.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
