//! Exchanges that continue after their client has disconnected.
//!
//! A concurrency limit bounds the requests that a server works on, and a server does not always stop when its connection
//! is closed. So a request that holds slots keeps its connection to the server, and thereby its slots, until the response
//! is complete: a separate task sends it, and if the client has disconnected, another one reads the rest of the
//! response. Requests without slots need none of this: they end with their client.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::body::SizeHint;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::client_counts::ClientPermit;
use super::connection::{ActiveExchange, Connection};
use super::error::{Cause, SendError};
use super::message::{UpstreamRequest, is_open_ended};
use super::overload::HeldPlace;
use crate::body::{BodyError, PolledFrame, RequestBody};
use crate::http1::ResponseHead;
use crate::limiter::{HeldSlots, Permit};
use crate::time::{Nanos, cached_now};

/// The permits that an exchange holds if it continues after its client has disconnected.
#[derive(Debug)]
pub(super) struct Detachable {
    _slots: HeldSlots,
    /// The request's part of `max_requests_per_client`.
    _client_permit: Option<Rc<ClientPermit>>,
    /// Its place under the limit of an upstream with `overload`.
    place: Option<HeldPlace>,
    /// Whether the exchange ends with its client nevertheless, since its response may never be complete.
    ends_with_client: bool,
    /// How long the rest of the response may take after the client has disconnected.
    timeout: Duration,
}

impl Detachable {
    /// The permits of an exchange with this permit; none if the permit has no slots, so that the exchange ends with its
    /// client.
    pub fn of(
        permit: &Permit,
        client_permit: Option<&Rc<ClientPermit>>,
        place: impl FnOnce() -> Option<HeldPlace>,
        timeout: Duration,
    ) -> Option<Box<Self>> {
        let slots = permit.slots()?;
        let client_permit = client_permit.cloned();
        let own = Self {
            _slots: slots,
            _client_permit: client_permit,
            place: place(),
            ends_with_client: false,
            timeout,
        };
        Some(Box::new(own))
    }

    /// Gives the place back if the request counts until the head of its response: its client may have left.
    fn head_arrived(&mut self) {
        self.place = self.place.take().and_then(HeldPlace::after_head);
    }
}

/// The body of a response with its connection. If it is dropped before its end, the connection is closed, unless the
/// exchange is [`Detachable`].
#[derive(Debug)]
pub(super) struct ResponseStream {
    /// None after the end of the body.
    exchange: Option<ActiveExchange>,
    /// Boxed because few responses have it.
    detachable: Option<Box<Detachable>>,
}

/// A response, or an error with what the request needs for another try.
type Sent = Result<(ResponseHead, ResponseStream), (SendError, Option<Box<Detachable>>)>;

/// Sends a request as [`Connection::send`] does, but in a task that continues if the caller is dropped.
pub(super) async fn send(
    connection: Connection,
    request: &mut UpstreamRequest,
    mut detachable: Box<Detachable>,
) -> Sent {
    let placeholder = UpstreamRequest { head: Box::default(), body: RequestBody::empty(), interim: None };
    let mut sent = std::mem::replace(request, placeholder);
    let interim = sent.interim.clone();
    let (result, mut received) = oneshot::channel();
    tokio::task::spawn_local(async move {
        // Without a client nothing else polls the upload.
        let response = connection.send(&mut sent, false).await;
        let received = match response {
            Ok((head, exchange)) => {
                detachable.head_arrived();
                let stream = ResponseStream::new(&head, exchange, Some(detachable));
                Ok((head, stream))
            }
            Err(error) => Err((error, Some(detachable))),
        };
        // If the client has disconnected, the response is dropped here, and another task reads the rest of it.
        let _ = result.send((received, sent));
    });
    // The task is dropped only with the runtime, and then so is this one.
    let received = poll_fn(|cx| {
        if let Some(interim) = &interim {
            interim.set_waker(cx.waker());
        }
        received.poll_unpin(cx)
    });
    let Ok((received, returned)) = received.await else {
        return Err((SendError::new(Cause::TooLate), None));
    };
    *request = returned;
    if let Ok((_, stream)) = &received
        && let Some(connection) = stream.exchange().map(ActiveExchange::connection_use)
    {
        // From now on this task uses the connection.
        connection.use_here().await;
    }
    received
}

/// Reads the rest of a response after its client has disconnected.
async fn drain(mut exchange: ActiveExchange, detachable: Box<Detachable>) {
    exchange.connection_use().stop_waiting();
    let rest = async { while let Some(Ok(_)) = poll_fn(|cx| exchange.poll_frame(cx)).await {} };
    if timeout(detachable.timeout, rest).await.is_err() {
        tracing::debug!(
            "closed a connection to a server: after its client had disconnected, the response was not complete \
             within {:?}",
            detachable.timeout
        );
    }
}

impl ResponseStream {
    /// The head of a response, and its body that ends with the client.
    pub fn attached((head, exchange): (ResponseHead, ActiveExchange)) -> (ResponseHead, Self) {
        let stream = Self::new(&head, exchange, None);
        (head, stream)
    }

    /// The body of the response that arrives over this connection.
    pub fn new(head: &ResponseHead, exchange: ActiveExchange, detachable: Option<Box<Detachable>>) -> Self {
        let mut detachable = detachable;
        if let Some(own) = &mut detachable {
            // An open-ended response may never be complete: closing the connection is how a client ends it.
            own.ends_with_client = is_open_ended(&head.fields);
        }
        Self { exchange: Some(exchange), detachable }
    }

    /// Polls the next part of the body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        let frame = exchange.poll_frame(cx);
        if matches!(frame, Poll::Ready(Some(Err(_)))) {
            // There is no rest to read.
            self.detachable = None;
        }
        frame
    }

    /// Polls the rest of the upload. Fails if the client has aborted the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        self.exchange.as_mut().map_or(Ok(()), |exchange| exchange.poll_upload(cx))
    }

    /// Lets the exchange end with this value.
    pub fn cancel(&mut self) {
        self.detachable = None;
    }

    pub fn is_end_stream(&self) -> bool {
        self.exchange.as_ref().is_none_or(ActiveExchange::is_end_stream)
    }

    pub fn size_hint(&self) -> SizeHint {
        self.exchange.as_ref().map_or(SizeHint::with_exact(0), ActiveExchange::size_hint)
    }

    /// The time since the end of the request was sent, if that was before the head of the response.
    pub fn time_since_sent(&self) -> Option<Nanos> {
        let sent_at = self.exchange()?.sent_at()?;
        Some(cached_now().saturating_duration_since(sent_at).into())
    }

    /// The connection, until the end of the body.
    pub fn exchange(&self) -> Option<&ActiveExchange> {
        self.exchange.as_ref()
    }

    /// Takes the connection, after the end of the body or a switch of protocols.
    pub fn finish(&mut self) -> Option<ActiveExchange> {
        self.detachable = None;
        self.exchange.take()
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if let (Some(exchange), Some(detachable)) = (self.exchange.take(), self.detachable.take())
            && !detachable.ends_with_client
            && !exchange.is_end_stream()
            // A connection that was reclaimed from a slow client is wanted by other clients.
            && !exchange.connection_use().is_reclaimed()
        {
            tokio::task::spawn_local(drain(exchange, detachable));
        }
    }
}
