//! The concurrent requests and the open tunnels of each client to an upstream, over all workers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;

use super::error::{Counted, ForwardError};
use crate::sharded::Sharded;

/// The number of shards, so that workers seldom wait for each other's lock.
const SHARDS: usize = 16;

/// By what a client is told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientKey {
    /// Its address as limits count it.
    Address(IpAddr),
    /// The hash of its fair key, at an upstream with `overload`.
    Fair(u64),
}

/// Concurrent requests and tunnels by client, as far as they are bounded. There are no more entries than requests and tunnels.
#[derive(Debug, Default)]
pub(super) struct ClientCounts {
    counts: Sharded<HashMap<(Counted, ClientKey), usize>, SHARDS>,
}

/// Counts a request or a tunnel until the value is dropped.
#[derive(Debug)]
pub(super) struct ClientPermit {
    clients: Arc<ClientCounts>,
    counted: (Counted, ClientKey),
}

/// What a request counts as, of those that are bounded.
#[derive(Debug, Default)]
pub(super) struct ClientPermits {
    pub request: Option<Rc<ClientPermit>>,
    /// From the handshake on; boxed because few requests have it.
    pub tunnel: Option<Box<ClientPermit>>,
}

impl ClientPermits {
    /// The permits after the head of the response: the request is not counted as a tunnel unless the server has switched protocols.
    pub fn after_head(self, status: StatusCode) -> Self {
        let tunnel = self.tunnel.filter(|_| status == StatusCode::SWITCHING_PROTOCOLS);
        Self { tunnel, ..self }
    }
}

impl ClientCounts {
    /// Counts a request or a tunnel of a client. Fails if the client has `max` of them.
    pub fn acquire(
        self: &Arc<Self>,
        counted: (Counted, ClientKey),
        max: NonZeroUsize,
    ) -> Result<ClientPermit, ForwardError> {
        let mut shard = self.counts.lock(&counted);
        let count = shard.entry(counted).or_default();
        if *count >= max.get() {
            return Err(ForwardError::ClientLimit(counted.0, max));
        }
        *count += 1;
        Ok(ClientPermit { clients: Arc::clone(self), counted })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut shard = self.clients.counts.lock(&self.counted);
        if let Some(count) = shard.get_mut(&self.counted) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.counted);
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
        let acquire = |number| clients.acquire((Counted::Requests, ClientKey::Fair(number)), two);
        let mut held = vec![acquire(1).unwrap(), acquire(1).unwrap()];
        assert!(acquire(1).is_err());
        // Tunnels of the same client, and requests of others, count separately.
        held.push(clients.acquire((Counted::Tunnels, ClientKey::Fair(1)), two).unwrap());
        held.push(acquire(2).unwrap());
        held.remove(0);
        held.push(acquire(1).unwrap());
        assert!(acquire(1).is_err());
        drop(held);
        assert!(clients.counts.lock_each().all(|shard| shard.is_empty()));
    }
}
