//! One request and its response on an HTTP/1.1 connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use super::io::Io;
use crate::body::{BodyError, PolledFrame, RequestBody};
use crate::http1::{
    BodyDecoder, BodyEncoder, Decoded, Framing, HeadLimits, MAX_INTERIM, ParseError, ParsedResponse,
    ResponseHead, parse_response,
};
use crate::socket::TooLate;
use crate::time::{cached_now, monotonic};
use crate::upstream::error::Cause;
use crate::upstream::interim::{InterimResponses, MAX_FORWARDED, MAX_FORWARDED_BYTES};
use crate::upstream::message::{UpstreamRequest, is_open_ended};
use crate::upstream::pool::connection_use::CONTENDED_GRACE;

/// Limits of the head of a response.
const HEAD_LIMITS: HeadLimits = HeadLimits { max_bytes: 64 * 1024, max_headers: 100 };
/// The most bytes until the head of a response is complete, including interim responses.
const MAX_BEFORE_HEAD: usize = 512 * 1024;

/// The state of one request and its response on an HTTP/1.1 connection.
#[derive(Debug)]
pub(super) struct Http1Exchange {
    method: Method,
    /// Whether the request allows the server to switch protocols.
    is_upgrade: bool,
    pub framing: Framing,
    upload: UploadState,
    /// The rest of the request's body, if the response has started before it was sent.
    early_body: Option<Box<RequestBody>>,
    response: ResponseState,
    /// On a reused connection, the number of bytes that were written before this request. Until more are written, bytes
    /// from the server are no response to it.
    unsolicited_until: Option<u64>,
    /// The number of bytes that were read before the head was complete, including interim responses.
    head_bytes: usize,
    /// Whether the server keeps the connection open after the response.
    keeps_alive: bool,
    /// Whether the response may pause without a time limit.
    pub is_open_ended: bool,
    /// Since when the server has the whole request, and the head of the response is awaited; none until then.
    sent_at: Option<Instant>,
}

/// The progress of the request.
#[derive(Debug)]
enum UploadState {
    /// Its body is being sent.
    Sending(BodyEncoder),
    /// All of it is buffered, and being written.
    Flushing,
    /// All of it is written.
    Done,
    /// The server does not read the rest of it.
    Stopped,
}

/// The progress of the response.
#[derive(Debug)]
enum ResponseState {
    /// The head is incomplete: so many of its bytes were parsed without an end, after so many interim responses of so many
    /// bytes.
    AwaitingHead { parsed: usize, interim: u8, interim_bytes: usize },
    /// The body is being read.
    Body(BodyDecoder),
    /// The server has switched protocols.
    Switched,
}

impl Http1Exchange {
    /// Starts a request, on a connection that `is_reused` or new.
    pub fn start(request: &UpstreamRequest, io: &Io, is_reused: bool) -> Self {
        let body = &request.body;
        let framing = match body.size_hint().exact() {
            _ if body.is_end_stream() => Framing::Empty,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        let upload = match framing {
            Framing::Empty => UploadState::Flushing,
            _ => UploadState::Sending(BodyEncoder::new(framing, &request.head.fields, true)),
        };
        Self {
            method: request.head.method.clone(),
            is_upgrade: body.is_upgrade(),
            framing,
            upload,
            early_body: None,
            response: ResponseState::AwaitingHead { parsed: 0, interim: 0, interim_bytes: 0 },
            unsolicited_until: is_reused.then(|| io.stream.total_written()),
            head_bytes: 0,
            keeps_alive: true,
            is_open_ended: false,
            // The server's time starts at once unless the body still has to arrive from the client.
            sent_at: (!body.is_incoming()).then(cached_now),
        }
    }

    /// Sends the request and reads the head of its response.
    pub fn poll_head(
        &mut self,
        io: &mut Io,
        request: &mut UpstreamRequest,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Cause>> {
        let UpstreamRequest { body, interim, .. } = request;
        // A reused connection may have been closed by the server, so it is read first: the request can then be sent
        // elsewhere. On a new connection the server may respond before it reads, for example that it has too many
        // connections; that response counts.
        if self.unsolicited_until.is_none() {
            self.send(io, body, cx)?;
        }
        loop {
            if let Poll::Ready(head) = self.poll_response_head(io, interim.as_deref(), cx) {
                return Poll::Ready(head);
            }
            if self.unsolicited_until.is_none() || self.send(io, body, cx)? {
                break;
            }
        }
        if io.permit.connection_use().is_reclaimed() {
            let cause = if self.is_sent() { Cause::Reclaimed } else { BodyError::Reclaimed.into() };
            return Poll::Ready(Err(cause));
        }
        if io.is_late(self.sent_at.map(|sent_at| sent_at + io.timeouts.response), cx) {
            return Poll::Ready(Err(Cause::TooLate));
        }
        Poll::Pending
    }

    /// Sends the request as far as the server reads it; returns false if the server has just stopped reading, in which
    /// case its response may have arrived.
    fn send(&mut self, io: &mut Io, body: &mut RequestBody, cx: &mut Context<'_>) -> Result<bool, Cause> {
        match self.poll_upload(io, body, cx) {
            // A server may close its receiving side after it has sent a response.
            Poll::Ready(Err(Cause::Io(_))) if io.stream.total_written() > 0 => {
                self.upload = UploadState::Stopped;
                // Over TLS a write may fail after a part of it was written.
                self.unsolicited_until = None;
                self.sent_at.get_or_insert_with(monotonic);
                io.stream.discard_pending();
                Ok(false)
            }
            Poll::Ready(Err(cause)) => Err(cause),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(true),
        }
    }

    /// Reads until the head of the response is complete. Interim responses go to `client`, if it gets them.
    fn poll_response_head(
        &mut self,
        io: &mut Io,
        client: Option<&InterimResponses>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Cause>> {
        loop {
            let is_unsolicited = self.unsolicited_until == Some(io.stream.total_written());
            match ready!(io.poll_fill(cx)) {
                // The server has closed the connection, or sent a response without a request, such as 408.
                _ if is_unsolicited => return Poll::Ready(Err(Cause::Closed)),
                Ok(0) => return Poll::Ready(Err(Cause::Closed)),
                Ok(count) => self.head_bytes += count,
                Err(error) => return Poll::Ready(Err(Cause::Io(error))),
            }
            if self.head_bytes > MAX_BEFORE_HEAD {
                return Poll::Ready(Err(Cause::Malformed(ParseError::TooLarge)));
            }
            if let Some(head) = self.parse(io, client)? {
                return Poll::Ready(Ok(head));
            }
        }
    }

    /// Parses the head of the response; none if it is incomplete.
    fn parse(
        &mut self,
        io: &mut Io,
        client: Option<&InterimResponses>,
    ) -> Result<Option<ResponseHead>, Cause> {
        let ResponseState::AwaitingHead { parsed, interim, interim_bytes } = &mut self.response else {
            return Ok(None);
        };
        loop {
            let unread = io.stream.unread();
            if unread.len() == *parsed {
                return Ok(None);
            }
            let Some(response) =
                parse_response(unread, *parsed, HEAD_LIMITS, &self.method).map_err(Cause::Malformed)?
            else {
                *parsed = unread.len();
                return Ok(None);
            };
            let ParsedResponse { head, framing, keeps_alive, length } = response;
            bytes::Buf::advance(unread, length);
            *parsed = 0;
            let is_sending = matches!(self.upload, UploadState::Sending(_));
            if head.status == StatusCode::SWITCHING_PROTOCOLS && self.is_upgrade && !is_sending {
                self.response = ResponseState::Switched;
                return Ok(Some(head));
            }
            if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
                *interim += 1;
                *interim_bytes += length;
                if *interim > MAX_INTERIM {
                    return Err(Cause::Malformed(ParseError::TooLarge));
                }
                // The client's connection itself writes 100, when it reads the body.
                if *interim <= MAX_FORWARDED
                    && *interim_bytes <= MAX_FORWARDED_BYTES
                    && head.status != StatusCode::CONTINUE
                    && let Some(client) = client
                {
                    client.push(head);
                }
                continue;
            }
            self.keeps_alive = keeps_alive;
            self.response = ResponseState::Body(BodyDecoder::for_response(framing));
            return Ok(Some(head));
        }
    }

    /// Starts the response's body, and keeps the rest of the request's body to send it at the same time.
    pub fn start_response(&mut self, io: &mut Io, head: &ResponseHead, body: &mut RequestBody) {
        self.is_open_ended = is_open_ended(&head.fields);
        io.reset();
        if !self.is_sent() {
            self.early_body = Some(Box::new(std::mem::replace(body, RequestBody::empty())));
        }
    }

    /// Whether the request needs no more writes.
    pub fn is_sent(&self) -> bool {
        matches!(self.upload, UploadState::Done | UploadState::Stopped)
    }

    /// When the server got the end of the request; none if it does not have that.
    pub fn sent_at(&self) -> Option<Instant> {
        self.sent_at.filter(|_| matches!(self.upload, UploadState::Done))
    }

    /// Whether any byte of a response has arrived.
    pub fn has_response(&self) -> bool {
        self.head_bytes > 0
    }

    /// Whether the connection can take another request.
    pub fn is_reusable(&self) -> bool {
        let is_read = matches!(&self.response, ResponseState::Body(decoder) if decoder.is_end() && !decoder.must_close());
        is_read && self.keeps_alive && matches!(self.upload, UploadState::Done)
    }

    pub fn has_switched(&self) -> bool {
        matches!(self.response, ResponseState::Switched)
    }

    pub fn is_end_stream(&self) -> bool {
        match &self.response {
            ResponseState::Body(decoder) => decoder.is_end(),
            ResponseState::AwaitingHead { .. } | ResponseState::Switched => true,
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        let ResponseState::Body(decoder) = &self.response else { return SizeHint::with_exact(0) };
        decoder.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Polls the rest of the upload, after the head of the response. Fails if the client has aborted the request.
    pub fn poll_early_upload(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let Some(mut body) = self.early_body.take() else { return Ok(()) };
        match self.poll_upload(io, &mut body, cx) {
            Poll::Pending if io.is_upload_late(cx) => return Err(TooLate.into()),
            Poll::Pending => self.early_body = Some(body),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Cause::Body(error))) => {
                self.upload = UploadState::Stopped;
                return Err(error);
            }
            // The server does not read the rest, but its response still counts.
            Poll::Ready(Err(_)) => {
                self.upload = UploadState::Stopped;
                io.stream.discard_pending();
            }
        }
        Ok(())
    }

    /// Sends the request; ready when all of it is written.
    fn poll_upload(
        &mut self,
        io: &mut Io,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cause>> {
        loop {
            // A stored body is written together with the head.
            if io.stream.has_pending() && (body.is_incoming() || !io.stream.has_room()) {
                ready!(io.poll_flush(cx)).map_err(Cause::Io)?;
            }
            match &mut self.upload {
                UploadState::Done | UploadState::Stopped => return Poll::Ready(Ok(())),
                UploadState::Flushing => {
                    ready!(io.poll_flush(cx)).map_err(Cause::Io)?;
                    self.upload = UploadState::Done;
                    self.sent_at.get_or_insert_with(monotonic);
                }
                UploadState::Sending(encoder) => {
                    let connection = io.permit.connection_use();
                    let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
                        connection.wait_for_client(body.allowance(CONTENDED_GRACE));
                        return Poll::Pending;
                    };
                    connection.record_part();
                    match frame.transpose().map_err(Cause::Body)? {
                        None => self.finish_upload(io, None)?,
                        Some(frame) => match frame.into_data() {
                            Ok(data) => buffer_data(encoder, io, data)?,
                            Err(frame) => {
                                let trailers = frame.into_trailers().ok();
                                self.finish_upload(io, trailers.as_ref())?;
                            }
                        },
                    }
                }
            }
        }
    }

    /// Ends the request's body.
    fn finish_upload(&mut self, io: &mut Io, trailers: Option<&HeaderMap>) -> Result<(), Cause> {
        if let UploadState::Sending(encoder) = &mut self.upload
            && !encoder.finish(trailers, io.stream.out())
        {
            return Err(Cause::Body(BodyError::Aborted));
        }
        self.upload = UploadState::Flushing;
        Ok(())
    }

    /// Polls the next part of the response's body.
    pub fn poll_response(&mut self, io: &mut Io, cx: &mut Context<'_>) -> PolledFrame {
        let ResponseState::Body(decoder) = &mut self.response else { return Poll::Ready(None) };
        loop {
            if decoder.is_end() {
                return Poll::Ready(None);
            }
            match decoder.decode(io.stream.unread())? {
                Some(Decoded::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Decoded::End(trailers)) => {
                    return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                }
                None => {}
            }
            match io.poll_fill(cx) {
                Poll::Ready(Ok(0)) => decoder.finish()?,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Pending => break,
            }
        }
        let read_deadline = io.read_deadline().filter(|_| !self.is_open_ended);
        if io.is_late(read_deadline, cx) {
            return Poll::Ready(Some(Err(TooLate.into())));
        }
        Poll::Pending
    }
}

/// Writes a part of a body into the buffer.
fn buffer_data(encoder: &mut BodyEncoder, io: &mut Io, data: Bytes) -> Result<(), Cause> {
    let length = data.len();
    // The client's connection has checked the length against Content-Length.
    if encoder.start_data(length, io.stream.out()) < length {
        return Err(Cause::Body(BodyError::Aborted));
    }
    io.stream.push_data(data, encoder.data_suffix(length));
    Ok(())
}
