//! Health checks of endpoints, and the check whether servers can be reached, for `tidegate check --connect`.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use http::header::{CONNECTION, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;

use super::resolver::SystemResolver;
use crate::http_client::HttpConnection;
use crate::time::monotonic;
use crate::upstream::endpoint::dial;
use crate::upstream::error::NotHttp2;
use crate::upstream::selection::members::Member;
use crate::upstream::server::{ServerPeer, ServerSpec};
use crate::upstream::shared::SharedUpstream;
use crate::upstream::spec::{HealthSpec, UpstreamSpec};

/// Why a health check failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::upstream) enum ProbeError {
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
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
pub(in crate::upstream) async fn probe(
    member: &Member,
    upstream: &UpstreamSpec,
    spec: &HealthSpec,
) -> Result<(), ProbeError> {
    tokio::time::timeout(spec.timeout, request_health(member, upstream, spec))
        .await
        .unwrap_or(Err(ProbeError::Late))
}

/// Sends the request of a health check. Fails when there is no response with 2xx or 3xx.
async fn request_health(
    member: &Member,
    upstream: &UpstreamSpec,
    spec: &HealthSpec,
) -> Result<(), ProbeError> {
    // Each member is an address of one of the servers.
    let server = &upstream.servers[member.endpoint.server];
    let uri = format!("{}://{}{}{}", server.scheme(), server.authority(), server.base_path, spec.path);
    let user_agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (health check)");
    let mut request = Request::get(uri).header(USER_AGENT, user_agent).body(Full::default())?;
    let stream = dial(&member.endpoint.address, member.fallback, upstream, server).await?;
    let mut connection = if upstream.is_http2 {
        HttpConnection::http2(stream).await?
    } else {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        HttpConnection::http1(stream).await?
    };
    let status = connection.send(request).await?.status();
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(ProbeError::Status(status)) }
}

/// What was found at an address of a server.
#[derive(Debug)]
pub struct ServerCheck {
    /// The server, by its label.
    pub server: String,
    /// The address that the DNS has for it; none if it was not looked up, or not found.
    pub address: Option<String>,
    /// How long it took.
    pub took: Duration,
    /// How the server was reached, such as `connected by TLS, healthy (/status)`.
    pub result: Result<String, ServerCheckError>,
}

/// Why a server can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerCheckError {
    /// Its name has no address.
    #[error("{0} can't be resolved: {1}")]
    Name(Box<str>, String),
    /// No connection, or no TLS.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// Its health check fails.
    #[error("the health check {path} fails: {error}")]
    Health {
        /// The path of the check.
        path: Box<str>,
        /// Why it fails.
        error: String,
    },
    /// The timeout has passed.
    #[error("no connection within {limit:?}")]
    TimedOut {
        /// The timeout.
        limit: Duration,
        /// Whether the connection uses TLS.
        is_tls: bool,
    },
}

/// Connects to every address of every server, with TLS and a health check if they are configured. Name
/// resolution, connection and health check take `limit` each at most.
pub async fn check_servers(upstream: &UpstreamSpec, limit: Duration) -> Vec<ServerCheck> {
    let shared = SharedUpstream::new(upstream);
    let named = upstream
        .servers
        .iter()
        .enumerate()
        .filter_map(|(index, server)| Some((index, server, server.dns_name()?)));
    let resolving = named.map(|(index, server, name)| {
        let shared = &shared;
        async move {
            let started = monotonic();
            let resolved = tokio::time::timeout(limit, resolve(server)).await;
            let resolved = resolved.unwrap_or_else(|_| Err("no response in time".to_owned()));
            let error = match resolved {
                Ok(peers) => {
                    shared.set_peers(index, &peers, monotonic());
                    return None;
                }
                Err(error) => error,
            };
            let result = Err(ServerCheckError::Name(name.into(), error));
            Some(ServerCheck { server: server.label(), address: None, took: monotonic() - started, result })
        }
    });
    let unresolved = join_all(resolving).await.into_iter().flatten();
    let members = shared.members();
    let checked = join_all(members.iter().map(|member| check(member, upstream, limit))).await;
    unresolved.chain(checked).collect()
}

async fn resolve(server: &ServerSpec) -> Result<Vec<ServerPeer>, String> {
    let resolver = SystemResolver::new("/etc").resolver().borrow().clone();
    let resolver = resolver.ok_or_else(|| "the name servers of this system can't be used".to_owned())?;
    resolver.resolve(server).await.map(|found| found.peers)
}

async fn check(member: &Member, upstream: &UpstreamSpec, limit: Duration) -> ServerCheck {
    let started = monotonic();
    let connect_limit = limit.min(upstream.connect_timeout);
    let result = tokio::time::timeout(connect_limit, connect(member, upstream)).await;
    let server = &upstream.servers[member.endpoint.server];
    let late = ServerCheckError::TimedOut { limit: connect_limit, is_tls: server.is_tls };
    let result = match result.unwrap_or(Err(late)) {
        Ok(found) => check_health(member, upstream, limit).await.map(|health| found + &health),
        Err(error) => Err(error),
    };
    ServerCheck {
        server: server.label(),
        address: server.dns_name().map(|_| member.endpoint.address.to_string()),
        took: monotonic() - started,
        result,
    }
}

async fn connect(member: &Member, upstream: &UpstreamSpec) -> Result<String, ServerCheckError> {
    let server = &upstream.servers[member.endpoint.server];
    let transport = dial(&member.endpoint.address, member.fallback, upstream, server).await?;
    if server.is_tls && upstream.is_http2 && !transport.is_http2() {
        return Err(io::Error::other(NotHttp2).into());
    }
    Ok(if server.is_tls { "connected by TLS" } else { "connected" }.to_owned())
}

/// Does a health check, if there are any, within `limit` and the timeout of health checks.
async fn check_health(
    member: &Member,
    upstream: &UpstreamSpec,
    limit: Duration,
) -> Result<String, ServerCheckError> {
    let Some(health) = &upstream.health else { return Ok(String::new()) };
    let failed =
        |error: ProbeError| ServerCheckError::Health { path: health.path.clone(), error: error.to_string() };
    let probed = tokio::time::timeout(limit, probe(member, upstream, health)).await;
    probed.unwrap_or(Err(ProbeError::Late)).map_err(failed)?;
    Ok(format!(", healthy ({})", health.path))
}
