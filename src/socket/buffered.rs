//! A stream with a buffer for each direction.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

/// Bytes that are read at once while there is little to expect, as of a head.
const SMALL_READ: usize = 4 * 1024;
/// Bytes that are read at once of what turns out to be large.
const LARGE_READ: usize = 64 * 1024;
/// Buffers that a worker keeps for the next connection that reads, and the largest of them.
const KEPT_BUFFERS: usize = 64;
/// Data that is copied behind what waits to be written: to write it by itself would cost more.
const COPIED: usize = 8 * 1024;
/// The largest buffer for writing that a connection keeps between messages.
const KEPT_OUT: usize = 2 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// A stream, what was read of it and not taken, and what waits to be written. No more than a part of a body waits.
#[derive(Debug)]
pub struct BufferedStream<S> {
    stream: S,
    read: BytesMut,
    /// How much the next read may bring.
    expected: usize,
    out: Vec<u8>,
    /// Bytes of `out` that are written.
    written: usize,
    /// What follows `out`.
    data: Bytes,
    /// What follows `data`.
    tail: &'static [u8],
    /// Whether the stream may hold back what was written, as TLS does.
    needs_flush: bool,
    /// Bytes that were written in all.
    total: u64,
}

impl<S> BufferedStream<S> {
    /// A stream without anything in its buffers.
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

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream below, for what has nothing to do with the buffers.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream below, and what was read of it.
    pub fn into_parts(mut self) -> (S, Bytes) {
        (self.stream, self.read.split().freeze())
    }

    /// What was read and not taken.
    pub fn unread(&mut self) -> &mut BytesMut {
        &mut self.read
    }

    /// How many bytes were read and not taken.
    pub fn unread_length(&self) -> usize {
        self.read.len()
    }

    /// Where something is to be written: it leaves with the next [`BufferedStream::poll_flush`]. To be asked for only
    /// while no data waits that was not copied.
    pub fn out(&mut self) -> &mut Vec<u8> {
        debug_assert!(
            self.data.is_empty() && self.tail.is_empty(),
            "what is written here would overtake data"
        );
        if self.out.capacity() == 0 {
            self.out.reserve(1024);
        }
        &mut self.out
    }

    /// Has this data written, and `tail` behind it, after all that waits. To be asked for only while no data waits that
    /// was not copied.
    pub fn push_data(&mut self, data: Bytes, tail: &'static [u8]) {
        if self.written >= COPIED {
            // A stream that always takes a little would never come to an end of what waits.
            self.out.drain(..self.written);
            self.written = 0;
        }
        let out = self.out();
        if data.len() <= COPIED {
            out.extend_from_slice(&data);
            out.extend_from_slice(tail);
        } else {
            (self.data, self.tail) = (data, tail);
        }
    }

    /// Whether something waits to be written.
    pub fn has_pending(&self) -> bool {
        self.written < self.out.len() || !self.data.is_empty() || !self.tail.is_empty() || self.needs_flush
    }

    /// Whether more can be added to what waits to be written.
    pub fn has_room(&self) -> bool {
        self.data.is_empty() && self.tail.is_empty() && self.out.len() - self.written < 2 * COPIED
    }

    /// How many bytes were written in all.
    pub fn total_written(&self) -> u64 {
        self.total
    }

    /// Forgets what waits to be written.
    pub fn discard_pending(&mut self) {
        self.out.clear();
        self.written = 0;
        self.data = Bytes::new();
        self.tail = b"";
        self.needs_flush = false;
    }

    /// Gives back the memory of empty buffers, since nothing is to be read or written for a while.
    pub fn shrink(&mut self) {
        if self.read.is_empty() {
            give_back(std::mem::take(&mut self.read));
        }
        if self.out.is_empty() && self.out.capacity() > KEPT_OUT {
            self.out = Vec::new();
        }
    }

    /// The same, which keeps no memory at all.
    pub fn release(&mut self) {
        self.shrink();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }

    /// What waits has been written up to here.
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
    /// Reads what is there; how many bytes that are, and 0 at the end of the stream.
    ///
    /// # Errors
    /// As those of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() == 0 && self.expected <= 2 * SMALL_READ {
            self.read = spare();
        }
        if self.read.capacity() - self.read.len() < self.expected / 4 {
            self.read.reserve(self.expected);
        }
        let room = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        // Messages on one connection are often alike.
        if count == room {
            self.expected = LARGE_READ.min(4 * self.expected);
        } else if count < self.expected / 8 {
            self.expected = SMALL_READ.max(self.expected / 2);
        }
        Poll::Ready(Ok(count))
    }
}

impl<S: AsyncWrite + Unpin> BufferedStream<S> {
    /// Writes what waits; ready when nothing does.
    ///
    /// # Errors
    /// As those of the stream, and when it takes nothing more.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() || !self.data.is_empty() || !self.tail.is_empty() {
            let stream = Pin::new(&mut self.stream);
            let count = if self.data.is_empty() && self.tail.is_empty() {
                ready!(stream.poll_write(cx, &self.out[self.written..]))?
            } else {
                let parts = [&self.out[self.written..], &self.data, self.tail].map(IoSlice::new);
                // An empty part first would be written as nothing where parts are written one by one.
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

/// A buffer of this worker that no connection uses.
fn spare() -> BytesMut {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| BytesMut::with_capacity(2 * SMALL_READ))
}

/// Keeps a buffer for another connection, if it is small and nothing else uses its memory.
fn give_back(mut buffer: BytesMut) {
    if buffer.try_reclaim(SMALL_READ) && buffer.capacity() <= 2 * SMALL_READ {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < KEPT_BUFFERS {
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
    async fn what_is_written_keeps_its_order() {
        // Room for little, so that each part is written in pieces.
        let (near, mut far) = duplex(7);
        let mut stream = BufferedStream::new(near);
        let large = Bytes::from(vec![b'x'; COPIED + 1]);
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
    async fn what_is_read_stays_until_it_is_taken() {
        let (near, mut far) = duplex(256 * 1024);
        let mut stream = BufferedStream::new(near);
        far.write_all(&vec![b'x'; 100_000]).await.unwrap();
        drop(far);
        let mut counts = Vec::new();
        while let count @ 1.. = poll_fn(|cx| stream.poll_fill(cx)).await.unwrap() {
            counts.push(count);
        }
        assert_eq!((stream.unread_length(), counts.iter().sum::<usize>()), (100_000, 100_000));
        assert!(counts[0] <= 2 * SMALL_READ && counts.len() < 8, "reads grow with what comes: {counts:?}");
        assert_eq!(stream.into_parts().1.len(), 100_000);
    }

    #[tokio::test]
    async fn buffers_of_idle_streams_are_used_again() {
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
        // What was not taken is kept.
        let (_, mut stream) = read(b"third").await;
        stream.release();
        assert_eq!(stream.unread(), &b"third"[..]);
    }
}
