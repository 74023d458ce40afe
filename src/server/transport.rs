//! From an accepted socket to a connection on which requests can come: the PROXY header, and TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ListenerSpec;
use super::connection_limiter::{ConnectionLimiter, ConnectionPermit, Full};
use super::proxy_protocol::{self, ProxyHeaderError};
use crate::proxy::ActiveProxy;
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
    #[error("{0}")]
    Full(#[from] Full),
    #[error("no TLS: {}", tls_error(.0))]
    Tls(#[from] io::Error),
}

/// A place for a connection that was accepted just now.
pub(super) fn place(
    places: &Arc<ConnectionLimiter>,
    address: SocketAddr,
    spec: &ListenerSpec,
    live: &ActiveProxy,
) -> Result<ConnectionPermit, Full> {
    // Where a PROXY header comes, it says whose place it is.
    let client = if spec.proxy_protocol { None } else { live.now().client_at(address.ip()) };
    let mut place = places.take(spec.max_connections, client)?;
    if let Some(client) = client {
        place.give_to(client, spec.max_connections_per_client)?;
    }
    Ok(place)
}

/// Gives a place to a client, if it is one: many may be behind a trusted proxy.
fn give(
    place: &mut ConnectionPermit,
    address: SocketAddr,
    spec: &ListenerSpec,
    live: &ActiveProxy,
) -> Result<(), Full> {
    let client = live.now().client_at(address.ip());
    client.map_or(Ok(()), |client| place.give_to(client, spec.max_connections_per_client))
}

/// What is wrong with a handshake, in words that also tell of who took the port for one without TLS.
fn tls_error(error: &io::Error) -> String {
    use rustls::{Error, InvalidMessage};
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "what came is something else, such as HTTP without it".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Does what comes before the first request; none is coming where that fails.
pub(super) async fn accept(
    stream: TcpStream,
    address: SocketAddr,
    spec: &ListenerSpec,
    live: &ActiveProxy,
    place: &mut ConnectionPermit,
) -> Option<Accepted> {
    if spec.tls.is_none() && !spec.proxy_protocol {
        return Some(Accepted { stream: Transport::Plain(stream), address });
    }
    // Apart, because it is large, and a plain connection does not need it.
    match Box::pin(timeout(spec.handshake_timeout, handshake(stream, address, spec, live, place))).await {
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
    live: &ActiveProxy,
    place: &mut ConnectionPermit,
) -> Result<Accepted, HandshakeError> {
    if spec.proxy_protocol {
        if !live.now().trusts(address.ip()) {
            return Err(HandshakeError::Stranger);
        }
        address = proxy_protocol::read(&mut stream).await?.unwrap_or(address);
        give(place, address, spec, live)?;
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
