//! One request of a client and its response.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::Method;
use tokio::time::Instant;

use super::io::ClientIo;
use super::response::{ExchangeError, RequestProperties, ResponseWriter, body_framing, names_upgrade};
use super::upload::{PolledUpload, Upload};
use crate::boxed::rare;
use crate::http1::names::CONNECTION;
use crate::http1::{Framing, ParsedRequest, ResponseFraming};
use crate::proxy::{ActiveProxy, ClientConnection, Proxy, ProxyResponse, Tunnel};
use crate::server::drain::ConnectionTracker;
use crate::server::spec::{HeaderCase, ListenerSpec, Service};

/// The context that all requests of a connection share.
pub(super) struct Session<'l> {
    pub client: ClientConnection,
    pub spec: &'l ListenerSpec,
    pub proxy: &'l ActiveProxy,
    pub tracker: &'l ConnectionTracker,
}

/// The next step of a connection after a response.
pub(super) enum Next {
    /// Waits for another request.
    Request,
    /// Reads no other request before this time: the worker is saturated, and has refused this one.
    Pause(Instant),
    /// Discards the rest of the request body, and then waits for another request.
    DiscardBody(Box<Upload>),
    /// Forwards bytes in both directions.
    Tunnel(Box<Tunnel>),
    /// Closes without a response.
    Abandon,
    /// Closes. The client may still be sending.
    Close { client_is_sending: bool },
}

/// A response whose head is in the buffer.
struct StartedResponse {
    writer: ResponseWriter,
    framing: Framing,
    /// Whether the connection closes after it.
    is_last: bool,
    /// Whether the proxy itself has made it.
    is_local: bool,
    is_over_capacity: bool,
    tunnel: Option<Box<Tunnel>>,
}

impl Session<'_> {
    /// Passes a request to the proxy, and writes the response, while the rest of the request body may still be read. Fails when
    /// the client has disconnected, and when the response can't be completed.
    pub async fn serve_request(
        &self,
        io: &mut ClientIo,
        request: ParsedRequest,
    ) -> Result<Next, ExchangeError> {
        let ParsedRequest { head, framing, keeps_alive, expects_continue, .. } = request;
        let properties = RequestProperties {
            version: head.version,
            is_head: head.method == Method::HEAD,
            takes_trailers: crate::proxy::takes_trailers(&head.fields),
            keeps_alive,
            header_case: self.spec.header_case,
            min_rate: self.spec.min_body_rate,
        };
        io.start_response(self.spec.min_body_rate);
        let upload =
            Upload::start(framing, expects_continue, self.spec.body_timeout, self.spec.min_body_rate);
        let ((mut upload, body), mut started) = (upload.unzip(), None);
        // The request keeps this configuration if a reload replaces it meanwhile.
        let proxy = self.proxy.current();
        {
            let (client, body) = (&self.client, body.into());
            let mut handling = pin!(match self.spec.service {
                Service::Proxy => Either::Left(crate::proxy::serve(&proxy, client, head, body, None)),
                Service::EnvoyRatelimit => {
                    Either::Right(rare(crate::ratelimit_service::serve(&proxy, client, head, body)))
                }
            });
            let (io, client) = (&mut *io, &self.client);
            poll_fn(|cx| {
                loop {
                    let handled = handling.as_mut().poll(cx);
                    if !client.interim().is_empty() {
                        write_interim_responses(io, &proxy, client, properties.header_case);
                    }
                    if let Poll::Ready(response) = handled {
                        // Started here, since a response is large, and each return would copy it.
                        started = self.start(io, &properties, response, &mut upload);
                        return Poll::Ready(Ok(()));
                    }
                    let progress = upload.as_mut().map_or(PolledUpload::Idle, |upload| upload.poll(io, cx));
                    // A part of the body was sent to the proxy: poll it again.
                    if progress != PolledUpload::Sent {
                        return poll_client(io, (&mut upload, progress), client, cx);
                    }
                }
            })
            .await?;
        }
        let Some(mut response) = started else { return Ok(Next::Abandon) };
        let written = poll_fn(|cx| response.writer.poll(io, &mut upload, cx)).await;
        if written.is_err() && response.framing == Framing::UntilClose {
            // After an orderly close the client would treat the partial body as complete.
            io.reset_on_close();
        }
        written?;
        Ok(self.after(io, response, upload))
    }

    /// Writes the head of a response into the buffer; none if the client gets no response.
    fn start(
        &self,
        io: &mut ClientIo,
        properties: &RequestProperties,
        response: ProxyResponse,
        upload: &mut Option<Box<Upload>>,
    ) -> Option<StartedResponse> {
        if response.closes {
            return None;
        }
        if let Some(upload) = upload {
            // An interim response must not follow the start of the final one.
            upload.skip_continue();
        }
        let ProxyResponse { head, body, is_over_capacity, tunnel, .. } = response;
        let is_local = body.is_local();
        let body_framing = body_framing(properties, &head, &body);
        // Connection may name an upgrade; any other response requests the close of the connection by it. After a local response a
        // long rest of the request body is not worth reading.
        let is_last = !properties.keeps_alive
            || self.tracker.is_draining()
            || !names_upgrade(&head) && head.fields.contains(CONNECTION)
            || is_local && upload.as_ref().is_some_and(|upload| !upload.is_discardable())
            || body_framing == Framing::UntilClose;
        if body.is_open_ended() {
            // An event stream may pause, so it has no minimum rate.
            io.start_response(None);
        }
        let framing = ResponseFraming { version: properties.version, body: body_framing, is_last };
        Some(StartedResponse {
            writer: ResponseWriter::start(io, properties, head, body, framing),
            framing: body_framing,
            is_last,
            is_local,
            is_over_capacity,
            tunnel,
        })
    }

    /// The next step after a response that is written.
    fn after(&self, io: &mut ClientIo, response: StartedResponse, upload: Option<Box<Upload>>) -> Next {
        if let Some(tunnel) = response.tunnel {
            return Next::Tunnel(tunnel);
        }
        let next = after_response(io, upload, response.is_last, response.is_local);
        if response.is_over_capacity
            && matches!(next, Next::Request)
            && let Some(end) =
                self.tracker.pacer().pause_after_refusal(self.client.ip(), &self.proxy.current())
        {
            return Next::Pause(end);
        }
        next
    }
}

/// Writes the interim responses that have arrived into the buffer.
#[cold]
fn write_interim_responses(io: &mut ClientIo, proxy: &Proxy, client: &ClientConnection, case: HeaderCase) {
    let out = io.stream.out();
    let start = out.len();
    crate::proxy::write_interim_responses(proxy, client, out);
    case.apply(&mut out[start..]);
}

/// The next step after a response, which depends on how much of the request body was read. `is_local` says that the
/// response was made by the proxy, which has not read the body.
fn after_response(io: &mut ClientIo, upload: Option<Box<Upload>>, is_last: bool, is_local: bool) -> Next {
    let next = |is_last| if is_last { Next::Close { client_is_sending: false } } else { Next::Request };
    let Some(mut upload) = upload else { return next(is_last) };
    if upload.is_complete() || !is_local && upload.discard_buffered(io) {
        return next(is_last || upload.must_close());
    }
    // After a response of the server the rest of the body may be long, so it is not read to keep the connection.
    if is_last || !is_local { Next::Close { client_is_sending: true } } else { Next::DiscardBody(upload) }
}

/// Waits for the client while the proxy handles a request. Fails when the client has disconnected.
fn poll_client<T>(
    io: &mut ClientIo,
    (upload, progress): (&mut Option<Box<Upload>>, PolledUpload),
    client: &ClientConnection,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ExchangeError>> {
    let is_read = upload.as_ref().is_none_or(|upload| upload.is_complete());
    if progress != PolledUpload::Waiting && (is_read || client.is_delayed()) {
        io.read_ahead(cx)?;
    }
    // A half-closed client may still read its response, but one whose request a limit delays must not reach a server.
    let has_left_delay = io.is_half_closed() && client.is_delayed();
    // `100 Continue` may not be written yet.
    if let Poll::Ready(Err(error)) = io.poll_flush(cx) {
        return Poll::Ready(Err(error.into()));
    }
    if has_left_delay || io.is_timed_out(cx) {
        Poll::Ready(Err(ExchangeError::Disconnected))
    } else {
        Poll::Pending
    }
}
