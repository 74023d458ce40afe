//! One connection of a client, from its first byte to its last.
//!
//! It waits, and it is served. While it waits, for its first byte or because its client has been idle for a while, nothing
//! is held but the socket and what is known of it; what it takes to serve requests is made when there is one.

mod http1;
mod http2;
mod metered;
mod streams;

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use tokio::io::{AsyncWrite as _, AsyncWriteExt as _};

use super::drain::Open;
use super::transport::Accepted;
use super::{ListenerSpec, Protocols};
use crate::proxy::{ClientTimes, Live, Peer};
use crate::socket::{Patience, Timed};
use crate::time::monotonic;
use crate::tls::Transport;

pub(super) use http1::protocol;

/// Bytes that are read of a body, or that wait to be written, before more come. hyper would take 400 KiB of each.
const MAX_BUFFERED: usize = 64 * 1024;

/// How HTTP/2 begins (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// SETTINGS, with which every server begins, and a GOAWAY for a protocol error.
const NO_PREFACE: [u8; 26] = *b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// How long a connection that has nothing to do stays open when the server drains: what a client had sent
/// before it could know is still answered.
const LINGER: Duration = Duration::from_millis(500);

/// What a connection begins with, or goes on with.
enum Beginning {
    Http1,
    Http2,
    /// Its end.
    Nothing,
}

/// Serves a connection until either end closes it.
pub(super) async fn serve(
    accepted: Accepted,
    spec: &ListenerSpec,
    protocol: &Builder,
    live: &Rc<Live>,
    open: &Open,
) {
    let Accepted { stream, address } = accepted;
    let Protocols { h1, h2 } = spec.protocols;
    // What TLS has agreed on (ALPN) is spoken, and nothing else (RFC 9113 §3.2 and §3.3).
    let must_be_http2 = !h1 || stream.is_http2();
    let may_be_http2 = h2 && (must_be_http2 || matches!(stream, Transport::Plain(_)));
    let mut preface = if may_be_http2 { PREFACE } else { b"" };
    let patience = times(spec).patience();
    let mut stream = Timed::new(stream, Rc::clone(&patience));
    let end = loop {
        let begins = beginning(&mut stream, preface, &patience, open).await;
        let peer = || {
            let peer = Peer::new(address, times(spec), Rc::clone(&patience));
            Rc::new(match stream.get_ref() {
                Transport::Plain(_) => peer,
                transport @ Transport::Tls(_) => peer.over_tls(transport.peer_subject()),
            })
        };
        // Apart, because they are large, and a connection that waits does not need them.
        let served = match begins {
            Ok(Beginning::Nothing) => {
                close(stream).await;
                break Ok(());
            }
            Err(error) => {
                close(stream).await;
                break Err(error.into());
            }
            Ok(Beginning::Http1) if must_be_http2 => {
                // It may be gone already.
                let _ = stream.write_all(&NO_PREFACE).await;
                close(stream).await;
                break Err("the client has to speak HTTP/2, and does not".into());
            }
            Ok(Beginning::Http1) => {
                let peer = peer();
                Box::pin(http1::serve(stream, protocol, peer, live, open)).await
            }
            Ok(Beginning::Http2) => {
                let peer = peer();
                Box::pin(http2::serve(stream, spec, peer, live, open)).await.map(|()| None)
            }
        };
        match served {
            Ok(Some(rested)) => stream = rested,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        // What has spoken HTTP/1.1 goes on with it.
        preface = b"";
    };
    if let Err(error) = end {
        tracing::debug!(%address, "connection ended: {error}");
    }
}

fn times(spec: &ListenerSpec) -> ClientTimes {
    ClientTimes {
        header: spec.header_timeout,
        body: spec.body_timeout,
        idle: spec.idle_timeout,
        tunnel: spec.tunnel_timeout,
        min_body_rate: spec.min_body_rate,
    }
}

/// Waits for the first bytes, as many as tell whether they are `preface`; without one, for the first of all.
async fn beginning(
    stream: &mut Timed<Transport>,
    preface: &[u8],
    patience: &Patience,
    open: &Open,
) -> io::Result<Beginning> {
    let mut begun = pin!(open.begun());
    let mut is_listening = false;
    poll_fn(|cx| {
        // Once is enough to be woken at the beginning of the end: a task's waker stays the same.
        if !is_listening {
            is_listening = true;
            let _ = begun.as_mut().poll(cx);
            open.watch(cx);
            open.set_idle(true);
        }
        if open.is_draining() {
            patience.hasten(monotonic() + LINGER);
        }
        let is_enough =
            |first: &[u8]| !first.is_empty() && (first.len() >= preface.len() || !preface.starts_with(first));
        let begins = stream.poll_ahead(cx, is_enough).map_ok(|first| match first {
            [] => Beginning::Nothing,
            _ if !preface.is_empty() && first.starts_with(preface) => Beginning::Http2,
            _ => Beginning::Http1,
        });
        match begins {
            Poll::Pending if open.is_evicted() => Poll::Ready(Ok(Beginning::Nothing)),
            // TLS has answers of its own.
            Poll::Pending => match Pin::new(&mut *stream).poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            },
            ready @ Poll::Ready(_) => ready,
        }
    })
    .await
}

/// Closes a connection on which nothing is under way.
async fn close(mut stream: Timed<Transport>) {
    // It may be broken, and is then closed as well.
    let _ = poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await;
}
