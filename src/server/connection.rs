//! One connection of a client, from its first byte to its last.

mod http2;
mod metered;
mod streams;

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use http::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::drain::Open;
use super::transport::Accepted;
use super::{ListenerSpec, Protocols};
use crate::proxy::{ClientTimes, Live, Peer};
use crate::socket::{Patience, Timed};
use crate::time::monotonic;
use crate::tls::Transport;

/// hyper's own number of headers; to set it, even to the same, makes every request slower.
const USUAL_HEADERS: usize = 100;

/// Bytes that are read of a body, or that wait to be written, before more come. hyper would take 400 KiB of each.
const MAX_BUFFERED: usize = 64 * 1024;

/// How HTTP/2 begins (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a connection that has nothing to do stays open when the server drains: what a client had sent
/// before it could know is still answered.
const LINGER: Duration = Duration::from_millis(500);

/// How connections of one listener speak HTTP/1.1. Times are kept by the socket, not by hyper.
pub(super) fn protocol(spec: &ListenerSpec) -> http1::Builder {
    let mut protocol = http1::Builder::new();
    let max_buffered = MAX_BUFFERED.max(spec.max_header_bytes);
    protocol.header_read_timeout(None).max_header_size(spec.max_header_bytes).max_buf_size(max_buffered);
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
    let times = ClientTimes {
        header: spec.header_timeout,
        body: spec.body_timeout,
        idle: spec.idle_timeout,
        tunnel: spec.tunnel_timeout,
    };
    let peer = match &stream {
        Transport::Plain(_) => Peer::new(address, times),
        Transport::Tls(_) => Peer::over_tls(address, times, stream.peer_subject()),
    };
    let peer = Rc::new(peer);
    let Protocols { h1, h2 } = spec.protocols;
    // Over TLS both ends have agreed on it, or have not.
    let may_be_http2 = h2 && (!h1 || stream.is_http2() || matches!(stream, Transport::Plain(_)));
    let mut stream = Timed::new(stream, Rc::clone(peer.patience()));
    let is_http2 =
        if may_be_http2 { speaks_http2(&mut stream, peer.patience(), &open).await } else { Ok(false) };
    let end = match is_http2 {
        Ok(false) if h1 => serve_http1(stream, protocol, peer, live, open).await,
        // Also where there is no choice and it does not: the library knows how to say so.
        Ok(_) => Box::pin(http2::serve(stream, spec, peer, live, open)).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = end {
        tracing::debug!(%address, "connection ended: {error}");
    }
}

/// Whether a connection begins as HTTP/2 does.
async fn speaks_http2<S: AsyncRead + Unpin>(
    stream: &mut Timed<S>,
    patience: &Patience,
    open: &Open,
) -> io::Result<bool> {
    let mut begun = pin!(open.begun());
    let mut is_listening = false;
    poll_fn(|cx| {
        if !is_listening {
            is_listening = true;
            let _ = begun.as_mut().poll(cx);
        }
        if open.is_draining() {
            patience.hasten(monotonic() + LINGER);
        }
        let is_enough = |first: &[u8]| first.len() >= PREFACE.len() || !PREFACE.starts_with(first);
        stream.poll_ahead(cx, is_enough).map_ok(|first| first.starts_with(PREFACE))
    })
    .await
}

/// Serves requests that come one after the other.
async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin>(
    stream: Timed<S>,
    protocol: &http1::Builder,
    peer: Rc<Peer>,
    live: Rc<Live>,
    open: Open,
) -> Result<(), Box<dyn Error>> {
    let patience = Rc::clone(peer.patience());
    let io = TokioIo::new(stream);
    let asking = Rc::clone(&peer);
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, peer) = (live.now(), Rc::clone(&asking));
        peer.has_asked(!request.body().is_end_stream());
        async move { Ok::<_, Infallible>(proxy.handle(&peer, request).await) }
    });
    let mut connection = protocol.serve_connection(io, service);
    let mut begun = pin!(open.begun());
    let (mut is_listening, mut is_ending, mut linger) = (false, false, None);
    let end = poll_fn(|cx| {
        // Once is enough to be woken at the beginning of the end: a task's waker stays the same.
        let is_first = !is_listening;
        if is_first {
            is_listening = true;
            let _ = begun.as_mut().poll(cx);
        }
        if open.is_draining() {
            patience.hasten(*linger.get_or_insert_with(|| monotonic() + LINGER));
            // To shut down while nothing has been asked would close at once, over a request on its way: hyper must
            // have seen the first bytes.
            if !is_ending && !is_first && !patience.awaits_head() {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
        let end = Pin::new(&mut connection).poll(cx);
        if let Some(linger) = linger {
            patience.hasten(linger);
        }
        if end.is_pending() && patience.is_last() && !is_ending {
            is_ending = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if end.is_pending() && patience.is_unwatched() {
            // hyper has answered after it had looked for the next request: it must look again.
            return Pin::new(&mut connection).poll(cx);
        }
        end
    });
    end.await?;
    if let Some(tunnel) = peer.take_tunnel() {
        let parts = connection.into_parts();
        Box::pin(tunnel.run(parts.io.into_inner().release(parts.read_buf))).await;
    }
    Ok(())
}
