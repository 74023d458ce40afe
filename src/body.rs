//! Bodies of requests, from the connection of a client to the one that sends them to a server.
//!
//! A client's HTTP/1.1 connection reads a body on demand, and passes it on through a channel; over HTTP/2 hyper has its parts.
//! [`RequestBody`] is either, or a body in memory that was read before. Errors and trailers of responses have the same types.

mod budget;
mod byte_count;
mod channel;
mod error;
mod scrub;
mod stored;
mod stream;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

pub use self::budget::BufferBudget;
use self::budget::BufferReservation;
pub(crate) use self::budget::ClientBodies;
pub use self::byte_count::ByteCount;
pub use self::channel::{BodyReceiver, BodySender, Demand, body_channel};
pub use self::error::{BodyError, PolledFrame};
pub(crate) use self::error::{cause, io_kind};
pub(crate) use self::scrub::retain_trailers;
pub use self::scrub::{HeaderNames, HeaderScrub, is_token, may_be_trailer};
use self::stored::{BodyBuffer, BodyRecorder, MAX_BYTES, StoredBody, TIMEOUT};
pub(crate) use self::stream::poll_whole;
pub use self::stream::{ClientStream, StreamBody, UnreadBodies};
use crate::time::cached_now;

/// The body of a request that is forwarded to a server.
#[derive(Debug)]
pub struct RequestBody {
    source: Source,
    /// How many more bytes may arrive from the client, if that is limited.
    remaining: Option<u64>,
    /// Whether a part of the body has been read from the client.
    is_started: bool,
    /// Whether the request asks the server to switch protocols.
    is_upgrade: bool,
    /// Trailers that are forbidden in addition to those of every request.
    scrub: Option<Arc<HeaderScrub>>,
    /// Keeps a copy of what is sent, if the request may be retried.
    recorder: Option<Rc<BodyRecorder>>,
    /// The memory of a buffered body.
    reservation: Option<Box<BufferReservation>>,
    /// The part that was read before and put back: it comes first.
    returned: Option<Box<Bytes>>,
    /// Counts the bytes that arrive from the client, if they matter for a cost.
    received: Option<ByteCount>,
}

/// A body that was read before its request is sent.
#[derive(Debug)]
pub enum ReadBody {
    /// The whole body, to be sent, and its bytes.
    Whole(RequestBody, Bytes),
    /// The body is longer. What was read of it is sent first.
    TooLong(RequestBody),
    /// Other bodies of the connection use too much memory.
    NoMemory(RequestBody),
}

/// The source of a body.
#[derive(Debug, Default)]
enum Source {
    /// No body, or its end.
    #[default]
    Empty,
    /// A body that was buffered, or is sent again.
    Stored(Box<StoredBody>),
    /// A client's HTTP/1.1 connection.
    Channel(BodyReceiver),
    /// A client's HTTP/2 stream.
    Stream(Box<StreamBody>, Box<ClientStream>),
    /// None any more: a connection has taken the body.
    Sent,
}

impl RequestBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(Source::Empty)
    }

    /// A body that arrives over a client's HTTP/2 stream.
    #[must_use]
    pub fn streaming(incoming: StreamBody, client: ClientStream) -> Self {
        Self::new(Source::Stream(Box::new(incoming), Box::new(client)))
    }

    /// A body that a client's HTTP/1.1 connection reads.
    #[must_use]
    pub fn received(receiver: BodyReceiver) -> Self {
        Self::new(Source::Channel(receiver))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            remaining: None,
            is_started: false,
            is_upgrade: false,
            scrub: None,
            recorder: None,
            reservation: None,
            returned: None,
            received: None,
        }
    }

    /// Limits the body: more bytes than this are an error.
    #[must_use]
    pub fn at_most(mut self, bytes: Option<u64>) -> Self {
        self.remaining = bytes;
        self
    }

    /// Removes trailers that `scrub` forbids.
    #[must_use]
    pub fn scrubbed(mut self, scrub: Arc<HeaderScrub>) -> Self {
        self.scrub = Some(scrub);
        self
    }

    /// Counts the bytes of the body that have arrived, and those that will.
    #[must_use]
    pub fn counted(mut self, received: &ByteCount) -> Self {
        match &self.source {
            Source::Stored(stored) => received.add(stored.remaining_bytes()),
            _ => self.received = Some(received.clone()),
        }
        self
    }

    /// Replaces a body that was read as a whole and has no trailers with what `rewrite` makes of it; returns the new length.
    pub fn rewrite(&mut self, rewrite: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<u64> {
        match &mut self.source {
            Source::Stored(stored) => stored.rewrite(rewrite),
            _ => None,
        }
    }

    /// Reads the whole body if it is small, its length is known, and `budget` has memory for it. Otherwise it stays a stream.
    /// Fails when the body ends early, is too large or too slow.
    pub async fn buffered(self, budget: &BufferBudget) -> Result<Self, BodyError> {
        let length = self.size_hint().exact().filter(|length| *length <= MAX_BYTES);
        let length = length.filter(|_| self.is_incoming());
        let Some(reservation) = length.and_then(|length| budget.reserve(length)) else { return Ok(self) };
        match self.collect(MAX_BYTES, reservation).await? {
            ReadBody::Whole(body, _) | ReadBody::TooLong(body) | ReadBody::NoMemory(body) => Ok(body),
        }
    }

    /// Reads the whole body, unless it has more than `most` bytes, or `budget` has no memory for it. Fails when the body ends
    /// early, is larger than [`Self::at_most`] allows, or too slow.
    pub async fn read(self, most: u64, budget: &BufferBudget) -> Result<ReadBody, BodyError> {
        if self.size_hint().lower() > most {
            return Ok(ReadBody::TooLong(self));
        }
        match budget.reserve(0) {
            Some(reservation) => self.collect(most, reservation).await,
            None => Ok(ReadBody::NoMemory(self)),
        }
    }

    async fn collect(mut self, most: u64, mut reservation: BufferReservation) -> Result<ReadBody, BodyError> {
        self.set_deadline(Some(cached_now() + TIMEOUT));
        let has_length = self.size_hint().exact().is_some();
        let mut buffer = BodyBuffer::default();
        while let Some(frame) = self.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => buffer.add(data),
                Ok(Err(frame)) => buffer.trailers = frame.into_trailers().ok(),
                Err(error) => {
                    self.set_deadline(None);
                    return Err(error);
                }
            }
            if buffer.length() > most {
                return Ok(ReadBody::TooLong(self.put_back(buffer.into_bytes())));
            }
            if !reservation.grow(buffer.length()) {
                return Ok(ReadBody::NoMemory(self.put_back(buffer.into_bytes())));
            }
        }
        let trailers = buffer.trailers.take();
        let bytes = buffer.into_bytes();
        let mut stored = StoredBody::new(bytes.clone(), trailers);
        stored.is_chunked = stored.has_trailers() && !has_length;
        let mut body = Self::new(Source::Stored(Box::new(stored)));
        body.reservation = Some(Box::new(reservation));
        Ok(ReadBody::Whole(body, bytes))
    }

    /// Puts back what was read, as if nothing had been.
    fn put_back(mut self, read: Bytes) -> Self {
        self.set_deadline(None);
        self.is_started = false;
        if self.is_incoming() {
            self.returned = Some(Box::new(read));
        } else {
            self.source = Source::Stored(Box::new(StoredBody::new(read, None)));
        }
        self
    }

    /// Takes the rest of a body over HTTP/2 of which nothing was sent, to drain it.
    pub fn take_unread(&mut self) -> Option<StreamBody> {
        match std::mem::take(&mut self.source) {
            Source::Stream(body, _) => Some(*body),
            _ => None,
        }
    }

    /// The body of a request that asks the server to switch protocols.
    #[must_use]
    pub fn of_upgrade(mut self) -> Self {
        self.is_upgrade = true;
        self
    }

    /// Whether the server may switch protocols.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// Whether a part of the body still has to arrive from the client.
    pub(crate) fn is_incoming(&self) -> bool {
        match &self.source {
            Source::Empty | Source::Stored(_) | Source::Sent => false,
            Source::Channel(_) | Source::Stream(..) if self.returned.is_some() => true,
            Source::Channel(receiver) => !receiver.is_end(),
            Source::Stream(incoming, stream) => stream.held_bytes().is_some() || !incoming.is_end_stream(),
        }
    }

    /// The time that the client has for the next part if it may be `grace` behind its minimum rate; none without such a rate.
    pub(crate) fn allowance(&self, grace: Duration) -> Option<Duration> {
        match &self.source {
            Source::Channel(receiver) => receiver.allowance(grace),
            Source::Stream(_, stream) => stream.allowance(grace),
            Source::Empty | Source::Stored(_) | Source::Sent => None,
        }
    }

    /// Starts to record a body from a client while it is sent, so that it can be sent again; returns whether that is
    /// possible once all of it has arrived.
    pub(crate) fn start_recording(&mut self) -> bool {
        if self.is_incoming() {
            self.recorder = BodyRecorder::new(self.size_hint().lower()).map(Rc::new);
            return self.recorder.is_some();
        }
        true
    }

    /// Restarts the body; returns whether all of it can be sent again.
    pub(crate) fn rewind(&mut self) -> bool {
        match &mut self.source {
            Source::Empty => {}
            Source::Stored(stored) => stored.rewind(),
            Source::Channel(_) | Source::Stream(..) if !self.is_started => {}
            _ => match self.recorder.as_ref().and_then(|recorder| recorder.recorded()) {
                Some(stored) => self.source = Source::Stored(Box::new(stored)),
                None => return false,
            },
        }
        true
    }

    /// Moves the body to a connection. If it can be sent again without a recording, a copy stays here.
    pub(crate) fn take_for_sending(&mut self) -> Self {
        let source = match &self.source {
            Source::Empty => Source::Empty,
            Source::Stored(stored) => Source::Stored(stored.clone()),
            _ => std::mem::replace(&mut self.source, Source::Sent),
        };
        self.is_started = true;
        Self {
            source,
            remaining: self.remaining,
            is_started: false,
            is_upgrade: self.is_upgrade,
            scrub: self.scrub.take(),
            recorder: self.recorder.clone(),
            reservation: self.reservation.take(),
            returned: self.returned.take(),
            received: self.received.take(),
        }
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        match &mut self.source {
            Source::Channel(receiver) => receiver.set_deadline(deadline),
            Source::Stream(_, stream) => stream.set_deadline(deadline),
            Source::Empty | Source::Stored(_) | Source::Sent => {}
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match &mut self.source {
            Source::Empty | Source::Sent => Poll::Ready(None),
            Source::Stored(stored) => Poll::Ready(stored.next_frame().map(Ok)),
            Source::Channel(receiver) => receiver.poll_part(cx),
            Source::Stream(incoming, stream) => stream.poll_frame(incoming, cx),
        }
    }

    /// Applies the size limit, counts the bytes, and removes forbidden trailers.
    fn check(&mut self, frame: &mut Option<Result<Frame<Bytes>, BodyError>>) {
        let Some(Ok(part)) = frame else { return };
        retain_trailers(part, |name| match &self.scrub {
            Some(scrub) => scrub.may_be_trailer(name),
            None => may_be_trailer(name.as_str()),
        });
        if let (Some(received), Some(data)) = (&self.received, part.data_ref()) {
            received.add(data.len() as u64);
        }
        if let (Some(remaining), Some(data)) = (&mut self.remaining, part.data_ref()) {
            match remaining.checked_sub(data.len() as u64) {
                Some(rest) => *remaining = rest,
                None => *frame = Some(Err(BodyError::TooLarge)),
            }
        }
    }

    fn end(&mut self) {
        if !matches!(self.source, Source::Stored(_)) {
            self.source = if self.is_started { Source::Sent } else { Source::Empty };
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        let is_incoming = matches!(this.source, Source::Channel(_) | Source::Stream(..));
        let returned = this.returned.take().map(|part| Poll::Ready(Some(Ok(Frame::data(*part)))));
        let mut frame = returned.unwrap_or_else(|| this.poll_source(cx));
        if let Poll::Ready(frame) = &mut frame
            && is_incoming
        {
            this.is_started = true;
            this.check(frame);
        }
        let has_failed = matches!(frame, Poll::Ready(Some(Err(_))));
        let is_complete =
            matches!(frame, Poll::Ready(None)) || (frame.is_ready() && !has_failed && this.is_end_stream());
        if let Some(recorder) = this.recorder.as_ref().filter(|_| is_incoming && !has_failed) {
            recorder.record(&frame, is_complete);
        }
        if is_complete || has_failed {
            this.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty | Source::Sent => true,
            Source::Stored(stored) => stored.is_end(),
            Source::Channel(_) | Source::Stream(..) => !self.is_incoming(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let hint = match &self.source {
            Source::Empty | Source::Sent => SizeHint::with_exact(0),
            Source::Stored(stored) if stored.is_chunked => SizeHint::default(),
            Source::Stored(stored) => SizeHint::with_exact(stored.remaining_bytes()),
            Source::Channel(receiver) => receiver.size_hint(),
            Source::Stream(incoming, stream) => stream
                .held_bytes()
                .map_or_else(|| incoming.size_hint(), |held| SizeHint::with_exact(held as u64)),
        };
        let Some(returned) = &self.returned else { return hint };
        let returned = returned.len() as u64;
        let exact = hint.exact().map(|rest| SizeHint::with_exact(rest + returned));
        exact.unwrap_or_default()
    }
}
