//! Closes a client's connection over HTTP/1.1.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::io::AsyncWrite as _;

use super::io::ClientIo;
use crate::server::drain::ConnectionTracker;
use crate::socket::Lingering;
use crate::tls::Transport;

/// Flushes and closes a connection. `client_is_sending` says that the client has not sent all of a head or of a body. An
/// evicted connection is closed at once.
pub(super) async fn close(io: &mut ClientIo, tracker: &ConnectionTracker, client_is_sending: bool) {
    let client_is_sending = client_is_sending || io.stream.unread_length() > 0;
    let flushed = poll_fn(|cx| match io.poll_flush(cx) {
        Poll::Pending if io.is_timed_out(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        flushed => flushed,
    });
    if flushed.await.is_err() {
        return;
    }
    // Everything is written: a connection that only lingers may be evicted.
    tracker.set_idle(true);
    let mut closed = pin!(shutdown_and_linger(io, client_is_sending));
    poll_fn(|cx| if tracker.is_evicted() { Poll::Ready(()) } else { closed.as_mut().poll(cx) }).await;
}

/// Shuts down a connection on which everything was written, and reads from it for a while if the client may be sending.
async fn shutdown_and_linger(io: &mut ClientIo, client_is_sending: bool) {
    let is_plain = matches!(io.stream.get_ref(), Transport::Plain(_));
    if is_plain && !client_is_sending && !has_input(io).await {
        // With no unread input the kernel does not reset the connection: closing the socket is enough.
        return;
    }
    if shutdown(io).await.is_ok() {
        let mut lingering = Lingering::start(client_is_sending);
        poll_fn(|cx| io.poll_linger(&mut lingering, cx)).await;
    }
}

/// Closes a connection without a response; over TLS with a `close_notify`.
pub(super) async fn abandon(io: &mut ClientIo, tracker: &ConnectionTracker) {
    if let Transport::Tls(_) = io.stream.get_ref() {
        let mut closed = pin!(shutdown(io));
        // Errors are ignored: the connection may be broken already.
        poll_fn(|cx| if tracker.is_evicted() { Poll::Ready(()) } else { closed.as_mut().poll(cx).map(drop) })
            .await;
    }
}

/// Closes the sending side.
async fn shutdown(io: &mut ClientIo) -> io::Result<()> {
    poll_fn(|cx| {
        let progress = Pin::new(io.stream.get_mut()).poll_shutdown(cx);
        io.bound_write(progress, cx)
    })
    .await
}

/// Whether the client has sent something that was not read.
async fn has_input(io: &mut ClientIo) -> bool {
    poll_fn(|cx| Poll::Ready(matches!(io.stream.poll_fill(cx), Poll::Ready(Ok(1..))))).await
}
