//! The socket of a connection to a server, and how long it may be waited for.

use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::socket::{BufferedStream, LazyTimer};
use crate::time::monotonic;
use crate::tls::Transport;
use crate::upstream::connection_limit::ConnectionPermit;

/// A stream with the times since when it is waited for.
pub(super) struct Io {
    pub stream: BufferedStream<Transport>,
    /// Its right to be there, which goes to another connection after it.
    pub place: ConnectionPermit,
    pub response_timeout: Duration,
    /// How long each read of a response's body and each write may take.
    pub stall_timeout: Duration,
    /// Wakes the task that waits for the response.
    alarm: LazyTimer,
    /// Wakes the task that sends the rest of a request whose response has begun.
    upload_alarm: LazyTimer,
    read_since: Option<Instant>,
    write_since: Option<Instant>,
}

impl Io {
    pub fn new(
        stream: Transport,
        place: ConnectionPermit,
        response_timeout: Duration,
        stall_timeout: Duration,
    ) -> Self {
        Self {
            stream: BufferedStream::new(stream),
            place,
            response_timeout,
            stall_timeout,
            alarm: LazyTimer::default(),
            upload_alarm: LazyTimer::default(),
            read_since: None,
            write_since: None,
        }
    }

    /// Forgets the tasks that are to be woken, since nothing uses the connection.
    pub fn forget_tasks(&mut self) {
        self.place.connection().set_waker(Waker::noop().clone());
        (self.alarm, self.upload_alarm) = (LazyTimer::default(), LazyTimer::default());
    }

    /// A request begins or ends: nothing is waited for.
    pub fn reset(&mut self) {
        (self.read_since, self.write_since) = (None, None);
    }

    /// Reads what is there; how many bytes that are, and 0 at the end.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_fill(cx);
        if read.is_ready() {
            let now = monotonic();
            self.read_since = None;
            // A server that still responds need not take the request meanwhile.
            self.write_since = self.write_since.map(|_| now);
        } else {
            self.read_since.get_or_insert_with(monotonic);
        }
        read
    }

    /// Writes what waits.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.stream.total_written();
        let flushed = self.stream.poll_flush(cx);
        let has_moved = self.stream.total_written() != before;
        if flushed.is_ready() {
            self.write_since = None;
        } else if has_moved || self.write_since.is_none() {
            self.write_since = Some(monotonic());
        }
        if has_moved {
            // A server that still takes the request need not respond meanwhile.
            self.read_since = self.read_since.map(|_| monotonic());
        }
        flushed
    }

    /// By when the write that is waited for has to go on.
    pub fn write_by(&self) -> Option<Instant> {
        self.write_since.map(|since| since + self.stall_timeout)
    }

    /// By when the read that is waited for has to bring something.
    pub fn read_by(&self) -> Option<Instant> {
        self.read_since.map(|since| since + self.stall_timeout)
    }

    /// Whether one of these times is past; if not, the task is woken then.
    pub fn is_late(&mut self, times: [Option<Instant>; 3], cx: &mut Context<'_>) -> bool {
        let earliest = times.into_iter().flatten().min();
        earliest.is_some_and(|earliest| self.alarm.wait_until(earliest, cx).is_ready())
    }

    /// The same for the task that sends the rest of a request whose response has begun.
    pub fn is_upload_late(&mut self, deadline: Option<Instant>, cx: &mut Context<'_>) -> bool {
        let earliest = [self.write_by(), deadline].into_iter().flatten().min();
        earliest.is_some_and(|earliest| self.upload_alarm.wait_until(earliest, cx).is_ready())
    }
}
