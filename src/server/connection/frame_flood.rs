//! What a connection of HTTP/2 may send beside requests and bodies.
//!
//! Frames that bring neither are cheap to send, and the library takes as many as come. Here each has a price, and what
//! is written to the client pays for it, as does time: whoever reads answers has to open windows. And whoever sends
//! without a pause makes way for the others now and then, since all connections of a worker share its thread.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::time::{monotonic, recent};

/// How HTTP/2 begins (RFC 9113 §3.4), before the first frame.
const PREFACE: usize = 24;
/// Length, type, flags and stream (RFC 9113 §4.1).
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// What a client can spend at once, in bytes of answers.
const CREDIT: u64 = 80_000;
/// What a second brings.
const PER_SECOND: u64 = 800;
/// Prices: of a PING, of SETTINGS, which change all streams, and of whatever else brings nothing. The first two are more
/// than what answers them brings. A ping beside each small answer must be paid for by both: libraries of gRPC measure
/// the round trip by one whenever something has come.
const PING_PRICE: u64 = 25;
const SETTINGS_PRICE: u64 = 400;
const PRICE: u64 = 8;

/// How much is read before others have their turn: bytes, among which each frame counts as so many more.
const TURN: usize = 64 * 1024;
const FRAME_WORK: usize = 64;

/// A stream whose reader hears of an error when too many frames have come that bring nothing.
#[derive(Debug)]
pub(super) struct FrameFloodGuard<S> {
    stream: S,
    frames: Frames,
    credit: u64,
    /// Up to when time has brought credit.
    counted_to: Instant,
    /// What has been read since others had their turn.
    work: usize,
}

/// Where the next byte stands among frames.
#[derive(Debug)]
struct Frames {
    head: [u8; HEAD],
    /// So much of a frame's head is there.
    known: usize,
    /// So many bytes come before the next head.
    skip: usize,
}

/// What has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    frames: usize,
    price: u64,
}

impl<S> FrameFloodGuard<S> {
    /// Counts from the preface on.
    pub fn new(stream: S) -> Self {
        Self { stream, frames: Frames::new(), credit: CREDIT, counted_to: monotonic(), work: 0 }
    }

    /// Counts what has come; false if that is too much.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let tally = self.frames.take(bytes);
        self.work += bytes.len() + tally.frames * FRAME_WORK;
        let seconds = recent().saturating_duration_since(self.counted_to).as_secs();
        if seconds > 0 {
            self.counted_to += Duration::from_secs(seconds);
            self.earn(seconds.saturating_mul(PER_SECOND));
        }
        let left = self.credit.checked_sub(tally.price);
        self.credit = left.unwrap_or(0);
        left.is_some()
    }

    fn earn(&mut self, credit: u64) {
        self.credit = self.credit.saturating_add(credit).min(CREDIT);
    }
}

impl Frames {
    fn new() -> Self {
        Self { head: [0; HEAD], known: 0, skip: PREFACE }
    }

    fn take(&mut self, bytes: &[u8]) -> Tally {
        let (mut left, mut tally) = (bytes, Tally::default());
        loop {
            let skipped = self.skip.min(left.len());
            self.skip -= skipped;
            left = left.split_at(skipped).1;
            let (came, rest) = left.split_at(left.len().min(HEAD - self.known));
            for (to, from) in self.head.iter_mut().skip(self.known).zip(came) {
                *to = *from;
            }
            self.known += came.len();
            left = rest;
            if self.known < HEAD {
                return tally;
            }
            self.known = 0;
            let [high, middle, low, kind, flags, ..] = self.head;
            self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            tally.frames += 1;
            tally.price += price(kind, flags, self.skip == 0);
        }
    }
}

fn price(kind: u8, flags: u8, is_empty: bool) -> u64 {
    match kind {
        HEADERS | CONTINUATION => 0,
        DATA if !is_empty || flags & END_STREAM != 0 => 0,
        PING => PING_PRICE,
        SETTINGS => SETTINGS_PRICE,
        _ => PRICE,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameFloodGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.work >= TURN {
            this.work = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_pending() {
            this.work = 0;
        }
        ready!(read)?;
        let came = buf.filled().get(before..).unwrap_or_default();
        if this.take(came) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that bring nothing")))
        }
    }
}

impl<S: AsyncWrite + Unpin> FrameFloodGuard<S> {
    /// What was written is credit.
    fn note_written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.earn(*bytes as u64);
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameFloodGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_written(written)
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::socket::TimedStream;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn tally(said: &[u8], piece: usize) -> Tally {
        let mut frames = Frames::new();
        said.chunks(piece).map(|bytes| frames.take(bytes)).fold(Tally::default(), |all, one| Tally {
            frames: all.frames + one.frames,
            price: all.price + one.price,
        })
    }

    #[test]
    fn frames_are_seen_however_they_come() {
        let said = [
            vec![b'P'; PREFACE],
            frame(SETTINGS, 0, &[0; 6]),
            frame(HEADERS, 4, &[0; 300]),
            frame(DATA, 0, &vec![PING; 70_000]),
            frame(DATA, 0, b""),
            frame(DATA, END_STREAM, b""),
            frame(PING, 0, &[0; 8]),
            frame(0xbe, 0, b"?"),
        ]
        .concat();
        let expected = Tally { frames: 7, price: SETTINGS_PRICE + PING_PRICE + 2 * PRICE };
        for piece in [1, 7, 4096, said.len()] {
            assert_eq!(tally(&said, piece), expected, "{piece}");
        }
    }

    /// A client's end, and a proxy's that has read the preface.
    async fn begun() -> (DuplexStream, FrameFloodGuard<TimedStream<DuplexStream>>) {
        let (mut near, far) = duplex(1 << 22);
        let mut far =
            FrameFloodGuard::new(TimedStream::new(far, bytes::Bytes::new(), Duration::from_secs(1)));
        near.write_all(&[0; PREFACE]).await.unwrap();
        far.read_exact(&mut [0; PREFACE]).await.unwrap();
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
    async fn what_brings_nothing_has_a_bound() {
        let (mut near, mut far) = begun().await;
        assert!(pings(&mut near, &mut far, 3200).await.is_ok());
        assert!(pings(&mut near, &mut far, 1).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_for_each_small_part_of_an_answer_is_none_too_many() {
        let (mut near, mut far) = begun().await;
        for _ in 0..10_000 {
            // The shortest message of gRPC, and what answers the ping.
            far.write_all(&frame(DATA, 0, &[0; 5])).await.unwrap();
            far.write_all(&frame(PING, 1, &[0; 8])).await.unwrap();
            assert!(pings(&mut near, &mut far, 1).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_answers_pay_for_it() {
        let (mut near, mut far) = begun().await;
        for _ in 0..10 {
            assert!(pings(&mut near, &mut far, 3200).await.is_ok());
            tokio::time::sleep(Duration::from_secs(50)).await;
            far.write_all(&vec![0; 40_000]).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_their_turn() {
        let (mut near, mut far) = begun().await;
        near.write_all(&frame(DATA, 0, &vec![0; 1 << 20])).await.unwrap();
        let mut read = 0;
        let greedy = async {
            let mut bytes = [0; 8 * 1024];
            while read < 1 << 20 {
                read += far.read(&mut bytes).await.unwrap();
            }
        };
        tokio::select! {
            biased;
            () = greedy => panic!("nobody else had a turn"),
            () = std::future::ready(()) => {}
        }
        assert!(read <= TURN + 8 * 1024, "{read}");
    }
}
