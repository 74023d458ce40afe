//! The stream of a client's connection over HTTP/1.1, with its timeouts, and how it is closed.

use std::future::{Future as _, poll_fn};
use std::io;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use crate::server::drain::ConnectionTracker;
use crate::socket::{BufferedStream, LazyTimer, Lingering, RATE_GRACE, TransferRate, earlier};
use crate::time::monotonic;
use crate::tls::Transport;

/// How long a half-closed client may leave its response unread before it is treated as disconnected: until something is
/// sent, a client that waits for its response can't be distinguished from one that has disconnected.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that are read ahead while a request is in progress, to notice when the client disconnects.
const READ_AHEAD: usize = 4 * 1024;

/// A buffered stream with its timeouts. All of them share one lazy timer.
pub(super) struct ClientIo {
    pub stream: BufferedStream<Transport>,
    timer: LazyTimer,
    /// How long each write may take.
    write_timeout: Duration,
    /// How fast the client reads the current response.
    send_rate: TransferRate,
    /// Since when a write waits for the client.
    write_since: Option<Instant>,
    /// When the client closed its sending side, or last read something after that.
    half_closed: Option<Instant>,
}

impl ClientIo {
    pub fn new(stream: BufferedStream<Transport>, write_timeout: Duration) -> Self {
        let send_rate = TransferRate::new(None);
        Self {
            stream,
            timer: LazyTimer::default(),
            write_timeout,
            send_rate,
            write_since: None,
            half_closed: None,
        }
    }

    /// Measures the rate of a new response from now on, which has this minimum in bytes per second, if any.
    pub fn start_response(&mut self, min_rate: Option<NonZeroU32>) {
        self.send_rate = TransferRate::new(min_rate);
    }

    /// Reads into the buffer; ready with the number of bytes, 0 at the end of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_fill(cx);
        if read.is_ready() {
            let now = monotonic();
            // A client may send all of its request before it reads the response.
            self.write_since = self.write_since.map(|_| now);
            if let Poll::Ready(Ok(0)) = read {
                self.half_closed.get_or_insert(now);
            }
        }
        read
    }

    /// Writes the buffered output.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.stream.has_pending() {
            return Poll::Ready(Ok(()));
        }
        let before = self.stream.total_written();
        let flushed = self.stream.poll_flush(cx);
        let written = self.stream.total_written() - before;
        if self.write_since.is_none() && flushed.is_ready() && self.half_closed.is_none() {
            // The usual case: the write did not wait, so no clock is read.
            self.send_rate.add_bytes(usize::try_from(written).unwrap_or(usize::MAX));
            return flushed;
        }
        let now = monotonic();
        if written > 0 {
            self.send_rate.add_bytes(usize::try_from(written).unwrap_or(usize::MAX));
            // A half-closed client that reads its response has not disconnected.
            self.half_closed = self.half_closed.map(|_| now);
        }
        if (written > 0 || flushed.is_ready())
            && let Some(since) = self.write_since.take()
        {
            self.send_rate.add_wait(now - since);
        }
        if flushed.is_pending() {
            self.write_since.get_or_insert(now);
        }
        flushed
    }

    /// Adds the write timeout to a write or shutdown of the stream, which has made this progress.
    pub fn bound_write<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            return progress;
        }
        self.write_since.get_or_insert_with(monotonic);
        if self.is_timed_out(cx) { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }

    /// Reads and discards after the sending side was closed; ready when the socket can be closed.
    pub fn poll_linger(&mut self, lingering: &mut Lingering, cx: &mut Context<'_>) -> Poll<()> {
        let Self { stream, timer, .. } = self;
        lingering.poll(timer, cx, |cx| {
            stream.unread().clear();
            stream.poll_fill(cx)
        })
    }

    /// Whether the client has closed its sending side.
    pub fn is_half_closed(&self) -> bool {
        self.half_closed.is_some()
    }

    /// Reads a little ahead while a request is in progress, to notice when the client closes its sending side.
    pub fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.half_closed.is_none() && self.stream.unread_length() < READ_AHEAD {
            match self.poll_fill(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Whether the client reads its response too slowly, or is half-closed and reads nothing; if not, the task is woken
    /// when that deadline passes.
    pub fn is_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        let write_deadline = self.write_since.map(|since| {
            let allowance = self.send_rate.allowance(RATE_GRACE).unwrap_or(self.write_timeout);
            since + allowance.min(self.write_timeout)
        });
        let half_closed_deadline = self.half_closed.map(|since| since + HALF_CLOSED_TIMEOUT);
        earlier(write_deadline, half_closed_deadline).is_some_and(|deadline| self.has_passed(deadline, cx))
    }

    /// Makes the kernel reset the connection when it is closed, so that the client sees that its response is incomplete.
    /// Over TLS a missing `close_notify` does that.
    pub fn reset_on_close(&self) {
        if let Transport::Plain(stream) = self.stream.get_ref() {
            // This fails only on a connection that is broken already.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Whether a deadline has passed; if not, the task is woken at that time.
    pub fn has_passed(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        self.timer.wait_until(deadline, cx).is_ready()
    }

    /// Flushes and closes a connection. `client_is_sending` says that the client has not sent all of a head or of a body. An
    /// evicted connection is closed at once.
    pub async fn close(&mut self, tracker: &ConnectionTracker, client_is_sending: bool) {
        let client_is_sending = client_is_sending || self.stream.unread_length() > 0;
        let flushed = poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Pending if self.is_timed_out(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            flushed => flushed,
        });
        if flushed.await.is_err() {
            return;
        }
        // Everything is written: a connection that only lingers may be evicted.
        tracker.set_idle(true);
        let mut closed = pin!(self.shutdown_and_linger(client_is_sending));
        poll_fn(|cx| if tracker.is_evicted() { Poll::Ready(()) } else { closed.as_mut().poll(cx) }).await;
    }

    /// Shuts down a connection on which everything was written, and reads from it for a while if the client may be sending.
    async fn shutdown_and_linger(&mut self, client_is_sending: bool) {
        let is_plain = matches!(self.stream.get_ref(), Transport::Plain(_));
        if is_plain && !client_is_sending && !self.has_input().await {
            // With no unread input the kernel does not reset the connection: closing the socket is enough.
            return;
        }
        if self.shutdown().await.is_ok() {
            let mut lingering = Lingering::start(client_is_sending);
            poll_fn(|cx| self.poll_linger(&mut lingering, cx)).await;
        }
    }

    /// Closes a connection without a response; over TLS with a `close_notify`.
    pub async fn abandon(&mut self, tracker: &ConnectionTracker) {
        if let Transport::Tls(_) = self.stream.get_ref() {
            let mut closed = pin!(self.shutdown());
            // Errors are ignored: the connection may be broken already.
            poll_fn(
                |cx| if tracker.is_evicted() { Poll::Ready(()) } else { closed.as_mut().poll(cx).map(drop) },
            )
            .await;
        }
    }

    /// Closes the sending side.
    async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| {
            let progress = Pin::new(self.stream.get_mut()).poll_shutdown(cx);
            self.bound_write(progress, cx)
        })
        .await
    }

    /// Whether the client has sent something that was not read.
    async fn has_input(&mut self) -> bool {
        if self.is_half_closed() {
            return false;
        }
        poll_fn(|cx| Poll::Ready(matches!(self.stream.poll_fill(cx), Poll::Ready(Ok(1..))))).await
    }
}
