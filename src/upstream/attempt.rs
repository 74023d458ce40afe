//! One attempt to send a request to an endpoint, and what is recorded of it: for the access log, and as a span of its trace.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use http::{StatusCode, Uri};
use tokio::time::Instant;

use super::detached::{self, Detachable, ResponseStream};
use super::error::{ForwardError, SendError};
use super::message::{ExchangeTimeouts, ForwardOptions, UpstreamRequest};
use super::pool::Pool;
use super::pool::acquire::Acquired;
use super::retry::{Attempts, Retry};
use super::selection::EndpointSet;
use super::server::{PeerAddress, ServerAddress};
use super::spec::HostRule;
use crate::body::RequestBody;
use crate::boxed::rare;
use crate::http1::names::HOST;
use crate::http1::{RequestHead, ResponseHead};
use crate::limiter::Delivery;
use crate::overload::Class;
use crate::telemetry::{AttemptOutcome, Forwarding, RequestTrace, Span, known_method};
use crate::time::{Nanos, Stopwatch};

/// The conditions of one attempt.
#[derive(Clone, Copy)]
pub(super) struct AttemptOptions<'a> {
    pub forward: ForwardOptions<'a>,
    /// Whether to open a new connection instead of reusing an idle one: a retry must not fail because an idle connection
    /// has become stale.
    pub needs_new_connection: bool,
    /// Whether another attempt may follow.
    pub may_retry: bool,
    /// Whether the request may wait until a server answers again.
    pub may_pause: bool,
    /// Whether the request may be sent again if nothing of it was sent: at once if the upstream has another endpoint, since at
    /// the same one it would probably fail again.
    pub if_unsent: Retry,
    /// By when the exchange must be complete, including the response's body.
    pub deadline: Option<Instant>,
    /// Whether a server has the request, if its limits depend on that.
    pub delivery: Option<&'a Cell<Delivery>>,
}

/// An attempt without a response.
pub(super) struct FailedAttempt {
    pub error: ForwardError,
    /// Whether the request may be sent again.
    pub retry: Retry,
    /// Whether the server may have received the request.
    pub was_sent: bool,
    /// Whether a part of the body still had to arrive from the client.
    pub is_uploading: bool,
}

/// Sends a request to one endpoint, first over the connection that the request has waited for, if any. Returns the response with
/// the time that the server took for its head, without the time for which the body arrived from the client; none without
/// `overload`, or if the head arrived before the end of the body. After a retryable failure the head of `request` is unchanged,
/// and its body starts from the beginning.
pub(super) async fn attempt(
    pool: &Pool,
    mut acquired: Option<Acquired>,
    request: &mut UpstreamRequest,
    options: &AttemptOptions<'_>,
    mut detachable: Option<Box<Detachable>>,
) -> Result<(ResponseHead, ResponseStream, Option<Nanos>), FailedAttempt> {
    let ForwardOptions { client, polls_upload, policy, .. } = options.forward;
    let (mut needs_new_connection, deadline) = (options.needs_new_connection, options.deadline);
    loop {
        let checkout = pool.checkout(acquired.take(), client, needs_new_connection, deadline);
        let mut connection = checkout.await.map_err(|error| {
            // Nothing was sent, so any request may go to another endpoint, but it must not wait for a connection twice.
            let has_waited = matches!(error, ForwardError::NoFreeConnection(_));
            FailedAttempt::unsent(error, if has_waited { Retry::Never } else { options.if_unsent })
        })?;
        connection.start(client, detachable.is_some(), ExchangeTimeouts::new(policy, deadline));
        let is_reused = connection.is_reused();
        // Decided before the request is sent, because its body must be recorded while it is sent.
        let unprocessed_retry = options.retry_of_unprocessed(request, is_reused, connection.is_shared());
        let timing = options.forward.admission.map(|_| Timing::start(&request.body));
        // Also if the client disconnects meanwhile.
        let delivery = options.delivery.map(|delivery| delivery.replace(Delivery::Unanswered));
        // Returned in the error, since a tuple with the response would copy that once more.
        let sent = match detachable.take() {
            None => connection.send(request, polls_upload).await.map(ResponseStream::attached),
            // Only for requests with concurrency slots.
            Some(own) => rare(detached::send(connection, request, own)).await.map_err(|(error, own)| {
                detachable = own;
                error
            }),
        };
        let failed = match sent {
            // The bytes after a 101 are not HTTP, and this client has not requested another protocol.
            Ok((head, _)) if head.status == StatusCode::SWITCHING_PROTOCOLS && !request.body.is_upgrade() => {
                let error = ForwardError::Switched(pool.server().peer());
                return Err(FailedAttempt { was_sent: true, ..FailedAttempt::unsent(error, Retry::Never) });
            }
            Ok((head, stream)) => {
                let latency = timing.and_then(|timing| timing.latency(&stream));
                return Ok((head, stream, latency));
            }
            Err(failed) => failed,
        };
        if failed.is_unsent && is_reused && request.body.rewind() {
            options.restore(delivery);
            // A stale idle connection says nothing about the server. The next shared connection may be stale as well;
            // each failure removes one from the pool.
            needs_new_connection = true;
            continue;
        }
        let failed = classify(failed, pool, request, options, unprocessed_retry);
        if !failed.was_sent {
            options.restore(delivery);
        }
        return Err(failed);
    }
}

/// Measures the time that a server takes for the head of its response.
#[derive(Clone, Copy)]
struct Timing {
    started: Stopwatch,
    /// Whether the body arrives from the client meanwhile.
    is_uploading: bool,
}

impl Timing {
    /// Starts when a request with this body is sent.
    fn start(body: &RequestBody) -> Self {
        Self { started: Stopwatch::start(), is_uploading: body.is_incoming() }
    }

    /// The time until the head of this response, since the start or the end of the upload; none if the upload has not ended.
    fn latency(self, response: &ResponseStream) -> Option<Nanos> {
        if self.is_uploading { response.time_since_sent() } else { Some(self.started.elapsed()) }
    }
}

impl FailedAttempt {
    /// An attempt in which nothing was sent.
    pub fn unsent(error: ForwardError, retry: Retry) -> Self {
        Self { error, retry, was_sent: false, is_uploading: false }
    }
}

impl<'a> AttemptOptions<'a> {
    /// The conditions of the next attempt.
    pub fn new(
        forward: ForwardOptions<'a>,
        attempts: &Attempts,
        endpoints: &EndpointSet,
        delivery: Option<&'a Cell<Delivery>>,
    ) -> Self {
        Self {
            forward,
            needs_new_connection: attempts.number() > 1,
            may_retry: attempts.has_retry(forward.policy.retries),
            may_pause: attempts.may_pause(),
            if_unsent: match (endpoints.pools.len() > 1, attempts.may_pause()) {
                (true, _) => Retry::AtOnce,
                (false, true) => Retry::AfterPause,
                (false, false) => Retry::Never,
            },
            deadline: attempts.deadline,
            delivery,
        }
    }

    /// Records again what it was before an attempt that no server has received.
    fn restore(&self, before: Option<Delivery>) {
        if let (Some(delivery), Some(before)) = (self.delivery, before) {
            delivery.set(before);
        }
    }

    /// Whether the request may be sent again if the server may have received it without processing it. Records its body
    /// for that.
    fn retry_of_unprocessed(&self, request: &mut UpstreamRequest, is_reused: bool, is_shared: bool) -> Retry {
        let is_idempotent = request.head.method.is_idempotent();
        // Over HTTP/2 a server can state that it has not processed a request, whatever its method.
        let retry = match is_shared || is_idempotent && (is_reused || self.if_unsent == Retry::AtOnce) {
            true if self.may_retry => Retry::AtOnce,
            _ if self.may_pause && (is_shared || is_idempotent) => Retry::AfterPause,
            _ => Retry::Never,
        };
        if retry == Retry::Never || request.body.start_recording() { retry } else { Retry::Never }
    }
}

/// Decides whether the request may be sent again, and rewinds its body in that case. `unprocessed_retry` applies if the server
/// has not processed it.
fn classify(
    failed: SendError,
    pool: &Pool,
    request: &mut UpstreamRequest,
    options: &AttemptOptions<'_>,
    unprocessed_retry: Retry,
) -> FailedAttempt {
    let SendError { cause, is_unsent, is_without_response, is_uploading } = failed;
    let is_idempotent = request.head.method.is_idempotent();
    let error = ForwardError::new(cause, pool.server());
    // A refused stream was not processed (RFC 9113 §8.7). A connection that has closed without a response leaves that open,
    // so only an idempotent request may be repeated after it.
    let is_unprocessed =
        error.is_refused() || is_idempotent && is_without_response && error.is_dead_connection();
    let retry = match (is_unsent, is_unprocessed) {
        // An unsent request is safe to repeat whatever its method.
        (true, _) => options.if_unsent,
        (false, true) => unprocessed_retry,
        (false, false) => Retry::Never,
    };
    let can_be_sent = retry != Retry::Never && request.body.rewind();
    let was_sent = !is_unsent && !error.is_refused();
    let retry = if can_be_sent { retry } else { Retry::Never };
    FailedAttempt { error, retry, was_sent, is_uploading }
}

/// The outcome of an attempt with a response of this status. 502, 503 and 504 count as failures of the server.
pub(super) fn outcome(status: StatusCode) -> AttemptOutcome {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            AttemptOutcome::Unavailable
        }
        _ => AttemptOutcome::Responded,
    }
}

/// Prefixes `target`, if given, with the server's base path, sets the Host header, and starts the span of the attempt. Fails when
/// base path and target together are no valid target.
pub(super) fn address(
    request: &mut UpstreamRequest,
    target: Option<&Uri>,
    pool: &Pool,
    host: &HostRule,
    log: &mut AttemptLog<'_>,
) -> Result<(), ForwardError> {
    if let Some(target) = target {
        let base_path = &pool.server().base_path;
        let prefixed = Uri::try_from(format!("{base_path}{target}"));
        request.head.uri = prefixed.map_err(|error| ForwardError::Target(error.into()))?;
    }
    let name = match host {
        HostRule::Named(name) => Some(name),
        HostRule::Upstream => Some(pool.authority()),
        // HTTP/1.0 allows a request without Host, HTTP/1.1 does not.
        HostRule::Client => (!request.head.fields.contains(HOST)).then(|| pool.authority()),
    };
    if let Some(name) = name {
        request.head.fields.set(HOST, name.as_bytes());
    }
    log.start_attempt(pool, &mut request.head);
    Ok(())
}

/// What is recorded of the attempts to forward a request. Borrowed, because it must survive a cancelled request.
#[derive(Debug, Default)]
pub struct AttemptLog<'a> {
    /// The access log's record, if the request is logged.
    pub forwarding: Option<&'a mut Forwarding>,
    /// The trace, if there is one.
    pub trace: Option<&'a mut RequestTrace>,
    /// Whether a server has the request, if its limits depend on that.
    pub delivery: Option<&'a Cell<Delivery>>,
}

impl AttemptLog<'_> {
    /// Records the upstream.
    pub(super) fn start(&mut self, upstream: &Rc<str>) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.start(upstream);
        }
    }

    /// Records the class of the request under overload.
    pub(super) fn set_class(&mut self, class: Class) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.set_class(class);
        }
    }

    /// Records that the request has waited for its admission.
    pub(super) fn add_queued(&mut self, waited: Duration) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.add_queued(waited);
        }
    }

    /// Records that the upstream has admitted the request above its limit, in shadow mode.
    pub(super) fn set_above_limit(&mut self) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.set_above_limit();
        }
    }

    /// Records the server that is selected for an attempt, counted from 1.
    pub(super) fn select(&mut self, pool: &Pool, number: usize) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.start_attempt(pool.label(), number);
        }
    }

    /// Starts the span of an attempt, whose id the server is sent.
    pub(super) fn start_attempt(&mut self, pool: &Pool, head: &mut RequestHead) {
        if let Some(trace) = &mut self.trace {
            let RequestHead { method, uri, fields, .. } = head;
            trace.start_attempt(fields, method, |span| {
                let method = known_method(method).unwrap_or("_OTHER");
                describe(span, pool, (method, uri.path()));
            });
        }
    }

    /// Records that the head of a response has arrived.
    pub(super) fn head(&mut self, status: StatusCode) {
        if let Some(delivery) = self.delivery {
            delivery.set(Delivery::Answered);
        }
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.head_received();
        }
        if let Some(trace) = &mut self.trace {
            trace.attempt_responded(status);
        }
    }

    /// Records a failed attempt: the head may have arrived all the same.
    pub(super) fn failure(&mut self, error: &ForwardError) {
        if let Some(forwarding) = self.forwarding.as_mut().filter(|_| error.has_head()) {
            forwarding.head_received();
        }
        if let Some(trace) = &mut self.trace {
            trace.attempt_failed(error.word());
        }
    }
}

/// Adds the attributes of an attempt. The query may have credentials, so it is left out.
fn describe(span: &mut Span, pool: &Pool, (method, path): (&str, &str)) {
    span.attribute("http.request.method", method);
    span.attribute("url.full", &*format!("{}://{}{path}", pool.server().scheme(), pool.server().authority()));
    match &pool.endpoint().address {
        PeerAddress::Tcp(address) => {
            let (host, port) = match &pool.server().address {
                ServerAddress::Tcp { host, port } => (&**host, *port),
                _ => (pool.server().dns_name().unwrap_or_default(), address.port()),
            };
            span.attribute("server.address", host);
            span.attribute("server.port", port);
            span.attribute("network.peer.address", &*address.ip().to_string());
            span.attribute("network.peer.port", address.port());
        }
        PeerAddress::Unix(path) => {
            span.attribute("server.address", &*path.to_string_lossy());
            span.attribute("network.transport", "unix");
        }
    }
    span.attribute("network.protocol.version", if pool.is_multiplexed() { "2" } else { "1.1" });
}
