//! One request of a client and its response.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::{Method, StatusCode, Version};
use hyper::body::Body as _;

use super::io::ClientIo;
use super::upload::{Progress, Upload};
use super::{Connection, ConnectionError};
use crate::http1::names::{CONNECTION, CONTENT_LENGTH};
use crate::http1::{BodyEncoder, Framing, ParsedRequest, ResponseHead, push_decimal, write_response};
use crate::proxy::{ClientConnection, ProxyResponse, ReplyBody, Tunnel};
use crate::time::http_date;

/// How a connection goes on after a response.
pub(super) enum Next {
    /// With another request.
    Request,
    /// With the rest of the request's body, which is thrown away, and then with another request.
    Discard(Box<Upload>),
    /// With bytes both ways.
    Tunnel(Box<Tunnel>),
    /// It ends. The client may still be sending.
    End { is_sending: bool },
}

/// What has to be known of a request until its response is written.
struct Asked {
    version: Version,
    is_head: bool,
    takes_trailers: bool,
    keeps_alive: bool,
}

/// A response that is being written.
struct Responding {
    encoder: BodyEncoder,
    /// None once all of it is in the buffer.
    body: Option<ReplyBody>,
}

impl Connection<'_> {
    /// Has the proxy answer a request, and writes the response.
    ///
    /// # Errors
    /// When the client has disconnected, or the response broke off.
    pub async fn serve_request(&mut self, request: ParsedRequest) -> Result<Next, ConnectionError> {
        let ParsedRequest { head, framing, keeps_alive, expects_continue, .. } = request;
        let asked = Asked {
            version: head.version,
            is_head: head.method == Method::HEAD,
            takes_trailers: crate::proxy::takes_trailers(&head.fields),
            keeps_alive,
        };
        self.io.begin_response(self.spec.min_body_rate);
        let upload =
            Upload::begin(framing, expects_continue, self.spec.body_timeout, self.spec.min_body_rate);
        let (mut upload, body) = upload.unzip();
        let proxy = self.live.now();
        let response = {
            let mut handling = pin!(proxy.handle(&self.peer, head, body.into(), None));
            let (io, peer) = (&mut self.io, &self.peer);
            poll_fn(|cx| {
                loop {
                    if let Poll::Ready(response) = handling.as_mut().poll(cx) {
                        return Poll::Ready(Ok(response));
                    }
                    let progress = upload.as_mut().map_or(Progress::Idle, |upload| upload.poll(io, cx));
                    if progress != Progress::Moved {
                        return poll_client(io, (&mut upload, progress), peer, cx);
                    }
                }
            })
            .await?
        };
        self.respond(&asked, response, upload).await
    }

    /// Writes a response, while the rest of the request's body may still be read.
    async fn respond(
        &mut self,
        asked: &Asked,
        response: ProxyResponse,
        mut upload: Option<Box<Upload>>,
    ) -> Result<Next, ConnectionError> {
        if let Some(upload) = &mut upload {
            upload.begin_response();
        }
        let ProxyResponse { head, body, tunnel } = response;
        let is_own = body.is_own();
        let mut is_last = !asked.keeps_alive
            || self.open.is_draining()
            || tunnel.is_none() && head.fields.contains(CONNECTION)
            || is_own && upload.as_ref().is_some_and(|upload| !upload.is_discardable());
        let framing = framing(asked, &head, &body);
        is_last |= framing == Framing::UntilClose;
        if body.is_open_ended() {
            self.io.begin_response(None);
        }
        let mut responding = self.begin(asked, head, (body, framing), is_last);
        let (io, is_timed) = (&mut self.io, self.spec.min_body_rate.is_some());
        let written = poll_fn(|cx| responding.poll(io, &mut upload, is_timed, cx)).await;
        if written.is_err() && framing == Framing::UntilClose {
            // The end of the connection would be that of the body.
            self.io.reset_on_close();
        }
        written?;
        if let Some(tunnel) = tunnel {
            return Ok(Next::Tunnel(tunnel));
        }
        let Some(mut upload) = upload else {
            return Ok(if is_last { Next::End { is_sending: false } } else { Next::Request });
        };
        if upload.is_complete() || !is_own && upload.discard_buffered(&mut self.io) {
            let is_last = is_last || upload.is_last();
            return Ok(if is_last { Next::End { is_sending: false } } else { Next::Request });
        }
        Ok(if is_last || !is_own { Next::End { is_sending: true } } else { Next::Discard(upload) })
    }

    /// Writes the head of a response into the buffer.
    fn begin(
        &mut self,
        asked: &Asked,
        mut head: ResponseHead,
        (body, framing): (ReplyBody, Framing),
        is_last: bool,
    ) -> Responding {
        if asked.is_head && !head.fields.contains(CONTENT_LENGTH) {
            // The length that a response to GET would have, where that is known.
            if let Some(length) = body.own_length().filter(|_| head.status != StatusCode::NO_CONTENT) {
                head.fields.push_with(CONTENT_LENGTH, |out| push_decimal(out, length));
            }
        }
        let encoder = BodyEncoder::new(framing, &head.fields, asked.takes_trailers);
        // Whether the connection ends is said by `is_last`; a tunnel says it by itself.
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            head.fields.remove(CONNECTION);
        }
        write_response(self.io.stream.out(), &head, (asked.version, framing), is_last, &http_date());
        let body = (framing != Framing::Empty).then_some(body);
        Responding { encoder, body }
    }
}

/// Waits for the client while a request is with the proxy: an error if it has disconnected.
fn poll_client<T>(
    io: &mut ClientIo,
    (upload, progress): (&mut Option<Box<Upload>>, Progress),
    peer: &ClientConnection,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ConnectionError>> {
    let is_read = upload.as_ref().is_none_or(|upload| upload.is_complete());
    if progress != Progress::Waiting && (is_read || peer.is_queued()) {
        io.read_ahead(cx)?;
    }
    let is_gone = io.is_half_closed() && peer.is_queued();
    // `100 Continue` may wait to be written.
    if let Poll::Ready(Err(error)) = io.poll_flush(cx) {
        return Poll::Ready(Err(error.into()));
    }
    if is_gone || io.is_late(cx) { Poll::Ready(Err(ConnectionError::Disconnected)) } else { Poll::Pending }
}

/// How the body of a response is framed for its client.
fn framing(asked: &Asked, head: &ResponseHead, body: &ReplyBody) -> Framing {
    if asked.is_head || head.is_bodiless() {
        return Framing::Empty;
    }
    match body.size_hint().exact() {
        Some(length) => Framing::Length(length),
        None if asked.version == Version::HTTP_10 => Framing::UntilClose,
        None => Framing::Chunked,
    }
}

impl Responding {
    /// Writes on; ready when all is written.
    fn poll(
        &mut self,
        io: &mut ClientIo,
        upload: &mut Option<Box<Upload>>,
        is_timed: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ConnectionError>> {
        loop {
            let is_complete = self.body.is_none();
            if (is_complete || !io.stream.has_room())
                && let Poll::Pending = io.poll_flush(cx)?
            {
                // The client takes nothing, but may still be sending.
                self.go_on(io, upload, cx)?;
                self.wait_for_client(is_timed, cx)?;
                return wait(io, cx);
            }
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
            if let Some(connection) = body.connection() {
                connection.stop_waiting();
            }
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let length = self.encoder.begin_data(data.len(), io.stream.out());
                        let tail = self.encoder.end_data(data.len());
                        io.stream.push_data(data.slice(..length), tail);
                        if self.encoder.is_complete() {
                            self.body = None;
                        }
                    }
                    Err(frame) => self.end(io, frame.into_trailers().ok().as_ref())?,
                },
                Poll::Ready(None) => self.end(io, None)?,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    let is_writing = io.poll_flush(cx)?.is_pending();
                    self.go_on(io, upload, cx)?;
                    if is_writing {
                        self.wait_for_client(is_timed, cx)?;
                    }
                    if upload.as_ref().is_none_or(|upload| upload.is_complete()) {
                        io.read_ahead(cx)?;
                    }
                    return wait(io, cx);
                }
            }
        }
    }

    /// The body has come to its end.
    fn end(&mut self, io: &mut ClientIo, trailers: Option<&http::HeaderMap>) -> Result<(), ConnectionError> {
        let is_complete = self.encoder.end(trailers, io.stream.out());
        self.body = None;
        if is_complete { Ok(()) } else { Err(ConnectionError::Incomplete) }
    }

    /// Goes on with the request's body, from the client and to the server.
    fn go_on(
        &mut self,
        io: &mut ClientIo,
        upload: &mut Option<Box<Upload>>,
        cx: &mut Context<'_>,
    ) -> Result<(), ConnectionError> {
        let Some(upload) = upload else { return Ok(()) };
        loop {
            if let Some(body) = &mut self.body {
                body.poll_upload(cx)?;
            }
            if upload.poll(io, cx) != Progress::Moved || self.body.is_none() {
                return Ok(());
            }
        }
    }

    /// The client has to take a part of the response before it gets more.
    fn wait_for_client(&self, is_timed: bool, cx: &Context<'_>) -> Result<(), ConnectionError> {
        let Some(connection) = self.body.as_ref().and_then(ReplyBody::connection) else { return Ok(()) };
        if connection.is_reclaimed() {
            return Err(ConnectionError::Reclaimed);
        }
        if is_timed && !self.body.as_ref().is_some_and(ReplyBody::is_open_ended) {
            connection.wait_for_reader(cx.waker());
        }
        Ok(())
    }
}

/// Waits for the client, and for what else the task waits for.
fn wait(io: &mut ClientIo, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
    if io.is_late(cx) {
        return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    }
    Poll::Pending
}
