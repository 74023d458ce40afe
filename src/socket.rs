//! Sockets with bounded patience: a read or a write that waits too long fails.
//!
//! Both sides of the proxy use them. A timer is armed only while something waits, and lazily: it is set once
//! and, when it rings early because there was progress since, set again to what is left. So a busy
//! connection costs no timer operation per request.

mod alarm;
mod buffered;
mod framing;
mod heads;
mod options;
mod patience;
mod rate;

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

pub use alarm::{Alarm, TooLate, Waiting};
pub use buffered::BufferedStream;
pub use framing::Framing;
pub use heads::Heads;
pub use options::set_options;
pub use patience::{Patience, Reading};
pub use rate::{RATE_GRACE, TransferRate};

use crate::time::monotonic;

/// How long a client that has closed its sending side may take nothing of its answer. Nothing tells one that
/// waits for it from one that has gone away, until something is sent.
const HALF_CLOSED: Duration = Duration::from_secs(2);

/// How long a connection that is being closed is read on, in all and between two reads.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_SILENT: Duration = Duration::from_secs(2);
/// How many bytes are read then at most.
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// A stream with a [`Patience`].
#[derive(Debug)]
pub struct Timed<S> {
    stream: S,
    patience: Rc<Patience>,
    /// Since when the present read has waited.
    read_since: Option<Instant>,
    /// Since when the present write has waited.
    write_since: Option<Instant>,
    /// When something last was written after the other side had closed its sending side, or when that was seen.
    ended_since: Option<Instant>,
    /// When this side was closed, and what may still be read since.
    closed: Option<(Instant, usize)>,
    alarm: Alarm,
    /// What was read ahead.
    ahead: Bytes,
    /// What looks at requests before their parser, if that is wanted.
    framing: Option<Framing>,
}

impl<S> Timed<S> {
    /// A stream with this patience.
    pub fn new(stream: S, patience: Rc<Patience>) -> Self {
        Self {
            stream,
            patience,
            read_since: None,
            write_since: None,
            ended_since: None,
            closed: None,
            alarm: Alarm::default(),
            ahead: Bytes::new(),
            framing: None,
        }
    }

    /// Looks at what is read from now on, which are requests over HTTP/1.1.
    pub fn check_framing(&mut self) {
        self.framing = Some(Framing::default());
    }

    /// The same stream from now on, of which nobody is owed anything; `read` are bytes that were read too early.
    #[must_use]
    pub fn release(self, read: Bytes) -> Self {
        let patience = Patience::new(Reading::Unbounded, self.patience.writing);
        Self { ahead: read, ..Self::new(self.stream, patience) }
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Puts back what was read of the next head, which has begun thereby. Whoever reads it anew checks it anew.
    pub fn put_back(&mut self, read: Bytes) {
        self.framing = None;
        if !read.is_empty() {
            self.ahead = read;
            self.patience.begin_head(monotonic());
        }
    }

    /// Whether the connection comes to rest only later; the task is woken then. It does not as long as an answer waits
    /// to be written.
    fn rests_later(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(from) = self.patience.rests_from() else { return false };
        let is_later = self.alarm.wait_until(from, cx).is_pending();
        self.patience.alarm.set(self.alarm.rings_at());
        if !is_later && self.write_since.is_none() {
            self.patience.rest();
        }
        is_later
    }

    /// Checks what was read, from this place on.
    fn check(&mut self, buf: &mut ReadBuf<'_>, from: usize) {
        if let Some(framing) = &mut self.framing {
            framing.check(&mut buf.filled_mut()[from..]);
        }
    }

    fn read_deadline(&mut self) -> Option<Instant> {
        let deadline = match self.patience.reading.get() {
            Reading::Unbounded | Reading::UntilItEnds => None,
            // It is about the next request, while the client is still taking an answer: the write has its own time.
            Reading::HeadStartsBy(..) if self.write_since.is_some() => None,
            Reading::Each(span) => {
                let span = self.patience.receiving_within(span);
                Some(*self.read_since.get_or_insert_with(monotonic) + span)
            }
            Reading::Until(instant) | Reading::HeadStartsBy(instant, _) => Some(instant),
        };
        self.patience.within_limit(deadline)
    }

    /// Fails if the deadline is past; otherwise sees to it that the task is woken by then.
    fn wait_until<T>(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let rings = self.alarm.wait_until(deadline, cx);
        self.patience.alarm.set(self.alarm.rings_at());
        rings.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// A client that takes its answer is there, also if it has closed its sending side; and a server that still
    /// takes the rest of a request owes us no more of its answer meanwhile.
    fn note_written(&mut self, progress: &Poll<io::Result<usize>>) {
        let Poll::Ready(written) = progress else { return };
        if let Ok(bytes) = written {
            self.patience.has_sent(*bytes);
        }
        if let Some(since) = &mut self.ended_since {
            *since = monotonic();
        }
        if let Some(since) = &mut self.read_since
            && !self.patience.is_client()
            && self.patience.is_amid_body()
        {
            *since = monotonic();
        }
    }

    /// Waits for a write no longer than may be; `progress` is what the stream said.
    fn bounded_write<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            if let Some(since) = self.write_since.take() {
                self.patience.is_writing.set(false);
                // It has waited: time has passed.
                self.patience.has_waited_to_send(monotonic() - since);
            }
            return progress;
        }
        self.patience.is_writing.set(true);
        let deadline = *self.write_since.get_or_insert_with(monotonic) + self.patience.sending_within();
        let deadline = self.patience.within_limit(Some(deadline)).unwrap_or(deadline);
        self.wait_until(deadline, cx)
    }
}

impl<S: AsyncRead + Unpin> Timed<S> {
    /// The other side has closed its sending side. As long as its answer is under way the reader does not hear of
    /// it, who would give up the answer.
    fn hide_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.patience.has_ended.set(true);
        let since = *self.ended_since.get_or_insert_with(monotonic);
        self.wait_until::<()>(since + HALF_CLOSED, cx).map(|_| Ok(()))
    }

    /// Reads on after this side was closed, and throws away what comes: bytes that nobody has read when the socket
    /// is closed would make the kernel reset the connection, and the other side lose its answer.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (closed, mut room) = self.closed.unwrap_or_else(|| (monotonic(), LINGER_BYTES));
        if self.closed.is_none() {
            self.read_since = None;
        }
        let mut bytes = [MaybeUninit::uninit(); 8 * 1024];
        loop {
            self.closed = Some((closed, room));
            let mut buf = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if (1..=room).contains(&buf.filled().len()) => {
                    room -= buf.filled().len();
                    self.read_since = None;
                    // Nobody waited for it, and there may be more.
                    self.patience.set_unfinished(true);
                }
                Poll::Pending if self.patience.is_sending() => {
                    let since = *self.read_since.get_or_insert_with(monotonic);
                    let until = (closed + LINGER).min(since + LINGER_SILENT);
                    return self.wait_until::<()>(until, cx).map(|_| Ok(()));
                }
                // An end, an error, too much; or nothing, and none is waited for.
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads the first bytes ahead, until they are enough or the stream ends; whoever reads later gets them too.
    ///
    /// # Errors
    /// As those of a read.
    pub fn poll_ahead(
        &mut self,
        cx: &mut Context<'_>,
        is_enough: impl Fn(&[u8]) -> bool,
    ) -> Poll<io::Result<&[u8]>> {
        while !is_enough(&self.ahead) {
            // As much as a head usually has, so that nothing has to be read twice.
            let mut room = [MaybeUninit::uninit(); 1024];
            let mut buf = ReadBuf::uninit(&mut room);
            let known = std::mem::take(&mut self.ahead);
            let read = Pin::new(&mut *self).poll_read(cx, &mut buf);
            self.ahead = if buf.filled().is_empty() { known } else { [&known, buf.filled()].concat().into() };
            ready!(read)?;
            if buf.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(&self.ahead))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let known = this.ahead.split_to(this.ahead.len().min(buf.remaining()));
            let before = buf.filled().len();
            buf.put_slice(&known);
            this.check(buf, before);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.check(buf, before);
            let came = &buf.filled()[before..];
            // An answer that still waits to be written is under way too.
            let is_answering = this.patience.is_client() && this.write_since.is_some();
            if came.is_empty() && result.is_ok() && (is_answering || this.patience.hides_end()) {
                return this.hide_end(cx);
            }
            let since = this.read_since.take();
            this.patience.is_starved.set(false);
            if let Some(mut heads) = this.patience.heads.get() {
                if !heads.take(came) {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                this.patience.heads.set(Some(heads));
            }
            let now = monotonic();
            this.patience.heard.set(Some(now));
            this.patience.has_received(came.len(), since.map_or(Duration::ZERO, |since| now - since));
            // Who still sends a body need not take anything yet.
            if let Some(since) = &mut this.write_since
                && this.patience.is_amid_body()
            {
                *since = now;
            }
            if this.patience.limit.get().is_some_and(|limit| limit <= now) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.patience.begin_head(now);
            return Poll::Ready(result);
        }
        if this.rests_later(cx) {
            return Poll::Pending;
        }
        match this.read_deadline() {
            Some(deadline) => this.wait_until(deadline, cx),
            None => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> Timed<S> {
    /// Ends the stream without waiting for what the other side still sends.
    ///
    /// # Errors
    /// As those of a write.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded_write(progress, cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let progress = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.note_written(&progress);
        this.bounded_write(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let progress = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.note_written(&progress);
        this.bounded_write(progress, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let progress = Pin::new(&mut this.stream).poll_flush(cx);
        this.bounded_write(progress, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.patience.rests() {
            return Poll::Ready(Ok(()));
        }
        if this.closed.is_none() {
            ready!(this.poll_end(cx))?;
        }
        if this.patience.is_client() { this.linger(cx) } else { Poll::Ready(Ok(())) }
    }
}

#[cfg(test)]
mod tests;
