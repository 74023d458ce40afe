//! A connection, with TLS or without.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::certificate::PeerNames;
use crate::telemetry::Handshake;

/// The most bytes that are copied and written in one piece: for a few, that costs less than a vectored write.
const MAX_JOINED: usize = 2048;

/// A connection of a client or to a server. Without TLS each call costs one branch more than a plain stream.
#[derive(Debug)]
pub enum Transport {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, whose state is large.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// The names in the peer's certificate; none without a certificate.
    #[must_use]
    pub fn peer_names(&self) -> Option<PeerNames> {
        let Self::Tls(stream) = self else { return None };
        stream.get_ref().1.peer_certificates()?.first().map(PeerNames::parse)
    }

    /// The TLS handshake of a client's connection; none without TLS.
    #[must_use]
    pub fn handshake(&self) -> Option<Handshake> {
        let Self::Tls(stream) = self else { return None };
        let connection = stream.get_ref().1;
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        Some(match (connection.protocol_version(), is_resumed) {
            (Some(ProtocolVersion::TLSv1_2), false) => Handshake::Tls12,
            (Some(ProtocolVersion::TLSv1_2), true) => Handshake::ResumedTls12,
            (_, false) => Handshake::Tls13,
            (_, true) => Handshake::ResumedTls13,
        })
    }

    /// Whether ALPN has selected HTTP/2 (RFC 9113 §3.2).
    #[must_use]
    pub fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => write_pieces(Pin::new(stream), cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Writes several pieces with one system call.
fn write_pieces(
    stream: Pin<&mut TcpStream>,
    cx: &mut Context<'_>,
    pieces: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [piece] = pieces {
        return stream.poll_write(cx, piece);
    }
    if pieces.iter().map(|piece| piece.len()).sum::<usize>() > MAX_JOINED {
        return stream.poll_write_vectored(cx, pieces);
    }
    let mut buffer = [MaybeUninit::uninit(); MAX_JOINED];
    let mut joined = ReadBuf::uninit(&mut buffer);
    for piece in pieces {
        joined.put_slice(piece);
    }
    stream.poll_write(cx, joined.filled())
}
