//! A client of the admin interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use url::Url;

use crate::admin::api::Failed;
use crate::admin::{AdminAddress, AdminSpec};

/// The longest that an answer may take; a list from a large Redis takes a while.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer: the longest list, and some.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Where the interface is, and what it wants to be shown.
#[derive(Debug)]
pub(super) struct Client {
    target: Target,
    token: Option<String>,
}

/// Where the interface listens. It is displayed as a URL.
#[derive(Debug)]
enum Target {
    /// Host and port as they are connected to, and as the Host header has them.
    Tcp(String),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Ask {
    method: Method,
    target: String,
    body: String,
}

impl Ask {
    pub fn get(path: &str, parameters: &[(&str, &str)]) -> Self {
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        Self { method: Method::GET, target: format!("{path}?{query}"), body: String::new() }
    }

    pub fn post(path: &str, body: &impl Serialize) -> Self {
        // Text and numbers can always be written.
        let body = serde_json::to_string(body).unwrap_or_default();
        Self { method: Method::POST, target: path.to_owned(), body }
    }
}

impl Client {
    /// The interface at a URL.
    pub fn at(text: &str, token: Option<String>) -> Result<Self, String> {
        let form = "write it as http://127.0.0.1:9900 or unix:/run/tidegate/admin.sock";
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!("the path of a Unix socket starts with `/`\nhelp: {form}"));
            }
            return Ok(Self { target: Target::Unix(path.into()), token });
        }
        let url =
            Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}\nhelp: {form}"))?;
        let is_plain = url.scheme() == "http" && matches!(url.path(), "" | "/") && url.query().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        match url.host_str() {
            Some(host) if is_plain && !has_user => {
                let target = Target::Tcp(format!("{host}:{}", url.port().unwrap_or(80)));
                Ok(Self { target, token })
            }
            _ => Err(format!("the admin interface has an http:// URL without a path\nhelp: {form}")),
        }
    }

    /// The interface that a file describes, on this machine.
    pub fn of(spec: &AdminSpec, token: Option<String>) -> Self {
        let target = match &spec.address {
            AdminAddress::Unix { path, .. } => Target::Unix(path.clone()),
            AdminAddress::Tcp(address) => {
                let mut address = *address;
                match address.ip() {
                    IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
                    IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
                    _ => {}
                }
                Target::Tcp(address.to_string())
            }
        };
        let token = token.or_else(|| spec.token.as_ref().map(|token| token.reveal().to_owned()));
        Self { target, token }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, ask: &Ask) -> Result<Value, Failed> {
        let failed = |error: String| Failed { error, help: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let exchange = async { tokio::time::timeout(PATIENCE, self.exchange(ask)).await };
        let answered = runtime.block_on(exchange);
        let unreachable = |error: &dyn std::fmt::Display| Failed {
            error: format!("can't reach the admin interface at {}: {error}", self.target),
            help: Some("is the proxy running? name another interface with --admin URL".to_owned()),
        };
        let (status, body) = match answered {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return Err(unreachable(&error)),
            Err(_) => return Err(unreachable(&"no answer in time")),
        };
        if status == StatusCode::OK {
            return serde_json::from_slice(&body)
                .map_err(|error| failed(format!("the answer can't be read: {error}")));
        }
        let refused = serde_json::from_slice(&body);
        let refused = refused.unwrap_or_else(|_| failed(format!("the answer is {status}")));
        if status == StatusCode::UNAUTHORIZED {
            let help = "set TIDEGATE_ADMIN_TOKEN to the token of [admin]";
            return Err(Failed { help: Some(help.to_owned()), ..refused });
        }
        Err(refused)
    }

    async fn exchange(&self, ask: &Ask) -> anyhow::Result<(StatusCode, Bytes)> {
        match &self.target {
            Target::Tcp(authority) => self.send(ask, TcpStream::connect(authority).await?, authority).await,
            Target::Unix(path) => self.send(ask, UnixStream::connect(path).await?, "localhost").await,
        }
    }

    /// Asks over this connection; `host` is for the Host header.
    async fn send(
        &self,
        ask: &Ask,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.target)
            .header(HOST, host)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| anyhow::anyhow!("the token has characters that no header can have"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::from(ask.body.clone())))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        driver.abort();
        Ok((status, body.map_err(|error| anyhow::anyhow!(error))?.to_bytes()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => write!(f, "http://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_plain() {
        let target = |url| Client::at(url, None).map(|client| client.target.to_string()).ok();
        assert_eq!(target("http://127.0.0.1:9900").as_deref(), Some("http://127.0.0.1:9900"));
        assert_eq!(target("http://[::1]:9900/").as_deref(), Some("http://[::1]:9900"));
        assert_eq!(target("http://gate.internal").as_deref(), Some("http://gate.internal:80"));
        assert_eq!(target("unix:/run/admin.sock").as_deref(), Some("unix:/run/admin.sock"));
        for wrong in [
            "127.0.0.1:9900",
            "https://a",
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
    fn every_address_is_reached_through_the_loopback() {
        let target = |address: &str| {
            let spec = AdminSpec { address: AdminAddress::Tcp(address.parse().unwrap()), token: None };
            Client::of(&spec, None).target.to_string()
        };
        assert_eq!(target("0.0.0.0:1"), "http://127.0.0.1:1");
        assert_eq!(target("[::]:1"), "http://[::1]:1");
        assert_eq!(target("192.0.2.1:1"), "http://192.0.2.1:1");
    }
}
