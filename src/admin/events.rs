//! The activity of the process: the event stream while a client watches, the history of the last hour, and that of one key.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::activity::{HISTORY_SECONDS, LIVE_SECONDS, LiveFrame, event, retry};
use super::api::{Hello, KeyHistoryResponse, KeySlotInfo, LimitSummary};
use super::limits;
use super::response::{self, AdminBody, AdminError, AdminResponse};
use super::sessions::{AdminConnection, AdminSession, ConnectionDeadline};
use super::spec::AdminAccess;
use super::state::Admin;
use crate::limit::{Key, PolicyId};
use crate::server::Lifecycle;
use crate::telemetry::{self, Frame};
use crate::time::{Micros, monotonic};

/// How long a stream may last: a page that is left open connects again, and other clients do not stay forever.
const MAX_AGE: Duration = Duration::from_hours(1);
/// How long a client should wait before it connects again, in milliseconds.
const RETRY: u32 = 2_000;
/// Events that may wait for the client. A client that is slower misses frames.
const QUEUED: usize = 1;
/// The most limits of a `hello`.
const MAX_LIMITS: usize = 1_000;

/// The stream of one client.
struct EventStream {
    /// The value for the configuration that is served.
    current: Arc<ArcSwap<Admin>>,
    /// The value for the configuration of which the client has got the `hello`.
    admin: Arc<Admin>,
    access: AdminAccess,
    deadline: Arc<ConnectionDeadline>,
    events: mpsc::Sender<Bytes>,
}

/// Opens a stream for a client that may do what `access` says. Fails if as many streams are open as there may be, or the process
/// stops.
pub(super) fn open(connection: &AdminConnection, access: AdminAccess) -> Result<AdminResponse, AdminError> {
    let AdminConnection { admin, current, session } = connection;
    if *admin.lifecycle.borrow() == Lifecycle::Draining {
        let error = AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "the process is stopping");
        return Err(error.header(RETRY_AFTER, "2"));
    }
    let deadline = session.open_stream()?;
    let (events, received) = mpsc::channel(QUEUED);
    let (current, admin) = (Arc::clone(current), Arc::clone(admin));
    let stream = EventStream { current, admin, access, deadline, events };
    tokio::spawn(async move { timeout(MAX_AGE, stream.run()).await });
    Ok(response::with_body("text/event-stream", AdminBody::Chunks(received)))
}

impl EventStream {
    /// Sends events until the client has disconnected, its token is not valid any more, or the process drains.
    async fn run(mut self) -> Option<()> {
        let mut frames = self.admin.activity.watch();
        let mut lifecycle = self.admin.lifecycle.clone();
        self.send(retry(RETRY)).await?;
        self.send(self.hello()).await?;
        let mut has_first = false;
        loop {
            tokio::select! {
                changed = frames.changed() => changed.ok()?,
                _ = lifecycle.wait_for(|stage| *stage == Lifecycle::Draining) => return None,
                () = self.events.closed() => return None,
            }
            let current = self.current.load_full();
            if !Arc::ptr_eq(&current, &self.admin) {
                if !current.spec.has_tokens_of(&self.admin.spec) {
                    return None;
                }
                self.admin = current;
                self.send(self.hello()).await?;
            }
            let frame = frames.borrow_and_update().clone();
            if let Some(LiveFrame { next, first }) = frame {
                let is_first = !std::mem::replace(&mut has_first, true);
                self.send(first.filter(|_| is_first).unwrap_or(next)).await?;
            }
        }
    }

    /// Sends an event as soon as the client has taken those before; none if it has disconnected. A client that takes none is
    /// disconnected at the deadline.
    async fn send(&self, event: Bytes) -> Option<()> {
        self.events.send(event).await.ok()?;
        self.deadline.extend();
        Some(())
    }

    fn hello(&self) -> Bytes {
        let gate = &self.admin.snapshot.gate;
        let limits: Vec<LimitSummary> = gate
            .limits()
            .take(MAX_LIMITS)
            .map(|(id, policy)| limits::summary(policy, &gate.numbers[id]))
            .collect();
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: Micros(self.admin.metrics.started().0).as_secs_f64(),
            interval: LIVE_SECONDS,
            routes: gate.routes.routes().len(),
            limits_left_out: gate.limits().count() - limits.len(),
            limits,
            can_change: self.access == AdminAccess::Change,
        };
        event("hello", &hello)
    }
}

/// The frames of the last hour.
pub(super) fn history(admin: &Admin, session: &AdminSession) -> AdminResponse {
    let frames = admin.activity.history();
    // It fails when the client has disconnected.
    let body = session.stream(move |out| drop(write_history(&frames, out)));
    response::with_body("application/json", body)
}

/// Writes a frame in a line.
fn write_history(frames: &[Arc<Frame>], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"seconds\": {HISTORY_SECONDS}, \"frames\": [")?;
    let mut separator = "\n";
    for frame in frames {
        out.write_all(separator.as_bytes())?;
        // In one piece, since it is written in many small ones.
        out.write_all(&serde_json::to_vec(&**frame)?)?;
        separator = ",\n";
    }
    out.write_all(b"\n]}\n")?;
    out.flush()
}

/// The requests of a key in the last hour.
pub(super) fn of_key(admin: &Admin, limit: PolicyId, key: Key) -> KeyHistoryResponse {
    let policy = &admin.snapshot.gate.limits.policies[limit];
    let (now, time) = (monotonic(), Micros(admin.clock.now().0).as_secs_f64());
    let history = admin.top.as_ref().map(|top| top.key_history(&policy.name, key, now));
    let (slots, max_error) = history.map_or((Vec::new(), 0), |history| (history.slots, history.max_error));
    let slot = |slot: &telemetry::KeySlot| KeySlotInfo {
        from: rounded(time - now.saturating_duration_since(slot.start).as_secs_f64()),
        seconds: rounded(slot.length.as_secs_f64()),
        requests: slot.traffic,
        denials: slot.denials,
    };
    KeyHistoryResponse {
        limit: policy.name.to_string(),
        key: limits::tag(key),
        mode: policy.mode().to_owned(),
        max_error,
        slots: slots.iter().map(slot).collect(),
    }
}

/// Rounds to a millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
