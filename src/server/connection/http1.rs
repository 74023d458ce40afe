//! HTTP/1.1: requests that come one after the other.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{LINGER, MAX_BUFFERED};
use crate::proxy::{Live, Peer, ProxyResponse, ReplyBody};
use crate::server::ListenerSpec;
use crate::server::drain::Open;
use crate::socket::{Patience, Timed};
use crate::time::monotonic;

/// hyper's own number of headers; to set it, even to the same, makes every request slower.
const USUAL_HEADERS: usize = 100;

/// How connections of one listener speak HTTP/1.1. Times are kept by the socket, not by hyper.
pub(in crate::server) fn protocol(spec: &ListenerSpec) -> Builder {
    let mut protocol = Builder::new();
    let max_buffered = MAX_BUFFERED.max(spec.max_header_bytes);
    protocol.header_read_timeout(None).max_header_size(spec.max_header_bytes).max_buf_size(max_buffered);
    if spec.max_headers != USUAL_HEADERS {
        protocol.max_headers(spec.max_headers);
    }
    protocol
}

/// A connection that is read, until this is dropped. A request can outlive its connection, and hyper then ends its body
/// as if that were complete.
struct ReadConnection(Rc<Patience>);

impl ReadConnection {
    fn new(patience: &Rc<Patience>) -> Self {
        patience.set_gone(false);
        Self(Rc::clone(patience))
    }
}

impl Drop for ReadConnection {
    fn drop(&mut self) {
        self.0.set_gone(true);
    }
}

/// Serves requests until either end closes the connection, or it rests; then there is its stream.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: Timed<S>,
    protocol: &Builder,
    peer: Rc<Peer>,
    live: &Rc<Live>,
    open: &Open,
) -> Result<Option<Timed<S>>, Box<dyn Error>> {
    let patience = Rc::clone(peer.patience());
    stream.check_framing();
    let io = TokioIo::new(stream);
    let (asking, client) = (Rc::clone(&peer), Rc::clone(&peer));
    let mut is_reclaimed = false;
    let serving = Rc::clone(live);
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, peer) = (serving.now(), Rc::clone(&asking));
        let (head, body) = request.into_parts();
        let (version, body) = (head.version, (!body.is_end_stream()).then_some(body));
        peer.has_asked(body.is_some());
        async move {
            let response = proxy.handle(&peer, head.into(), body, None).await;
            Ok::<_, Infallible>(response_to(version, response))
        }
    });
    let mut connection = protocol.serve_connection(io, service);
    // Declared behind the connection, and so dropped before it.
    let _read = ReadConnection::new(&patience);
    let mut begun = pin!(open.begun());
    let (mut is_listening, mut is_ending, mut linger) = (false, false, None);
    let end = poll_fn(|cx| {
        // Once is enough to be woken at the beginning of the end: a task's waker stays the same.
        if !is_listening {
            is_listening = true;
            let _ = begun.as_mut().poll(cx);
            open.watch(cx);
        }
        if open.is_draining() {
            patience.hasten(*linger.get_or_insert_with(|| monotonic() + LINGER));
            // To shut down while nothing has been asked would close at once, over a request on its way: hyper must
            // have seen its whole head.
            if !is_ending && patience.is_asked() {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
        let mut end = Pin::new(&mut connection).poll(cx);
        if let Some(linger) = linger {
            patience.hasten(linger);
        }
        if end.is_pending() && patience.is_last() && !is_ending {
            is_ending = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if end.is_pending() && peer.poll_unread(cx).is_ready() {
            end = Pin::new(&mut connection).poll(cx);
        }
        if end.is_pending() && patience.is_unwatched() {
            // hyper has answered after it had looked for the next request: it must look again.
            end = Pin::new(&mut connection).poll(cx);
        }
        // hyper may still hold the end of the last response.
        let is_idle = !patience.is_asked() && !patience.is_writing();
        open.set_idle(is_idle);
        if end.is_pending() && open.is_evicted() && is_idle {
            return Poll::Ready(Ok(()));
        }
        if end.is_pending() && client.is_reclaimed() {
            is_reclaimed = true;
            return Poll::Ready(Ok(()));
        }
        if end.is_pending() && patience.rests() {
            if !is_ending {
                // hyper is idle, so it is done at once; its closing leaves open what rests.
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
                end = Pin::new(&mut connection).poll(cx);
            }
            if end.is_pending() {
                patience.stir();
            }
        }
        end
    });
    if let Err(error) = end.await {
        if patience.is_reading_head() {
            // hyper drops such a connection, and the client could not tell this end from an attacker's: TLS says that
            // it is one (close_notify). Not where a response breaks off, which must not look complete.
            let mut stream = connection.into_parts().io.into_inner();
            let _ = poll_fn(|cx| stream.poll_end(cx)).await;
        }
        return Err(error.into());
    }
    if is_reclaimed {
        return Err("it reads its response too slowly, and others need the connection to the server".into());
    }
    if let Some(tunnel) = peer.take_tunnel() {
        let parts = connection.into_parts();
        Box::pin(tunnel.run(parts.io.into_inner().release(parts.read_buf))).await;
    } else if patience.rests() {
        patience.stir();
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        stream.put_back(parts.read_buf);
        return Ok(Some(stream));
    }
    Ok(None)
}

/// A response as hyper sends it to a client that speaks `version`.
fn response_to(version: Version, response: ProxyResponse) -> Response<ReplyBody> {
    let ProxyResponse { mut head, body } = response;
    let reason = head.reason.take();
    let mut response = head.into_response(body);
    if let Some(Ok(reason)) = reason.map(|reason| ReasonPhrase::try_from(&*reason)) {
        response.extensions_mut().insert(reason);
    }
    if version == Version::HTTP_10 {
        end_old(&mut response);
    }
    response
}

/// Makes a response fit for a client that speaks HTTP/1.0, and may have asked to keep its connection: where the length of
/// the body is unknown, the end of the connection is the end of the body.
fn end_old(response: &mut Response<ReplyBody>) {
    let is_delimited = response.body().is_end_stream() || response.body().size_hint().exact().is_some();
    if !is_delimited {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if response.headers().contains_key(CONNECTION) {
        // To a response of HTTP/1.1 hyper would add `keep-alive` for this client.
        *response.version_mut() = Version::HTTP_10;
    }
}
