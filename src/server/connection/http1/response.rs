//! Writes a response to a client.

use std::io;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{StatusCode, Version};
use hyper::body::Body as _;

use super::io::ClientIo;
use super::upload::{PolledUpload, Upload};
use crate::body::BodyError;
use crate::http1::names::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use crate::http1::{BodyEncoder, Framing, ResponseFraming, ResponseHead, push_decimal, write_response};
use crate::proxy::ReplyBody;
use crate::server::spec::HeaderCase;
use crate::time::http_date;

/// The properties of a request that determine how its response is written.
pub(super) struct RequestProperties {
    pub version: Version,
    /// Whether the method is HEAD.
    pub is_head: bool,
    pub takes_trailers: bool,
    pub keeps_alive: bool,
    /// How names of headers are written.
    pub header_case: HeaderCase,
    /// The rate at which the client has to read, in bytes per second, if there is one.
    pub min_rate: Option<NonZeroU32>,
}

/// A response that is being written.
pub(super) struct ResponseWriter {
    encoder: BodyEncoder,
    /// None once all of it is in the buffer.
    body: Option<ReplyBody>,
    has_min_rate: bool,
}

/// How the body of a response is framed for its client (RFC 9112 §6.3).
pub(super) fn body_framing(properties: &RequestProperties, head: &ResponseHead, body: &ReplyBody) -> Framing {
    if properties.is_head || head.is_bodiless() {
        return Framing::Empty;
    }
    match body.size_hint().exact() {
        Some(length) => Framing::Length(length),
        // HTTP/1.0 has no chunked coding.
        None if properties.version == Version::HTTP_10 => Framing::UntilClose,
        None => Framing::Chunked,
    }
}

/// Whether the `Connection` header of a response announces its `Upgrade` header.
pub(super) fn names_upgrade(head: &ResponseHead) -> bool {
    match head.status {
        StatusCode::SWITCHING_PROTOCOLS => true,
        StatusCode::UPGRADE_REQUIRED => head.fields.contains(UPGRADE),
        _ => false,
    }
}

impl ResponseWriter {
    /// Writes the head of a response into the buffer.
    pub fn start(
        io: &mut ClientIo,
        properties: &RequestProperties,
        mut head: ResponseHead,
        body: ReplyBody,
        framing: ResponseFraming,
    ) -> Self {
        if properties.is_head && !head.fields.contains(CONTENT_LENGTH) {
            // The length that a response to GET would have, if it is known.
            if let Some(length) = body.local_length().filter(|_| head.status != StatusCode::NO_CONTENT) {
                head.fields.push_with(CONTENT_LENGTH, |out| push_decimal(out, length));
            }
        }
        let encoder = BodyEncoder::new(framing.body, &head.fields, properties.takes_trailers);
        // `write_response` writes Connection itself, except where it announces the header with another protocol.
        if !names_upgrade(&head) {
            head.fields.remove(CONNECTION);
        } else if framing.is_last && head.status == StatusCode::UPGRADE_REQUIRED {
            head.fields.set(CONNECTION, b"upgrade, close");
        }
        let out = io.stream.out();
        let start = out.len();
        write_response(out, &head, framing, &http_date());
        properties.header_case.apply(&mut out[start..]);
        let body = (framing.body != Framing::Empty).then_some(body);
        Self { encoder, body, has_min_rate: properties.min_rate.is_some() }
    }

    /// Writes more of the body; ready when all of it is written. Meanwhile the request body is read and forwarded.
    pub fn poll(
        &mut self,
        io: &mut ClientIo,
        upload: &mut Option<Box<Upload>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ExchangeError>> {
        loop {
            let is_complete = self.body.is_none();
            if (is_complete || !io.stream.has_room())
                && let Poll::Pending = io.poll_flush(cx)?
            {
                // A client may send all of its request before it reads anything, so waiting only for its reads would
                // deadlock.
                self.poll_upload(io, upload, cx)?;
                self.mark_waiting_for_reader(cx)?;
                return poll_timeout(io, cx);
            }
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
            if let Some(connection) = body.upstream_connection() {
                connection.stop_waiting();
            }
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let length = self.encoder.start_data(data.len(), io.stream.out());
                        let tail = self.encoder.data_suffix(data.len());
                        io.stream.push_data(data.slice(..length), tail);
                        if self.encoder.is_complete() {
                            self.body = None;
                        }
                    }
                    Err(frame) => self.finish(io, frame.into_trailers().ok().as_ref())?,
                },
                Poll::Ready(None) => self.finish(io, None)?,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    // The body has no more data yet: the client gets the buffered data now, not when the buffer is full.
                    let is_writing = io.poll_flush(cx)?.is_pending();
                    self.poll_upload(io, upload, cx)?;
                    if is_writing {
                        self.mark_waiting_for_reader(cx)?;
                    }
                    if upload.as_ref().is_none_or(|upload| upload.is_complete()) {
                        io.read_ahead(cx)?;
                    }
                    return poll_timeout(io, cx);
                }
            }
        }
    }

    /// Writes the end of the body.
    fn finish(&mut self, io: &mut ClientIo, trailers: Option<&http::HeaderMap>) -> Result<(), ExchangeError> {
        let is_complete = self.encoder.finish(trailers, io.stream.out());
        self.body = None;
        if is_complete { Ok(()) } else { Err(ExchangeError::Incomplete) }
    }

    /// Reads more of the request body from the client, and sends it to the server.
    fn poll_upload(
        &mut self,
        io: &mut ClientIo,
        upload: &mut Option<Box<Upload>>,
        cx: &mut Context<'_>,
    ) -> Result<(), ExchangeError> {
        let Some(upload) = upload else { return Ok(()) };
        loop {
            if let Some(body) = &mut self.body {
                body.poll_upload(cx)?;
            }
            if upload.poll(io, cx) != PolledUpload::Sent || self.body.is_none() {
                return Ok(());
            }
        }
    }

    /// Marks the upstream connection as waiting for the client to read, so that other requests can reclaim it. Fails when it was
    /// reclaimed.
    fn mark_waiting_for_reader(&self, cx: &Context<'_>) -> Result<(), ExchangeError> {
        let Some(connection) = self.body.as_ref().and_then(ReplyBody::upstream_connection) else {
            return Ok(());
        };
        if connection.is_reclaimed() {
            return Err(ExchangeError::Reclaimed);
        }
        // Without a minimum rate a client may read as slowly as it likes, and an event stream may pause.
        if self.has_min_rate && !self.body.as_ref().is_some_and(ReplyBody::is_open_ended) {
            connection.wait_for_reader(cx.waker());
        }
        Ok(())
    }
}

/// An error once the client is too slow; pending until then.
fn poll_timeout(io: &mut ClientIo, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
    if io.is_timed_out(cx) {
        return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    }
    Poll::Pending
}

/// Why a request or its response failed in a way that ends the connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("client disconnected before its response")]
    Disconnected,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("response body failed: {0}")]
    Response(#[from] BodyError),
    #[error("response body is shorter than its Content-Length")]
    Incomplete,
    #[error("its upstream connection was given to another client")]
    Reclaimed,
}
