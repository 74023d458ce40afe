//! Health checks: one request to an endpoint.

use http::header::{CONNECTION, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;

use super::endpoint::dial;
use super::members::Member;
use super::spec::{HealthSpec, UpstreamSpec};
use crate::http_client::HttpConnection;

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

/// Checks an endpoint: it is healthy if it responds with 2xx or 3xx in time. Fails when the endpoint is unhealthy.
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
    let uri = format!("{}://{}{}{}", server.scheme(), server.authority(), server.base_path, spec.path);
    let user_agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (health check)");
    let mut request = Request::get(uri).header(USER_AGENT, user_agent).body(Full::default())?;
    let stream = dial(member.endpoint.address, member.fallback, upstream, server).await?;
    let mut connection = if upstream.is_http2 {
        HttpConnection::http2(stream).await?
    } else {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        HttpConnection::http1(stream).await?
    };
    let status = connection.send(request).await?.status();
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(ProbeError::Status(status)) }
}
