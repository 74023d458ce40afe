//! What is left of a request after both sides have switched protocols: bytes both ways.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::Instant;

use super::log_entry::LogEntry;
use super::reply::BodySource;
use super::{ClientConnection, Connect, ProxyResponse, local_reply, websocket};
use crate::socket::LazyTimer;
use crate::time::monotonic;
use crate::upstream::ServerEnd;

/// Bytes that are held for each direction.
const BUFFER: usize = 8 * 1024;

/// A tunnel whose client's end is still to come.
#[derive(Debug)]
pub struct Tunnel {
    server: ServerEnd,
    /// How long both sides may be silent.
    timeout: Duration,
    line: Line,
}

/// The tunnel's line of the access log, which is written when this is dropped, however the tunnel ends.
#[derive(Debug)]
struct Line {
    entry: Option<Box<LogEntry>>,
    /// Bytes that have come from the server.
    bytes: Cell<u64>,
}

/// An end of a tunnel that notes what is read from it.
struct Noted<'n, S> {
    stream: S,
    read: &'n Cell<u64>,
    heard: &'n Cell<Instant>,
}

/// Begins a tunnel if the server has agreed to a handshake: over the stream of `connect`, or, as it is returned, over the
/// whole connection.
pub(super) fn switch(
    peer: &ClientConnection,
    response: ProxyResponse<BodySource>,
    connect: Option<Connect>,
    entry: &mut Option<Box<LogEntry>>,
) -> (ProxyResponse<BodySource>, Option<Box<Tunnel>>) {
    // To a CONNECT of HTTP/2 success would mean that there is a tunnel.
    let is_misleading = connect.is_some() && response.head.status.is_success();
    if response.head.status != StatusCode::SWITCHING_PROTOCOLS && !is_misleading {
        return (response, None);
    }
    let ProxyResponse { mut head, body, .. } = response;
    let server = match body {
        BodySource::Upstream(body) if !is_misleading => body.into_tunnel(),
        _ => None,
    };
    let Some(server) = server else { return (local_reply::not_switched().map(BodySource::Own), None) };
    websocket::agree(&mut head, connect.is_some());
    if let Some(entry) = entry {
        entry.record.status = Some(head.status);
    }
    let tunnel = Tunnel {
        server,
        timeout: peer.tunnel_timeout(),
        line: Line { entry: entry.take(), bytes: Cell::new(0) },
    };
    let response = ProxyResponse::new(head, BodySource::Own(Bytes::new()));
    let Some(connect) = connect else { return (response, Some(Box::new(tunnel))) };
    tokio::task::spawn_local(async move {
        if let Ok(client) = connect.stream.await {
            tunnel.run(TokioIo::new(client)).await;
        }
    });
    (response, None)
}

impl Tunnel {
    /// Carries bytes until both sides have ended, one of them breaks, or nothing comes from either for too long. A side
    /// that ends is heard of on the other, which may still speak.
    pub async fn run(mut self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let (heard, said) = (Cell::new(monotonic()), Cell::new(0));
        let mut client = Noted { stream: client, read: &said, heard: &heard };
        let mut server = Noted { stream: &mut self.server, read: &self.line.bytes, heard: &heard };
        let mut alarm = LazyTimer::default();
        let mut copy = pin!(copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER));
        poll_fn(|cx| match copy.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => alarm.wait_until(heard.get() + self.timeout, cx),
        })
        .await;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.record.bytes = self.bytes.get();
            entry.write();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.read.set(self.read.get() + (buf.filled().len() - before) as u64);
        self.heard.set(monotonic());
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
