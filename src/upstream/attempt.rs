//! One attempt to send a request to an endpoint.

use http::{StatusCode, Uri};
use tokio::time::Instant;

use super::acquire::Acquired;
use super::attempt_log::AttemptLog;
use super::detached::{self, Detachable, ResponseStream};
use super::endpoint_set::EndpointSet;
use super::error::{ForwardError, SendError};
use super::pool::Pool;
use super::request::{ForwardOptions, UpstreamRequest};
use super::retry::{Attempts, Retry};
use super::spec::HostRule;
use crate::boxed::rare;
use crate::http1::ResponseHead;
use crate::http1::names::HOST;
use crate::telemetry::AttemptOutcome;

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
}

/// An attempt without a response.
pub(super) struct FailedAttempt {
    pub error: ForwardError,
    /// Whether the request may be sent again.
    pub retry: Retry,
    /// Whether the server may have received the request.
    pub was_sent: bool,
}

/// Sends a request to one endpoint, first over the connection that the request has waited for, if any. After a
/// retryable failure the head of `request` is unchanged, and its body starts from the beginning.
pub(super) async fn attempt(
    pool: &Pool,
    mut acquired: Option<Acquired>,
    request: &mut UpstreamRequest,
    mut options: AttemptOptions<'_>,
    detachable: Option<Box<Detachable>>,
) -> Result<(ResponseHead, ResponseStream), FailedAttempt> {
    let AttemptOptions { forward: ForwardOptions { client, polls_upload, .. }, deadline, .. } = options;
    loop {
        let checkout = pool.checkout(acquired.take(), client, options.needs_new_connection, deadline);
        let connection = checkout.await.map_err(|error| {
            // Nothing was sent, so any request may go to another endpoint, but it must not wait for a connection twice.
            let retry = match error {
                ForwardError::NoFreeConnection(_) => Retry::Never,
                _ => options.if_unsent,
            };
            FailedAttempt { error, retry, was_sent: false }
        })?;
        connection.start(client, detachable.is_some());
        let is_reused = connection.is_reused();
        // Decided before the request is sent, because its body must be recorded while it is sent.
        let unprocessed_retry = options.retry_of_unprocessed(request, is_reused, connection.is_shared());
        let is_handshake = request.body.is_handshake();
        let sent = match detachable.clone() {
            None => connection.send(request, deadline, polls_upload).await.map(|(head, exchange)| {
                let stream = ResponseStream::new(&head, exchange, None);
                (head, stream)
            }),
            // Only for requests with concurrency slots.
            Some(detachable) => rare(detached::send(connection, request, deadline, detachable)).await,
        };
        let failed = match sent {
            // The bytes after a 101 are not HTTP, and this client has not requested another protocol.
            Ok((head, _)) if head.status == StatusCode::SWITCHING_PROTOCOLS && !is_handshake => {
                let error = ForwardError::Switched(pool.server().authority());
                return Err(FailedAttempt { error, retry: Retry::Never, was_sent: true });
            }
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        if failed.is_unsent && is_reused && request.body.rewind() {
            // A stale idle connection says nothing about the server. The next shared connection may be stale as well;
            // each failure removes one from the pool.
            options.needs_new_connection = true;
            continue;
        }
        return Err(classify(failed, pool, request, &options, unprocessed_retry));
    }
}

impl<'a> AttemptOptions<'a> {
    /// The conditions of the next attempt, after which up to `retries` may follow at once.
    pub fn new(
        forward: ForwardOptions<'a>,
        attempts: &Attempts,
        endpoints: &EndpointSet,
        retries: u32,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            forward,
            needs_new_connection: attempts.number() > 1,
            may_retry: attempts.has_retry(retries),
            may_pause: attempts.may_pause(),
            if_unsent: match (endpoints.pools.len() > 1, attempts.may_pause()) {
                (true, _) => Retry::AtOnce,
                (false, true) => Retry::AfterPause,
                (false, false) => Retry::Never,
            },
            deadline,
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
    let SendError { cause, is_unsent, is_without_response } = failed;
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
    FailedAttempt { retry: if can_be_sent { retry } else { Retry::Never }, error, was_sent }
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
