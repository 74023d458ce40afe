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
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::body::{BodyError, RequestBody};
use super::clients::ClientRequest;
use super::link::{Answering, Link};
use super::tunnel::Duplex;
use super::wire::{Cause, SendError};
use crate::limiter::{HeldSlots, Permit};

/// What an exchange holds that goes on when its client disconnects.
#[derive(Clone, Debug)]
pub(super) struct Detachable {
    _slots: HeldSlots,
    /// Its part in the requests that the client may have under way.
    _counted: Option<Rc<ClientRequest>>,
    /// How long the rest of the response may take then.
    limit: Duration,
}

impl Detachable {
    /// What an exchange with this permit holds; none if the permit has no slots, so that it ends with its client.
    pub fn of(permit: &Permit, counted: Option<&Rc<ClientRequest>>, limit: Duration) -> Option<Box<Self>> {
        permit.slots().map(|slots| Box::new(Self { _slots: slots, _counted: counted.cloned(), limit }))
    }
}

/// A response's body with the connection that it comes over. If it is dropped before its end, the connection is closed,
/// unless the exchange is [`Detachable`].
#[derive(Debug)]
pub(super) struct ResponseStream {
    /// None after its end.
    source: Option<Source>,
    /// In a box, since few responses have it.
    detachable: Option<Box<Detachable>>,
}

#[derive(Debug)]
struct Source {
    incoming: Incoming,
    link: Answering,
}

/// Sends a request as [`Link::send`] does, but in a task that goes on if the caller is dropped.
pub(super) async fn send(
    link: Link,
    request: &mut Request<RequestBody>,
    deadline: Option<Instant>,
    detachable: Box<Detachable>,
) -> Result<Response<ResponseStream>, SendError> {
    let mut sent = std::mem::replace(request, Request::new(RequestBody::empty()));
    let (result, received) = oneshot::channel();
    tokio::task::spawn_local(async move {
        let response = link.send(&mut sent, deadline).await;
        let response = response.map(|(response, link)| ResponseStream::of(response, link, Some(detachable)));
        // If the client has disconnected, the response is dropped here, and read to its end by another task.
        let _ = result.send((response, sent));
    });
    // The task is dropped only with the runtime, and then so is this one.
    let (response, returned) = received.await.map_err(|_| SendError::of(Cause::TooLate))?;
    *request = returned;
    response
}

/// Reads a response to its end, for as long as that may take.
async fn drain(mut source: Source, held: Box<Detachable>) {
    let rest = async { while let Some(Ok(_)) = poll_fn(|cx| source.poll_frame(cx)).await {} };
    if timeout(held.limit, rest).await.is_err() {
        tracing::debug!("a response that no client waits for was not complete in time");
    }
}

impl ResponseStream {
    /// The response that comes over this connection.
    pub fn of(
        response: Response<Incoming>,
        link: Answering,
        detachable: Option<Box<Detachable>>,
    ) -> Response<Self> {
        // An event stream has no end to wait for: closing the connection is how it is ended.
        let detachable = detachable.filter(|_| !super::is_open_ended(response.headers()));
        response.map(|incoming| Self { source: Some(Source { incoming, link }), detachable })
    }

    /// The next part of the body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let frame = source.poll_frame(cx);
        if matches!(frame, Poll::Ready(Some(Err(_)))) {
            // There is no rest to wait for.
            self.detachable = None;
        }
        frame
    }

    pub fn is_end_stream(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.incoming.is_end_stream())
    }

    pub fn size_hint(&self) -> SizeHint {
        self.source.as_ref().map_or(SizeHint::with_exact(0), |source| source.incoming.size_hint())
    }

    /// The connection, until the end of the body.
    pub fn link(&self) -> Option<&Answering> {
        self.source.as_ref().map(|source| &source.link)
    }

    /// The connection after the end of the body.
    pub fn finish(&mut self) -> Option<Answering> {
        self.source.take().map(|source| source.link)
    }

    /// The server's end of the connection after it has switched protocols.
    pub fn leave(&mut self) -> Option<Box<dyn Duplex>> {
        self.detachable = None;
        self.source.as_mut()?.link.leave()
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if let (Some(source), Some(detachable)) = (self.source.take(), self.detachable.take())
            && !source.incoming.is_end_stream()
            // Other clients wait for the connection of this one, which was too slow.
            && !source.link.connection().is_some_and(|connection| connection.is_reclaimed())
        {
            tokio::task::spawn_local(drain(source, detachable));
        }
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.link.poll_body(cx, &mut self.incoming)
    }
}
