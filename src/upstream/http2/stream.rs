//! One request's stream in an HTTP/2 connection.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode, Version};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::upgrade::Upgraded;
use tokio::time::Instant;

use super::connection::Http2Connection;
use super::convert::to_http2;
use super::wait::{settings_allow, wait_until};
use crate::http1::{Fields, RequestHead, ResponseHead};
use crate::socket::Deadline;
use crate::time::cached_now;
use crate::upstream::body::RequestBody;
use crate::upstream::content_type::is_open_ended;
use crate::upstream::error::{BodyError, Cause, SendError};
use crate::upstream::request::UpstreamRequest;
use crate::upstream::stream::poll_whole;
use crate::upstream::upload::UploadProgress;

/// One request's stream in an HTTP/2 connection.
pub(in crate::upstream) struct Http2Stream {
    connection: Rc<Http2Connection>,
    is_reused: bool,
    /// By when the next part of the response has to arrive.
    deadline: Option<Box<Deadline>>,
    /// The request's body, until the response has ended.
    upload: Option<Rc<UploadProgress>>,
    is_open_ended: bool,
    tunnel: Option<Upgraded>,
}

impl Http2Stream {
    pub(super) fn new(connection: Rc<Http2Connection>, is_reused: bool) -> Self {
        connection.requests.set(connection.requests.get() + 1);
        Self { connection, is_reused, deadline: None, upload: None, is_open_ended: false, tunnel: None }
    }

    /// Whether the connection existed before the request.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Sends a request and waits for the head of the response. `deadline` applies to the response's body as well.
    ///
    /// # Errors
    /// When there is no response. The request's head is unchanged, and its body keeps what can be sent again.
    pub async fn send(
        mut self: Box<Self>,
        request: &mut UpstreamRequest,
        deadline: Option<Instant>,
    ) -> Result<(ResponseHead, Box<Incoming>, Box<Self>), SendError> {
        let is_handshake = request.body.is_handshake();
        if is_handshake && !settings_allow(|| self.connection.supports_extended_connect()).await {
            return Err(SendError::new(Cause::NoTunnels));
        }
        let started = cached_now();
        let upload = self.start_upload(&request.body, started);
        let sent = self.start_request(&request.head, request.body.take_for_sending(&upload))?;
        let (response_timeout, stall_timeout) =
            (self.connection.response_timeout, self.connection.stall_timeout);
        let response_deadline = || {
            let due = upload.response_deadline(response_timeout, stall_timeout);
            deadline.map_or(due, |deadline| due.min(deadline))
        };
        match wait_until(response_timeout.min(stall_timeout), response_deadline, sent).await {
            Some(Ok(response)) => Ok(self.start_response(response, is_handshake, deadline).await),
            Some(Err(failed)) => Err(self.fail(failed, &upload, &mut request.body)),
            None => {
                self.connection.check_activity(started);
                Err(SendError::new(Cause::TooLate))
            }
        }
    }

    /// Tracks the upload of a body. If the caller stops waiting for the response, the upload is aborted.
    fn start_upload(&mut self, body: &RequestBody, now: Instant) -> Rc<UploadProgress> {
        let upload = UploadProgress::new(&self.connection.executor);
        if body.is_end_stream() {
            upload.ended_at.set(Some(now));
        }
        self.upload = Some(Rc::clone(&upload));
        upload
    }

    /// Hands a request to the connection, and returns the wait for the response.
    fn start_request(
        &self,
        head: &RequestHead,
        body: RequestBody,
    ) -> Result<impl Future<Output = SendResult> + use<>, SendError> {
        let request = to_http2(head, body, &self.connection.scheme);
        let request = request.map_err(|error| SendError::new(Cause::Target(error)))?;
        Ok(self.connection.sender.clone().try_send_request(request))
    }

    /// The error for a failed request. A request that hyper returns unsent gives its body back to `body`.
    fn fail(
        &self,
        mut failed: TrySendError<http::Request<RequestBody>>,
        upload: &UploadProgress,
        body: &mut RequestBody,
    ) -> SendError {
        let unsent = failed.take_message();
        let is_unsent = unsent.is_some();
        if let Some(unsent) = unsent {
            // The connection accepts no more requests.
            self.connection.is_suspect.set(true);
            body.restore(unsent.into_body());
        }
        let error = failed.into_error();
        // hyper reports a failed request body only as a stream that it has reset itself.
        let cause = match upload.failure.take() {
            Some(failure) => Cause::Upload(failure, error),
            None => Cause::Http2(error),
        };
        SendError { cause, is_unsent, is_without_response: true }
    }

    /// Converts the head of the response, and starts to wait for its body.
    async fn start_response(
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
            self.is_open_ended = is_open_ended(&head.fields);
            self.upload = self.upload.take_if(|upload| upload.has_running_task());
            let stall_timeout = self.connection.stall_timeout;
            let stall_timeout = (!self.is_open_ended || self.upload.is_some()).then_some(stall_timeout);
            self.deadline = Deadline::within(stall_timeout, deadline).map(Box::new);
        }
        (head, Box::new(response.into_body()), self)
    }

    /// The next part of the response's body, or an error if it has not arrived in time.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = poll_whole(incoming, cx);
        let Some(deadline) = &mut self.deadline else { return frame };
        if let Some(upload) = &self.upload {
            deadline.restart_from(upload.server_waits_since(self.is_open_ended));
        }
        deadline.bound(frame, cx).map(|frame| frame.unwrap_or_else(|late| Some(Err(late.into()))))
    }

    /// Whether the response may pause without a time limit.
    pub fn is_open_ended(&self) -> bool {
        self.is_open_ended
    }

    /// Ends the response. The rest of the request may still be sent.
    pub fn finish(&mut self) {
        self.upload = None;
    }

    /// Takes the tunnel that the server has agreed to.
    pub fn take_tunnel(&mut self) -> Option<Upgraded> {
        self.tunnel.take()
    }
}

type SendResult = Result<Response<Incoming>, TrySendError<http::Request<RequestBody>>>;

impl Drop for Http2Stream {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.abort();
        }
        let connection = &self.connection;
        connection.requests.set(connection.requests.get() - 1);
        connection.idle_since.set(cached_now());
    }
}

impl std::fmt::Debug for Http2Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Stream").field("is_reused", &self.is_reused).finish_non_exhaustive()
    }
}
