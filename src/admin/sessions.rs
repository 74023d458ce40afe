//! Open connections of the interface, and what they may take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use http::header::RETRY_AFTER;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::answer::{Answer, Refusal};
use super::client::ClientId;
use super::failures::Failures;

/// Connections at once that have not been admitted: those that wait for a head, above all.
const MAX_PENDING: usize = 64;
/// How many of these one client has.
const MAX_PENDING_PER_CLIENT: usize = 8;
/// Requests at once that have been admitted: that have shown the token, where there is one. Pending connections never
/// take their places.
const MAX_ADMITTED: usize = 32;

/// The open connections. It outlives a configuration.
#[derive(Debug)]
pub(super) struct Sessions {
    next_id: AtomicU64,
    /// The oldest first.
    pending: Mutex<Vec<Pending>>,
    admitted: Arc<Semaphore>,
    rendering: Arc<Semaphore>,
    pub failures: Failures,
}

/// A connection that has not been admitted yet.
#[derive(Debug)]
struct Pending {
    id: u64,
    client: ClientId,
    has_head: bool,
    task: AbortHandle,
}

/// One connection, as the code that serves it sees it.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    pub client: ClientId,
    sessions: Arc<Sessions>,
    /// Held from when it was admitted.
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            next_id: AtomicU64::new(0),
            pending: Mutex::default(),
            admitted: Arc::new(Semaphore::new(MAX_ADMITTED)),
            // One at a time: what is rendered may be large.
            rendering: Arc::new(Semaphore::new(1)),
            failures: Failures::default(),
        }
    }
}

impl Sessions {
    /// Starts to serve a connection. If there are too many already, of this client or in all, the one that has waited
    /// longest for its head is closed.
    pub fn start<F>(self: &Arc<Self>, client: ClientId, serve: impl FnOnce(Session) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let session = Session { id, client, sessions: Arc::clone(self), place: OnceLock::new() };
        let mut pending = self.pending.lock();
        let closed = surplus(&pending, client).map(|place| pending.remove(place));
        // Still locked, so that it can't end before it is in the list.
        let task = tokio::spawn(serve(session)).abort_handle();
        pending.push(Pending { id, client, has_head: false, task });
        drop(pending);
        closed.inspect(|closed| closed.task.abort());
    }
}

/// The place of the connection that has to go before another one of `client` may come, if one has to.
fn surplus(pending: &[Pending], client: ClientId) -> Option<usize> {
    let own = pending.iter().filter(|other| other.client == client).count();
    let is_full = pending.len() >= MAX_PENDING;
    if own < MAX_PENDING_PER_CLIENT && !is_full {
        return None;
    }
    // Others lose a connection only if the client has not too many of its own.
    let may_go = |other: &Pending| own < MAX_PENDING_PER_CLIENT || other.client == client;
    let without_head = pending.iter().position(|other| may_go(other) && !other.has_head);
    without_head.or_else(|| pending.iter().position(may_go))
}

impl Session {
    /// Its head is there: others are closed before it.
    pub fn has_head(&self) {
        if let Some(own) = self.sessions.pending.lock().iter_mut().find(|other| other.id == self.id) {
            own.has_head = true;
        }
    }

    /// It has shown the token, or need not: it is not closed for others any more.
    pub fn admit(&self) -> Result<(), Refusal> {
        let Ok(place) = Arc::clone(&self.sessions.admitted).try_acquire_owned() else {
            let refusal =
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests are being answered");
            return Err(refusal.header(RETRY_AFTER, "1"));
        };
        let _ = self.place.set(place);
        self.forget();
        Ok(())
    }

    /// Wrong tokens of all clients.
    pub fn failures(&self) -> &Failures {
        &self.sessions.failures
    }

    /// Makes an answer that may be large, on a thread of its own, so that others are answered meanwhile.
    pub async fn render(&self, make: impl FnOnce() -> Answer + Send + 'static) -> Result<Answer, Refusal> {
        // The semaphore is never closed, so this only waits for a permit.
        let turn = Arc::clone(&self.sessions.rendering).acquire_owned().await;
        let rendered = tokio::task::spawn_blocking(move || {
            // It goes on if the client goes away, and so does its turn.
            let _turn = turn;
            make()
        });
        let failed = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made");
        rendered.await.map_err(|_| failed())
    }

    fn forget(&self) {
        self.sessions.pending.lock().retain(|other| other.id != self.id);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Pending connections of these clients, the oldest first; those whose head is there are marked.
    fn pending(clients: &[(u8, bool)]) -> Vec<Pending> {
        let task = tokio::spawn(async {}).abort_handle();
        let one = |(id, (client, has_head)): (u64, &(u8, bool))| Pending {
            id,
            client: of(*client),
            has_head: *has_head,
            task: task.clone(),
        };
        (0..).zip(clients).map(one).collect()
    }

    fn of(client: u8) -> ClientId {
        ClientId::of(Ipv4Addr::new(10, 0, 0, client).into())
    }

    #[tokio::test]
    async fn the_oldest_without_a_head_goes_first() {
        assert_eq!(surplus(&pending(&[(1, false); 7]), of(1)), None);
        let mut own = vec![(2, false), (1, true), (1, true), (1, false)];
        own.extend([(1, false); 5]);
        assert_eq!(surplus(&pending(&own), of(1)), Some(3));
        assert_eq!(surplus(&pending(&own), of(2)), None);
        assert_eq!(surplus(&pending(&[(1, true); 8]), of(1)), Some(0));
        // When all places are taken, whosever it is.
        let mut full: Vec<(u8, bool)> = (0..64).map(|number| (number / 4, number < 10)).collect();
        assert_eq!(surplus(&pending(&full), of(100)), Some(10));
        for (_, has_head) in &mut full {
            *has_head = true;
        }
        assert_eq!(surplus(&pending(&full), of(100)), Some(0));
    }
}
