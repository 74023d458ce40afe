//! One request and its response on a connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use super::io::Io;
use crate::http1::{
    BodyDecoder, BodyEncoder, Decoded, Framing, HeadLimits, MAX_INTERIM, ParseError, ParsedResponse,
    ResponseHead, parse_response,
};
use crate::socket::TooLate;
use crate::time::{monotonic, recent};
use crate::upstream::UpstreamRequest;
use crate::upstream::body::{BodyError, RequestBody};
use crate::upstream::connection_use::CONTENDED_GRACE;
use crate::upstream::error::Cause;

/// How large the head of a response may be.
const HEAD: HeadLimits = HeadLimits { max_bytes: 64 * 1024, max_headers: 100 };
/// Bytes before the head of a response is complete, with all interim responses.
const MAX_BEFORE_HEAD: usize = 512 * 1024;

/// A request that is sent, and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    method: Method,
    may_switch: bool,
    pub framing: Framing,
    upload: Upload,
    /// The request's body, if its response has begun before that was sent.
    early_body: Option<Box<RequestBody>>,
    response: Response,
    /// On a kept connection, the bytes that were written before this request: what the server sends while no more are
    /// written is no response to it.
    unasked_until: Option<u64>,
    /// Bytes of responses that have been read before the head was complete.
    head_bytes: usize,
    /// Whether the server keeps the connection.
    keeps_alive: bool,
    /// Whether the response may be silent without a time limit.
    pub is_open_ended: bool,
    /// By when the response's head has to come; none until the request is sent.
    answered_by: Option<Instant>,
    /// By when all must be over, if that is given.
    deadline: Option<Instant>,
}

/// How far the request is sent.
#[derive(Debug)]
enum Upload {
    /// Its body is being sent.
    Sending(BodyEncoder),
    /// It waits to be written as a whole.
    Flushing,
    /// It is sent.
    Done,
    /// The server takes no more of it.
    Refused,
}

/// How far the response has come.
#[derive(Debug)]
enum Response {
    /// Its head is waited for, of which so many bytes have been looked at, behind so many interim responses.
    AwaitingHead { seen: usize, interim: u8 },
    /// Its body is read.
    Body(BodyDecoder),
    /// The server has switched protocols.
    Switched,
}

impl Exchange {
    /// A request that is to be sent now, on a connection that `was_kept` or is new.
    pub fn begin(request: &UpstreamRequest, deadline: Option<Instant>, io: &Io, was_kept: bool) -> Self {
        let body = &request.body;
        let framing = match body.size_hint().exact() {
            _ if body.is_end_stream() => Framing::Empty,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        let upload = match framing {
            Framing::Empty => Upload::Flushing,
            _ => Upload::Sending(BodyEncoder::new(framing, &request.head.fields, true)),
        };
        Self {
            method: request.head.method.clone(),
            may_switch: body.is_handshake(),
            framing,
            upload,
            early_body: None,
            response: Response::AwaitingHead { seen: 0, interim: 0 },
            unasked_until: was_kept.then(|| io.stream.total_written()),
            head_bytes: 0,
            keeps_alive: true,
            is_open_ended: false,
            // Where no client is waited for, the server's time begins at once.
            answered_by: (!body.is_incoming()).then(|| recent() + io.response_timeout),
            deadline,
        }
    }

    /// Sends the request and reads the head of its response.
    pub fn poll_head(
        &mut self,
        io: &mut Io,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Cause>> {
        // A kept connection may have been closed meanwhile, so the read comes first there. On a new one the server may
        // respond before it reads, as one does that has too many connections: that response counts.
        if self.unasked_until.is_none() {
            self.send(io, body, cx)?;
        }
        loop {
            if let Poll::Ready(head) = self.poll_response_head(io, cx) {
                return Poll::Ready(head);
            }
            if self.unasked_until.is_none() || self.send(io, body, cx)? {
                break;
            }
        }
        if io.place.connection().is_reclaimed() {
            return Poll::Ready(Err(Cause::Reclaimed));
        }
        if io.is_late([self.answered_by, io.write_by(), self.deadline], cx) {
            return Poll::Ready(Err(Cause::TooLate));
        }
        Poll::Pending
    }

    /// Sends the request as far as the server takes it; returns false when it has just refused the rest, behind which
    /// there may be its response.
    fn send(&mut self, io: &mut Io, body: &mut RequestBody, cx: &mut Context<'_>) -> Result<bool, Cause> {
        match self.poll_upload(io, body, cx) {
            // A server may close its receiving side behind a response that it has sent.
            Poll::Ready(Err(Cause::Io(_))) if io.stream.total_written() > 0 => {
                self.upload = Upload::Refused;
                // The error of a write over TLS may come behind a part that was written.
                self.unasked_until = None;
                self.answered_by.get_or_insert_with(|| monotonic() + io.response_timeout);
                io.stream.discard_pending();
                Ok(false)
            }
            Poll::Ready(Err(cause)) => Err(cause),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(true),
        }
    }

    /// Reads the head of the response.
    fn poll_response_head(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Cause>> {
        loop {
            let is_unasked = self.unasked_until == Some(io.stream.total_written());
            match ready!(io.poll_fill(cx)) {
                // The server has closed the connection, or has sent a response to nothing: 408 before it closes.
                _ if is_unasked => return Poll::Ready(Err(Cause::Closed)),
                Ok(0) => return Poll::Ready(Err(Cause::Closed)),
                Ok(count) => self.head_bytes += count,
                Err(error) => return Poll::Ready(Err(Cause::Io(error))),
            }
            if self.head_bytes > MAX_BEFORE_HEAD {
                return Poll::Ready(Err(Cause::Malformed(ParseError::TooLarge)));
            }
            if let Some(head) = self.parse(io)? {
                return Poll::Ready(Ok(head));
            }
        }
    }

    /// The head of the response, if that has come.
    fn parse(&mut self, io: &mut Io) -> Result<Option<ResponseHead>, Cause> {
        let Response::AwaitingHead { seen, interim } = &mut self.response else { return Ok(None) };
        loop {
            let unread = io.stream.unread();
            if unread.len() == *seen {
                return Ok(None);
            }
            let Some(parsed) = parse_response(unread, *seen, HEAD, &self.method).map_err(Cause::Malformed)?
            else {
                *seen = unread.len();
                return Ok(None);
            };
            let ParsedResponse { head, framing, keeps_alive, length } = parsed;
            bytes::Buf::advance(unread, length);
            *seen = 0;
            if head.status == StatusCode::SWITCHING_PROTOCOLS && self.may_switch {
                self.response = Response::Switched;
                return Ok(Some(head));
            }
            if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
                *interim += 1;
                if *interim > MAX_INTERIM {
                    return Err(Cause::Malformed(ParseError::TooLarge));
                }
                continue;
            }
            self.keeps_alive = keeps_alive;
            self.response = Response::Body(BodyDecoder::of_response(framing));
            return Ok(Some(head));
        }
    }

    /// The head has been read: the rest of the request's body is sent while the response is read.
    pub fn begin_response(&mut self, io: &mut Io, head: &ResponseHead, body: &mut RequestBody) {
        self.is_open_ended = crate::upstream::is_open_ended(&head.fields);
        io.reset();
        if !self.is_sent() {
            self.early_body = Some(Box::new(std::mem::replace(body, RequestBody::empty())));
        }
    }

    /// Whether nothing of the request is still to be sent.
    pub fn is_sent(&self) -> bool {
        matches!(self.upload, Upload::Done | Upload::Refused)
    }

    /// Whether a part of a response has come.
    pub fn has_response(&self) -> bool {
        self.head_bytes > 0
    }

    /// Whether the connection can be used for another request.
    pub fn is_reusable(&self) -> bool {
        let is_read =
            matches!(&self.response, Response::Body(decoder) if decoder.is_end() && !decoder.is_last());
        is_read && self.keeps_alive && matches!(self.upload, Upload::Done)
    }

    pub fn has_switched(&self) -> bool {
        matches!(self.response, Response::Switched)
    }

    pub fn is_end_stream(&self) -> bool {
        match &self.response {
            Response::Body(decoder) => decoder.is_end(),
            Response::AwaitingHead { .. } | Response::Switched => true,
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        let Response::Body(decoder) = &self.response else { return SizeHint::with_exact(0) };
        decoder.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Goes on with the request behind the head of its response.
    ///
    /// # Errors
    /// When the client has broken off the request.
    pub fn poll_early_upload(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let Some(mut body) = self.early_body.take() else { return Ok(()) };
        match self.poll_upload(io, &mut body, cx) {
            Poll::Pending if io.is_upload_late(self.deadline, cx) => return Err(TooLate.into()),
            Poll::Pending => self.early_body = Some(body),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Cause::Body(error))) => {
                self.upload = Upload::Refused;
                return Err(error);
            }
            // The server does not want the rest of it.
            Poll::Ready(Err(_)) => {
                self.upload = Upload::Refused;
                io.stream.discard_pending();
            }
        }
        Ok(())
    }

    /// Sends the request; ready when all of it is sent.
    fn poll_upload(
        &mut self,
        io: &mut Io,
        body: &mut RequestBody,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Cause>> {
        loop {
            // What is stored leaves together with the head.
            if io.stream.has_pending() && (body.is_incoming() || !io.stream.has_room()) {
                ready!(io.poll_flush(cx)).map_err(Cause::Io)?;
            }
            match &mut self.upload {
                Upload::Done | Upload::Refused => return Poll::Ready(Ok(())),
                Upload::Flushing => {
                    ready!(io.poll_flush(cx)).map_err(Cause::Io)?;
                    self.upload = Upload::Done;
                    self.answered_by.get_or_insert_with(|| monotonic() + io.response_timeout);
                }
                Upload::Sending(encoder) => {
                    let connection = io.place.connection();
                    let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
                        connection.wait_for_client(body.allowance(CONTENDED_GRACE));
                        return Poll::Pending;
                    };
                    connection.go_on();
                    match frame.transpose().map_err(Cause::Body)? {
                        None => self.end_upload(io, None)?,
                        Some(frame) => match frame.into_data() {
                            Ok(data) => send_data(encoder, io, data)?,
                            Err(frame) => {
                                let trailers = frame.into_trailers().ok();
                                self.end_upload(io, trailers.as_ref())?;
                            }
                        },
                    }
                }
            }
        }
    }

    /// The request's body has come to its end.
    fn end_upload(&mut self, io: &mut Io, trailers: Option<&HeaderMap>) -> Result<(), Cause> {
        if let Upload::Sending(encoder) = &mut self.upload
            && !encoder.end(trailers, io.stream.out())
        {
            return Err(Cause::Body(BodyError::BrokenOff));
        }
        self.upload = Upload::Flushing;
        Ok(())
    }

    /// The next part of the response's body.
    pub fn poll_response(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Response::Body(decoder) = &mut self.response else { return Poll::Ready(None) };
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
        let read_by = io.read_by().filter(|_| !self.is_open_ended);
        if io.is_late([read_by, io.write_by(), self.deadline], cx) {
            return Poll::Ready(Some(Err(TooLate.into())));
        }
        Poll::Pending
    }
}

/// Writes a part of a body.
fn send_data(encoder: &mut BodyEncoder, io: &mut Io, data: Bytes) -> Result<(), Cause> {
    let length = data.len();
    // The length was checked against what was announced when it was read.
    if encoder.begin_data(length, io.stream.out()) < length {
        return Err(Cause::Body(BodyError::BrokenOff));
    }
    io.stream.push_data(data, encoder.end_data(length));
    Ok(())
}
