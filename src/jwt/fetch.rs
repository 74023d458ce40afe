//! Fetching keys: one GET over HTTP/1.1, with TLS or without.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use url::{Position, Url};

use super::keys::{JwksError, Keys};
use crate::tls::{ClientTls, TlsError, Transport};

/// The longest that a fetch may take, from the name's look-up to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);

/// A URL where keys are published. It is shown without its path and query, which may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

/// Why a text is no URL of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No URL with a host.
    #[error("this is no URL")]
    Malformed,
    /// Another scheme.
    #[error("keys are fetched over https:// or http://")]
    Scheme,
    /// A user or a password in it.
    #[error("the URL of keys has no user information")]
    UserInformation,
}

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection, or none that is trusted.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// No TLS at all.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// A failure after that.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// An answer other than 200; redirects are not followed.
    #[error("the answer is {0}")]
    Status(StatusCode),
    /// A body that broke off, or that is too long.
    #[error("the answer's body: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer within {} seconds", PATIENCE.as_secs())]
    Late,
    /// Something else than keys.
    #[error("the answer is no JWKS: {0}")]
    Keys(#[from] JwksError),
}

impl Endpoint {
    /// Reads a URL.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let url = Url::parse(text).map_err(|_| EndpointError::Malformed)?;
        match url.scheme() {
            "http" | "https" => {}
            _ => return Err(EndpointError::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInformation);
        }
        Ok(Self(url))
    }

    /// Whether others may read and change what is fetched: over plain HTTP, and not from this machine.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let is_here = match self.0.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        self.0.scheme() == "http" && !is_here
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Fetches what is there now, within [`PATIENCE`].
    pub(super) async fn fetch(&self, tls: Option<&ClientTls>) -> Result<Bytes, FetchError> {
        tokio::time::timeout(PATIENCE, self.get(tls)).await.unwrap_or(Err(FetchError::Late))
    }

    async fn get(&self, tls: Option<&ClientTls>) -> Result<Bytes, FetchError> {
        let host = self.0.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.0.port_or_known_default().unwrap_or_default();
        let stream = TcpStream::connect((host, port)).await?;
        self.ask(match tls {
            None => Transport::Plain(stream),
            Some(tls) => tls.connect(host, stream).await?,
        })
        .await
    }

    async fn ask(&self, stream: Transport) -> Result<Bytes, FetchError> {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with this function, whatever becomes of the answer.
        let mut running = JoinSet::new();
        running.spawn(connection);
        let mut request = Request::new(Empty::<Bytes>::new());
        let target = &self.0[Position::BeforePath..Position::AfterQuery];
        let host = &self.0[Position::BeforeHost..Position::AfterPort];
        // The parser of URLs has escaped whatever could not stand there.
        *request.uri_mut() = target.parse().map_err(io::Error::other)?;
        let headers = request.headers_mut();
        headers.insert(HOST, host.parse().map_err(io::Error::other)?);
        headers.insert(ACCEPT, http::HeaderValue::from_static("application/jwk-set+json, application/json"));
        headers.insert(USER_AGENT, http::HeaderValue::from_static("tidegate"));
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), Keys::MAX_TEXT).collect().await;
        Ok(body.map_err(FetchError::Body)?.to_bytes())
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0[..Position::BeforePath])
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({self})")
    }
}
