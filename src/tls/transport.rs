//! A connection, with TLS or without.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::certificate;

/// What is sent in one piece, in bytes: to copy so little costs less than to have the kernel read a list of pieces.
const PIECE: usize = 2048;

/// A connection of a client or to a server. A plain one costs a look at which it is, and nothing more.
#[derive(Debug)]
pub enum Transport {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, whose state is large.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// The subject of the certificate that the other end has shown, as RFC 4514 writes it; none without a certificate,
    /// and where its subject is empty.
    #[must_use]
    pub fn peer_subject(&self) -> Option<String> {
        let Self::Tls(stream) = self else { return None };
        certificate::subject(stream.get_ref().1.peer_certificates()?.first()?)
    }

    /// Whether both ends have agreed on HTTP/2 (ALPN, RFC 9113 §3.2).
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

/// Writes pieces in one call.
fn write_pieces(
    stream: Pin<&mut TcpStream>,
    cx: &mut Context<'_>,
    pieces: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [piece] = pieces {
        return stream.poll_write(cx, piece);
    }
    if pieces.iter().map(|piece| piece.len()).sum::<usize>() > PIECE {
        return stream.poll_write_vectored(cx, pieces);
    }
    let mut room = [MaybeUninit::uninit(); PIECE];
    let mut joined = ReadBuf::uninit(&mut room);
    for piece in pieces {
        joined.put_slice(piece);
    }
    stream.poll_write(cx, joined.filled())
}
