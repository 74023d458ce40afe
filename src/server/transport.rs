//! From an accepted socket to a connection on which requests can come: the PROXY header, and TLS.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ListenerSpec;
use super::proxy_protocol::{self, ProxyHeaderError};
use crate::proxy::Live;
use crate::tls::Transport;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Accepted {
    pub stream: Transport,
    /// Who the client is.
    pub address: SocketAddr,
}

/// Why no request can come.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("only trusted proxies connect here")]
    Stranger,
    #[error("{0}")]
    ProxyHeader(#[from] ProxyHeaderError),
    #[error("no TLS: {0}")]
    Tls(#[from] io::Error),
}

/// Does what comes before the first request; none is coming where that fails.
pub(super) async fn accept(
    stream: TcpStream,
    address: SocketAddr,
    spec: &ListenerSpec,
    live: &Live,
) -> Option<Accepted> {
    if spec.tls.is_none() && !spec.proxy_protocol {
        return Some(Accepted { stream: Transport::Plain(stream), address });
    }
    // Apart, because it is large, and a plain connection does not need it.
    match Box::pin(timeout(spec.handshake_timeout, handshake(stream, address, spec, live))).await {
        Ok(Ok(accepted)) => return Some(accepted),
        Ok(Err(error)) => tracing::debug!(%address, "refused: {error}"),
        Err(_) => tracing::debug!(%address, "refused: no handshake within {:?}", spec.handshake_timeout),
    }
    None
}

async fn handshake(
    mut stream: TcpStream,
    mut address: SocketAddr,
    spec: &ListenerSpec,
    live: &Live,
) -> Result<Accepted, HandshakeError> {
    if spec.proxy_protocol {
        if !live.now().trusts(address.ip()) {
            return Err(HandshakeError::Stranger);
        }
        address = proxy_protocol::read(&mut stream).await?.unwrap_or(address);
    }
    let stream = match &spec.tls {
        Some(tls) => {
            // What it takes to speak TLS is large, and made when the client has begun.
            stream.readable().await?;
            Box::pin(tls.accept(stream)).await?
        }
        None => Transport::Plain(stream),
    };
    Ok(Accepted { stream, address })
}
