//! Connections to a server that many requests share: HTTP/2.
//!
//! Unlike an [`Http1Connection`](super::http1::Http1Connection) such a connection has a task of its own, since none of its requests can carry
//! the others along. What may be waited for is bounded for each request by itself.

mod form;
mod open;
mod within;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Response, StatusCode, Version};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use self::open::open;
use self::within::{turns_out, within};
use super::UpstreamRequest;
use super::body::{BodyError, RequestBody};
use super::connection_limit::ConnectionPermit;
use super::error::{Cause, SendError};
use super::stream::poll_whole;
use super::upload::{Upload, UploadExecutor};
use crate::http1::{Fields, ResponseHead};
use crate::socket::{Activity, Deadline, TimedStream};
use crate::time::{monotonic, recent};
use crate::tls::Transport;

/// Requests at once on a connection before another one is made.
const MAX_STREAMS: usize = 128;
/// Requests at once until the server has said how many it takes.
const UNSETTLED: usize = 1;
/// How long a connection without requests is kept.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// One worker's HTTP/2 connections to one server.
#[derive(Debug, Default)]
pub(super) struct Http2Pool {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Held by whoever makes another one: those who come meanwhile share it.
    connecting: Mutex<()>,
    /// Each connection has one of these, also while it only ends what it has begun.
    alive: Rc<()>,
}

type Running = http2::Connection<TokioIo<TimedStream<Transport>>, RequestBody, UploadExecutor>;

/// A connection, as its requests see it.
struct Connection {
    sender: http2::SendRequest<RequestBody>,
    /// Its right to be there, which goes to another connection after it.
    _place: ConnectionPermit,
    _alive: Rc<()>,
    response_timeout: Duration,
    stall_timeout: Duration,
    carriers: UploadExecutor,
    scheme: Scheme,
    requests: Cell<usize>,
    idle_since: Cell<Instant>,
    /// What its task drives, and what knows what the server has said of itself.
    running: Rc<RefCell<Option<Running>>>,
    /// Knows when the server was last heard.
    activity: Rc<Activity>,
    /// Whether the server seems to be gone: no more requests go over it.
    is_doubtful: Cell<bool>,
}

/// A request's part in a connection.
pub(super) struct Http2Stream {
    connection: Rc<Connection>,
    was_kept: bool,
    waiting: Option<Box<Deadline>>,
    /// The request's body, until its response has ended.
    upload: Option<Rc<Upload>>,
    /// Whether the response may be silent without a time limit.
    is_open_ended: bool,
    tunnel: Option<Upgraded>,
}

impl Http2Pool {
    /// Waits until nobody else makes a connection.
    pub async fn connecting(&self) -> MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// A part in a connection that has room.
    pub fn free(&self) -> Option<Box<Http2Stream>> {
        self.find(Connection::has_room)
    }

    /// A part in any connection, where the request may have to wait for others.
    pub fn any(&self) -> Option<Box<Http2Stream>> {
        self.find(|_| true)
    }

    fn find(&self, suits: impl Fn(&Connection) -> bool) -> Option<Box<Http2Stream>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_good());
        let found = connections.iter().find(|connection| suits(connection));
        found.map(|connection| Box::new(Http2Stream::new(Rc::clone(connection), true)))
    }

    /// Makes a connection over this stream, which has this place, and gives the first part in it.
    pub async fn add(
        &self,
        stream: Transport,
        place: ConnectionPermit,
        response_timeout: Duration,
        stall_timeout: Duration,
    ) -> io::Result<Box<Http2Stream>> {
        let connection = open(stream, place, Rc::clone(&self.alive), response_timeout, stall_timeout).await?;
        self.connections.borrow_mut().push(Rc::clone(&connection));
        Ok(Box::new(Http2Stream::new(connection, false)))
    }

    /// Whether there is no connection at all, not even one that ends.
    pub fn is_empty(&self) -> bool {
        Rc::strong_count(&self.alive) == 1
    }

    /// Whether there is a connection.
    pub fn has_some(&self) -> bool {
        self.connections.borrow().iter().any(|connection| connection.is_good())
    }

    /// Closes a connection without requests; says whether there was one.
    pub fn close_idle(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        let idle = connections.iter().position(|connection| connection.requests.get() == 0);
        idle.map(|place| connections.swap_remove(place)).is_some()
    }

    /// Leaves its connections to the requests that they have, which are their last.
    pub fn forget(&self) {
        let _ = self.connections.take();
    }

    /// Closes connections that have had no request for long, and forgets those that have ended.
    pub fn sweep(&self) {
        self.connections.borrow_mut().retain(|connection| {
            let is_idle = connection.requests.get() == 0;
            connection.is_good() && !(is_idle && monotonic() - connection.idle_since.get() >= KEPT_FOR)
        });
    }
}

impl Connection {
    fn is_good(&self) -> bool {
        !self.is_doubtful.get() && !self.sender.is_closed()
    }

    /// An answer that is waited for since then has not come in time. A server that has said nothing else either, but
    /// perhaps at the beginning, may be gone, and its connection gets no more requests; another one is only slow.
    fn doubt(&self, since: Instant) {
        let now = monotonic();
        let waited = (now - since).min(self.response_timeout);
        if self.activity.heard().is_none_or(|heard| now - heard >= waited / 2) {
            self.is_doubtful.set(true);
        }
    }

    /// Whether there is room for another request, as far as the server has said: the first that is heard of it is how
    /// many it takes.
    fn has_room(&self) -> bool {
        let running = self.running.borrow();
        let room = running.as_ref().map_or(0, Running::current_max_send_streams);
        let is_settled = room != UNSETTLED || self.activity.heard().is_some();
        self.requests.get() < if is_settled { room.min(MAX_STREAMS) } else { MAX_STREAMS }
    }

    /// Whether the server takes an extended CONNECT (RFC 8441).
    fn takes_tunnels(&self) -> bool {
        self.running.borrow().as_ref().is_some_and(Running::is_extended_connect_protocol_enabled)
    }
}

impl Http2Stream {
    fn new(connection: Rc<Connection>, was_kept: bool) -> Self {
        connection.requests.set(connection.requests.get() + 1);
        Self { connection, was_kept, waiting: None, upload: None, is_open_ended: false, tunnel: None }
    }

    /// Whether its connection was there already.
    pub fn was_kept(&self) -> bool {
        self.was_kept
    }

    /// Sends a request and waits for the head of its response. All must be over by `deadline`, the response's body too.
    ///
    /// # Errors
    /// When there is no response. The head of the request stays as it is, and so does what is stored of its body.
    pub async fn send(
        mut self: Box<Self>,
        request: &mut UpstreamRequest,
        deadline: Option<Instant>,
    ) -> Result<(ResponseHead, Box<Incoming>, Box<Self>), SendError> {
        let is_handshake = request.body.is_handshake();
        if is_handshake && !turns_out(|| self.connection.takes_tunnels()).await {
            return Err(SendError::of(Cause::NoTunnels));
        }
        let began = recent();
        let upload = Upload::new(&self.connection.carriers);
        if request.body.is_end_stream() {
            upload.sent.set(Some(began));
        }
        let body = request.body.hand_over(&upload);
        let sent = form::request(&request.head, body, &self.connection.scheme);
        let sent = sent.map_err(|error| SendError::of(Cause::Target(error)))?;
        // If the caller stops waiting, the upload is abandoned.
        self.upload = Some(Rc::clone(&upload));
        let answer = self.connection.sender.clone().try_send_request(sent);
        let (response, stall) = (self.connection.response_timeout, self.connection.stall_timeout);
        let due = || {
            let due = upload.answered_by(response, stall);
            deadline.map_or(due, |deadline| due.min(deadline))
        };
        match within(response.min(stall), due, answer).await {
            Some(Ok(response)) => Ok(self.begin_response(response, is_handshake, deadline).await),
            Some(Err(mut failed)) => {
                let unsent = failed.take_message();
                let is_unsent = unsent.is_some();
                if let Some(unsent) = unsent {
                    // It takes none any more.
                    self.connection.is_doubtful.set(true);
                    request.body.take_back(unsent.into_body());
                }
                let error = failed.into_error();
                // All that the library says of such a body is that it has reset its own stream.
                let flaw = upload.flaw.take();
                let cause = match flaw {
                    Some(flaw) => Cause::Upload(flaw, error),
                    None => Cause::Http2(error),
                };
                Err(SendError { cause, is_unsent, is_unanswered: true })
            }
            None => {
                self.connection.doubt(began);
                Err(SendError::of(Cause::TooLate))
            }
        }
    }

    /// The head of the response has come.
    async fn begin_response(
        mut self: Box<Self>,
        mut response: Response<Incoming>,
        is_handshake: bool,
        deadline: Option<Instant>,
    ) -> (ResponseHead, Box<Incoming>, Box<Self>) {
        let mut head = ResponseHead {
            version: Version::HTTP_2,
            fields: Fields::from(response.headers()),
            status: response.status(),
            reason: None,
        };
        if is_handshake && head.status == StatusCode::OK {
            self.tunnel = hyper::upgrade::on(&mut response).await.ok();
            head.status = StatusCode::SWITCHING_PROTOCOLS;
        } else {
            self.is_open_ended = super::is_open_ended(&head.fields);
            self.upload = self.upload.take_if(|upload| upload.is_carried());
            let stall = self.connection.stall_timeout;
            let stall = (!self.is_open_ended || self.upload.is_some()).then_some(stall);
            self.waiting = Deadline::within(stall, deadline).map(Box::new);
        }
        (head, Box::new(response.into_body()), self)
    }

    /// The next part of the response's body, or that it has not come in time.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = poll_whole(incoming, cx);
        let Some(waiting) = &mut self.waiting else { return frame };
        if let Some(upload) = &self.upload {
            waiting.went_on(upload.owed_since(self.is_open_ended));
        }
        waiting.bound(frame, cx).map(|frame| frame.unwrap_or_else(|late| Some(Err(late.into()))))
    }

    /// Whether the response may be silent without a time limit.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// The response has come to its end. What is left of the request may still be sent.
    pub fn finish(&mut self) {
        self.upload = None;
    }

    /// The tunnel that the server has agreed to.
    pub fn leave(&mut self) -> Option<Upgraded> {
        self.tunnel.take()
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.abandon();
        }
        let connection = &self.connection;
        connection.requests.set(connection.requests.get() - 1);
        connection.idle_since.set(recent());
    }
}

impl std::fmt::Debug for Http2Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("was_kept", &self.was_kept).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("requests", &self.requests).finish_non_exhaustive()
    }
}
