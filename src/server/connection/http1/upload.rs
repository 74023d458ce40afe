//! The body of a request as it is read from a client.

use std::num::NonZeroU32;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Frame;
use tokio::time::Instant;

use super::io::ClientIo;
use crate::http1::{BodyDecoder, BodyFault, Decoded, Framing, write_continue};
use crate::socket::{RATE_GRACE, TooLate, TransferRate};
use crate::time::{monotonic, recent};
use crate::upstream::{BodyError, BodyReceiver, BodySender, Demand, body_channel};

/// The longest body that is read and thrown away so that its connection can be used again, in bytes.
const MAX_DISCARDED: u64 = 64 * 1024;
/// A body that is not read to its end.
pub(super) struct Upload {
    decoder: BodyDecoder,
    sender: BodySender,
    /// How fast the client sends it.
    rate: TransferRate,
    /// How long each read may take.
    timeout: Duration,
    /// Since when the next part is waited for.
    read_since: Option<Instant>,
    /// Whether the client has asked for `100 Continue` before it sends anything.
    expects_continue: bool,
    /// Whether that may still be written: no part of the body and no response has come.
    may_continue: bool,
    has_failed: bool,
}

/// What has come of polling an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A part, the end or an error was handed over: the receiver has to be polled.
    Moved,
    /// The client is waited for.
    Waiting,
    /// Nothing is wanted at the moment.
    Idle,
}

impl Upload {
    /// The body of a request, and the end of its channel for the proxy; none if the request has no body.
    pub fn begin(
        framing: Framing,
        expects_continue: bool,
        timeout: Duration,
        min_rate: Option<NonZeroU32>,
    ) -> Option<(Box<Self>, BodyReceiver)> {
        let decoder = BodyDecoder::of_request(framing);
        if decoder.is_end() {
            return None;
        }
        let rate = TransferRate::new(min_rate);
        let (sender, receiver) = body_channel(decoder.remaining(), rate);
        // Boxed so that requests without a body, which are most, have less to move.
        let upload = Box::new(Self {
            decoder,
            sender,
            rate,
            timeout,
            read_since: None,
            expects_continue,
            may_continue: expects_continue,
            has_failed: false,
        });
        Some((upload, receiver))
    }

    /// Reads the next part if it is wanted.
    pub fn poll(&mut self, io: &mut ClientIo, cx: &mut Context<'_>) -> Progress {
        match self.sender.demand(cx) {
            Demand::Next(limit) if !self.has_failed => self.read(io, limit, cx),
            _ => Progress::Idle,
        }
    }

    fn read(&mut self, io: &mut ClientIo, limit: Option<Instant>, cx: &mut Context<'_>) -> Progress {
        loop {
            match self.decoder.decode(io.stream.unread()) {
                Ok(None) => {}
                Ok(Some(part)) => {
                    (self.read_since, self.may_continue) = (None, false);
                    return self.send(part);
                }
                Err(fault) => return self.fail(fault.into()),
            }
            if std::mem::take(&mut self.may_continue) {
                write_continue(io.stream.out());
                if let Poll::Ready(Err(error)) = io.poll_flush(cx) {
                    return self.fail(error.into());
                }
            }
            match io.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return self.fail(BodyFault::Incomplete.into()),
                Poll::Ready(Ok(count)) => self.note_read(count),
                Poll::Ready(Err(error)) => return self.fail(error.into()),
                Poll::Pending => break,
            }
            if limit.is_some_and(|limit| limit <= recent()) {
                return self.fail(TooLate.into());
            }
        }
        let span =
            self.rate.allowance(RATE_GRACE).map_or(self.timeout, |allowance| allowance.min(self.timeout));
        let by = *self.read_since.get_or_insert_with(monotonic) + span;
        let by = limit.map_or(by, |limit| limit.min(by));
        if io.is_past(by, cx) {
            return self.fail(TooLate.into());
        }
        Progress::Waiting
    }

    fn send(&mut self, part: Decoded) -> Progress {
        let (remaining, is_complete) = (self.decoder.remaining(), self.decoder.is_end());
        match part {
            Decoded::Data(data) => self.sender.send(Frame::data(data), remaining, is_complete),
            Decoded::End(Some(trailers)) => self.sender.send(Frame::trailers(trailers), remaining, true),
            Decoded::End(None) => self.sender.finish(),
        }
        Progress::Moved
    }

    fn fail(&mut self, error: BodyError) -> Progress {
        self.has_failed = true;
        self.sender.fail(error);
        Progress::Moved
    }

    fn note_read(&mut self, count: usize) {
        if self.rate.is_bounded() {
            self.rate.add_bytes(count);
            if let Some(since) = self.read_since {
                self.rate.add_wait(recent() - since);
            }
            self.sender.set_rate(self.rate);
        }
        self.read_since = None;
    }

    /// Whether the body was read to its end.
    pub fn is_complete(&self) -> bool {
        self.decoder.is_end() && !self.has_failed
    }

    /// Whether no request can be read behind the body, since it is not certain where that has ended.
    pub fn is_last(&self) -> bool {
        self.decoder.is_last()
    }

    /// Whether a response of the proxy's own leaves the connection usable: the body was read, or nothing of it was
    /// wanted and it is short enough to be read behind the response.
    pub fn is_discardable(&self) -> bool {
        let is_short = self.decoder.remaining().is_some_and(|remaining| remaining <= MAX_DISCARDED);
        self.is_complete()
            || !self.has_failed && !self.sender.is_begun() && !self.expects_continue && is_short
    }

    /// Reads on and throws away what comes, until then; ready with whether the body has come to its end.
    pub fn poll_discard(&mut self, io: &mut ClientIo, by: Instant, cx: &mut Context<'_>) -> Poll<bool> {
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
        if io.is_past(by, cx) { Poll::Ready(false) } else { Poll::Pending }
    }

    /// A response begins: `100 Continue` would come too late.
    pub fn begin_response(&mut self) {
        self.may_continue = false;
    }

    /// Throws away what was read of the body; says whether that is all of it.
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
