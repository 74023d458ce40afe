//! One worker's connections to one endpoint: reused, or opened within the connection limit; and the requests over them, for
//! counters and health.

pub(super) mod acquire;
pub(super) mod connection_limit;
pub(super) mod connection_use;
pub(super) mod idle;

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::{Instant, timeout_at};

use self::acquire::{Acquired, acquire};
use self::connection_limit::{ConnectionPermit, WorkerWaker};
use self::idle::IdleConnections;
use super::connection::Connection;
use super::endpoint::{Endpoint, dial};
use super::error::ForwardError;
use super::http1::Http1Connection;
use super::http2::Http2Pool;
use super::selection::members::Member;
use super::server::ServerSpec;
use super::shared::SharedUpstream;
use crate::boxed::rare;
use crate::telemetry::{AttemptOutcome, UpstreamCounts};
use crate::time::{Nanos, Stopwatch, monotonic};

/// One worker's connection pool for one endpoint.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<SharedUpstream>,
    endpoint: Arc<Endpoint>,
    fallback: Cell<Option<SocketAddr>>,
    server: ServerSpec,
    /// The server's URL without its path, for the access log.
    label: Rc<str>,
    authority: HeaderValue,
    counts: UpstreamCounts,
    /// Whether load balancing depends on the requests in flight at the endpoint.
    counts_in_flight: bool,
    /// Whether it depends on those at all endpoints.
    counts_all: bool,
    connections: IdleConnections,
}

impl Pool {
    pub fn new(
        shared: &Arc<SharedUpstream>,
        member: &Member,
        counts: UpstreamCounts,
        worker: WorkerWaker,
    ) -> Self {
        let spec = shared.spec();
        // Each member is an address of one of the servers.
        let server = spec.servers[member.endpoint.server].clone();
        #[expect(clippy::expect_used, reason = "a worker without a valid Host header can't serve")]
        let authority = HeaderValue::from_str(&server.authority())
            .expect("a host from a URL has only characters that a header value may contain");
        Self {
            authority,
            label: server.label().into(),
            server,
            endpoint: Arc::clone(&member.endpoint),
            fallback: Cell::new(member.fallback),
            counts_in_flight: spec.counts_in_flight(),
            counts_all: spec.hash_balance_factor.is_some(),
            connections: IdleConnections::new(shared, &member.endpoint, worker, counts.clone()),
            counts,
            shared: Arc::clone(shared),
        }
    }

    pub fn server(&self) -> &ServerSpec {
        &self.server
    }

    /// The server's name in the access log and metrics.
    pub fn label(&self) -> &Rc<str> {
        &self.label
    }

    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The server's name and port, for a Host header.
    pub fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Sets the address to connect to if the endpoint's own fails.
    pub fn set_fallback(&self, fallback: Option<SocketAddr>) {
        self.fallback.set(fallback);
    }

    /// The idle connections.
    pub fn connections(&self) -> &IdleConnections {
        &self.connections
    }

    /// Whether requests share connections, as over HTTP/2.
    pub fn is_multiplexed(&self) -> bool {
        self.connections.http2().is_some()
    }

    /// Gets a connection for a request: what it has waited for, an idle connection unless `needs_new`, or a new one. A shared
    /// connection may be an old one even if `needs_new`: the first request that fails on it removes it. Fails when no connection
    /// can be made, or none is free in time.
    pub async fn checkout(
        &self,
        acquired: Option<Acquired>,
        client: IpAddr,
        needs_new: bool,
        deadline: Option<Instant>,
    ) -> Result<Connection, ForwardError> {
        if let Some(acquired) = acquired {
            return rare(self.open(acquired, needs_new, deadline)).await.map(Connection::Http1);
        }
        // The common case. What follows awaits, and is in boxes so that this future stays small.
        if !needs_new && let Some(connection) = self.connections.take() {
            return Ok(Connection::Http1(connection));
        }
        if let Some(http2) = self.connections.http2() {
            return match http2.open_stream(None) {
                Some(stream) => Ok(Connection::Http2(stream)),
                None => rare(self.open_shared(http2, client, deadline)).await,
            };
        }
        rare(self.wait_and_open(client, needs_new, deadline)).await.map(Connection::Http1)
    }

    /// The error when every connection is in use.
    pub fn full(&self) -> ForwardError {
        ForwardError::NoFreeConnection(self.server.peer())
    }

    /// The deadline for a connection, or a permit for one, while all are in use.
    pub fn acquire_by(&self, deadline: Option<Instant>) -> Instant {
        within(self.shared.spec().pending_timeout, deadline)
    }

    /// Counts a request, if load balancing depends on the requests in flight.
    fn request_started(&self) {
        if self.counts_in_flight {
            self.endpoint.request_started();
        }
        if self.counts_all {
            self.shared.load.request_started();
        }
    }

    /// Counts the end of a request.
    fn request_finished(&self) {
        if self.counts_in_flight {
            self.endpoint.request_finished();
        }
        if self.counts_all {
            self.shared.load.request_finished();
        }
    }

    /// Reports an attempt with a response, and the time to its head, to the metrics and to outlier ejection.
    fn report_response(&self, attempt: AttemptOutcome, took: Nanos) {
        self.counts.record_response(self.endpoint.server, attempt, took);
        self.update_health(attempt);
    }

    /// Reports an attempt without a response to the metrics and to outlier ejection.
    fn report_failure(&self, attempt: AttemptOutcome) {
        self.counts.record_attempt(self.endpoint.server, attempt);
        self.update_health(attempt);
    }

    fn update_health(&self, attempt: AttemptOutcome) {
        if attempt.is_failure() {
            self.shared.record_failure(&self.endpoint);
        } else if attempt == AttemptOutcome::Responded {
            self.endpoint.record_success();
        }
        // A 502, 503 or 504 is a failure for ejection, but the server is reachable: its series of connection failures ends.
        if matches!(attempt, AttemptOutcome::Responded | AttemptOutcome::Unavailable) {
            self.endpoint.failure_log.record_response();
        }
    }

    /// Counts the time to the end of a response.
    fn record_duration(&self, took: Nanos) {
        self.counts.record_duration(self.endpoint.server, took);
    }

    /// Logs the first of a series of failures.
    pub fn log_failure(&self, error: &ForwardError) {
        self.shared.log_failure(&self.endpoint, &self.server, error);
    }

    /// Closes connections that have been idle for too long, and those that the server has closed.
    pub fn sweep(&self) {
        self.shared.log_recovery(&self.endpoint);
        self.connections.sweep();
    }

    async fn wait_and_open(
        &self,
        client: IpAddr,
        needs_new: bool,
        deadline: Option<Instant>,
    ) -> Result<Box<Http1Connection>, ForwardError> {
        let acquired = acquire(&[&self.connections], client, self.acquire_by(deadline)).await;
        let (_, acquired) = acquired.ok_or_else(|| self.full())?;
        self.open(acquired, needs_new, deadline).await
    }

    async fn open(
        &self,
        acquired: Acquired,
        needs_new: bool,
        deadline: Option<Instant>,
    ) -> Result<Box<Http1Connection>, ForwardError> {
        let permit = match acquired {
            // A reused connection may be stale, like the one that has just failed.
            Acquired::Connection(connection) if needs_new => connection.into_permit(),
            Acquired::Connection(connection) => return Ok(connection),
            Acquired::Permit(permit) => permit,
        };
        // The full timeout, however long the request has waited: with a shorter one the server could be ejected because
        // of the wait.
        let connected = timeout_at(self.connect_by(deadline), self.connect(permit)).await;
        // The time of the server begins now, not before the connection.
        let _ = monotonic();
        match connected {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.connect_error(error)),
            Err(_) => Err(self.connect_timeout()),
        }
    }

    /// The deadline for a new connection.
    fn connect_by(&self, deadline: Option<Instant>) -> Instant {
        within(self.shared.spec().connect_timeout, deadline)
    }

    fn connect_error(&self, error: io::Error) -> ForwardError {
        ForwardError::Connect { server: self.server.peer(), error }
    }

    fn connect_timeout(&self) -> ForwardError {
        ForwardError::ConnectTimeout(self.server.peer())
    }

    /// Opens a stream in a new connection, or in one that another request has made meanwhile; if no more connections are
    /// allowed, when another stream has ended.
    async fn open_shared(
        &self,
        http2: &Http2Pool,
        client: IpAddr,
        deadline: Option<Instant>,
    ) -> Result<Connection, ForwardError> {
        let until = self.acquire_by(deadline);
        loop {
            if let Some(connection) = self.connect_shared(http2, deadline).await? {
                return Ok(connection);
            }
            match acquire(&[&self.connections], client, until).await {
                Some((_, Acquired::Permit(permit))) => {
                    if let Some(stream) = http2.open_stream(Some(permit)) {
                        return Ok(Connection::Http2(stream));
                    }
                }
                // Shared connections are never granted as a whole.
                _ => return Err(self.full()),
            }
        }
    }

    /// Opens a stream in a new connection, or in one that another request has made meanwhile; none if no more connections
    /// are allowed.
    async fn connect_shared(
        &self,
        http2: &Http2Pool,
        deadline: Option<Instant>,
    ) -> Result<Option<Connection>, ForwardError> {
        // Requests that arrive together share one new connection instead of opening one each.
        let connecting = timeout_at(self.connect_by(deadline), http2.lock_connecting()).await;
        let _connecting = connecting.map_err(|_| self.connect_timeout())?;
        // Before its SETTINGS arrive, it is unknown how many streams the server allows.
        http2.wait_for_settings().await;
        let _ = monotonic();
        http2.update_limit();
        if let Some(stream) = http2.open_stream(None) {
            return Ok(Some(Connection::Http2(stream)));
        }
        let limit = self.connections.connection_limit();
        let permit = match limit.try_acquire() {
            Some(permit) => permit,
            // Other workers may use their connections indefinitely, and can't lend one.
            None if http2.is_empty() => limit.acquire_over_limit(),
            None => return Ok(None),
        };
        let spec = self.shared.spec();
        let connect = async {
            let stream = dial(&self.endpoint.address, self.fallback.get(), spec, &self.server).await?;
            http2.connect(stream, permit, spec.stall_timeout).await
        };
        let connected = timeout_at(self.connect_by(deadline), connect).await;
        let _ = monotonic();
        let stream = connected.map_err(|_| self.connect_timeout())?;
        // A reload may have removed the server while the connection was made.
        if self.connections.is_retired() {
            http2.retire();
        }
        stream.map(|stream| Some(Connection::Http2(stream))).map_err(|error| self.connect_error(error))
    }

    async fn connect(&self, permit: ConnectionPermit) -> io::Result<Box<Http1Connection>> {
        let spec = self.shared.spec();
        let stream = dial(&self.endpoint.address, self.fallback.get(), spec, &self.server).await?;
        Ok(Http1Connection::new(stream, permit))
    }
}

/// The end of a timeout that starts now, or the deadline if that is earlier.
fn within(timeout: Duration, deadline: Option<Instant>) -> Instant {
    let end = monotonic() + timeout;
    deadline.map_or(end, |deadline| end.min(deadline))
}

/// A request at an endpoint, from the endpoint's selection to the last byte of the response.
#[derive(Debug)]
pub(super) struct InFlight {
    pool: Rc<Pool>,
    stopwatch: Stopwatch,
    result: ReportedAttempt,
}

/// What was reported of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedAttempt {
    /// Nothing: on drop it is counted as abandoned.
    Nothing,
    /// A failure, or that the server was not involved.
    Failed,
    /// A response: its duration is counted on drop.
    Response,
}

impl InFlight {
    /// Counts a request to the endpoint.
    pub fn start(pool: &Rc<Pool>) -> Self {
        pool.request_started();
        Self { pool: Rc::clone(pool), stopwatch: Stopwatch::start(), result: ReportedAttempt::Nothing }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reports the head of a response to counters and health.
    pub fn report_response(&mut self, attempt: AttemptOutcome) {
        self.result = ReportedAttempt::Response;
        self.pool.report_response(attempt, self.stopwatch.elapsed());
    }

    /// Reports a failed attempt to counters and health; none if the server was not involved.
    pub fn report_failure(&mut self, attempt: Option<AttemptOutcome>) {
        self.result = ReportedAttempt::Failed;
        if let Some(attempt) = attempt {
            self.pool.report_failure(attempt);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.pool.request_finished();
        match self.result {
            ReportedAttempt::Nothing => self.pool.report_failure(AttemptOutcome::Abandoned),
            ReportedAttempt::Failed => {}
            ReportedAttempt::Response => self.pool.record_duration(self.stopwatch.elapsed()),
        }
    }
}
