//! The steps before the first request of a connection: connection limits, PROXY header and TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection_limiter::{ClientConnectionPermit, ConnectionLimiter, TooManyConnections};
use super::proxy_protocol::{self, ProxyHeaderError};
use super::spec::ListenerSpec;
use crate::boxed::rare;
use crate::proxy::ActiveProxy;
use crate::telemetry::HandshakeFailure;
use crate::tls::Transport;

/// How long to wait for more of the request, since an early close would lose the response.
const PLAIN_HTTP_LINGER: Duration = Duration::from_secs(1);

/// A connection of a client that can be served.
#[derive(Debug)]
pub(super) struct Accepted {
    pub stream: Transport,
    /// The address of the client: that of the PROXY header, where there is one.
    pub address: SocketAddr,
}

/// Why a connection is closed before its first request.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("not a trusted proxy: a listener with `proxy_protocol` accepts only those")]
    UntrustedPeer,
    #[error("{0}")]
    ProxyHeader(#[from] ProxyHeaderError),
    #[error("{0}")]
    TooManyConnections(#[from] TooManyConnections),
    #[error("TLS handshake failed: the client speaks plain HTTP")]
    PlainHttp,
    #[error("TLS handshake failed: {0}")]
    Tls(#[from] io::Error),
    #[error("the peer was an ACME server that validates a name")]
    Validation,
    #[error("handshake not complete within {0:?} (`handshake_timeout`)")]
    Timeout(Duration),
}

impl HandshakeError {
    /// The failure to count; none for a connection that is counted as refused, and for a validation, which succeeds.
    fn failure(&self) -> Option<HandshakeFailure> {
        match self {
            Self::UntrustedPeer => Some(HandshakeFailure::Untrusted),
            Self::ProxyHeader(_) => Some(HandshakeFailure::ProxyHeader),
            Self::TooManyConnections(_) | Self::Validation => None,
            Self::PlainHttp | Self::Tls(_) => Some(HandshakeFailure::Tls),
            Self::Timeout(_) => Some(HandshakeFailure::Timeout),
        }
    }
}

/// Acquires a permit for a connection that was just accepted. Fails when too many connections are open.
pub(super) fn permit(
    limiter: &Arc<ConnectionLimiter>,
    address: SocketAddr,
    spec: &ListenerSpec,
    proxy: &ActiveProxy,
) -> Result<ClientConnectionPermit, TooManyConnections> {
    // The address of the client is not known before the PROXY header is read.
    let client = if spec.proxy_protocol { None } else { proxy.current().client_at(address.ip()) };
    let mut permit = limiter.acquire(spec.max_connections, client)?;
    if let Some(client) = client {
        permit.assign_to(client, spec.max_connections_per_client)?;
    }
    permit.counts().record_accepted();
    Ok(permit)
}

/// Counts a connection as one of its client, unless that is a trusted proxy, which may have any number of clients.
fn assign(
    permit: &mut ClientConnectionPermit,
    address: SocketAddr,
    spec: &ListenerSpec,
    proxy: &ActiveProxy,
) -> Result<(), TooManyConnections> {
    let client = proxy.current().client_at(address.ip());
    client.map_or(Ok(()), |client| permit.assign_to(client, spec.max_connections_per_client))
}

/// Reads the PROXY header and does the TLS handshake, if the listener has them; none if that fails.
pub(super) async fn accept(
    stream: TcpStream,
    address: SocketAddr,
    spec: &ListenerSpec,
    proxy: &ActiveProxy,
    permit: &mut ClientConnectionPermit,
) -> Option<Accepted> {
    if spec.tls.is_none() && !spec.proxy_protocol {
        return Some(Accepted { stream: Transport::Plain(stream), address });
    }
    let handshake = rare(timeout(spec.handshake_timeout, handshake(stream, address, spec, proxy, permit)));
    let result = handshake.await.unwrap_or(Err(HandshakeError::Timeout(spec.handshake_timeout)));
    let counts = permit.counts();
    match result {
        Ok(accepted) => {
            accepted.stream.handshake().inspect(|handshake| counts.record_handshake(*handshake));
            Some(accepted)
        }
        Err(error) => {
            tracing::debug!(%address, "refused: {error}");
            error.failure().inspect(|failure| counts.record_failure(*failure));
            None
        }
    }
}

async fn handshake(
    mut stream: TcpStream,
    mut address: SocketAddr,
    spec: &ListenerSpec,
    proxy: &ActiveProxy,
    permit: &mut ClientConnectionPermit,
) -> Result<Accepted, HandshakeError> {
    if spec.proxy_protocol {
        if !proxy.current().trusts(address.ip()) {
            return Err(HandshakeError::UntrustedPeer);
        }
        address = proxy_protocol::read(&mut stream).await?.unwrap_or(address);
        assign(permit, address, spec, proxy)?;
    }
    let stream = match &spec.tls {
        Some(tls) => {
            // TLS state is large: allocate it only once the client has sent something.
            if is_plain_http(&stream).await? {
                reject_plain_http(stream).await?;
                return Err(HandshakeError::PlainHttp);
            }
            rare(tls.accept_or_validate(stream)).await?.ok_or(HandshakeError::Validation)?
        }
        None => Transport::Plain(stream),
    };
    Ok(Accepted { stream, address })
}

/// The response to plain HTTP on a listener for TLS, where browsers and curl would otherwise show an empty response.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 48\r\n\
                        connection: close\r\n\r\nThis port expects TLS: begin the URL with https\n";

/// Whether the first byte of a connection is that of a method, and not of TLS. Waits for it.
async fn is_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 1 && first[0].is_ascii_uppercase())
}

/// Responds to plain HTTP, and reads until the client closes the connection. The caller bounds the time.
async fn reject_plain_http(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP_RESPONSE.as_bytes()).await?;
    stream.shutdown().await?;
    let mut discarded = [0; 1024];
    while let Ok(Ok(1..)) = timeout(PLAIN_HTTP_LINGER, stream.read(&mut discarded)).await {}
    Ok(())
}

#[cfg(test)]
mod tests {

    #[test]
    fn the_length_is_that_of_the_body() {
        let (head, body) = super::PLAIN_HTTP_RESPONSE.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
