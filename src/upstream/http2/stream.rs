//! One request's stream in an HTTP/2 connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::uri::{Authority, Scheme, Uri};
use http::{Method, Request, StatusCode, Version};
use hyper::body::{Body as _, Incoming, SizeHint};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use tokio::time::Instant;

use super::cancel::{StreamError, StreamHead, StreamResponse, StreamSlot, cancel};
use super::connection::{Http2Connection, settings_allow};
use super::upload::{UploadBody, UploadProgress};
use crate::body::{BodyError, PolledFrame, RequestBody, poll_whole};
use crate::http1::{Fields, RequestHead, ResponseHead};
use crate::socket::{Deadline, LazyTimer};
use crate::time::{cached_now, monotonic};
use crate::upstream::error::{Cause, SendError};
use crate::upstream::message::{ExchangeTimeouts, UpstreamRequest, is_open_ended};
use crate::upstream::pool::connection_limit::ConnectionPermit;
use crate::upstream::pool::connection_use::ConnectionUse;

/// One request's stream in an HTTP/2 connection.
pub(in crate::upstream) struct Http2Stream {
    place: Rc<StreamSlot>,
    is_reused: bool,
    timeouts: ExchangeTimeouts,
    /// By when the next part of the response has to arrive.
    deadline: Option<Box<Deadline>>,
    /// The request's body, until the response has ended.
    upload: Option<Rc<UploadProgress>>,
    response: StreamResponse,
    is_open_ended: bool,
    /// When the end of the request was sent, if that was before the head of the response.
    sent_at: Option<Instant>,
    tunnel: Option<Upgraded>,
}

impl Http2Stream {
    pub(super) fn new(connection: Rc<Http2Connection>, permit: ConnectionPermit, is_reused: bool) -> Self {
        connection.requests.set(connection.requests.get() + 1);
        Self {
            place: Rc::new(StreamSlot { connection, permit }),
            is_reused,
            timeouts: ExchangeTimeouts::default(),
            deadline: None,
            upload: None,
            response: StreamResponse::None,
            is_open_ended: false,
            sent_at: None,
            tunnel: None,
        }
    }

    /// The use of the stream.
    pub fn connection_use(&self) -> &Arc<ConnectionUse> {
        self.place.permit.connection_use()
    }

    /// Whether the connection existed before the request.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Starts a request with these timeouts.
    pub fn start(&mut self, timeouts: ExchangeTimeouts) -> &ConnectionUse {
        self.timeouts = timeouts;
        self.connection_use()
    }

    /// Sends a request and waits for the head of the response. Without a response the request's head is unchanged, and its body keeps
    /// what can be sent again.
    pub async fn send(
        mut self: Box<Self>,
        request: &mut UpstreamRequest,
    ) -> Result<(ResponseHead, Box<Self>), SendError> {
        let timeouts = self.timeouts;
        let is_handshake = request.body.is_upgrade();
        let connection = Rc::clone(&self.place.connection);
        if is_handshake && !settings_allow(|| connection.supports_extended_connect()).await {
            return Err(SendError::new(Cause::NoTunnels));
        }
        self.connection_use().use_here().await;
        let (started, is_incoming) = (cached_now(), request.body.is_incoming());
        let upload = self.start_upload(&request.body, started);
        let body = UploadBody::new(request.body.take_for_sending(), &upload);
        self.start_request(&request.head, body, is_handshake)?;
        let response_deadline = || {
            let due = upload.response_deadline(timeouts.response);
            timeouts.deadline.map_or(due, |deadline| due.min(deadline))
        };
        let head = poll_fn(|cx| self.poll_head(&upload, cx));
        let head = wait_until(timeouts.response.min(timeouts.stall), response_deadline, head).await;
        self.sent_at = upload.ended_at.get();
        let failed = match head {
            Some(Ok(Ok(response))) => return Ok(self.start_response(response, is_handshake).await),
            Some(Ok(Err(failed))) => self.fail(failed, &mut request.body),
            Some(Err(cause)) => SendError { is_without_response: true, ..SendError::new(cause) },
            None => {
                connection.check_activity(started, timeouts.response);
                SendError::new(Cause::TooLate)
            }
        };
        Err(SendError { is_uploading: is_incoming && self.sent_at.is_none(), ..failed })
    }

    /// The head of the response, or the error for a request that the client or other requests have ended.
    fn poll_head(
        &mut self,
        upload: &UploadProgress,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamHead, Cause>> {
        if let Some(error) = upload.failure.take() {
            return Poll::Ready(Err(Cause::Body(error)));
        }
        if self.connection_use().is_reclaimed() {
            let is_sent = upload.ended_at.get().is_some();
            return Poll::Ready(Err(if is_sent { Cause::Reclaimed } else { BodyError::Reclaimed.into() }));
        }
        let StreamResponse::Awaited(response) = &mut self.response else { return Poll::Pending };
        let head = response.as_mut().poll(cx);
        if head.is_ready() {
            self.response = StreamResponse::None;
        }
        head.map(Ok)
    }

    /// Tracks the upload of a body. If the caller stops waiting for the response, the upload is aborted.
    fn start_upload(&mut self, body: &RequestBody, now: Instant) -> Rc<UploadProgress> {
        let upload =
            UploadProgress::new(&self.place.connection.executor, self.connection_use(), self.timeouts.stall);
        if body.is_end_stream() {
            upload.ended_at.set(Some(now));
        }
        self.upload = Some(Rc::clone(&upload));
        upload
    }

    /// Hands a request to the connection.
    fn start_request(
        &mut self,
        head: &RequestHead,
        body: UploadBody,
        is_handshake: bool,
    ) -> Result<(), SendError> {
        let connection = &self.place.connection;
        let request = to_http2(head, body, is_handshake, &connection.scheme);
        let request = request.map_err(|error| SendError::new(Cause::Target(error)))?;
        let response = connection.sender.clone().try_send_request(request);
        self.response = StreamResponse::Awaited(Box::pin(response));
        Ok(())
    }

    /// The error for a failed request. A request that hyper returns unsent gives its body back to `body`.
    fn fail(&self, mut failed: StreamError, body: &mut RequestBody) -> SendError {
        let unsent = failed.take_message();
        let is_unsent = unsent.is_some();
        if let Some(unsent) = unsent {
            // The connection accepts no more requests.
            self.place.connection.is_suspect.set(true);
            *body = unsent.into_body().body;
        }
        let cause = Cause::Http2(failed.into_error());
        SendError { is_unsent, is_without_response: true, ..SendError::new(cause) }
    }

    /// Converts the head of the response, and starts to wait for its body.
    async fn start_response(
        mut self: Box<Self>,
        mut response: http::Response<Incoming>,
        is_handshake: bool,
    ) -> (ResponseHead, Box<Self>) {
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
            self.is_open_ended = is_open_ended(&head.fields);
            self.upload = self.upload.take_if(|upload| upload.has_running_task());
            let stall_timeout = (!self.is_open_ended || self.upload.is_some()).then_some(self.timeouts.stall);
            self.deadline = Deadline::within(stall_timeout, self.timeouts.deadline).map(Box::new);
            self.response = StreamResponse::Body(response.into_body());
        }
        (head, self)
    }

    /// The next part of the response's body, or an error if it has not arrived in time.
    pub fn poll_body(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let StreamResponse::Body(body) = &mut self.response else { return Poll::Ready(None) };
        let frame = poll_whole(body, cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.response = StreamResponse::None;
        }
        let Some(deadline) = &mut self.deadline else { return frame };
        if let Some(upload) = &self.upload {
            if let Some(error) = upload.failure.take() {
                return Poll::Ready(Some(Err(error)));
            }
            deadline.restart_from(upload.server_waits_since(self.is_open_ended));
        }
        deadline.bound(frame, cx).map(|frame| frame.unwrap_or_else(|late| Some(Err(late.into()))))
    }

    /// Whether the response's body is complete.
    pub fn is_end_stream(&self) -> bool {
        self.body().is_none_or(Incoming::is_end_stream)
    }

    /// The length of the rest of the response's body.
    pub fn size_hint(&self) -> SizeHint {
        self.body().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }

    fn body(&self) -> Option<&Incoming> {
        if let StreamResponse::Body(body) = &self.response { Some(body) } else { None }
    }

    /// When the end of the request was sent, if that was before the head of the response.
    pub fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// Whether the response may pause without a time limit.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// Ends the response. The rest of the request may still be sent.
    pub fn finish(&mut self) {
        self.response = StreamResponse::None;
        if let Some(upload) = self.upload.take() {
            upload.detach();
        }
    }

    /// Takes the tunnel that the server has agreed to.
    pub fn take_tunnel(&mut self) -> Option<Upgraded> {
        self.tunnel.take()
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.abort();
        }
        cancel(&self.place, std::mem::take(&mut self.response));
    }
}

impl std::fmt::Debug for Http2Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Stream").field("is_reused", &self.is_reused).finish_non_exhaustive()
    }
}

/// A request as HTTP/2 sends it: with the host as `:authority`, without connection headers, and as an extended CONNECT if it is a
/// WebSocket handshake (RFC 8441). Fails when there is no Host header that is a valid authority.
fn to_http2(
    head: &RequestHead,
    body: UploadBody,
    is_handshake: bool,
    scheme: &Scheme,
) -> Result<Request<UploadBody>, http::Error> {
    let mut request = Request::new(body);
    *request.method_mut() = if is_handshake { Method::CONNECT } else { head.method.clone() };
    *request.headers_mut() = (&head.fields).into();
    let headers = request.headers_mut();
    let host = headers.remove(HOST);
    headers.remove(CONNECTION);
    if is_handshake {
        headers.remove(UPGRADE);
        headers.remove(SEC_WEBSOCKET_KEY);
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    let mut parts = head.uri.clone().into_parts();
    parts.scheme = Some(scheme.clone());
    parts.authority = host.map(|host| Authority::try_from(host.as_bytes())).transpose()?;
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request)
}

/// Waits for a response until `deadline`; none if it has not arrived by then. The deadline may move without waking this
/// task, but never to less than `span` from the time of the move, so it is read again at least once every `span`.
async fn wait_until<T>(
    span: Duration,
    deadline: impl Fn() -> Instant,
    response: impl Future<Output = T>,
) -> Option<T> {
    let mut response = pin!(response);
    let (mut timer, mut check_at) = (LazyTimer::default(), deadline().min(cached_now() + span));
    poll_fn(|cx| {
        if let Poll::Ready(response) = response.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        while timer.wait_until(check_at, cx).is_ready() {
            let (now, deadline) = (monotonic(), deadline());
            if deadline <= now {
                return Poll::Ready(None);
            }
            check_at = deadline.min(now + span);
        }
        Poll::Pending
    })
    .await
}
