//! A stream with a buffer for each direction.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

/// Bytes to read at once while little is expected, as for a head.
const SMALL_READ: usize = 4 * 1024;
/// Bytes to read at once when reads fill the buffer, as for a large body.
const LARGE_READ: usize = 64 * 1024;
/// The most read buffers that a worker keeps for the next connections that read.
const MAX_SPARE_BUFFERS: usize = 64;
/// Data up to this size is copied into the write buffer: a write of its own would cost more.
const MAX_COPIED: usize = 8 * 1024;
/// The largest write buffer that a connection keeps between messages.
const MAX_KEPT_OUT: usize = 2 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// A stream with a buffer of bytes that were read and not consumed, and one of bytes to be written, followed by at most one
/// part of a body that was too large to be copied.
#[derive(Debug)]
pub struct BufferedStream<S> {
    stream: S,
    read: BytesMut,
    /// How many bytes the next read is expected to return at most.
    expected: usize,
    /// Bytes to be written first.
    out: Vec<u8>,
    /// Bytes of `out` that were written.
    written: usize,
    /// To be written after `out`.
    data: Bytes,
    /// To be written after `data`.
    tail: &'static [u8],
    /// Whether the stream may have buffered what was written, as TLS does.
    needs_flush: bool,
    /// Bytes that were written in total.
    total: u64,
}

impl<S> BufferedStream<S> {
    /// A stream with empty buffers.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            read: BytesMut::new(),
            expected: SMALL_READ,
            out: Vec::new(),
            written: 0,
            data: Bytes::new(),
            tail: b"",
            needs_flush: false,
            total: 0,
        }
    }

    /// The underlying stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The underlying stream, for operations that do not concern the buffers.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The underlying stream, and the bytes that were read and not consumed.
    pub fn into_parts(mut self) -> (S, Bytes) {
        (self.stream, self.read.split().freeze())
    }

    /// The bytes that were read and not consumed.
    pub fn unread(&mut self) -> &mut BytesMut {
        &mut self.read
    }

    /// How many bytes were read and not consumed.
    pub fn unread_length(&self) -> usize {
        self.read.len()
    }

    /// The write buffer, which [`BufferedStream::poll_flush`] writes. To be used only if [`BufferedStream::has_room`].
    pub fn out(&mut self) -> &mut Vec<u8> {
        debug_assert!(
            self.data.is_empty() && self.tail.is_empty(),
            "bytes added here would overtake data that was not copied"
        );
        if self.out.capacity() == 0 {
            self.out.reserve(1024);
        }
        &mut self.out
    }

    /// Adds data and then `tail` to the output. To be used only if [`BufferedStream::has_room`].
    pub fn push_data(&mut self, data: Bytes, tail: &'static [u8]) {
        if self.written >= MAX_COPIED {
            // A stream that always accepts a little would never let the buffer become empty.
            self.out.drain(..self.written);
            self.written = 0;
        }
        let out = self.out();
        if data.len() <= MAX_COPIED {
            out.extend_from_slice(&data);
            out.extend_from_slice(tail);
        } else {
            (self.data, self.tail) = (data, tail);
        }
    }

    /// Whether something remains to be written or flushed.
    pub fn has_pending(&self) -> bool {
        self.written < self.out.len() || !self.data.is_empty() || !self.tail.is_empty() || self.needs_flush
    }

    /// Whether more data can be added to the output.
    pub fn has_room(&self) -> bool {
        self.data.is_empty() && self.tail.is_empty() && self.out.len() - self.written < 2 * MAX_COPIED
    }

    /// How many bytes were written in total.
    pub fn total_written(&self) -> u64 {
        self.total
    }

    /// Discards the pending output.
    pub fn discard_pending(&mut self) {
        self.out.clear();
        self.written = 0;
        self.data = Bytes::new();
        self.tail = b"";
        self.needs_flush = false;
    }

    /// Releases the memory of empty buffers, except a small one for writing, when nothing is in progress.
    pub fn shrink(&mut self) {
        if self.read.is_empty() {
            keep_spare(std::mem::take(&mut self.read));
        }
        if self.out.is_empty() && self.out.capacity() > MAX_KEPT_OUT {
            self.out = Vec::new();
        }
    }

    /// Releases the memory of all empty buffers.
    pub fn release(&mut self) {
        self.shrink();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }

    /// Removes `count` bytes, which were written, from the pending output.
    fn advance(&mut self, mut count: usize) {
        self.total += count as u64;
        let of_out = count.min(self.out.len() - self.written);
        self.written += of_out;
        count -= of_out;
        let of_data = count.min(self.data.len());
        bytes::Buf::advance(&mut self.data, of_data);
        self.tail = &self.tail[count - of_data..];
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> BufferedStream<S> {
    /// Reads into the buffer; ready with the number of bytes, 0 at the end of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() == 0 && self.expected <= 2 * SMALL_READ {
            self.read = take_spare();
        }
        if self.read.capacity() - self.read.len() < self.expected / 4 {
            self.read.reserve(self.expected);
        }
        let capacity = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        // The messages of a connection are often of a similar size.
        if count == capacity {
            self.expected = LARGE_READ.min(4 * self.expected);
        } else if count < self.expected / 8 {
            self.expected = SMALL_READ.max(self.expected / 2);
        }
        Poll::Ready(Ok(count))
    }
}

impl<S: AsyncWrite + Unpin> BufferedStream<S> {
    /// Writes and flushes the pending output; ready when nothing remains. Fails as the stream does, and when it accepts no more
    /// bytes.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() || !self.data.is_empty() || !self.tail.is_empty() {
            let stream = Pin::new(&mut self.stream);
            let count = if self.data.is_empty() && self.tail.is_empty() {
                ready!(stream.poll_write(cx, &self.out[self.written..]))?
            } else {
                let parts = [&self.out[self.written..], &self.data, self.tail].map(IoSlice::new);
                // A stream without vectored writes writes only the first part, which must not be empty.
                let first = parts.iter().position(|part| !part.is_empty()).unwrap_or(0);
                ready!(stream.poll_write_vectored(cx, &parts[first..]))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
            self.needs_flush = true;
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// A read buffer of this worker that no connection uses, or a new one.
fn take_spare() -> BytesMut {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| BytesMut::with_capacity(2 * SMALL_READ))
}

/// Keeps a read buffer for another connection, if it is small and its memory is not shared with a body.
fn keep_spare(mut buffer: BytesMut) {
    if buffer.try_reclaim(SMALL_READ) && buffer.capacity() <= 2 * SMALL_READ {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < MAX_SPARE_BUFFERS {
                spare.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn writes_keep_their_order() {
        // Small, so that each part is written in pieces.
        let (near, mut far) = duplex(7);
        let mut stream = BufferedStream::new(near);
        let large = Bytes::from(vec![b'x'; MAX_COPIED + 1]);
        stream.out().extend_from_slice(b"head ");
        stream.push_data(Bytes::from_static(b"small"), b" ");
        assert!(stream.has_room() && stream.has_pending());
        stream.push_data(large.clone(), b"\r\n");
        assert!(!stream.has_room());
        let reading = async {
            let mut read = vec![0; 11 + large.len() + 2];
            far.read_exact(&mut read).await.unwrap();
            read
        };
        let (flushed, read) = tokio::join!(poll_fn(|cx| stream.poll_flush(cx)), reading);
        flushed.unwrap();
        assert_eq!(read, [b"head small ", &large[..], b"\r\n"].concat());
        assert!(!stream.has_pending() && stream.total_written() == read.len() as u64);
    }

    #[tokio::test]
    async fn read_bytes_stay_until_they_are_consumed() {
        let (near, mut far) = duplex(256 * 1024);
        let mut stream = BufferedStream::new(near);
        far.write_all(&vec![b'x'; 100_000]).await.unwrap();
        drop(far);
        let mut counts = Vec::new();
        while let count @ 1.. = poll_fn(|cx| stream.poll_fill(cx)).await.unwrap() {
            counts.push(count);
        }
        assert_eq!((stream.unread_length(), counts.iter().sum::<usize>()), (100_000, 100_000));
        assert!(counts[0] <= 2 * SMALL_READ && counts.len() < 8, "reads grow with the message: {counts:?}");
        assert_eq!(stream.into_parts().1.len(), 100_000);
    }

    #[tokio::test]
    async fn buffers_of_idle_streams_are_reused() {
        let read = async |text: &'static [u8]| {
            let (near, mut far) = duplex(64);
            let mut stream = BufferedStream::new(near);
            far.write_all(text).await.unwrap();
            poll_fn(|cx| stream.poll_fill(cx)).await.unwrap();
            assert_eq!(stream.unread(), text);
            (stream.unread().as_ptr(), stream)
        };
        let (first, mut stream) = read(b"first").await;
        stream.unread().clear();
        stream.release();
        let (second, _stream) = read(b"second").await;
        assert_eq!(first, second);
        // Bytes that were not consumed are kept.
        let (_, mut stream) = read(b"third").await;
        stream.release();
        assert_eq!(stream.unread(), &b"third"[..]);
    }
}
