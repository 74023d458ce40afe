//! Memory for request bodies that are kept before their requests are forwarded.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1024 * 1024;
/// The most bytes that are buffered for all requests of a client's connection: as many as HTTP/2 flow control lets a
/// client send ahead.
const MAX_BUFFERED: u64 = 512 * 1024;
/// The most bytes of bodies that are read for the estimates of a connection, of a client, and of the process.
const MAX_READ: u64 = 4 * MIB;
const MAX_READ_OF_CLIENT: u64 = 16 * MIB;
const MAX_READ_OF_PROCESS: u64 = 256 * MIB;

/// The bodies of all clients that are read for estimates.
static OF_PROCESS: AtomicU64 = AtomicU64::new(0);

/// The memory for bodies of one client connection.
#[derive(Clone, Debug)]
pub struct BufferBudget(Rc<Budget>);

#[derive(Debug)]
struct Budget {
    held: Cell<u64>,
    most: u64,
    /// What it shares with other connections, for bodies that are read for estimates.
    shared: Option<SharedBudget>,
}

/// The bytes of the bodies of a client, over its connections to a listener, that are read for estimates.
#[derive(Debug, Default)]
pub struct ClientBodies(AtomicU64);

#[derive(Debug)]
struct SharedBudget {
    /// None for a trusted proxy, which may have any number of clients.
    client: Option<Arc<ClientBodies>>,
    process: &'static AtomicU64,
}

/// The memory of one body, until the value is dropped.
#[derive(Debug)]
pub(super) struct BufferReservation {
    budget: BufferBudget,
    bytes: u64,
}

impl Default for BufferBudget {
    fn default() -> Self {
        Self(Rc::new(Budget { held: Cell::default(), most: MAX_BUFFERED, shared: None }))
    }
}

impl BufferBudget {
    /// The budget of a connection of this client for bodies that are read for estimates; none is given for a trusted proxy.
    #[must_use]
    pub fn for_estimates(client: Option<Arc<ClientBodies>>) -> Self {
        Self::shared(SharedBudget { client, process: &OF_PROCESS })
    }

    fn shared(shared: SharedBudget) -> Self {
        Self(Rc::new(Budget { held: Cell::default(), most: MAX_READ, shared: Some(shared) }))
    }

    /// Reserves memory for a body; none if other bodies use too much.
    pub(super) fn reserve(&self, bytes: u64) -> Option<BufferReservation> {
        self.take(bytes).then(|| BufferReservation { budget: self.clone(), bytes })
    }

    fn take(&self, bytes: u64) -> bool {
        let Budget { held, most, shared } = &*self.0;
        let total = held.get() + bytes;
        let fits = total <= *most && shared.as_ref().is_none_or(|shared| shared.take(bytes));
        if fits {
            held.set(total);
        }
        fits
    }

    fn give_back(&self, bytes: u64) {
        let Budget { held, shared, .. } = &*self.0;
        held.set(held.get() - bytes);
        if let Some(shared) = shared {
            shared.counts().for_each(|(count, _)| _ = count.fetch_sub(bytes, Ordering::Relaxed));
        }
    }
}

impl SharedBudget {
    /// What is held of each budget, and the most that may be.
    fn counts(&self) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let client = self.client.as_deref().map(|ClientBodies(held)| (held, MAX_READ_OF_CLIENT));
        client.into_iter().chain([(self.process, MAX_READ_OF_PROCESS)])
    }

    /// Takes so many bytes from all of them, or from none.
    fn take(&self, bytes: u64) -> bool {
        for (index, (count, most)) in self.counts().enumerate() {
            if count.fetch_add(bytes, Ordering::Relaxed) + bytes > most {
                let taken = self.counts().take(index + 1);
                taken.for_each(|(count, _)| _ = count.fetch_sub(bytes, Ordering::Relaxed));
                return false;
            }
        }
        true
    }
}

impl BufferReservation {
    /// Enlarges the reservation to so many bytes, if other bodies leave room; returns whether it is large enough.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let is_enough = self.budget.take(more);
        if is_enough {
            self.bytes += more;
        }
        is_enough
    }
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::stored::MAX_BYTES;

    #[test]
    fn the_memory_for_bodies_of_a_connection_is_bounded() {
        let budget = BufferBudget::default();
        let mut held: Vec<BufferReservation> = (0..8).map(|_| budget.reserve(MAX_BYTES).unwrap()).collect();
        assert!(budget.reserve(1).is_none());
        held.pop();
        assert!(budget.reserve(MAX_BYTES + 1).is_none() && budget.reserve(MAX_BYTES).is_some());
        let mut last = budget.reserve(0).unwrap();
        assert!(last.grow(MAX_BYTES) && last.grow(1) && !last.grow(MAX_BYTES + 1));
        drop((held, last));
        assert_eq!(budget.0.held.get(), 0);
    }

    #[test]
    fn the_memory_for_bodies_that_are_read_is_bounded_by_connection_client_and_process() {
        let process: &'static AtomicU64 = Box::leak(Box::default());
        let of = |client: &Arc<ClientBodies>| {
            BufferBudget::shared(SharedBudget { client: Some(Arc::clone(client)), process })
        };
        let clients: Vec<Arc<ClientBodies>> = (0..20).map(|_| Arc::default()).collect();
        let connection = of(&clients[0]);
        let mut held = vec![connection.reserve(MAX_READ).unwrap()];
        assert!(connection.reserve(1).is_none(), "the connection has all of its own");
        held.extend((0..3).map(|_| of(&clients[0]).reserve(MAX_READ).unwrap()));
        assert!(of(&clients[0]).reserve(1).is_none(), "the client has");
        let fill = |client| std::iter::from_fn(move || of(client).reserve(MAX_READ)).collect::<Vec<_>>();
        held.extend(clients[1..].iter().flat_map(fill));
        assert_eq!(process.load(Ordering::Relaxed), MAX_READ_OF_PROCESS);
        assert_eq!(clients[19].0.load(Ordering::Relaxed), 0, "a failure takes nothing");
        let proxy = BufferBudget::shared(SharedBudget { client: None, process });
        assert!(proxy.reserve(1).is_none(), "the process has");
        drop(held);
        assert!(proxy.reserve(1).is_some());
        assert_eq!(process.load(Ordering::Relaxed), 0);
        assert!(clients.iter().all(|client| client.0.load(Ordering::Relaxed) == 0));
    }
}
