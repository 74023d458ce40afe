//! Tunnels: forward bytes in both directions after a protocol switch.
//!
//! Tunnels begin when a server has accepted a WebSocket handshake. Over HTTP/1.1 the `ProxyResponse` carries the `Tunnel`, and
//! the client's connection runs it with its stream; over HTTP/2 it is a stream with a task. The upstream side keeps the
//! `ResponseBody`, and so the `Permit` and the connection, until the last byte.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::Instant;

use super::request_record::RequestRecord;
use super::settlement::Pending;
use crate::socket::LazyTimer;
use crate::time::monotonic;
use crate::upstream::ServerEnd;

/// The size of the buffer for each direction, in bytes.
const BUFFER: usize = 8 * 1024;

/// What a tunnel takes from the response to an upgrade.
pub(super) struct AcceptedUpgrade {
    /// The server's end.
    pub server: ServerEnd,
    /// The limits that the tunnel settles.
    pub pending: Option<Pending>,
}

/// A tunnel that waits for the client's connection or stream.
#[derive(Debug)]
pub struct Tunnel {
    server: ServerEnd,
    /// How long both sides may be idle.
    timeout: Duration,
    record: TunnelRecord,
}

/// The record of the tunnel's request, finished on drop, however the tunnel ends.
#[derive(Debug)]
struct TunnelRecord {
    request: RequestRecord,
    /// Bytes that have been read from the server.
    bytes: Cell<u64>,
    /// Bytes that have been read from the client.
    from_client: Cell<u64>,
    /// The limits that the tunnel settles.
    pending: Option<Box<Pending>>,
}

/// An end of a tunnel; counts the bytes that are read from it, and records the time of the last read.
struct CountedStream<'n, S> {
    stream: S,
    read: &'n Cell<u64>,
    last_read: &'n Cell<Instant>,
}

/// Starts the tunnel of an accepted upgrade: over HTTP/2 in a task, on the stream of its CONNECT request; otherwise it is
/// returned, for the whole connection.
pub(super) fn start(
    accepted: AcceptedUpgrade,
    timeout: Duration,
    request: RequestRecord,
    connect_stream: Option<OnUpgrade>,
) -> Option<Box<Tunnel>> {
    let AcceptedUpgrade { server, pending } = accepted;
    let (bytes, from_client) = (Cell::new(0), Cell::new(0));
    let record = TunnelRecord { request, bytes, from_client, pending: pending.map(Box::new) };
    let tunnel = Tunnel { server, timeout, record };
    let Some(stream) = connect_stream else { return Some(Box::new(tunnel)) };
    tokio::task::spawn_local(async move {
        if let Ok(client) = stream.await {
            tunnel.run(TokioIo::new(client)).await;
        }
    });
    None
}

impl Tunnel {
    /// Forwards bytes until both sides have ended, one of them fails, or both are idle for too long. The end of one side
    /// is forwarded; the other may still send.
    pub async fn run(mut self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let last_read = Cell::new(monotonic());
        let mut client =
            CountedStream { stream: client, read: &self.record.from_client, last_read: &last_read };
        let mut server =
            CountedStream { stream: &mut self.server, read: &self.record.bytes, last_read: &last_read };
        let mut timer = LazyTimer::default();
        let mut copy = pin!(copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER));
        poll_fn(|cx| match copy.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => timer.wait_until(last_read.get() + self.timeout, cx),
        })
        .await;
    }
}

impl Drop for TunnelRecord {
    fn drop(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.settle_tunnel(self.from_client.get(), self.bytes.get());
            self.request.add_costs(&pending.charged());
        }
        self.request.finish_tunnel(self.bytes.get());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.read.set(self.read.get() + (buf.filled().len() - before) as u64);
        self.last_read.set(monotonic());
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<'_, S> {
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
