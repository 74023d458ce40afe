//! The transport of a connection to a server, with its timeouts.

use std::io;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::socket::{BufferedStream, LazyTimer, earlier};
use crate::time::monotonic;
use crate::tls::Transport;
use crate::upstream::message::ExchangeTimeouts;
use crate::upstream::pool::connection_limit::ConnectionPermit;

/// A buffered stream that records since when its reads and writes have been pending.
pub(super) struct Io {
    pub stream: BufferedStream<Transport>,
    /// The permit for the connection, which goes to another connection afterwards.
    pub permit: ConnectionPermit,
    /// The timeouts of the request in progress.
    pub timeouts: ExchangeTimeouts,
    /// Wakes the task that waits for the response.
    timer: LazyTimer,
    /// Wakes the task that sends the rest of a request whose response has started.
    upload_timer: LazyTimer,
    read_since: Option<Instant>,
    write_since: Option<Instant>,
}

impl Io {
    pub fn new(transport: Transport, permit: ConnectionPermit) -> Self {
        Self {
            stream: BufferedStream::new(transport),
            permit,
            timeouts: ExchangeTimeouts::default(),
            timer: LazyTimer::default(),
            upload_timer: LazyTimer::default(),
            read_since: None,
            write_since: None,
        }
    }

    /// Drops the wakers of tasks that no longer use the connection.
    pub fn clear_wakers(&mut self) {
        self.permit.connection_use().set_waker(Waker::noop().clone());
        (self.timer, self.upload_timer) = (LazyTimer::default(), LazyTimer::default());
    }

    /// Restarts the timeouts of reads and writes, between requests and before a response's body.
    pub fn reset(&mut self) {
        (self.read_since, self.write_since) = (None, None);
    }

    /// Reads available bytes; returns their number, 0 at the end.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_fill(cx);
        if read.is_ready() {
            let now = monotonic();
            self.read_since = None;
            // A server that sends its response need not read the request at the same time.
            self.write_since = self.write_since.map(|_| now);
        } else {
            self.read_since.get_or_insert_with(monotonic);
        }
        read
    }

    /// Writes the buffered bytes.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.stream.total_written();
        let flushed = self.stream.poll_flush(cx);
        let has_progressed = self.stream.total_written() != before;
        if flushed.is_ready() {
            self.write_since = None;
        } else if has_progressed || self.write_since.is_none() {
            self.write_since = Some(monotonic());
        }
        if has_progressed {
            // A server that reads the request need not send its response at the same time.
            self.read_since = self.read_since.map(|_| monotonic());
        }
        flushed
    }

    /// By when the pending write has to progress.
    fn write_deadline(&self) -> Option<Instant> {
        self.write_since.map(|since| since + self.timeouts.stall)
    }

    /// By when the pending read has to return bytes.
    pub fn read_deadline(&self) -> Option<Instant> {
        self.read_since.map(|since| since + self.timeouts.stall)
    }

    /// Whether this deadline, that of the pending write, or that of the exchange has passed; if not, the task is woken at the
    /// earliest.
    pub fn is_late(&mut self, deadline: Option<Instant>, cx: &mut Context<'_>) -> bool {
        let earliest = earlier(earlier(deadline, self.write_deadline()), self.timeouts.deadline);
        earliest.is_some_and(|earliest| self.timer.wait_until(earliest, cx).is_ready())
    }

    /// Whether the upload is late; for the task that sends the rest of a request whose response has started.
    pub fn is_upload_late(&mut self, cx: &mut Context<'_>) -> bool {
        let earliest = earlier(self.write_deadline(), self.timeouts.deadline);
        earliest.is_some_and(|earliest| self.upload_timer.wait_until(earliest, cx).is_ready())
    }
}
