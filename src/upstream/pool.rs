//! One worker's connections to one address of a server.

mod in_flight;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use self::in_flight::InFlight;

use super::ForwardError;
use super::acquire::{self, Acquired};
use super::connection::Connection;
use super::connection_limit::{ConnectionLimit, ConnectionPermit, Grant, Next, WorkerWaker};
use super::endpoint::{Endpoint, dial};
use super::http1::Http1Connection;
use super::http2::Http2Pool;
use super::members::Member;
use super::shared::{Pending, SharedUpstream};
use super::spec::{Balance, ServerSpec};
use crate::telemetry::UpstreamCounts;
use crate::time::monotonic;

/// Connections that are kept at most.
const MAX_KEPT: usize = 256;
/// How long one is kept: less than most servers keep their end.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Connections to one address that wait for the next request; the one used last goes first.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<SharedUpstream>,
    endpoint: Arc<Endpoint>,
    fallback: Cell<Option<SocketAddr>>,
    server: ServerSpec,
    /// The server's URL.
    label: Rc<str>,
    authority: HeaderValue,
    counts: UpstreamCounts,
    /// Whether the choice of a server goes by requests in flight.
    counts_in_flight: bool,
    worker: WorkerWaker,
    #[allow(clippy::vec_box)] // A connection is large, and it is moved often.
    kept: RefCell<Vec<Box<Http1Connection>>>,
    /// Those that have been given to requests that waited, by their numbers in the line.
    handed: RefCell<Vec<(u64, Box<Http1Connection>)>>,
    /// Those that requests share, where HTTP/2 is spoken.
    multiplexed: Option<Http2Pool>,
    /// Whether it gets no more requests: what comes back is not kept.
    is_retired: Cell<bool>,
}

impl Pool {
    pub(super) fn new(
        shared: &Arc<SharedUpstream>,
        member: &Member,
        counts: UpstreamCounts,
        worker: WorkerWaker,
    ) -> Self {
        let spec = shared.spec();
        // A member is made of one of the servers.
        let server = spec.servers[member.endpoint.server].clone();
        let authority = HeaderValue::from_str(&server.authority());
        Self {
            // A host that is read from a URL has only characters that a header may have.
            authority: authority.unwrap_or_else(|_| HeaderValue::from_static("")),
            label: server.label().into(),
            server,
            endpoint: Arc::clone(&member.endpoint),
            fallback: Cell::new(member.fallback),
            counts_in_flight: matches!(spec.balance, Balance::LeastRequests | Balance::PowerOfTwo),
            shared: Arc::clone(shared),
            counts,
            worker,
            kept: RefCell::default(),
            handed: RefCell::default(),
            multiplexed: spec.is_http2.then(Http2Pool::default),
            is_retired: Cell::new(false),
        }
    }

    pub(super) fn server(&self) -> &ServerSpec {
        &self.server
    }

    /// The server's URL, as the metrics have it.
    pub(super) fn label(&self) -> &Rc<str> {
        &self.label
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The server's name and port, for a Host header.
    pub(super) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Where else to connect from now on if the address fails.
    pub(super) fn set_fallback(&self, fallback: Option<SocketAddr>) {
        self.fallback.set(fallback);
    }

    /// Whether there is a connection for a request, as far as is known without looking.
    pub(super) fn has_some(&self) -> bool {
        if let Some(multiplexed) = &self.multiplexed {
            return multiplexed.has_some();
        }
        !self.kept.borrow().is_empty()
    }

    /// A connection that was kept, or with `fresh` and where there is none a new one; or what it has waited for.
    /// One that is shared may be an old one with `fresh` too: a dead one is found out by the first that it fails.
    pub(super) async fn checkout(
        &self,
        turn: Option<Acquired>,
        client: IpAddr,
        fresh: bool,
        deadline: Option<Instant>,
    ) -> Result<Connection, ForwardError> {
        if let Some(turn) = turn {
            return Box::pin(self.open(turn, fresh, deadline)).await.map(Connection::Http1);
        }
        if !fresh && let Some(connection) = self.kept() {
            return Ok(Connection::Http1(connection));
        }
        if let Some(multiplexed) = &self.multiplexed {
            return match multiplexed.free() {
                Some(lane) => Ok(Connection::Http2(lane)),
                None => Box::pin(self.open_shared(multiplexed, client, deadline)).await,
            };
        }
        // Apart, because it is large, and most requests find a connection that was kept.
        Box::pin(self.wait_and_open(client, fresh, deadline)).await.map(Connection::Http1)
    }

    /// That every connection is in use.
    pub(super) fn full(&self) -> ForwardError {
        ForwardError::Full(self.server.authority())
    }

    /// Whether requests share connections.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed.is_some()
    }

    pub(super) fn room(&self) -> &Arc<ConnectionLimit> {
        &self.endpoint.room
    }

    /// Counts a request that has to wait for a connection; none if too many do, and `displace` makes no room among them.
    pub(super) fn pending(&self, displace: impl FnOnce() -> bool) -> Option<Pending<'_>> {
        self.shared.pending(displace)
    }

    /// Joins the line for a connection, under a number.
    pub(super) fn line_up(&self, client: IpAddr) -> (u64, oneshot::Receiver<Grant>) {
        self.endpoint.room.wait(&self.worker, client)
    }

    /// Asks the other workers for connections that they keep and others wait for.
    pub(super) fn ring_others(&self) {
        self.shared.ring_others(&self.worker);
    }

    /// Keeps a connection whose response has been read to its end, if it is good for another.
    pub(super) fn give_back(&self, mut connection: Box<Http1Connection>) {
        if !connection.keep() {
            return;
        }
        if self.endpoint.room.is_awaited() {
            return self.pass_on(connection);
        }
        self.store(connection);
    }

    /// Has the log say that requests fail at the server, if that is news.
    pub(super) fn record(&self, error: &ForwardError) {
        self.shared.log_failure(&self.endpoint, &self.server, error);
    }

    /// Closes what has been kept for too long, and what the server has closed.
    pub(super) fn sweep(&self) {
        self.shared.log_recovery(&self.endpoint);
        if let Some(multiplexed) = &self.multiplexed {
            multiplexed.sweep();
        }
        self.kept
            .borrow_mut()
            .retain_mut(|connection| connection.idle_for() < KEPT_FOR && !connection.is_dead());
    }

    /// Closes kept connections for requests of other workers that wait for one.
    pub(super) fn make_room(&self) {
        while self.endpoint.room.is_awaited() && self.close_kept() {}
    }

    /// Closes what is kept, now and from now on: no request will come any more. Those that are under way can last long,
    /// and the pool with them.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        let _ = self.kept.take();
        if let Some(multiplexed) = &self.multiplexed {
            multiplexed.forget();
        }
    }

    /// A kept connection. The server may have closed it meanwhile, which is found before a request is sent.
    fn kept(&self) -> Option<Box<Http1Connection>> {
        self.kept.borrow_mut().pop()
    }

    fn store(&self, connection: Box<Http1Connection>) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() < MAX_KEPT && !self.is_retired.get() {
            kept.push(connection);
        }
    }

    /// Closes a kept connection; says whether there was one.
    pub(super) fn close_kept(&self) -> bool {
        if let Some(multiplexed) = &self.multiplexed {
            return multiplexed.close_idle();
        }
        self.kept.borrow_mut().pop().is_some()
    }

    /// Gives a connection to the request that has waited longest. To another worker only its place can go.
    fn pass_on(&self, connection: Box<Http1Connection>) {
        match self.endpoint.room.next_for(&self.worker) {
            Next::Nobody => self.store(connection),
            Next::Elsewhere => drop(connection),
            Next::Here(waiter) => {
                let number = waiter.number;
                self.handed.borrow_mut().push((number, connection));
                if !waiter.tell(Grant::Handed)
                    && let Some(connection) = self.take_handed(number)
                {
                    self.pass_on(connection);
                }
            }
        }
    }

    pub(super) fn take_handed(&self, number: u64) -> Option<Box<Http1Connection>> {
        let mut handed = self.handed.borrow_mut();
        let place = handed.iter().position(|(other, _)| *other == number)?;
        Some(handed.swap_remove(place).1)
    }

    async fn wait_and_open(
        &self,
        client: IpAddr,
        fresh: bool,
        deadline: Option<Instant>,
    ) -> Result<Box<Http1Connection>, ForwardError> {
        let turn = acquire::turn(&[self], client, self.turn_by(deadline)).await;
        let (_, turn) = turn.ok_or_else(|| self.full())?;
        self.open(turn, fresh, deadline).await
    }

    async fn open(
        &self,
        turn: Acquired,
        fresh: bool,
        deadline: Option<Instant>,
    ) -> Result<Box<Http1Connection>, ForwardError> {
        let place = match turn {
            // One that has served may be as dead as the one before.
            Acquired::Connection(connection) if fresh => connection.into_place(),
            Acquired::Connection(connection) => return Ok(connection),
            Acquired::Place(place) => place,
        };
        // However long it has waited for its turn: those who come first have waited longest, and the server is not to
        // be judged by what they have left.
        match timeout_at(self.connected_by(deadline), self.connect(place)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(ForwardError::Connect { server: self.server.authority(), error }),
            Err(_) => Err(ForwardError::ConnectTimeout(self.server.authority())),
        }
    }

    /// By when a request that needs a new connection must have it.
    fn connected_by(&self, deadline: Option<Instant>) -> Instant {
        within(self.shared.spec().connect_timeout, deadline)
    }

    /// By when a request must have a connection, or room for a new one, while all are in use.
    pub(super) fn turn_by(&self, deadline: Option<Instant>) -> Instant {
        within(self.shared.spec().pending_timeout, deadline)
    }

    /// A part in a new connection, or in one that somebody has made meanwhile, or in a full one where no more may be
    /// made.
    async fn open_shared(
        &self,
        multiplexed: &Http2Pool,
        client: IpAddr,
        deadline: Option<Instant>,
    ) -> Result<Connection, ForwardError> {
        let spec = self.shared.spec();
        let by = self.connected_by(deadline);
        let in_time = |_| ForwardError::ConnectTimeout(self.server.authority());
        let _turn = timeout_at(by, multiplexed.connecting()).await.map_err(in_time)?;
        if let Some(lane) = multiplexed.free() {
            return Ok(Connection::Http2(lane));
        }
        let place = match self.endpoint.room.enter() {
            Some(place) => place,
            None => match multiplexed.any() {
                Some(lane) => return Ok(Connection::Http2(lane)),
                // Another worker may use its connections for ever, and none can be lent.
                None if multiplexed.is_empty() => self.endpoint.room.enter_over(),
                None => match acquire::turn(&[self], client, self.turn_by(deadline)).await {
                    Some((_, Acquired::Place(place))) => place,
                    // Nobody hands over a connection of its own here.
                    _ => return Err(self.full()),
                },
            },
        };
        let connect = async {
            let stream = dial(self.endpoint.address, self.fallback.get(), spec, &self.server).await?;
            multiplexed.add(stream, place, spec.response_timeout, spec.stall_timeout).await
        };
        let lane = timeout_at(self.connected_by(deadline), connect).await.map_err(in_time)?;
        if self.is_retired.get() {
            multiplexed.forget();
        }
        let failed = |error| ForwardError::Connect { server: self.server.authority(), error };
        lane.map(Connection::Http2).map_err(failed)
    }

    async fn connect(&self, place: ConnectionPermit) -> io::Result<Box<Http1Connection>> {
        let spec = self.shared.spec();
        let stream = dial(self.endpoint.address, self.fallback.get(), spec, &self.server).await?;
        Ok(Http1Connection::new(stream, place, spec.response_timeout, spec.stall_timeout))
    }
}

/// So long from now, or the deadline if that comes first.
fn within(timeout: Duration, deadline: Option<Instant>) -> Instant {
    let by = monotonic() + timeout;
    deadline.map_or(by, |deadline| by.min(deadline))
}
