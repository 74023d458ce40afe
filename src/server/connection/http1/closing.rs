//! The end of a client's connection.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::io::AsyncWrite as _;

use super::io::ClientIo;
use crate::server::drain::ConnectionTracker;
use crate::socket::Lingering;
use crate::tls::Transport;

/// Closes a connection after what waits was written. `is_sending` says that the client has not sent all of a head or of a
/// body. A connection that has to make room is not waited for.
pub(super) async fn close(io: &mut ClientIo, open: &ConnectionTracker, is_sending: bool) {
    let is_sending = is_sending || io.stream.unread_length() > 0;
    let flushed = poll_fn(|cx| match io.poll_flush(cx) {
        Poll::Pending if io.is_late(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        flushed => flushed,
    });
    if flushed.await.is_err() {
        return;
    }
    open.set_idle(true);
    let mut ending = pin!(end(io, is_sending));
    poll_fn(|cx| if open.is_evicted() { Poll::Ready(()) } else { ending.as_mut().poll(cx) }).await;
}

/// Ends a connection on which nothing waits to be written.
async fn end(io: &mut ClientIo, is_sending: bool) {
    let is_plain = matches!(io.stream.get_ref(), Transport::Plain(_));
    if is_plain && !is_sending && !has_input(io).await {
        // Closing the socket ends the connection in order.
        return;
    }
    if shutdown(io).await.is_ok() {
        let mut lingering = Lingering::begin(is_sending);
        poll_fn(|cx| io.poll_linger(&mut lingering, cx)).await;
    }
}

/// Closes a connection whose client gets no response; over TLS with a `close_notify`.
pub(super) async fn abandon(io: &mut ClientIo, open: &ConnectionTracker) {
    if let Transport::Tls(_) = io.stream.get_ref() {
        let mut ending = pin!(shutdown(io));
        // It may be broken already.
        poll_fn(|cx| if open.is_evicted() { Poll::Ready(()) } else { ending.as_mut().poll(cx).map(drop) })
            .await;
    }
}

/// Tells the client that nothing more is sent.
async fn shutdown(io: &mut ClientIo) -> io::Result<()> {
    poll_fn(|cx| {
        let ended = Pin::new(io.stream.get_mut()).poll_shutdown(cx);
        io.bound_write(ended, cx)
    })
    .await
}

/// Whether the client has sent something that was not read.
async fn has_input(io: &mut ClientIo) -> bool {
    poll_fn(|cx| Poll::Ready(matches!(io.stream.poll_fill(cx), Poll::Ready(Ok(1..))))).await
}
