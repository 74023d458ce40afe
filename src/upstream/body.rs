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

use super::buffered::{self, Buffer, BufferBudget, Reserved};
use super::connection_use::{CONTENDED_GRACE, ConnectionUse};
use super::pace::Pace;
use super::record::{Parts, Record};
use super::scrub::HeaderScrub;
use super::trailers::{self, may_trail};
use super::upload::Upload;
use crate::socket::{Patience, Reading, TooLate};
use crate::time::{monotonic, recent};

/// Why a body ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// What it came over broke, or it was no HTTP.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// Its stream was given up before its end.
    #[error("the body broke off")]
    BrokenOff,
    /// The next part of it did not come in time.
    #[error("the next part of the body did not come in time")]
    TooLate(#[from] TooLate),
    /// Its client is slow, and others needed its connection to the server.
    #[error("its client is too slow, and other clients need the connection")]
    Reclaimed,
    /// It has more bytes than it may.
    #[error("the body is larger than it may be")]
    TooLarge,
}

impl Stored {
    fn is_empty(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }

    fn length(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Parts(parts) => parts.length(),
        }
    }
}

/// Who waits for the end of a request's body.
#[derive(Debug)]
enum Server {
    /// The connection, which owes us an answer in this time then.
    Socket(Rc<Patience>, Duration, Arc<ConnectionUse>),
    /// Whoever waits for the answer.
    Stream(Rc<Upload>),
}

/// A request's body as it goes upstream.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Option<Incoming>,
    /// How many more bytes it may have, if that is bounded.
    left: Option<u64>,
    client: Option<Pace>,
    server: Option<Server>,
    is_handshake: bool,
    /// Which trailers may go on, besides what holds for all.
    scrub: Option<Arc<HeaderScrub>>,
    /// Where what goes by is kept, if it may have to go again.
    record: Option<Rc<Record>>,
    /// What goes in place of `incoming`, of a body that was read before or goes again.
    stored: Stored,
    /// Memory for a body that was read before it goes.
    reserved: Option<Box<Reserved>>,
}

/// A body that is here.
#[derive(Clone, Debug, Default)]
enum Stored {
    #[default]
    Nothing,
    /// In a box, so that requests without a body are cheaper to move.
    Bytes(Box<Bytes>),
    Parts(Box<Parts>),
}

impl RequestBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(None, None, false)
    }

    /// No body, and the wish to go on in another protocol.
    #[must_use]
    pub fn handshake() -> Self {
        Self::new(None, None, true)
    }

    fn new(incoming: Option<Incoming>, client: Option<Pace>, is_handshake: bool) -> Self {
        Self {
            incoming,
            left: None,
            client,
            server: None,
            is_handshake,
            scrub: None,
            record: None,
            stored: Stored::Nothing,
            reserved: None,
        }
    }

    /// Whether the server may switch protocols.
    pub(super) fn is_handshake(&self) -> bool {
        self.is_handshake
    }

    /// Keeps what goes by of a body that comes from a client, so that it can go again; none if that is too much.
    pub(super) fn record(&mut self) -> Option<Rc<Record>> {
        let record = Record::of(self.size_hint().lower()).map(Rc::new);
        self.record.clone_from(&record);
        record
    }

    /// The same for another attempt, of a body of which nothing comes from a client any more.
    pub(super) fn twin(&self) -> Self {
        let mut twin = Self::new(None, None, self.is_handshake);
        twin.stored.clone_from(&self.stored);
        twin
    }

    /// A body that has gone once.
    pub(super) fn again(parts: Parts) -> Self {
        let mut body = Self::empty();
        if !parts.is_empty() {
            body.stored = Stored::Parts(Box::new(parts));
        }
        body
    }

    /// Whether something of it is still to come from a client.
    pub(super) fn is_incoming(&self) -> bool {
        self.held().is_some() || self.incoming.as_ref().is_some_and(|incoming| !incoming.is_end_stream())
    }

    /// A body that streams in, at the client's pace.
    #[must_use]
    pub fn streaming(incoming: Incoming, client: Pace) -> Self {
        Self::new(Some(incoming), Some(client), false)
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
        self.set_limit(Some(recent() + buffered::WITHIN));
        let mut buffer = Buffer::default();
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
        let mut body = Self::empty();
        body.stored = match buffer.trailers.take() {
            None => Stored::Bytes(Box::new(buffer.into_bytes())),
            Some(trailers) => Stored::Parts(Box::new(Parts::new(buffer.into_bytes(), trailers))),
        };
        body.reserved = Some(Box::new(reserved));
        Ok(body)
    }

    fn set_limit(&mut self, limit: Option<Instant>) {
        if let Some(client) = &mut self.client {
            client.set_limit(limit);
        }
    }

    /// The body as it came, if nothing of it was read: it goes nowhere, and its client is still to send it.
    #[must_use]
    pub fn take_unread(&mut self) -> Option<Incoming> {
        self.client = None;
        self.server = None;
        self.incoming.take()
    }

    pub(super) fn then_expect_answer(
        &mut self,
        server: Rc<Patience>,
        within: Duration,
        connection: Arc<ConnectionUse>,
    ) {
        self.server = Some(Server::Socket(server, within, connection));
    }

    /// Has it note how it goes on.
    pub(super) fn then_note(&mut self, upload: Rc<Upload>) {
        self.server = Some(Server::Stream(upload));
    }

    fn held(&self) -> Option<usize> {
        self.client.as_ref().and_then(Pace::held)
    }

    fn next_part(&mut self) -> Option<Frame<Bytes>> {
        let part = match &mut self.stored {
            Stored::Nothing => return None,
            Stored::Bytes(bytes) => Some(Frame::data(std::mem::take(&mut **bytes))),
            Stored::Parts(parts) => parts.next(),
        };
        if let Some(Server::Stream(upload)) = &self.server {
            upload.asked(part.is_some());
        }
        if self.stored.is_empty() {
            self.stored = Stored::Nothing;
            self.end();
        }
        part
    }

    fn end(&mut self) {
        self.incoming = None;
        if let Some(Pace::Socket(client)) = self.client.take() {
            client.set_limit(None);
            client.set(Reading::Unbounded);
        }
        // Once an answer has begun, its own times hold.
        match self.server.take() {
            Some(Server::Socket(server, within, _)) if server.is_unbounded() => {
                server.set(Reading::Until(monotonic() + within));
            }
            Some(Server::Stream(upload)) => upload.has_ended(),
            _ => {}
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
        let Some(incoming) = &mut this.incoming else {
            return Poll::Ready(this.next_part().map(Ok));
        };
        let mut frame = match &mut this.client {
            Some(Pace::Stream(stream)) => stream.poll_frame(incoming, cx),
            _ => Pin::new(&mut *incoming).poll_frame(cx).map_err(BodyError::Broken),
        };
        if let Poll::Ready(Some(Ok(frame))) = &mut frame {
            trailers::cut(frame, |name| match &this.scrub {
                Some(scrub) => scrub.may_trail(name),
                None => may_trail(name.as_str()),
            });
        }
        // The end of the client's connection is not the end of a body over it.
        if matches!(frame, Poll::Ready(None)) && this.client.as_ref().is_some_and(Pace::is_gone) {
            frame = Poll::Ready(Some(Err(BodyError::BrokenOff)));
        }
        let holds = this.client.as_ref().and_then(Pace::held).is_some();
        let is_whole = matches!(frame, Poll::Ready(None)) || (incoming.is_end_stream() && !holds);
        if let Some(Pace::Socket(client)) = &this.client {
            match &frame {
                // What a client had sent before it closed its sending side was not all of its body.
                Poll::Pending if client.starve() => cx.waker().wake_by_ref(),
                // hyper reads trailers up to an empty line that ends in CR LF, and takes an earlier one that ends
                // in LF for their end: a request may have been lost in between, and the next answer would seem to
                // be its.
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => client.set_last(),
                _ => {}
            }
            if is_whole {
                client.set_unfinished(false);
            }
        }
        if let (Some(Server::Socket(_, _, connection)), Some(client)) = (&this.server, &this.client) {
            match &frame {
                Poll::Pending => connection.wait_for_client(client.allowance(CONTENDED_GRACE)),
                Poll::Ready(_) => connection.go_on(),
            }
        }
        if let (Some(left), Poll::Ready(Some(Ok(some)))) = (&mut this.left, &frame) {
            let length = some.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(length) {
                Some(still) => *left = still,
                None => frame = Poll::Ready(Some(Err(BodyError::TooLarge))),
            }
        }
        if let Some(Server::Stream(upload)) = &this.server {
            upload.asked(matches!(frame, Poll::Ready(Some(Ok(_)))));
            if let Poll::Ready(Some(Err(error))) = &frame {
                upload.flaw.set(Some(error.flaw()));
            }
        }
        let has_failed = matches!(frame, Poll::Ready(Some(Err(_))));
        if let Some(record) = &this.record
            && !has_failed
        {
            record.note(&frame, is_whole);
        }
        if is_whole || has_failed {
            self.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        !self.is_incoming() && self.stored.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.held() {
            Some(length) => SizeHint::with_exact(length as u64),
            None => self
                .incoming
                .as_ref()
                .map_or_else(|| SizeHint::with_exact(self.stored.length()), Body::size_hint),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // Dropped before its end: the response came early, or nothing will. Whoever holds the server's
        // connection has set its patience already.
        self.server = None;
        self.end();
    }
}
