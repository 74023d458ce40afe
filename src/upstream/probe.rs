//! One check of a server: a request of our own.

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

/// Why a server is not well.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no valid answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("no answer in time")]
    Late,
    /// The path was checked together with the configuration.
    #[error("the path can't be asked for: {0}")]
    Request(#[from] http::Error),
}

/// Asks a server whether it is well: it is if it answers with 2xx or 3xx in time.
pub(super) async fn probe(
    member: &Member,
    upstream: &UpstreamSpec,
    spec: &HealthSpec,
) -> Result<(), ProbeError> {
    tokio::time::timeout(spec.timeout, ask(member, upstream, spec)).await.unwrap_or(Err(ProbeError::Late))
}

async fn ask(member: &Member, upstream: &UpstreamSpec, spec: &HealthSpec) -> Result<(), ProbeError> {
    // A member is made of one of the servers.
    let server = &upstream.servers[member.endpoint.server];
    let (authority, path) = (server.authority(), format!("{}{}", server.base_path, spec.path));
    let user = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (health check)");
    let stream = dial(member.endpoint.address, member.fallback, upstream, server).await?;
    let io = TokioIo::new(stream);
    let response = if upstream.is_http2 {
        let request = Request::get(format!("{}://{authority}{path}", server.scheme()));
        let request = request.header(USER_AGENT, user).body(Empty::<Bytes>::new())?;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        first(sender.send_request(request), connection).await?
    } else {
        let request = Request::get(path).header(HOST, authority).header(USER_AGENT, user);
        let request = request.header(CONNECTION, "close").body(Empty::<Bytes>::new())?;
        let (mut sender, connection) = http1::handshake(io).await?;
        first(sender.send_request(request), connection).await?
    };
    let status = response.status();
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(ProbeError::Status(status)) }
}

/// Waits for an answer, and lets its connection go on meanwhile.
async fn first<R>(
    answer: impl Future<Output = hyper::Result<R>>,
    connection: impl Future<Output = hyper::Result<()>>,
) -> hyper::Result<R> {
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    tokio::select! {
        biased;
        response = &mut answer => response,
        // What it has said is still to be had.
        _ = &mut connection => answer.await,
    }
}
