//! A connection to a server.
//!
//! It has no task of its own: whoever waits for its response, and then for the response's body, polls it
//! along. So a request crosses no task on its way, a client that goes away takes the connection with it, and
//! an idle connection costs nothing but its memory.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http::header::TRANSFER_ENCODING;
use http::uri::InvalidUri;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection_use::ConnectionUse;
use super::room::Place;
use super::upload::Flaw;
use crate::socket::{Patience, Reading, Timed};
use crate::time::{monotonic, recent};
use crate::tls::Transport;

type Connection = http1::Connection<TokioIo<Timed<Transport>>, RequestBody>;

/// The most bytes before an answer's head is whole: one head, and room for interim responses.
const HEADS: usize = 512 * 1024;

/// The largest head of an answer; and bytes that are read of its body, or of a request wait to be written, before more
/// come. hyper would take 400 KiB of each.
const MAX_BUFFERED: usize = 64 * 1024;

/// A connection to a server, in use or kept for the next request.
pub(super) struct Wire {
    sender: http1::SendRequest<RequestBody>,
    /// Gone once it has ended, so that whoever waits for something from it hears of its end.
    connection: Option<Connection>,
    /// What is left of it when it has ended in order.
    left: Option<Timed<Transport>>,
    patience: Rc<Patience>,
    response_timeout: Duration,
    stall_timeout: Duration,
    relay: Arc<Relay>,
    waker: Waker,
    /// Whether the last response came before its request was whole.
    is_early: bool,
    /// Whether the last response may be silent without a time limit.
    is_open_ended: bool,
    /// Its right to be there, which goes to another connection after it.
    place: Place,
    /// Since when it has been kept; none for a connection that has not served yet.
    kept_since: Option<Instant>,
}

/// Why a request got no response.
pub(super) struct SendError {
    pub cause: Cause,
    /// Whether nothing of the request was sent, and it stands where it stood.
    pub is_unsent: bool,
    /// Whether not even a part of an answer came.
    pub is_unanswered: bool,
}

/// What has gone wrong.
pub(super) enum Cause {
    /// The connection, or one of the bodies.
    Hyper(hyper::Error),
    /// The request's body, and what came of it where somebody else sends it.
    Upload(Flaw, hyper::Error),
    /// There was no answer in time.
    TooLate,
    /// The client sends too slowly, and others needed the connection.
    Reclaimed,
    /// The server takes no tunnels.
    NoTunnels,
    /// The Host header does not fit into a target.
    Target(InvalidUri),
}

impl SendError {
    /// One after which the request is gone, and not to be sent again.
    pub fn of(cause: Cause) -> Self {
        Self { cause, is_unsent: false, is_unanswered: false }
    }
}

impl Wire {
    /// Speaks HTTP/1.1 over a stream, which has this place.
    pub async fn over(
        stream: Transport,
        place: Place,
        response_timeout: Duration,
        stall_timeout: Duration,
    ) -> io::Result<Box<Self>> {
        let patience = Patience::new(Reading::Unbounded, stall_timeout);
        let io = TokioIo::new(Timed::new(stream, Rc::clone(&patience)));
        let (sender, connection) =
            http1::Builder::new().max_buf_size(MAX_BUFFERED).handshake(io).await.map_err(io::Error::other)?;
        let relay = Arc::new(Relay::default());
        let waker = Waker::from(Arc::clone(&relay));
        place.connection().set_waker(waker.clone());
        let connection = Some(connection);
        Ok(Box::new(Self {
            sender,
            connection,
            left: None,
            patience,
            response_timeout,
            stall_timeout,
            relay,
            waker,
            is_early: false,
            is_open_ended: false,
            place,
            kept_since: None,
        }))
    }

    /// Whether it has served before and was kept.
    pub fn was_kept(&self) -> bool {
        self.kept_since.is_some()
    }

    /// Notes that it is kept from now on.
    pub fn keep(&mut self) {
        self.kept_since = Some(recent());
        self.patience.set(Reading::Unbounded);
        self.patience.set_limit(None);
        self.relay.forget();
        self.place.connection().end();
    }

    /// Who uses it.
    pub fn connection(&self) -> &Arc<ConnectionUse> {
        self.place.connection()
    }

    /// How long it has been kept.
    pub fn idle_for(&self) -> Duration {
        self.kept_since.map_or(Duration::ZERO, |since| monotonic() - since)
    }

    /// Whether another request can be sent, as far as is known without looking.
    pub fn is_free(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Lets it finish with the last response, and notice an end, or bytes that nobody asked for.
    pub fn settle(&mut self) {
        poll_connection(&mut self.connection, &mut self.left, &mut Context::from_waker(&self.waker));
    }

    /// Whether the response came before its request was whole, and both go on.
    pub fn is_early(&self) -> bool {
        self.is_early
    }

    /// Whether the response may be silent without a time limit.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// Whether nothing more comes over it or goes.
    pub fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Closes it, and leaves its place to another.
    pub fn into_place(self: Box<Self>) -> Place {
        self.place
    }

    /// What is left of it after the server has switched protocols.
    pub fn leave(&mut self) -> Option<Timed<Transport>> {
        self.settle();
        self.left.take()
    }

    /// Sends a request, which it takes out of where it stands, and waits for the head of its response. If
    /// nothing of it was sent, it stands there again after a failure. All must be over by `deadline`, the
    /// response's body too.
    pub async fn send(
        mut self: Box<Self>,
        request: &mut Request<RequestBody>,
        deadline: Option<Instant>,
    ) -> Result<(Response<Incoming>, Box<Self>), SendError> {
        if request.body().size_hint().exact().is_none() {
            // Left to itself, hyper sends a GET without the body whose length it doesn't know.
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if request.body().is_incoming() {
            self.patience.set(Reading::Unbounded);
            let connection = Arc::clone(self.place.connection());
            request.body_mut().then_expect_answer(
                Rc::clone(&self.patience),
                self.response_timeout,
                connection,
            );
        } else {
            // No client is waited for. A stored body must not set the time when it has been read: hyper looks at the
            // socket before it reads the body, and would not see that it has to wait for a limited time now.
            self.patience.set(Reading::Until(recent() + self.response_timeout));
        }
        self.patience.set_limit(deadline);
        self.patience.expect_answer(HEADS);
        let taken = std::mem::replace(request, Request::new(RequestBody::empty()));
        let mut answer = pin!(self.sender.try_send_request(taken));
        let answered = poll_fn(|cx| match self.drive(cx, |cx| answer.as_mut().poll(cx)) {
            Poll::Pending if self.connection().is_reclaimed() => Poll::Ready(None),
            answered => answered.map(Some),
        });
        match answered.await {
            None => Err(SendError::of(Cause::Reclaimed)),
            Some(Ok(response)) => {
                // The end of a request sets a time for its answer.
                self.is_early = self.patience.is_unbounded();
                self.is_open_ended = super::is_open_ended(response.headers());
                self.patience.set(if self.is_open_ended {
                    Reading::UntilItEnds
                } else {
                    Reading::Each(self.stall_timeout)
                });
                self.patience.has_answer();
                Ok((response, self))
            }
            Some(Err(mut failed)) => {
                let unsent = failed.take_message();
                let is_unsent = unsent.is_some();
                if let Some(unsent) = unsent {
                    *request = unsent;
                }
                let is_unanswered = self.patience.is_unanswered();
                Err(SendError { cause: Cause::Hyper(failed.into_error()), is_unsent, is_unanswered })
            }
        }
    }

    /// Polls `wanted`, which waits for something from this connection, and the connection along with it.
    pub fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let mut inner = Context::from_waker(&self.waker);
        self.relay.enter(cx.waker());
        let mut result = wanted(&mut inner);
        if result.is_pending() {
            self.relay.rang_inside();
            poll_connection(&mut self.connection, &mut self.left, &mut inner);
            result = wanted(&mut inner);
        }
        if self.relay.leave() && result.is_pending() {
            cx.waker().wake_by_ref();
        }
        result
    }
}

fn poll_connection(
    connection: &mut Option<Connection>,
    left: &mut Option<Timed<Transport>>,
    cx: &mut Context<'_>,
) {
    if let Some(running) = connection
        && let Poll::Ready(end) = Pin::new(running).poll(cx)
        && let Some(ended) = connection.take()
        && end.is_ok()
    {
        let parts = ended.into_parts();
        *left = Some(parts.io.into_inner().release(parts.read_buf));
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("kept_since", &self.kept_since).finish_non_exhaustive()
    }
}

/// Passes wake-ups of a connection on to the task that uses it at the moment.
///
/// While that task polls the connection it needs no waking: the two ends of hyper's channels, both of which it
/// holds, would wake it at every message for nothing. Such a wake-up is only noted.
#[derive(Debug)]
struct Relay {
    task: Mutex<Waker>,
    is_inside: AtomicBool,
    rang: AtomicBool,
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            task: Mutex::new(Waker::noop().clone()),
            is_inside: AtomicBool::new(false),
            rang: AtomicBool::new(false),
        }
    }
}

impl Relay {
    /// The task begins to poll.
    fn enter(&self, task: &Waker) {
        self.task.lock().clone_from(task);
        self.is_inside.store(true, Ordering::Relaxed);
    }

    /// The task has polled; says whether there was a wake-up since the last question.
    fn leave(&self) -> bool {
        self.is_inside.store(false, Ordering::Relaxed);
        self.rang_inside()
    }

    /// Whether there was a wake-up since the last question while the task polled.
    fn rang_inside(&self) -> bool {
        // To look costs next to nothing, to swap does.
        self.rang.load(Ordering::Relaxed) && self.rang.swap(false, Ordering::Relaxed)
    }

    /// Nobody uses the connection any more.
    fn forget(&self) {
        self.task.lock().clone_from(Waker::noop());
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_inside.load(Ordering::Relaxed) {
            self.rang.store(true, Ordering::Relaxed);
        } else {
            self.task.lock().wake_by_ref();
        }
    }
}
