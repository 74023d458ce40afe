//! Limits frames that an HTTP/2 client sends beside requests and bodies (control frames).
//!
//! Such frames are cheap for the client, and h2 accepts any number of them. Here each of them costs credit, which the
//! client earns over time and by bytes that are written to it, since a client that reads responses has to send
//! `WINDOW_UPDATE` frames. A connection that receives without a pause also yields regularly, since all connections of a
//! worker share its thread, and a request waits until it may start ([`start_queue`](crate::server::start_queue)): it and
//! what follows it are passed on then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::start_queue::Starter;
use crate::socket::EarnedCredit;

/// Bytes of a frame's head: length, type, flags and stream (RFC 9113 §4.1).
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// The most credit a client can have, in bytes of responses.
const MAX_CREDIT: u64 = 80_000;
/// Credit that a client earns in a second.
const CREDIT_PER_SECOND: u64 = 800;
/// The cost of a PING: more than the credit for its acknowledgement (17 bytes), but no more than that and the credit for a
/// small message together, since gRPC libraries send a PING to measure the round trip whenever they receive data.
const PING_COST: u64 = 25;
/// The cost of SETTINGS, which may change the windows of all streams.
const SETTINGS_COST: u64 = 400;
/// The cost of any other frame that is part of neither a request nor a body.
const COST: u64 = 8;

/// Work after which a connection yields to others: bytes that were read, and [`FRAME_WORK`] for each frame.
const MAX_WORK: usize = 64 * 1024;
const FRAME_WORK: usize = 64;
/// The first bytes that a client sends.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The response to a missing preface: an empty SETTINGS frame, which every server sends first, and a GOAWAY frame
/// with `PROTOCOL_ERROR`.
pub(super) const PREFACE_MISSING: [u8; 26] = *b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// A stream whose reader gets an error when too many control frames were received.
#[derive(Debug)]
pub(super) struct FrameFloodGuard<S> {
    stream: S,
    frames: Frames,
    starter: Starter,
    /// Bytes that were received, from a request on that has to wait.
    held: Bytes,
    credit: u64,
    /// The credit that the client earns with time.
    earned: EarnedCredit,
    /// Work since the connection last yielded.
    work: usize,
}

/// Finds the heads of frames in a stream of bytes.
#[derive(Debug)]
struct Frames {
    head: [u8; HEAD],
    /// Bytes of `head` that were received.
    received: usize,
    /// Bytes before the next head.
    skip: usize,
}

/// Frames that were received, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FrameSum {
    /// Bytes up to a request that has to wait.
    bytes: usize,
    frames: usize,
    cost: u64,
}

impl<S> FrameFloodGuard<S> {
    /// A guard for a stream whose next byte is the first of the preface.
    pub fn new(stream: S, starter: Starter) -> Self {
        let (frames, held, earned) = (Frames::new(), Bytes::new(), EarnedCredit::new(CREDIT_PER_SECOND));
        Self { stream, frames, starter, held, credit: MAX_CREDIT, earned, work: 0 }
    }

    /// Charges for received bytes, up to a request that has to wait; returns how many these are. Fails when the credit does not
    /// cover them.
    fn charge(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<usize> {
        let starter = &mut self.starter;
        let sum = self.frames.count(bytes, || starter.poll_start(cx).is_ready());
        self.work += sum.bytes + sum.frames * FRAME_WORK;
        let earned = self.earned.take();
        self.earn(earned);
        let left = self.credit.checked_sub(sum.cost);
        self.credit = left.unwrap_or(0);
        let too_many = || io::Error::new(io::ErrorKind::InvalidData, "too many control frames");
        left.map(|_| sum.bytes).ok_or_else(too_many)
    }

    /// Passes on bytes that were held, once the first request in them may start.
    fn poll_held(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut held = std::mem::take(&mut self.held);
        let passed = self.charge(&held[..held.len().min(buf.remaining())], cx);
        let passed = passed.inspect(|passed| buf.put_slice(&held.split_to(*passed)));
        self.held = held;
        if let Ok(0) = passed {
            self.work = 0;
            return Poll::Pending;
        }
        Poll::Ready(passed.map(drop))
    }

    fn earn(&mut self, credit: u64) {
        self.credit = self.credit.saturating_add(credit).min(MAX_CREDIT);
    }
}

impl Frames {
    fn new() -> Self {
        Self { head: [0; HEAD], received: 0, skip: PREFACE.len() }
    }

    /// Counts the frames whose head is complete, up to a request that may not start.
    fn count(&mut self, bytes: &[u8], mut may_start: impl FnMut() -> bool) -> FrameSum {
        let (mut left, mut sum) = (bytes, FrameSum::default());
        loop {
            let skipped = self.skip.min(left.len());
            self.skip -= skipped;
            left = left.split_at(skipped).1;
            let (received, rest) = left.split_at(left.len().min(HEAD - self.received));
            for (to, from) in self.head.iter_mut().skip(self.received).zip(received) {
                *to = *from;
            }
            self.received += received.len();
            sum.bytes = bytes.len() - rest.len();
            if self.received < HEAD {
                return sum;
            }
            let [high, middle, low, kind, flags, ..] = self.head;
            if kind == HEADERS && !may_start() {
                // The last byte of its head is passed on with the request.
                self.received -= 1;
                sum.bytes -= 1;
                return sum;
            }
            left = rest;
            self.received = 0;
            self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            sum.frames += 1;
            sum.cost += cost(kind, flags, self.skip == 0);
        }
    }
}

/// The cost of a frame: none for frames that are part of a request or a body.
fn cost(kind: u8, flags: u8, is_empty: bool) -> u64 {
    match kind {
        HEADERS | CONTINUATION => 0,
        DATA if !is_empty || flags & END_STREAM != 0 => 0,
        PING => PING_COST,
        SETTINGS => SETTINGS_COST,
        _ => COST,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameFloodGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.work >= MAX_WORK {
            // Yields to the other connections of the worker.
            this.work = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !this.held.is_empty() {
            return this.poll_held(cx, buf);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_pending() {
            this.work = 0;
        }
        ready!(read)?;
        let received = buf.filled().get(before..).unwrap_or_default();
        let passed = this.charge(received, cx)?;
        if passed < received.len() {
            this.held = Bytes::copy_from_slice(received.get(passed..).unwrap_or_default());
            buf.set_filled(before + passed);
            if passed == 0 {
                this.work = 0;
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> FrameFloodGuard<S> {
    /// Earns credit for what was written.
    fn record_written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.earn(*bytes as u64);
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameFloodGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.record_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.record_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::server::start_queue::StartQueue;
    use crate::socket::TimedStream;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn sum(bytes: &[u8], piece: usize) -> FrameSum {
        let mut frames = Frames::new();
        let count = |bytes| frames.count(bytes, || true);
        bytes.chunks(piece).map(count).fold(FrameSum::default(), |all, one| FrameSum {
            bytes: all.bytes + one.bytes,
            frames: all.frames + one.frames,
            cost: all.cost + one.cost,
        })
    }

    #[test]
    fn frames_are_counted_however_they_are_split_into_reads() {
        let bytes = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, &[0; 6]),
            frame(HEADERS, 4, &[0; 300]),
            frame(DATA, 0, &vec![PING; 70_000]),
            frame(DATA, 0, b""),
            frame(DATA, END_STREAM, b""),
            frame(PING, 0, &[0; 8]),
            frame(0xbe, 0, b"?"),
        ]
        .concat();
        let expected = FrameSum { bytes: bytes.len(), frames: 7, cost: SETTINGS_COST + PING_COST + 2 * COST };
        for piece in [1, 7, 4096, bytes.len()] {
            assert_eq!(sum(&bytes, piece), expected, "{piece}");
        }
    }

    /// The two ends of a connection, of which the proxy's has read the preface.
    async fn connected() -> (DuplexStream, FrameFloodGuard<TimedStream<DuplexStream>>) {
        connected_over(&Rc::new(StartQueue::new())).await
    }

    /// The two ends of a connection on a worker with this queue, of which the proxy's has read the preface.
    async fn connected_over(
        queue: &Rc<StartQueue>,
    ) -> (DuplexStream, FrameFloodGuard<TimedStream<DuplexStream>>) {
        let (mut near, far) = duplex(1 << 22);
        let far = TimedStream::new(far, Bytes::new(), Duration::from_secs(1));
        let mut far = FrameFloodGuard::new(far, queue.starter([127, 0, 0, 1].into()));
        near.write_all(PREFACE).await.unwrap();
        far.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        (near, far)
    }

    async fn pings(
        near: &mut DuplexStream,
        far: &mut FrameFloodGuard<TimedStream<DuplexStream>>,
        count: usize,
    ) -> io::Result<usize> {
        let ping = frame(PING, 0, &[0; 8]);
        near.write_all(&ping.repeat(count)).await?;
        far.read_exact(&mut vec![0; ping.len() * count]).await
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_limited() {
        let (mut near, mut far) = connected().await;
        assert!(pings(&mut near, &mut far, 3200).await.is_ok());
        assert!(pings(&mut near, &mut far, 1).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_for_each_small_message_is_allowed() {
        let (mut near, mut far) = connected().await;
        for _ in 0..10_000 {
            // The shortest message of gRPC, and the acknowledgement of the ping.
            far.write_all(&frame(DATA, 0, &[0; 5])).await.unwrap();
            far.write_all(&frame(PING, 1, &[0; 8])).await.unwrap();
            assert!(pings(&mut near, &mut far, 1).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credit_is_earned_by_time_and_by_responses() {
        let (mut near, mut far) = connected().await;
        for _ in 0..10 {
            assert!(pings(&mut near, &mut far, 3200).await.is_ok());
            tokio::time::sleep(Duration::from_secs(50)).await;
            far.write_all(&vec![0; 40_000]).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_without_a_pause_yields_to_others() {
        let (mut near, mut far) = connected().await;
        near.write_all(&frame(DATA, 0, &vec![0; 1 << 20])).await.unwrap();
        let mut read = 0;
        let flood = async {
            let mut bytes = [0; 8 * 1024];
            while read < 1 << 20 {
                read += far.read(&mut bytes).await.unwrap();
            }
        };
        tokio::select! {
            biased;
            () = flood => panic!("the connection never yielded"),
            () = std::future::ready(()) => {}
        }
        assert!(read <= MAX_WORK + 8 * 1024, "{read}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_their_turn_and_are_passed_on_unchanged() {
        let queue = Rc::new(StartQueue::new());
        let (mut near, mut far) = connected_over(&queue).await;
        let parts = |number: u8| [frame(HEADERS, 4, &[number; 20]), frame(DATA, 1, &[number; 3])].concat();
        let flood: Vec<u8> = (0..200).flat_map(parts).collect();
        near.write_all(&flood).await.unwrap();
        let mut bytes = vec![0; flood.len()];
        let mut read = std::pin::pin!(far.read_exact(&mut bytes));
        let is_pending =
            tokio::select! { biased; _ = &mut read => false, () = std::future::ready(()) => true };
        assert!(is_pending, "all requests started at once");
        tokio::select! { read = &mut read => drop(read.unwrap()), () = queue.run() => {} }
        assert!(bytes == flood);
    }
}
