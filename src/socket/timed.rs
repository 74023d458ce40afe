//! Streams with a write timeout, for HTTP/2 and tunnels: the rest bounds its writes itself.

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

/// A stream with a timeout for each write. The timer is armed lazily, and only while a write waits: a busy connection needs
/// no timer operation.
#[derive(Debug)]
pub struct TimedStream<S> {
    stream: S,
    /// Bytes that were read before the stream was wrapped.
    ahead: Bytes,
    write_timeout: Duration,
    write_since: Option<Instant>,
    timer: LazyTimer,
    activity: Rc<Activity>,
    /// Whether shutting down includes a lingering close.
    lingers: bool,
    lingering: Option<Lingering>,
}

/// The reads and writes of a stream, for observers while another owns it.
#[derive(Debug, Default)]
pub struct Activity {
    last_read: Cell<Option<Instant>>,
    is_writing: Cell<bool>,
}

impl Activity {
    /// When a read last returned; none if none has.
    #[must_use]
    pub fn last_read(&self) -> Option<Instant> {
        self.last_read.get()
    }

    /// Whether a write waits for the peer to read.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.is_writing.get()
    }
}

impl<S> TimedStream<S> {
    /// A stream of which the bytes `ahead` were read before, and each write of which may take `write_timeout`.
    pub fn new(stream: S, ahead: Bytes, write_timeout: Duration) -> Self {
        Self {
            stream,
            ahead,
            write_timeout,
            write_since: None,
            timer: LazyTimer::default(),
            activity: Rc::default(),
            lingers: false,
            lingering: None,
        }
    }

    /// Has the shutdown of the stream include a lingering close.
    #[must_use]
    pub fn lingering(self) -> Self {
        Self { lingers: true, ..self }
    }

    /// The reads and writes of the stream.
    pub fn activity(&self) -> &Rc<Activity> {
        &self.activity
    }

    /// Adds the write timeout to a write that has made this progress.
    fn bound_write<T>(&mut self, progress: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            if self.write_since.take().is_some() {
                self.activity.is_writing.set(false);
                // Time has passed while the write waited: the cached time has to be renewed.
                let _ = monotonic();
            }
            return progress;
        }
        self.activity.is_writing.set(true);
        let deadline = *self.write_since.get_or_insert_with(monotonic) + self.write_timeout;
        self.timer.wait_until(deadline, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
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
        self.activity.last_read.set(Some(monotonic()));
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.bound_write(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.bound_write(progress, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound_write(progress, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            let progress = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.bound_write(progress, cx))?;
        }
        if !this.lingers {
            return Poll::Ready(Ok(()));
        }
        let Self { stream, timer, lingering, .. } = this;
        let lingering = lingering.get_or_insert_with(|| Lingering::start(true));
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let read = |cx: &mut Context<'_>| {
            let mut buf = ReadBuf::uninit(&mut buffer);
            Pin::new(&mut *stream).poll_read(cx, &mut buf).map_ok(|()| buf.filled().len())
        };
        lingering.poll(timer, cx, read).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn each_write_has_its_own_timeout() {
        let (stream, mut other) = duplex(8);
        let mut stream = TimedStream::new(stream, Bytes::new(), SECOND);
        let activity = Rc::clone(stream.activity());
        for _ in 0..3 {
            stream.write_all(b"12345678").await.unwrap();
            tokio::time::sleep(10 * SECOND).await;
            other.read_exact(&mut [0; 8]).await.unwrap();
        }
        let started = monotonic();
        let error = stream.write_all(b"123456789").await.unwrap_err();
        assert_eq!((error.kind(), monotonic() - started), (io::ErrorKind::TimedOut, SECOND));
        assert!(activity.is_writing() && activity.last_read().is_none());
    }

    #[tokio::test]
    async fn bytes_that_were_read_ahead_come_first() {
        let (stream, mut other) = duplex(64);
        let mut stream = TimedStream::new(stream, Bytes::from_static(b"first "), SECOND);
        other.write_all(b"then").await.unwrap();
        drop(other);
        let mut read = String::new();
        stream.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "first then");
        assert!(stream.activity().last_read().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lingering_stream_reads_until_the_peer_is_silent() {
        let (stream, mut other) = duplex(8);
        let mut stream = TimedStream::new(stream, Bytes::new(), SECOND).lingering();
        let started = monotonic();
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
        let span = monotonic() - started;
        assert!((4 * SECOND..5 * SECOND).contains(&span), "{span:?}");
    }
}
