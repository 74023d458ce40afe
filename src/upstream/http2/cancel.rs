//! Cancelled requests over HTTP/2.
//!
//! A reset frees the place of a request here, but not at the server, which may work on it for as long as before. Servers
//! therefore close connections whose clients reset many streams (CVE-2023-44487), with all requests of other clients. So
//! each connection has a budget of resets. Beyond it, a stream is kept, with its place, until the server has responded or
//! the budget allows its reset.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::timeout;

use super::connection::{Http2Connection, RESET_INTERVAL};
use super::upload::UploadBody;
use crate::body::poll_whole;
use crate::time::{cached_now, monotonic};
use crate::upstream::pool::connection_limit::ConnectionPermit;

/// The most bytes that are read of a response that nobody receives.
const MAX_DISCARDED: usize = 64 * 1024;

/// The place of a stream in its connection. It goes to another request when the stream has ended.
pub(super) struct StreamSlot {
    pub connection: Rc<Http2Connection>,
    pub permit: ConnectionPermit,
}

/// The response of a request. Dropping it before its end resets the stream.
#[derive(Default)]
pub(super) enum StreamResponse {
    /// Its head has not arrived.
    Awaited(Pin<Box<dyn Future<Output = StreamHead>>>),
    /// Its head has arrived.
    Body(Incoming),
    /// The request was not sent, or the response has ended.
    #[default]
    None,
}

/// The head of a response, or a request that got none.
pub(super) type StreamHead = Result<http::Response<Incoming>, StreamError>;
/// The failure of a request, with the request itself if it was not sent.
pub(super) type StreamError = TrySendError<http::Request<UploadBody>>;

/// Ends a stream whose request was cancelled: at once, or when the server has responded or the budget allows it. Dropping
/// the response resets the stream.
pub(super) fn cancel(place: &Rc<StreamSlot>, mut response: StreamResponse) {
    if matches!(response, StreamResponse::None) || place.connection.resets.take(monotonic()) {
        return;
    }
    let place = Rc::clone(place);
    tokio::task::spawn_local(async move {
        let mut discarded = 0;
        let mut ended = pin!(poll_fn(|cx| response.poll_discard(&mut discarded, cx)));
        let may_reset = || place.connection.resets.take(monotonic());
        while timeout(RESET_INTERVAL, ended.as_mut()).await.is_err() && !may_reset() {}
    });
}

impl StreamResponse {
    /// Reads and drops a response, up to a size; ready at its end.
    fn poll_discard(&mut self, discarded: &mut usize, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::None => return Poll::Ready(()),
                Self::Awaited(response) => {
                    let response = ready!(response.as_mut().poll(cx));
                    *self = response.map_or(Self::None, |response| Self::Body(response.into_body()));
                }
                Self::Body(_) if *discarded > MAX_DISCARDED => return Poll::Pending,
                Self::Body(body) => match ready!(poll_whole(body, cx)) {
                    Some(Ok(frame)) => *discarded += frame.data_ref().map_or(0, Bytes::len),
                    _ => *self = Self::None,
                },
            }
        }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.requests.set(connection.requests.get() - 1);
        connection.idle_since.set(cached_now());
    }
}
