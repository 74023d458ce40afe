//! One connection of a client, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::ListenerSpec;
use super::drain::Open;
use super::transport::Accepted;
use crate::proxy::{ClientTimes, Live, Peer};
use crate::socket::Timed;
use crate::time::monotonic;
use crate::tls::Transport;

/// hyper's own number of headers; to set it, even to the same, makes every request slower.
const USUAL_HEADERS: usize = 100;

/// How long a connection that has nothing to do stays open when the server drains: what a client had sent
/// before it could know is still answered.
const LINGER: Duration = Duration::from_millis(500);

/// How connections of one listener speak HTTP/1.1. Times are kept by the socket, not by hyper.
pub(super) fn protocol(spec: &ListenerSpec) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol.header_read_timeout(None).max_header_size(spec.max_header_bytes);
    if spec.max_headers != USUAL_HEADERS {
        protocol.max_headers(spec.max_headers);
    }
    protocol
}

/// Serves a connection until either end closes it.
pub(super) async fn serve(
    accepted: Accepted,
    spec: &ListenerSpec,
    protocol: &http1::Builder,
    live: Rc<Live>,
    open: Open,
) {
    let Accepted { stream, address } = accepted;
    let times = ClientTimes { header: spec.header_timeout, body: spec.body_timeout, idle: spec.idle_timeout };
    let peer = match &stream {
        Transport::Plain(_) => Peer::new(address, times),
        Transport::Tls(_) => Peer::over_tls(address, times, stream.peer_subject()),
    };
    let peer = Rc::new(peer);
    let patience = Rc::clone(peer.patience());
    let io = TokioIo::new(Timed::new(stream, Rc::clone(&patience)));
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, peer) = (live.now(), Rc::clone(&peer));
        peer.has_asked(!request.body().is_end_stream());
        async move { Ok::<_, Infallible>(proxy.handle(&peer, request).await) }
    });
    let mut connection = pin!(protocol.serve_connection(io, service));
    let mut begun = pin!(open.begun());
    let (mut is_listening, mut is_ending, mut linger) = (false, false, None);
    let end = poll_fn(|cx| {
        // Once is enough to be woken at the beginning of the end: a task's waker stays the same.
        if !is_listening {
            is_listening = true;
            let _ = begun.as_mut().poll(cx);
        }
        if open.is_draining() {
            patience.hasten(*linger.get_or_insert_with(|| monotonic() + LINGER));
            // To shut down while nothing has been asked would close at once, over a request on its way.
            if !is_ending && !patience.awaits_head() {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
        let end = connection.as_mut().poll(cx);
        if let Some(linger) = linger {
            patience.hasten(linger);
        }
        if end.is_pending() && patience.is_last() && !is_ending {
            is_ending = true;
            connection.as_mut().graceful_shutdown();
        }
        if end.is_pending() && patience.is_unwatched() {
            // hyper has answered after it had looked for the next request: it must look again.
            return connection.as_mut().poll(cx);
        }
        end
    });
    if let Err(error) = end.await {
        tracing::debug!(%address, "connection ended: {error}");
    }
}
