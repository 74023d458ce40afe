//! The steps before the first request of a connection: connection limits, PROXY header and TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection_limiter::{ClientConnectionPermit, ConnectionLimiter, TooManyConnections};
use super::plain_http;
use super::proxy_protocol::{self, ProxyHeaderError};
use super::spec::ListenerSpec;
use crate::boxed::rare;
use crate::proxy::ActiveProxy;
use crate::telemetry::HandshakeFailure;
use crate::tls::Transport;

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
            if plain_http::is_first(&stream).await? {
                plain_http::reject(stream).await?;
                return Err(HandshakeError::PlainHttp);
            }
            rare(tls.accept_or_validate(stream)).await?.ok_or(HandshakeError::Validation)?
        }
        None => Transport::Plain(stream),
    };
    Ok(Accepted { stream, address })
}
