//! Sockets with bounded patience: a read or a write that waits too long fails.
//!
//! Both sides of the proxy use them. A timer is armed only while something waits, and lazily: it is set once
//! and, when it rings early because there was progress since, set again to what is left. So a busy
//! connection costs no timer operation per request.

mod alarm;

use std::cell::Cell;
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

use crate::time::{monotonic, recent};

/// What a socket's reader may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As long as it takes: nothing is owed to us.
    Unbounded,
    /// Each read may take this long.
    Each(Duration),
    /// Until this instant, however much is read.
    Until(Instant),
    /// Until the instant; the first byte changes that to `Each` byte by then: a head has this long to be whole.
    HeadStartsBy(Instant, Duration),
}

/// How patient a socket is; shared with whoever knows what it is used for at the moment.
#[derive(Debug)]
pub struct Patience {
    reading: Cell<Reading>,
    writing: Duration,
    /// When the socket's task will be woken to look at the time; none if it will not.
    alarm: Cell<Option<Instant>>,
    /// Bytes that may still be read.
    room: Cell<usize>,
}

/// A stream with a [`Patience`].
#[derive(Debug)]
pub struct Timed<S> {
    stream: S,
    patience: Rc<Patience>,
    /// Since when the present read has waited.
    read_since: Option<Instant>,
    /// Since when the present write has waited.
    write_since: Option<Instant>,
    alarm: Alarm,
    /// What was read ahead.
    ahead: Bytes,
}

impl Patience {
    /// Patience for reads as told, and for each write as long as `writing`.
    #[must_use]
    pub fn new(reading: Reading, writing: Duration) -> Rc<Self> {
        Rc::new(Self {
            reading: Cell::new(reading),
            writing,
            alarm: Cell::new(None),
            room: Cell::new(usize::MAX),
        })
    }

    /// Changes what reads wait for, from now on.
    pub fn set(&self, reading: Reading) {
        self.reading.set(reading);
    }

    /// Whether the next head is waited for.
    #[must_use]
    pub fn awaits_head(&self) -> bool {
        matches!(self.reading.get(), Reading::HeadStartsBy(..))
    }

    /// If the next head is waited for: no longer than until then.
    pub fn hasten(&self, by: Instant) {
        if let Reading::HeadStartsBy(at, span) = self.reading.get() {
            self.reading.set(Reading::HeadStartsBy(at.min(by), span));
        }
    }

    /// Whether nothing is owed at the moment.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.reading.get() == Reading::Unbounded
    }

    /// From now on so many bytes may be read, and any more are an error.
    pub fn set_room(&self, bytes: usize) {
        self.room.set(bytes);
    }

    /// How many bytes may still be read.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room.get()
    }

    /// Whether the next head must be there by a time at which nothing wakes the socket's task, because the
    /// socket was last read before that was known. It takes another read to set the alarm.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        let Reading::HeadStartsBy(by, _) = self.reading.get() else { return false };
        self.alarm.get().is_none_or(|at| at > by || at <= recent())
    }
}

impl<S> Timed<S> {
    /// A stream with this patience.
    pub fn new(stream: S, patience: Rc<Patience>) -> Self {
        let (alarm, ahead) = (Alarm::default(), Bytes::new());
        Self { stream, patience, read_since: None, write_since: None, alarm, ahead }
    }

    fn read_deadline(&mut self) -> Option<Instant> {
        match self.patience.reading.get() {
            Reading::Unbounded => None,
            Reading::Each(span) => Some(*self.read_since.get_or_insert_with(monotonic) + span),
            Reading::Until(instant) | Reading::HeadStartsBy(instant, _) => Some(instant),
        }
    }

    /// Fails if the deadline is past; otherwise sees to it that the task is woken by then.
    fn wait_until<T>(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let rings = self.alarm.wait_until(deadline, cx);
        self.patience.alarm.set(self.alarm.rings_at());
        rings.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Waits for a write no longer than may be; `progress` is what the stream said.
    fn bounded_write<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            if self.write_since.take().is_some() {
                // It has waited: time has passed.
                let _ = monotonic();
            }
            return progress;
        }
        let deadline = *self.write_since.get_or_insert_with(monotonic) + self.patience.writing;
        self.wait_until(deadline, cx)
    }
}

impl<S> Timed<S> {
    /// Puts bytes back that were read too early, before anything that is still to come.
    pub fn put_back(&mut self, bytes: Bytes) {
        self.ahead = bytes;
    }
}

impl<S: AsyncRead + Unpin> Timed<S> {
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
            buf.put_slice(&known);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.read_since = None;
            let Some(room) = this.patience.room.get().checked_sub(buf.filled().len() - before) else {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            };
            this.patience.room.set(room);
            let now = monotonic();
            if let Reading::HeadStartsBy(_, span) = this.patience.reading.get() {
                this.patience.set(Reading::Until(now + span));
            }
            return Poll::Ready(result);
        }
        match this.read_deadline() {
            Some(deadline) => this.wait_until(deadline, cx),
            None => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let progress = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.bounded_write(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let progress = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
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
        let progress = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.bounded_write(progress, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_no_longer_than_it_may() {
        let (mut near, far) = duplex(64);
        let patience = Patience::new(Reading::Each(SECOND), SECOND);
        let mut far = Timed::new(far, Rc::clone(&patience));
        for _ in 0..3 {
            tokio::time::advance(SECOND / 2).await;
            near.write_all(b"x").await.unwrap();
            assert_eq!(far.read_u8().await.unwrap(), b'x');
        }
        let started = monotonic();
        assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::TimedOut));
        assert_eq!(monotonic() - started, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte() {
        let (mut near, far) = duplex(64);
        let started = monotonic();
        let patience = Patience::new(Reading::HeadStartsBy(started + 60 * SECOND, 2 * SECOND), SECOND);
        let mut far = Timed::new(far, patience);
        let drip = async {
            tokio::time::sleep(30 * SECOND).await;
            for _ in 0..10 {
                near.write_all(b"x").await.unwrap();
                tokio::time::sleep(SECOND / 2).await;
            }
        };
        let read = async {
            let mut sink = Vec::new();
            let end = far.read_to_end(&mut sink).await;
            (kind(end), sink.len(), monotonic() - started)
        };
        let ((), (end, bytes, after)) = tokio::join!(drip, read);
        assert_eq!(end, Some(io::ErrorKind::TimedOut));
        assert!((4..=5).contains(&bytes), "{bytes}");
        assert_eq!(after, 32 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_owed_is_waited_for_without_end() {
        let (mut near, far) = duplex(64);
        let patience = Patience::new(Reading::Unbounded, SECOND);
        let mut far = Timed::new(far, patience);
        let late = async {
            tokio::time::sleep(100_000 * SECOND).await;
            near.write_all(b"x").await.unwrap();
        };
        let ((), byte) = tokio::join!(late, far.read_u8());
        assert_eq!(byte.unwrap(), b'x');
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_than_there_is_room_for() {
        let (mut near, far) = duplex(64);
        let patience = Patience::new(Reading::Unbounded, SECOND);
        let mut far = Timed::new(far, Rc::clone(&patience));
        patience.set_room(4);
        near.write_all(b"four").await.unwrap();
        assert_eq!(far.read_u32().await.unwrap(), u32::from_be_bytes(*b"four"));
        assert_eq!(patience.room(), 0);
        near.write_all(b"5").await.unwrap();
        assert_eq!(kind(far.read_u8().await), Some(io::ErrorKind::InvalidData));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_read_ahead_is_read_again() {
        let (mut near, far) = duplex(64);
        let mut far = Timed::new(far, Patience::new(Reading::Each(SECOND), SECOND));
        for part in ["ab", "cd", "e"] {
            near.write_all(part.as_bytes()).await.unwrap();
            let wanted = part.as_bytes()[0];
            let ahead = std::future::poll_fn(|cx| {
                far.poll_ahead(cx, |bytes| bytes.contains(&wanted)).map_ok(<[u8]>::to_vec)
            });
            assert!(ahead.await.unwrap().ends_with(part.as_bytes()));
        }
        let late = std::future::poll_fn(|cx| far.poll_ahead(cx, |_| false).map_ok(<[u8]>::len)).await;
        assert_eq!(kind(late), Some(io::ErrorKind::TimedOut));
        drop(near);
        let mut all = String::new();
        far.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "abcde");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails() {
        let (_near, far) = duplex(4);
        let mut far = Timed::new(far, Patience::new(Reading::Unbounded, SECOND));
        assert_eq!(kind(far.write_all(&[0; 64]).await), Some(io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_stream_has_taken_and_nobody_reads_fails_as_well() {
        let (_near, far) = duplex(4);
        let taken = tokio::io::BufWriter::new(far);
        let mut far = Timed::new(taken, Patience::new(Reading::Unbounded, SECOND));
        far.write_all(&[0; 64]).await.unwrap();
        assert_eq!(kind(far.flush().await), Some(io::ErrorKind::TimedOut));
        assert_eq!(kind(far.shutdown().await), Some(io::ErrorKind::TimedOut));
    }
}
