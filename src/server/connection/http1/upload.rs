//! Reads a request body from a client over HTTP/1.1.

use std::num::NonZeroU32;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Frame;
use tokio::time::Instant;

use super::io::ClientIo;
use crate::body::{BodyError, BodyReceiver, BodySender, Demand, body_channel};
use crate::http1::{BodyDecoder, BodyFault, Decoded, Framing, write_continue};
use crate::socket::{EarnedCredit, RATE_GRACE, TooLate, TransferRate};
use crate::time::{cached_now, monotonic};

/// The longest rest of a request body that is read and discarded so that the connection can be used again, in bytes.
const MAX_DISCARDED: u64 = 64 * 1024;
/// Credit for the lines of chunks that a client earns in a second, besides that for data: chunks of a byte, such as
/// keystrokes, may be sent for any time.
const CREDIT_PER_SECOND: u64 = 800;

/// A request body that is being read, and the channel that carries it to the proxy.
pub(super) struct Upload {
    decoder: BodyDecoder,
    sender: BodySender,
    /// How fast the client sends the body.
    rate: TransferRate,
    /// The credit for the lines of chunks that the client earns with time.
    earned: EarnedCredit,
    /// How long each read may take.
    timeout: Duration,
    /// Since when a read waits for the client.
    read_since: Option<Instant>,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    expects_continue: bool,
    /// Whether `100 Continue` may still be written: neither a part of the body was read nor a response started.
    may_continue: bool,
    has_failed: bool,
}

/// The result of polling an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolledUpload {
    /// A part, the end or an error was sent through the channel: its receiver has to be polled.
    Sent,
    /// The client has to send more.
    Waiting,
    /// The receiver demands nothing at the moment.
    Idle,
}

impl Upload {
    /// An upload, and the channel's end for the proxy; none if the request has no body.
    pub fn start(
        framing: Framing,
        expects_continue: bool,
        timeout: Duration,
        min_rate: Option<NonZeroU32>,
    ) -> Option<(Box<Self>, BodyReceiver)> {
        let decoder = BodyDecoder::for_request(framing);
        if decoder.is_end() {
            return None;
        }
        let rate = TransferRate::new(min_rate);
        let (sender, receiver) = body_channel(decoder.remaining(), rate);
        // Boxed because most requests have no body, and then move only a pointer.
        let upload = Box::new(Self {
            decoder,
            sender,
            rate,
            earned: EarnedCredit::new(CREDIT_PER_SECOND),
            timeout,
            read_since: None,
            expects_continue,
            may_continue: expects_continue,
            has_failed: false,
        });
        Some((upload, receiver))
    }

    /// Reads the next part if the receiver demands it.
    pub fn poll(&mut self, io: &mut ClientIo, cx: &mut Context<'_>) -> PolledUpload {
        match self.sender.demand(cx) {
            Demand::Next(limit) if !self.has_failed => self.read(io, limit, cx),
            _ => PolledUpload::Idle,
        }
    }

    fn read(&mut self, io: &mut ClientIo, limit: Option<Instant>, cx: &mut Context<'_>) -> PolledUpload {
        loop {
            match self.decoder.decode(io.stream.unread()) {
                Ok(None) => {}
                Ok(Some(part)) => {
                    (self.read_since, self.may_continue) = (None, false);
                    return self.send(part);
                }
                Err(fault) => return self.fail(fault.into()),
            }
            // Only now, when the proxy demands the body: the client of a rejected request need not send it.
            if std::mem::take(&mut self.may_continue) {
                write_continue(io.stream.out());
                if let Poll::Ready(Err(error)) = io.poll_flush(cx) {
                    return self.fail(error.into());
                }
            }
            match io.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return self.fail(BodyFault::Incomplete.into()),
                Poll::Ready(Ok(count)) => self.record_read(count),
                Poll::Ready(Err(error)) => return self.fail(error.into()),
                Poll::Pending => break,
            }
            // Reads of a fast client are never pending, so that the timer below is not reached.
            if limit.is_some_and(|limit| limit <= cached_now()) {
                return self.fail(TooLate.into());
            }
        }
        let timeout =
            self.rate.allowance(RATE_GRACE).map_or(self.timeout, |allowance| allowance.min(self.timeout));
        let deadline = *self.read_since.get_or_insert_with(monotonic) + timeout;
        let deadline = limit.map_or(deadline, |limit| limit.min(deadline));
        if io.has_passed(deadline, cx) {
            return self.fail(TooLate.into());
        }
        PolledUpload::Waiting
    }

    fn send(&mut self, part: Decoded) -> PolledUpload {
        let (remaining, is_complete) = (self.decoder.remaining(), self.decoder.is_end());
        match part {
            Decoded::Data(data) => self.sender.send(Frame::data(data), remaining, is_complete),
            Decoded::End(Some(trailers)) => self.sender.send(Frame::trailers(trailers), remaining, true),
            Decoded::End(None) => self.sender.finish(),
        }
        PolledUpload::Sent
    }

    fn fail(&mut self, error: BodyError) -> PolledUpload {
        self.has_failed = true;
        self.sender.fail(error);
        PolledUpload::Sent
    }

    fn record_read(&mut self, count: usize) {
        self.decoder.earn(self.earned.take());
        if self.rate.is_bounded() {
            self.rate.add_bytes(count);
            if let Some(since) = self.read_since {
                self.rate.add_wait(cached_now() - since);
            }
            self.sender.set_rate(self.rate);
        }
        self.read_since = None;
    }

    /// Whether the body was read to its end.
    pub fn is_complete(&self) -> bool {
        self.decoder.is_end() && !self.has_failed
    }

    /// Whether the connection has to close after the body, since its end is ambiguous.
    pub fn must_close(&self) -> bool {
        self.decoder.must_close()
    }

    /// Whether the connection can be kept alive after a local response, for which the proxy need not have read the body:
    /// all of it was read, or nothing of it and it is short enough to be discarded after the response.
    pub fn is_discardable(&self) -> bool {
        // After `Expect: 100-continue` the client may send the body or not, so the next bytes are ambiguous.
        let is_short = self.decoder.remaining().is_some_and(|remaining| remaining <= MAX_DISCARDED);
        self.is_complete()
            || !self.has_failed && !self.sender.is_started() && !self.expects_continue && is_short
    }

    /// Reads and discards the rest of the body; ready with whether its end was reached by the deadline.
    pub fn poll_discard(&mut self, io: &mut ClientIo, deadline: Instant, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.discard_buffered(io) {
                return Poll::Ready(true);
            }
            match io.poll_fill(cx) {
                _ if self.has_failed => return Poll::Ready(false),
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => break,
            }
        }
        if io.has_passed(deadline, cx) { Poll::Ready(false) } else { Poll::Pending }
    }

    /// Prevents `100 Continue` from now on, since the response starts.
    pub fn skip_continue(&mut self) {
        self.may_continue = false;
    }

    /// Discards the buffered bytes of the body; returns whether its end was reached.
    pub fn discard_buffered(&mut self, io: &mut ClientIo) -> bool {
        while !self.decoder.is_end() && !self.has_failed {
            match self.decoder.decode(io.stream.unread()) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => self.has_failed = true,
            }
        }
        !self.has_failed
    }
}
