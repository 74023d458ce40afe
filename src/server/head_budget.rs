//! Bounds the heads of requests over HTTP/2 that have no response yet: for each connection, and for each client.
//!
//! HPACK makes large heads of few bytes: a reference to the table takes one byte. So the bytes that a client sends do not bound
//! the memory of its requests, which may all wait: for their bodies, for Redis, or for a server.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the heads of a connection: 128 requests with 8 KiB each.
const MAX_OF_CONNECTION: usize = 1024 * 1024;
/// Bytes of the heads of a client, over all of its connections to a listener.
const MAX_OF_CLIENT: usize = 16 * 1024 * 1024;

/// The heads of a client over its connections to a listener, on all workers.
#[derive(Debug, Default)]
pub(super) struct ClientHeads(AtomicUsize);

/// The heads of a connection.
#[derive(Debug)]
pub(super) struct HeadBudget {
    held: Cell<usize>,
    /// None for a trusted proxy, which may have any number of clients.
    client: Option<Arc<ClientHeads>>,
}

/// The memory of a head until this is dropped.
#[derive(Debug)]
pub(super) struct HeldHead<'b> {
    budget: &'b HeadBudget,
    bytes: usize,
}

impl HeadBudget {
    /// The budget of a connection of this client, if it is not a trusted proxy.
    pub fn new(client: Option<Arc<ClientHeads>>) -> Self {
        Self { held: Cell::new(0), client }
    }

    /// Holds a head of so many bytes; none if it does not fit into the budget. The only head of a connection is bounded by
    /// `max_header_bytes`.
    pub fn hold(&self, bytes: usize) -> Option<HeldHead<'_>> {
        let before = self.held.get();
        if before > 0 && before + bytes > MAX_OF_CONNECTION {
            return None;
        }
        if let Some(ClientHeads(held)) = self.client.as_deref()
            && held.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_OF_CLIENT
        {
            held.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        self.held.set(before + bytes);
        Some(HeldHead { budget: self, bytes })
    }
}

impl Drop for HeldHead<'_> {
    fn drop(&mut self) {
        let Self { budget, bytes } = self;
        budget.held.set(budget.held.get() - *bytes);
        if let Some(ClientHeads(held)) = budget.client.as_deref() {
            held.fetch_sub(*bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn heads_are_bounded_by_connection_and_by_client() {
        let client = Arc::new(ClientHeads::default());
        let connections: Vec<HeadBudget> =
            (0..100).map(|_| HeadBudget::new(Some(Arc::clone(&client)))).collect();
        let held: Vec<HeldHead<'_>> = connections
            .iter()
            .flat_map(|connection| std::iter::from_fn(|| connection.hold(33 * KIB)))
            .collect();
        assert!(connections.iter().all(|connection| connection.held.get() <= MAX_OF_CONNECTION));
        assert_eq!(connections[0].held.get() / (33 * KIB), 31);
        assert_eq!(held.len(), MAX_OF_CLIENT / (33 * KIB));
        assert_eq!(client.0.load(Ordering::Relaxed), held.len() * 33 * KIB);
        let proxy = HeadBudget::new(None);
        assert!(proxy.hold(2 * MAX_OF_CONNECTION).is_some(), "the only one");
        drop(held);
        assert_eq!(client.0.load(Ordering::Relaxed), 0);
        assert!(connections.iter().all(|connection| connection.held.get() == 0));
    }
}
