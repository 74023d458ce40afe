//! Open connections to the admin interface, and their bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::RETRY_AFTER;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::client::{ClientId, Failures};
use super::response::{self, AdminBody, AdminError, AdminResponse, ChunkWriter};
use super::state::Admin;
use crate::time::monotonic;

/// The most connections that are not admitted yet: mostly those that wait for a request's head.
const MAX_PENDING: usize = 64;
/// The most of these that one client may have.
const MAX_PENDING_PER_CLIENT: usize = 8;
/// The most requests that are admitted at once: those with the token, if one is configured. Pending connections can't use
/// this capacity up.
const MAX_ADMITTED: usize = 32;
/// The most event streams that are open at once. They do not count as admitted requests, since they last long.
const MAX_STREAMS: usize = 16;

/// The open connections. They outlive a configuration.
#[derive(Debug)]
pub(super) struct Sessions {
    next_id: AtomicU64,
    /// In the order of their start.
    pending: Mutex<Vec<PendingSession>>,
    admitted: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    rendering: Arc<Semaphore>,
    pub failures: Failures,
}

/// A connection that has not been admitted yet.
#[derive(Debug)]
struct PendingSession {
    id: u64,
    client: ClientId,
    has_head: bool,
    task: AbortHandle,
}

/// The handle of one connection.
#[derive(Debug)]
pub(super) struct AdminSession {
    id: u64,
    pub client: ClientId,
    sessions: Arc<Sessions>,
    /// When it is closed.
    pub deadline: Arc<ConnectionDeadline>,
    /// Held as soon as it is admitted: that of a request or of an event stream.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            next_id: AtomicU64::new(0),
            pending: Mutex::default(),
            admitted: Arc::new(Semaphore::new(MAX_ADMITTED)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            // One at a time, since a response may be large.
            rendering: Arc::new(Semaphore::new(1)),
            failures: Failures::default(),
        }
    }
}

impl Sessions {
    /// Starts serving a connection. If too many are pending, of this client or in total, the one that has waited longest
    /// for its head is closed.
    pub fn start<F>(self: &Arc<Self>, client: ClientId, serve: impl FnOnce(AdminSession) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sessions, deadline) = (Arc::clone(self), Arc::new(ConnectionDeadline::new()));
        let session = AdminSession { id, client, sessions, deadline, permit: Mutex::default() };
        let mut pending = self.pending.lock();
        let closed = surplus(&pending, client).map(|index| pending.remove(index));
        // The lock is held, so that the task can't end before it is in the list.
        let task = tokio::spawn(serve(session)).abort_handle();
        pending.push(PendingSession { id, client, has_head: false, task });
        drop(pending);
        closed.inspect(|closed| closed.task.abort());
    }
}

/// The index of the connection that must be closed before `client` may have another one; none if there is room.
fn surplus(pending: &[PendingSession], client: ClientId) -> Option<usize> {
    let own = pending.iter().filter(|other| other.client == client).count();
    let is_full = pending.len() >= MAX_PENDING;
    if own < MAX_PENDING_PER_CLIENT && !is_full {
        return None;
    }
    // A connection of another client is closed only if this client has not reached its own bound.
    let may_close = |other: &PendingSession| own < MAX_PENDING_PER_CLIENT || other.client == client;
    let without_head = pending.iter().position(|other| may_close(other) && !other.has_head);
    without_head.or_else(|| pending.iter().position(may_close))
}

impl AdminSession {
    /// Records that the request's head has been received: connections without a head are closed first.
    pub fn head_received(&self) {
        if let Some(own) = self.sessions.pending.lock().iter_mut().find(|other| other.id == self.id) {
            own.has_head = true;
        }
    }

    /// Admits the request: its token has been checked. It is not closed in favour of others any more.
    pub fn admit(&self) -> Result<(), AdminError> {
        let Ok(permit) = Arc::clone(&self.sessions.admitted).try_acquire_owned() else {
            let error = AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests are in progress");
            return Err(error.header(RETRY_AFTER, "1"));
        };
        *self.permit.lock() = Some(permit);
        self.remove_pending();
        Ok(())
    }

    /// Turns the admitted request into an event stream; returns the deadline that it can extend.
    pub fn open_stream(&self) -> Result<Arc<ConnectionDeadline>, AdminError> {
        let Ok(permit) = Arc::clone(&self.sessions.streams).try_acquire_owned() else {
            let error = format!("{MAX_STREAMS} event streams are open already, the most that there may be");
            let error = AdminError::new(StatusCode::SERVICE_UNAVAILABLE, error);
            return Err(error.help("close a page that shows one").header(RETRY_AFTER, "10"));
        };
        *self.permit.lock() = Some(permit);
        Ok(Arc::clone(&self.deadline))
    }

    /// The wrong tokens of all clients.
    pub fn failures(&self) -> &Failures {
        &self.sessions.failures
    }

    /// Renders a response that may be large on a blocking thread, so that other requests proceed meanwhile.
    pub async fn render(
        &self,
        make: impl FnOnce() -> AdminResponse + Send + 'static,
    ) -> Result<AdminResponse, AdminError> {
        // The semaphore is never closed, so this only waits for a permit.
        let permit = Arc::clone(&self.sessions.rendering).acquire_owned().await;
        let rendered = tokio::task::spawn_blocking(move || {
            // Rendering continues if the client disconnects, so the permit is held here.
            let _permit = permit;
            make()
        });
        let failed = || AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, "rendering the response failed");
        rendered.await.map_err(|_| failed())
    }

    /// Streams a response that may be large: `write` runs on a blocking thread, and pauses while the client reads. It
    /// should write in chunks, and lets other renderings proceed after each.
    pub fn stream(&self, write: impl FnOnce(&mut ChunkWriter) + Send + 'static) -> AdminBody {
        let (mut writer, body) = response::channel(Arc::clone(&self.sessions.rendering));
        tokio::task::spawn_blocking(move || write(&mut writer));
        body
    }

    fn remove_pending(&self) {
        self.sessions.pending.lock().retain(|other| other.id != self.id);
    }
}

impl Drop for AdminSession {
    fn drop(&mut self) {
        self.remove_pending();
    }
}

/// How long a connection may last: enough for its only request. An event stream extends it with each event that it sends.
const LIFETIME: Duration = Duration::from_secs(30);

/// When a connection is closed.
#[derive(Debug)]
pub(super) struct ConnectionDeadline(Mutex<Instant>);

impl ConnectionDeadline {
    /// The deadline of a connection that starts now.
    pub fn new() -> Self {
        Self(Mutex::new(monotonic() + LIFETIME))
    }

    /// Lets the connection last as long as one that starts now.
    pub fn extend(&self) {
        *self.0.lock() = monotonic() + LIFETIME;
    }

    /// Waits until it has passed.
    pub async fn passed(&self) {
        loop {
            let deadline = *self.0.lock();
            if deadline <= monotonic() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

/// A connection of a client.
pub(super) struct AdminConnection {
    /// The state when it was accepted.
    pub admin: Arc<Admin>,
    /// The state of the configuration that is served.
    pub current: Arc<ArcSwap<Admin>>,
    pub session: AdminSession,
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Pending connections, the oldest first: their client, and whether their head has been received.
    fn pending(clients: &[(u8, bool)]) -> Vec<PendingSession> {
        let task = tokio::spawn(async {}).abort_handle();
        let one = |(id, (client, has_head)): (u64, &(u8, bool))| PendingSession {
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
    async fn the_oldest_connection_without_a_head_is_closed_first() {
        assert_eq!(surplus(&pending(&[(1, false); 7]), of(1)), None);
        let mut own = vec![(2, false), (1, true), (1, true), (1, false)];
        own.extend([(1, false); 5]);
        assert_eq!(surplus(&pending(&own), of(1)), Some(3));
        assert_eq!(surplus(&pending(&own), of(2)), None);
        assert_eq!(surplus(&pending(&[(1, true); 8]), of(1)), Some(0));
        // The total bound closes connections of any client.
        let mut full: Vec<(u8, bool)> = (0..64).map(|number| (number / 4, number < 10)).collect();
        assert_eq!(surplus(&pending(&full), of(100)), Some(10));
        for (_, has_head) in &mut full {
            *has_head = true;
        }
        assert_eq!(surplus(&pending(&full), of(100)), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_makes_progress_is_kept() {
        let (deadline, start) = (ConnectionDeadline::new(), monotonic());
        let extend = async {
            for _ in 0..10 {
                tokio::time::sleep(LIFETIME / 2).await;
                deadline.extend();
            }
        };
        tokio::join!(deadline.passed(), extend);
        assert_eq!(start.elapsed(), LIFETIME * 6);
    }
}
