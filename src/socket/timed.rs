//! Streams whose writes have a time limit, for those who do not bound them themselves: HTTP/2 and tunnels.

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

use super::lingering::Lingering;
use super::timer::LazyTimer;
use crate::time::monotonic;

/// A stream whose writes may each wait for so long. A timer is armed only while a write waits, and lazily: a busy
/// connection costs no timer operation.
#[derive(Debug)]
pub struct TimedStream<S> {
    stream: S,
    /// Bytes that were read before.
    ahead: Bytes,
    write_timeout: Duration,
    write_since: Option<Instant>,
    alarm: LazyTimer,
    activity: Rc<Activity>,
    /// Whether the other side may be sending when the stream is shut down.
    lingers: bool,
    lingering: Option<Lingering>,
}

/// What a stream does, for those who do not have it themselves.
#[derive(Debug, Default)]
pub struct Activity {
    heard: Cell<Option<Instant>>,
    is_writing: Cell<bool>,
}

impl Activity {
    /// When a read last brought something; none if none has.
    #[must_use]
    pub fn heard(&self) -> Option<Instant> {
        self.heard.get()
    }

    /// Whether a write waits for the other side to read.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.is_writing.get()
    }
}

impl<S> TimedStream<S> {
    /// A stream of which some bytes were read before, and of which each write may take so long.
    pub fn new(stream: S, ahead: Bytes, write_timeout: Duration) -> Self {
        Self {
            stream,
            ahead,
            write_timeout,
            write_since: None,
            alarm: LazyTimer::default(),
            activity: Rc::default(),
            lingers: false,
            lingering: None,
        }
    }

    /// The same, which is read on for a while when it is shut down: a socket that is closed over unread bytes is reset,
    /// and the other side may lose what was sent last.
    #[must_use]
    pub fn lingering(self) -> Self {
        Self { lingers: true, ..self }
    }

    /// What it does.
    pub fn activity(&self) -> &Rc<Activity> {
        &self.activity
    }

    /// Waits for a write no longer than may be; `progress` is what the stream said.
    fn bounded<T>(&mut self, progress: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            if self.write_since.take().is_some() {
                self.activity.is_writing.set(false);
                // It has waited: time has passed.
                let _ = monotonic();
            }
            return progress;
        }
        self.activity.is_writing.set(true);
        let by = *self.write_since.get_or_insert_with(monotonic) + self.write_timeout;
        self.alarm.wait_until(by, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let length = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.activity.heard.set(Some(monotonic()));
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.bounded(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.bounded(progress, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(progress, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            let progress = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.bounded(progress, cx))?;
        }
        if !this.lingers {
            return Poll::Ready(Ok(()));
        }
        let Self { stream, alarm, lingering, .. } = this;
        let lingering = lingering.get_or_insert_with(|| Lingering::start(true));
        let mut room = [MaybeUninit::uninit(); 8 * 1024];
        let read = |cx: &mut Context<'_>| {
            let mut buf = ReadBuf::uninit(&mut room);
            Pin::new(&mut *stream).poll_read(cx, &mut buf).map_ok(|()| buf.filled().len())
        };
        lingering.poll(alarm, cx, read).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn each_write_has_its_time() {
        let (stream, mut other) = duplex(8);
        let mut stream = TimedStream::new(stream, Bytes::new(), SECOND);
        let activity = Rc::clone(stream.activity());
        for _ in 0..3 {
            stream.write_all(b"12345678").await.unwrap();
            tokio::time::sleep(10 * SECOND).await;
            other.read_exact(&mut [0; 8]).await.unwrap();
        }
        let begun = monotonic();
        let error = stream.write_all(b"123456789").await.unwrap_err();
        assert_eq!((error.kind(), monotonic() - begun), (io::ErrorKind::TimedOut, SECOND));
        assert!(activity.is_writing() && activity.heard().is_none());
    }

    #[tokio::test]
    async fn what_was_read_before_comes_first() {
        let (stream, mut other) = duplex(64);
        let mut stream = TimedStream::new(stream, Bytes::from_static(b"first "), SECOND);
        other.write_all(b"then").await.unwrap();
        drop(other);
        let mut read = String::new();
        stream.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "first then");
        assert!(stream.activity().heard().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_lingers_reads_on_until_the_other_side_is_silent() {
        let (stream, mut other) = duplex(8);
        let mut stream = TimedStream::new(stream, Bytes::new(), SECOND).lingering();
        let begun = monotonic();
        let sending = async {
            for _ in 0..3 {
                other.write_all(b"12345678").await.unwrap();
                tokio::time::sleep(SECOND).await;
            }
            // It stays open, and silent.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = sending => {}
            closed = stream.shutdown() => closed.unwrap(),
        }
        let span = monotonic() - begun;
        assert!((4 * SECOND..5 * SECOND).contains(&span), "{span:?}");
    }
}
