//! Exchanges that go on when their client disconnects.
//!
//! A concurrency limit bounds the requests that a server works on, and a server does not always stop when its
//! connection is closed. So a request that holds slots keeps its connection to the server, and thereby its slots, until
//! the response is complete: a task of its own sends it, and if the client has disconnected, another one reads the response to its
//! end. Requests without slots need none of this: they end with their client.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::UpstreamRequest;
use super::body::{BodyError, RequestBody};
use super::client_counts::ClientPermit;
use super::connection::{ActiveExchange, Connection};
use super::error::{Cause, SendError};
use crate::http1::ResponseHead;
use crate::limiter::{HeldSlots, Permit};

/// What an exchange holds that goes on when its client disconnects.
#[derive(Clone, Debug)]
pub(super) struct Detachable {
    _slots: HeldSlots,
    /// Its part in the requests that the client may have under way.
    _counted: Option<Rc<ClientPermit>>,
    /// How long the rest of the response may take then.
    limit: Duration,
}

impl Detachable {
    /// What an exchange with this permit holds; none if the permit has no slots, so that it ends with its client.
    pub fn of(permit: &Permit, counted: Option<&Rc<ClientPermit>>, limit: Duration) -> Option<Box<Self>> {
        permit.slots().map(|slots| Box::new(Self { _slots: slots, _counted: counted.cloned(), limit }))
    }
}

/// A response's body with the connection that it comes over. If it is dropped before its end, the connection is closed,
/// unless the exchange is [`Detachable`].
#[derive(Debug)]
pub(super) struct ResponseStream {
    /// None after its end.
    exchange: Option<ActiveExchange>,
    /// In a box, since few responses have it.
    detachable: Option<Box<Detachable>>,
}

/// Sends a request as [`Connection::send`] does, but in a task that goes on if the caller is dropped.
pub(super) async fn send(
    connection: Connection,
    request: &mut UpstreamRequest,
    deadline: Option<Instant>,
    detachable: Box<Detachable>,
) -> Result<(ResponseHead, ResponseStream), SendError> {
    let placeholder = UpstreamRequest { head: Box::default(), body: RequestBody::empty() };
    let mut sent = std::mem::replace(request, placeholder);
    let (result, received) = oneshot::channel();
    tokio::task::spawn_local(async move {
        // If the client has disconnected nothing else polls the upload.
        let response = connection.send(&mut sent, deadline, false).await;
        let response =
            response.map(|(head, exchange)| (ResponseStream::new(&head, exchange, Some(detachable)), head));
        // If the client has disconnected, the response is dropped here, and read to its end by another task.
        let _ = result.send((response, sent));
    });
    // The task is dropped only with the runtime, and then so is this one.
    let (response, returned) = received.await.map_err(|_| SendError::of(Cause::TooLate))?;
    *request = returned;
    if let Ok((stream, _)) = &response
        && let Some(connection) = stream.exchange().and_then(ActiveExchange::connection)
    {
        // From now on this task uses the connection.
        poll_fn(|cx| {
            connection.set_waker(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    }
    response.map(|(stream, head)| (head, stream))
}

/// Reads a response to its end, for as long as that may take.
async fn drain(mut exchange: ActiveExchange, held: Box<Detachable>) {
    if let Some(connection) = exchange.connection() {
        connection.go_on();
    }
    let rest = async { while let Some(Ok(_)) = poll_fn(|cx| exchange.poll_frame(cx)).await {} };
    if timeout(held.limit, rest).await.is_err() {
        tracing::debug!("a response that no client waits for was not complete in time");
    }
}

impl ResponseStream {
    /// The response that comes over this connection.
    pub fn new(head: &ResponseHead, exchange: ActiveExchange, detachable: Option<Box<Detachable>>) -> Self {
        // An event stream has no end to wait for: closing the connection is how it is ended.
        let detachable = detachable.filter(|_| !super::is_open_ended(&head.fields));
        Self { exchange: Some(exchange), detachable }
    }

    /// The next part of the body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        let frame = exchange.poll_frame(cx);
        if matches!(frame, Poll::Ready(Some(Err(_)))) {
            // There is no rest to wait for.
            self.detachable = None;
        }
        frame
    }

    /// Goes on with what is still to be sent of the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        self.exchange.as_mut().map_or(Ok(()), |exchange| exchange.poll_upload(cx))
    }

    pub fn is_end_stream(&self) -> bool {
        self.exchange.as_ref().is_none_or(ActiveExchange::is_end_stream)
    }

    pub fn size_hint(&self) -> SizeHint {
        self.exchange.as_ref().map_or(SizeHint::with_exact(0), ActiveExchange::size_hint)
    }

    /// The connection, until the end of the body.
    pub fn exchange(&self) -> Option<&ActiveExchange> {
        self.exchange.as_ref()
    }

    /// The connection after the end of the body, or after the server has switched protocols.
    pub fn finish(&mut self) -> Option<ActiveExchange> {
        self.detachable = None;
        self.exchange.take()
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if let (Some(exchange), Some(detachable)) = (self.exchange.take(), self.detachable.take())
            && !exchange.is_end_stream()
            // Other clients wait for the connection of this one, which was too slow.
            && !exchange.connection().is_some_and(|connection| connection.is_reclaimed())
        {
            tokio::task::spawn_local(drain(exchange, detachable));
        }
    }
}
