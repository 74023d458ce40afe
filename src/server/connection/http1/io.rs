//! The socket of a client's connection, and how long the client may be waited for.

use std::io;
use std::num::NonZeroU32;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::time::Instant;

use crate::socket::{BufferedStream, LazyTimer, Lingering, RATE_GRACE, TransferRate};
use crate::time::monotonic;
use crate::tls::Transport;

/// How long a client that has closed its sending side may take nothing of its response. Nothing tells one that waits for
/// it from one that has disconnected, until something is sent.
const HALF_CLOSED: Duration = Duration::from_secs(2);
/// Bytes that are read ahead of a request that is under way, so as to see when the client disconnects.
const READ_AHEAD: usize = 4 * 1024;

/// A stream with the times since when it is waited for.
pub(super) struct ClientIo {
    pub stream: BufferedStream<Transport>,
    alarm: LazyTimer,
    /// How long each write may take.
    write_timeout: Duration,
    /// How fast the client takes the present response.
    sending: TransferRate,
    write_since: Option<Instant>,
    /// When the client closed its sending side, or last took something after that.
    half_closed: Option<Instant>,
}

impl ClientIo {
    pub fn new(stream: BufferedStream<Transport>, write_timeout: Duration) -> Self {
        let sending = TransferRate::new(None);
        Self {
            stream,
            alarm: LazyTimer::default(),
            write_timeout,
            sending,
            write_since: None,
            half_closed: None,
        }
    }

    /// A response begins, which has this minimum rate in bytes per second, if any.
    pub fn begin_response(&mut self, min_rate: Option<NonZeroU32>) {
        self.sending = TransferRate::new(min_rate);
    }

    /// Reads what is there; how many bytes that are, and 0 at the end.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_fill(cx);
        if read.is_ready() {
            let now = monotonic();
            // A client that still sends need not take its response meanwhile.
            self.write_since = self.write_since.map(|_| now);
            if let Poll::Ready(Ok(0)) = read {
                self.half_closed.get_or_insert(now);
            }
        }
        read
    }

    /// Writes what waits.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.stream.has_pending() {
            return Poll::Ready(Ok(()));
        }
        let before = self.stream.total_written();
        let flushed = self.stream.poll_flush(cx);
        let written = self.stream.total_written() - before;
        if self.write_since.is_none() && flushed.is_ready() && self.half_closed.is_none() {
            // It did not have to wait: no clock has to be read.
            self.sending.add_bytes(usize::try_from(written).unwrap_or(usize::MAX));
            return flushed;
        }
        let now = monotonic();
        if written > 0 {
            self.sending.add_bytes(usize::try_from(written).unwrap_or(usize::MAX));
            self.half_closed = self.half_closed.map(|_| now);
        }
        if (written > 0 || flushed.is_ready())
            && let Some(since) = self.write_since.take()
        {
            self.sending.add_wait(now - since);
        }
        if flushed.is_pending() {
            self.write_since.get_or_insert(now);
        }
        flushed
    }

    /// Waits for a write no longer than may be; `progress` is what the stream said.
    pub fn bound_write<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            return progress;
        }
        self.write_since.get_or_insert_with(monotonic);
        if self.is_late(cx) { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }

    /// Reads on after the connection was closed in one direction, and throws away what comes.
    pub fn poll_linger(&mut self, lingering: &mut Lingering, cx: &mut Context<'_>) -> Poll<()> {
        let Self { stream, alarm, .. } = self;
        lingering.poll(alarm, cx, |cx| {
            stream.unread().clear();
            stream.poll_fill(cx)
        })
    }

    /// Whether the client has closed its sending side.
    pub fn is_half_closed(&self) -> bool {
        self.half_closed.is_some()
    }

    /// Reads a little ahead while a request is under way, to see whether the client closes its sending side.
    ///
    /// # Errors
    /// When the connection has failed.
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

    /// Whether the client takes its response too slowly, or has closed its sending side and takes nothing; if not, the task
    /// is woken then.
    pub fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let write_by = self.write_since.map(|since| {
            let allowance = self.sending.allowance(RATE_GRACE).unwrap_or(self.write_timeout);
            since + allowance.min(self.write_timeout)
        });
        let taken_by = self.half_closed.map(|since| since + HALF_CLOSED);
        let earliest = [write_by, taken_by].into_iter().flatten().min();
        earliest.is_some_and(|earliest| self.is_past(earliest, cx))
    }

    /// Has the connection reset when it is closed, so that the client sees that its response is not complete. Over TLS a
    /// missing `close_notify` says so.
    pub fn reset_on_close(&self) {
        if let Transport::Plain(stream) = self.stream.get_ref() {
            // A connection that is broken already needs no reset.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Whether an instant is past; if not, the task is woken then.
    pub fn is_past(&mut self, instant: Instant, cx: &mut Context<'_>) -> bool {
        self.alarm.wait_until(instant, cx).is_ready()
    }
}
