//! One connection of a client, from its first byte to its last.
//!
//! It waits, and it is served. While it waits, for its first byte or because its client has been idle for a while, nothing
//! is held but the socket and what is known of it; what it takes to serve requests is made when there is one.

mod frame_flood;
mod http1;
mod http2;
mod stream_tracker;

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use self::http1::Parked;
use super::drain::ConnectionTracker;
use super::transport::Accepted;
use super::{ListenerSpec, Protocols};
use crate::proxy::{ActiveProxy, ClientConnection};
use crate::socket::{BufferedStream, LazyTimer, TimedStream};
use crate::time::monotonic;
use crate::tls::Transport;

/// How HTTP/2 begins (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// SETTINGS, with which every server begins, and a GOAWAY for a protocol error.
const NO_PREFACE: [u8; 26] = *b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

/// How long a connection that has nothing to do stays open when the server drains: what a client had sent
/// before it could know is still answered.
const LINGER: Duration = Duration::from_millis(500);

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Http1,
    Http2,
    /// Its end.
    Nothing,
}

/// A connection that waits for its first bytes, or for those of the next request after a while.
struct Waiting<'l> {
    stream: BufferedStream<Transport>,
    spec: &'l ListenerSpec,
    open: &'l ConnectionTracker,
    /// How a connection begins that speaks HTTP/2, where it may.
    preface: &'static [u8],
    /// By when the first bytes must be there.
    by: Instant,
    has_begun: bool,
    alarm: LazyTimer,
}

/// Serves a connection until either end closes it.
pub(super) async fn serve(
    accepted: Accepted,
    spec: &ListenerSpec,
    live: &Rc<ActiveProxy>,
    open: &ConnectionTracker,
) {
    let Accepted { stream, address } = accepted;
    let mut drain_begun = pin!(open.begun());
    // Once is enough for all of the connection: a task's waker stays the same.
    poll_fn(|cx| {
        let _ = drain_begun.as_mut().poll(cx);
        open.watch(cx);
        Poll::Ready(())
    })
    .await;
    let Protocols { h1, h2 } = spec.protocols;
    // What TLS has agreed on (ALPN) is spoken, and nothing else (RFC 9113 §3.2 and §3.3).
    let must_be_http2 = !h1 || stream.is_http2();
    let may_be_http2 = h2 && (must_be_http2 || matches!(stream, Transport::Plain(_)));
    let mut waiting = Waiting {
        stream: BufferedStream::new(stream),
        spec,
        open,
        preface: if may_be_http2 { PREFACE } else { b"" },
        by: monotonic() + spec.idle_timeout,
        has_begun: false,
        alarm: LazyTimer::default(),
    };
    let end = loop {
        let begins = waiting.begin().await;
        // Boxed because they are large, and a connection that waits does not need them.
        let served = match begins {
            Beginning::Nothing => {
                Box::pin(http1::close(waiting.stream, spec, open, false)).await;
                break Ok(());
            }
            Beginning::Http1 if must_be_http2 => {
                let mut stream = waiting.stream;
                stream.out().extend_from_slice(&NO_PREFACE);
                Box::pin(http1::close(stream, spec, open, true)).await;
                break Err("the client has to speak HTTP/2, and does not".into());
            }
            Beginning::Http1 => {
                let peer = peer(address, spec, waiting.stream.get_ref());
                Box::pin(http1::serve(waiting.stream, peer, spec, live, open)).await
            }
            Beginning::Http2 => {
                let peer = peer(address, spec, waiting.stream.get_ref());
                Box::pin(http2::serve(waiting.stream, spec, peer, live, open)).await.map(|()| None)
            }
        };
        match served {
            // A connection that has spoken HTTP/1.1 goes on with it.
            Ok(Some(Parked { stream, by })) => {
                let alarm = LazyTimer::default();
                waiting = Waiting { stream, spec, open, preface: b"", by, has_begun: false, alarm };
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if let Err(error) = end {
        tracing::debug!(%address, "connection ended: {error}");
    }
}

fn peer(address: SocketAddr, spec: &ListenerSpec, transport: &Transport) -> ClientConnection {
    let peer = ClientConnection::new(address, spec.client_times());
    match transport {
        Transport::Plain(_) => peer,
        Transport::Tls(_) => peer.over_tls(transport.peer_subject()),
    }
}

/// A client's end of a tunnel, of which some bytes were read before.
fn tunnel_end(stream: Transport, read: Bytes, spec: &ListenerSpec) -> TimedStream<Transport> {
    TimedStream::new(stream, read, spec.idle_timeout)
}

impl Waiting<'_> {
    /// Waits for the first bytes, as many as tell whether they are the preface; without one, for the first of all.
    async fn begin(&mut self) -> Beginning {
        self.open.set_idle(true);
        poll_fn(|cx| self.poll_begin(cx)).await
    }

    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Beginning> {
        loop {
            if let Some(beginning) = self.beginning() {
                return Poll::Ready(beginning);
            }
            match self.stream.poll_fill(cx) {
                Poll::Ready(Ok(1..)) if !self.has_begun => {
                    self.has_begun = true;
                    self.by = monotonic() + self.spec.header_timeout;
                }
                Poll::Ready(Ok(1..)) => {}
                // What has come is the beginning of nothing else.
                Poll::Ready(Ok(0)) if self.stream.unread_length() > 0 => {
                    return Poll::Ready(Beginning::Http1);
                }
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Beginning::Nothing),
                Poll::Pending => break,
            }
        }
        // Its buffer is for others meanwhile.
        self.stream.release();
        if self.open.is_draining() && !self.has_begun {
            self.by = self.by.min(monotonic() + LINGER);
        }
        // TLS has messages of its own.
        let is_broken = matches!(self.poll_flush(cx), Poll::Ready(Err(_)));
        if is_broken || self.open.is_evicted() || self.alarm.wait_until(self.by, cx).is_ready() {
            return Poll::Ready(Beginning::Nothing);
        }
        Poll::Pending
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stream.get_mut() {
            Transport::Plain(_) => Poll::Ready(Ok(())),
            stream @ Transport::Tls(_) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// What the bytes that have come are the beginning of, if they are enough to tell.
    fn beginning(&mut self) -> Option<Beginning> {
        let (unread, preface) = (&self.stream.unread()[..], self.preface);
        if unread.is_empty() || unread.len() < preface.len() && preface.starts_with(unread) {
            return None;
        }
        Some(if !preface.is_empty() && unread.starts_with(preface) {
            Beginning::Http2
        } else {
            Beginning::Http1
        })
    }
}
