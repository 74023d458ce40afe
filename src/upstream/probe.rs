//! Health checks: one request to an endpoint.

use std::pin::pin;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::endpoint::dial;
use super::members::Member;
use super::spec::{HealthSpec, UpstreamSpec};

/// Why a health check failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no valid response: {0}")]
    Http(#[from] hyper::Error),
    #[error("the response is {0}")]
    Status(StatusCode),
    #[error("no response in time")]
    Late,
    /// The path is invalid; the configuration has checked it.
    #[error("the path is invalid: {0}")]
    Request(#[from] http::Error),
}

/// Checks an endpoint: it is healthy if it responds with 2xx or 3xx in time.
///
/// # Errors
/// When the endpoint is unhealthy.
pub(super) async fn probe(
    member: &Member,
    upstream: &UpstreamSpec,
    spec: &HealthSpec,
) -> Result<(), ProbeError> {
    tokio::time::timeout(spec.timeout, check(member, upstream, spec)).await.unwrap_or(Err(ProbeError::Late))
}

async fn check(member: &Member, upstream: &UpstreamSpec, spec: &HealthSpec) -> Result<(), ProbeError> {
    // Each member is an address of one of the servers.
    let server = &upstream.servers[member.endpoint.server];
    let (authority, path) = (server.authority(), format!("{}{}", server.base_path, spec.path));
    let user_agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (health check)");
    let stream = dial(member.endpoint.address, member.fallback, upstream, server).await?;
    let io = TokioIo::new(stream);
    let response = if upstream.is_http2 {
        let request = Request::get(format!("{}://{authority}{path}", server.scheme()));
        let request = request.header(USER_AGENT, user_agent).body(Empty::<Bytes>::new())?;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        drive(sender.send_request(request), connection).await?
    } else {
        let request = Request::get(path).header(HOST, authority).header(USER_AGENT, user_agent);
        let request = request.header(CONNECTION, "close").body(Empty::<Bytes>::new())?;
        let (mut sender, connection) = http1::handshake(io).await?;
        drive(sender.send_request(request), connection).await?
    };
    let status = response.status();
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(ProbeError::Status(status)) }
}

/// Waits for a response, and drives its connection meanwhile.
async fn drive<R>(
    response: impl Future<Output = hyper::Result<R>>,
    connection: impl Future<Output = hyper::Result<()>>,
) -> hyper::Result<R> {
    let (mut response, mut connection) = (pin!(response), pin!(connection));
    tokio::select! {
        biased;
        response = &mut response => response,
        // A response that arrived before the connection ended is still readable.
        _ = &mut connection => response.await,
    }
}
