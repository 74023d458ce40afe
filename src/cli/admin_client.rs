//! A client of the admin interface.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use url::Url;

use super::admin_args::TlsFiles;
use super::output::Failure;
use super::unix_permission;
use crate::admin::api::ErrorBody;
use crate::admin::{AdminAddress, AdminSpec};
use crate::http_client::{self, HttpConnection};
use crate::tls::ClientTls;

/// How long a response may take: listing the keys of a large Redis takes a while.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response, in bytes: more than the longest list.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// A client of one admin interface.
#[derive(Debug)]
pub(super) struct AdminClient {
    target: InterfaceAddress,
    token: Option<String>,
}

/// The address of the interface. It is displayed as a URL.
#[derive(Debug)]
enum InterfaceAddress {
    /// Host and port, for the connection and for the Host header.
    Tcp(String),
    /// Host and port, and the name that the certificate must have.
    Tls { authority: String, name: String, tls: ClientTls },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A request to the interface.
#[derive(Debug)]
pub(super) struct AdminRequest {
    method: Method,
    target: String,
    body: String,
}

impl AdminRequest {
    pub fn get(path: &str, parameters: &[(&str, &str)]) -> Self {
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        Self { method: Method::GET, target: format!("{path}?{query}"), body: String::new() }
    }

    pub fn post(path: &str, body: &impl Serialize) -> Self {
        // Serialization can't fail: the value has only text.
        let body = serde_json::to_string(body).unwrap_or_default();
        Self { method: Method::POST, target: path.to_owned(), body }
    }
}

impl AdminClient {
    /// A client of the interface at a URL; `tls` is for `https`. Fails if the URL is not that of an interface, or a file of `tls`
    /// can't be used.
    pub fn at_url(text: &str, token: Option<String>, tls: &TlsFiles) -> Result<Self, String> {
        let form =
            "write it as http://127.0.0.1:9900, https://gate.internal:9900 or unix:/run/tidegate/admin.sock";
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!("the path of a Unix socket starts with `/`\nhelp: {form}"));
            }
            return Ok(Self { target: InterfaceAddress::Unix(path.into()), token });
        }
        let url =
            Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}\nhelp: {form}"))?;
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        let host = url.host_str().filter(|_| is_bare && !has_user);
        let target = match (url.scheme(), host) {
            ("http", Some(host)) => InterfaceAddress::Tcp(format!("{host}:{}", url.port().unwrap_or(80))),
            ("https", Some(host)) => InterfaceAddress::Tls {
                authority: format!("{host}:{}", url.port().unwrap_or(443)),
                name: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
                tls: tls.read()?,
            },
            _ => {
                return Err(format!(
                    "the admin interface has an http:// or https:// URL without a path\nhelp: {form}"
                ));
            }
        };
        Ok(Self { target, token })
    }

    /// A client of the interface of a configuration, on this machine.
    pub fn from_spec(spec: &AdminSpec, token: Option<String>, tls: &TlsFiles) -> Result<Self, String> {
        let target = match (&spec.address, &spec.tls) {
            (AdminAddress::Unix { path, .. }, _) => InterfaceAddress::Unix(path.clone()),
            (AdminAddress::Tcp(address), None) => {
                InterfaceAddress::Tcp(on_this_machine(*address).to_string())
            }
            (AdminAddress::Tcp(address), Some(server)) => {
                let address = on_this_machine(*address);
                // The certificate is for a name, and the connection goes to an address.
                let name = server.default_name().filter(|name| !name.starts_with("*."));
                InterfaceAddress::Tls {
                    authority: address.to_string(),
                    name: name.unwrap_or_else(|| address.ip().to_string()),
                    tls: tls.read()?,
                }
            }
        };
        let token = token.or_else(|| spec.token.as_ref().map(|token| token.reveal().to_owned()));
        Ok(Self { target, token })
    }

    /// Sends a request, and waits for the response at most this long.
    pub fn fetch(&self, request: &AdminRequest, timeout: Duration) -> Result<(StatusCode, Bytes), ErrorBody> {
        let unreachable = |error: &dyn fmt::Display, help: Option<String>| ErrorBody {
            error: format!("can't reach the admin interface at {}: {error}", self.target),
            help: help
                .or_else(|| Some("is the proxy running? name another interface with --admin URL".to_owned())),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ErrorBody { error: error.to_string(), help: None })?;
        let exchange = async { tokio::time::timeout(timeout, self.exchange(request)).await };
        match runtime.block_on(exchange) {
            Ok(response) => response.map_err(|error| unreachable(&error, self.permission_cure(&error))),
            Err(_) => Err(unreachable(&"no response in time", None)),
        }
    }

    /// Who may use the Unix socket, if the error says that this user may not.
    fn permission_cure(&self, error: &anyhow::Error) -> Option<String> {
        let InterfaceAddress::Unix(path) = &self.target else { return None };
        let error = error.downcast_ref::<io::Error>()?;
        (error.kind() == io::ErrorKind::PermissionDenied).then(|| unix_permission::cure(path)).flatten()
    }

    /// Sends a request, and waits for the response.
    fn send(&self, request: &AdminRequest) -> Result<Value, ErrorBody> {
        let (status, body) = self.fetch(request, TIMEOUT)?;
        if status != StatusCode::OK {
            return Err(rejection(status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| ErrorBody { error: format!("the response is not valid: {error}"), help: None })
    }

    /// Sends a request, and waits for the status and the body of the response. Fails if there is none, or it rejects the request
    /// itself (400, 401, 403 and the like); the message has been printed. Statuses in `expected` are no errors.
    pub fn fetch_or_complain(
        &self,
        request: &AdminRequest,
        expected: &[StatusCode],
    ) -> Result<(StatusCode, Bytes), Failure> {
        let fetched = self.fetch(request, TIMEOUT).and_then(|(status, body)| {
            let is_expected = status == StatusCode::OK || expected.contains(&status);
            if is_expected { Ok((status, body)) } else { Err(rejection(status, &body)) }
        });
        fetched.map_err(|failed| complain_of(&failed))
    }

    /// Sends a request, and waits for the response.
    pub fn send_or_complain(&self, request: &AdminRequest) -> Result<Value, Failure> {
        self.send(request).map_err(|failed| complain_of(&failed))
    }

    async fn exchange(&self, request: &AdminRequest) -> anyhow::Result<(StatusCode, Bytes)> {
        let (mut connection, authority) = match &self.target {
            InterfaceAddress::Tcp(authority) => {
                (HttpConnection::http1(TcpStream::connect(authority).await?).await?, &**authority)
            }
            InterfaceAddress::Tls { authority, name, tls } => {
                let stream = tls.connect(name, TcpStream::connect(authority).await?).await?;
                (HttpConnection::http1(stream).await?, &**authority)
            }
            InterfaceAddress::Unix(path) => {
                (HttpConnection::http1(UnixStream::connect(path).await?).await?, "localhost")
            }
        };
        let mut head = Request::builder()
            .method(request.method.clone())
            .uri(format!("http://{authority}{}", request.target))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| anyhow::anyhow!("the token has characters that a header can't have"))?;
            value.set_sensitive(true);
            head = head.header(AUTHORIZATION, value);
        }
        let request = head.body(Full::new(Bytes::from(request.body.clone())))?;
        let (head, body) = connection.send(request).await?.into_parts();
        let body = http_client::read(body, MAX_RESPONSE).await.map_err(|error| anyhow::anyhow!(error))?;
        Ok((head.status, body))
    }
}

/// The error of a response.
fn rejection(status: StatusCode, body: &[u8]) -> ErrorBody {
    let rejection = serde_json::from_slice(body);
    let rejection =
        rejection.unwrap_or_else(|_| ErrorBody { error: format!("the response is {status}"), help: None });
    if status == StatusCode::UNAUTHORIZED {
        let help = "set TIDEGATE_ADMIN_TOKEN to the token of [admin]";
        return ErrorBody { help: Some(help.to_owned()), ..rejection };
    }
    rejection
}

fn complain_of(failed: &ErrorBody) -> Failure {
    Failure::Running.error(&failed.error).help(&failed.help)
}

/// The address at which this machine reaches a listener of this address.
pub(super) fn on_this_machine(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => write!(f, "http://{authority}"),
            Self::Tls { authority, .. } => write!(f, "https://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Complains about a response of another form than expected.
pub(super) fn unknown_response() -> Failure {
    Failure::Running.error("the response is not that of an admin interface of this version of tidegate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_http_without_user_path_or_query() {
        let target = |url| {
            let client = AdminClient::at_url(url, None, &TlsFiles::default());
            client.map(|client| client.target.to_string()).ok()
        };
        assert_eq!(target("http://127.0.0.1:9900").as_deref(), Some("http://127.0.0.1:9900"));
        assert_eq!(target("http://[::1]:9900/").as_deref(), Some("http://[::1]:9900"));
        assert_eq!(target("http://gate.internal").as_deref(), Some("http://gate.internal:80"));
        assert_eq!(target("https://gate.internal").as_deref(), Some("https://gate.internal:443"));
        assert_eq!(target("unix:/run/admin.sock").as_deref(), Some("unix:/run/admin.sock"));
        for wrong in [
            "127.0.0.1:9900",
            "ftp://a",
            "https://a/b",
            "http://a/b",
            "http://a?b",
            "http://u:p@a",
            "",
            "http://",
            "unix:a",
        ] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_unspecified_address_is_reached_through_the_loopback() {
        let target = |address: &str| on_this_machine(address.parse().unwrap()).to_string();
        assert_eq!(target("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(target("[::]:1"), "[::1]:1");
        assert_eq!(target("192.0.2.1:1"), "192.0.2.1:1");
    }
}
