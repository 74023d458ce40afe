//! The body of a request on its way to a server.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Instant;

use super::body_channel::BodyReceiver;
use super::body_recorder::{BodyRecorder, RecordedBody};
use super::buffered::{self, BodyBuffer, BufferBudget, BufferReservation};
use super::error::BodyError;
use super::scrub::HeaderScrub;
use super::stream::ClientStream;
use super::trailers::{self, may_trail};
use super::upload::Upload;
use crate::time::cached_now;

/// A request's body as it goes upstream.
#[derive(Debug)]
pub struct RequestBody {
    source: Source,
    /// How many more bytes may come from the client, if that is bounded.
    left: Option<u64>,
    is_handshake: bool,
    /// Whether a part of it has come from the client.
    is_begun: bool,
    /// Which trailers may go on, besides what holds for all.
    scrub: Option<Arc<HeaderScrub>>,
    /// Where what is sent is kept, if it may have to go again.
    record: Option<Rc<BodyRecorder>>,
    /// Memory for a body that was read before it goes.
    reserved: Option<Box<BufferReservation>>,
    /// The progress of its upload over HTTP/2.
    upload: Option<Rc<Upload>>,
}

/// Where a body comes from.
#[derive(Debug, Default)]
enum Source {
    /// There is none, or it has come to its end.
    #[default]
    Empty,
    /// It was read before, or goes again.
    Stored(Box<RecordedBody>),
    /// From a client over HTTP/1.1.
    Channel(BodyReceiver),
    /// From a client over HTTP/2.
    Stream(Box<Incoming>, Box<ClientStream>),
    /// It was handed over to a connection.
    Sent,
}

impl RequestBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(Source::Empty)
    }

    /// No body, and the wish to go on in another protocol.
    #[must_use]
    pub fn handshake() -> Self {
        let mut body = Self::empty();
        body.is_handshake = true;
        body
    }

    /// A body that streams in, at the client's pace.
    #[must_use]
    pub fn streaming(incoming: Incoming, client: ClientStream) -> Self {
        Self::new(Source::Stream(Box::new(incoming), Box::new(client)))
    }

    /// A body that a client's connection reads.
    #[must_use]
    pub fn received(receiver: BodyReceiver) -> Self {
        Self::new(Source::Channel(receiver))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            left: None,
            is_handshake: false,
            is_begun: false,
            scrub: None,
            record: None,
            reserved: None,
            upload: None,
        }
    }

    /// The same body, which fails where it has more than so many bytes.
    #[must_use]
    pub fn at_most(mut self, bytes: Option<u64>) -> Self {
        self.left = bytes;
        self
    }

    /// The same body, whose trailers may have only names that this allows.
    #[must_use]
    pub fn scrubbed(mut self, scrub: Arc<HeaderScrub>) -> Self {
        self.scrub = Some(scrub);
        self
    }

    /// The same body, read whole if it is small and its length is known; its memory comes from `budget`.
    ///
    /// # Errors
    /// When it breaks off, is too large or too slow.
    pub async fn buffered(mut self, budget: &BufferBudget) -> Result<Self, BodyError> {
        let length = self.size_hint().exact().filter(|length| *length <= buffered::MAX_BYTES);
        let Some(reserved) = length.and_then(|length| budget.reserve(length)) else { return Ok(self) };
        self.set_limit(Some(cached_now() + buffered::WITHIN));
        let mut buffer = BodyBuffer::default();
        while let Some(frame) = self.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => buffer.add(data),
                Ok(Err(frame)) => buffer.trailers = frame.into_trailers().ok(),
                Err(error) => {
                    self.set_limit(None);
                    return Err(error);
                }
            }
        }
        let trailers = buffer.trailers.take();
        let mut body = Self::new(Source::Stored(Box::new(RecordedBody::new(buffer.into_bytes(), trailers))));
        body.reserved = Some(Box::new(reserved));
        Ok(body)
    }

    /// The body as it came over HTTP/2, if it was not read: it goes nowhere, and its client is still to send it.
    pub(super) fn take_unread(&mut self) -> Option<Incoming> {
        match std::mem::take(&mut self.source) {
            Source::Stream(incoming, _) => Some(*incoming),
            _ => None,
        }
    }

    /// Whether the server may switch protocols.
    pub(super) fn is_handshake(&self) -> bool {
        self.is_handshake
    }

    /// Whether something of it is still to come from a client.
    pub(super) fn is_incoming(&self) -> bool {
        match &self.source {
            Source::Empty | Source::Stored(_) | Source::Sent => false,
            Source::Channel(receiver) => !receiver.is_end(),
            Source::Stream(incoming, stream) => stream.held().is_some() || !incoming.is_end_stream(),
        }
    }

    /// How much longer its client may be waited for with this grace; none without a minimum rate.
    pub(super) fn allowance(&self, grace: Duration) -> Option<Duration> {
        match &self.source {
            Source::Channel(receiver) => receiver.allowance(grace),
            Source::Stream(_, stream) => stream.allowance(grace),
            Source::Empty | Source::Stored(_) | Source::Sent => None,
        }
    }

    /// Keeps what is sent of a body that comes from a client, so that it can be sent again; says whether it can,
    /// provided that all of it is sent.
    pub(super) fn keep_record(&mut self) -> bool {
        if self.is_incoming() {
            self.record = BodyRecorder::of(self.size_hint().lower()).map(Rc::new);
            return self.record.is_some();
        }
        true
    }

    /// Begins anew; says whether all of it can be sent again.
    pub(super) fn rewind(&mut self) -> bool {
        match &mut self.source {
            Source::Empty => {}
            Source::Stored(stored) => stored.rewind(),
            Source::Channel(_) | Source::Stream(..) if !self.is_begun => {}
            _ => match self.record.as_ref().and_then(|record| record.whole()) {
                Some(stored) => self.source = Source::Stored(Box::new(stored)),
                None => return false,
            },
        }
        true
    }

    /// The body for a connection that takes it over. What can be sent again stays here.
    pub(super) fn take_for_sending(&mut self, upload: &Rc<Upload>) -> Self {
        let source = match &self.source {
            Source::Empty => Source::Empty,
            Source::Stored(stored) => Source::Stored(stored.clone()),
            _ => std::mem::replace(&mut self.source, Source::Sent),
        };
        self.is_begun = true;
        Self {
            source,
            left: self.left,
            is_handshake: self.is_handshake,
            is_begun: false,
            scrub: self.scrub.take(),
            record: self.record.clone(),
            reserved: self.reserved.take(),
            upload: Some(Rc::clone(upload)),
        }
    }

    /// Takes back a body of which nothing was sent.
    pub(super) fn restore(&mut self, mut body: Self) {
        body.upload = None;
        *self = body;
    }

    fn set_limit(&mut self, limit: Option<Instant>) {
        match &mut self.source {
            Source::Channel(receiver) => receiver.set_limit(limit),
            Source::Stream(_, stream) => stream.set_limit(limit),
            Source::Empty | Source::Stored(_) | Source::Sent => {}
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.source {
            Source::Empty | Source::Sent => Poll::Ready(None),
            Source::Stored(stored) => Poll::Ready(stored.next().map(Ok)),
            Source::Channel(receiver) => receiver.poll_part(cx),
            Source::Stream(incoming, stream) => stream.poll_frame(incoming, cx),
        }
    }

    /// What has come of it goes on only within its bounds.
    fn check(&mut self, frame: &mut Option<Result<Frame<Bytes>, BodyError>>) {
        let Some(Ok(part)) = frame else { return };
        trailers::retain(part, |name| match &self.scrub {
            Some(scrub) => scrub.may_trail(name),
            None => may_trail(name.as_str()),
        });
        if let (Some(left), Some(data)) = (&mut self.left, part.data_ref()) {
            match left.checked_sub(data.len() as u64) {
                Some(still) => *left = still,
                None => *frame = Some(Err(BodyError::TooLarge)),
            }
        }
    }

    fn end(&mut self) {
        if !matches!(self.source, Source::Stored(_)) {
            self.source = if self.is_begun { Source::Sent } else { Source::Empty };
        }
        if let Some(upload) = self.upload.take() {
            upload.record_end();
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let is_incoming = !matches!(this.source, Source::Empty | Source::Stored(_) | Source::Sent);
        let mut frame = this.poll_source(cx);
        if let Poll::Ready(frame) = &mut frame
            && is_incoming
        {
            this.is_begun = true;
            this.check(frame);
        }
        if let Some(upload) = &this.upload {
            upload.record_poll(matches!(frame, Poll::Ready(Some(Ok(_)))));
            if let Poll::Ready(Some(Err(error))) = &frame {
                upload.failure.set(Some(error.failure()));
            }
        }
        let has_failed = matches!(frame, Poll::Ready(Some(Err(_))));
        let is_whole =
            matches!(frame, Poll::Ready(None)) || (frame.is_ready() && !has_failed && this.is_end_stream());
        if let Some(record) = this.record.as_ref().filter(|_| is_incoming && !has_failed) {
            record.note(&frame, is_whole);
        }
        if is_whole || has_failed {
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
        match &self.source {
            Source::Empty | Source::Sent => SizeHint::with_exact(0),
            Source::Stored(stored) => SizeHint::with_exact(stored.length()),
            Source::Channel(receiver) => receiver.size_hint(),
            Source::Stream(incoming, stream) => {
                stream.held().map_or_else(|| incoming.size_hint(), |held| SizeHint::with_exact(held as u64))
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // Dropped before its end: the response came early, or there is none.
        self.upload = None;
        self.end();
    }
}
