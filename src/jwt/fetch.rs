//! Fetching keys: one GET over HTTP/1.1, with TLS or without.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use url::{Position, Url};

use super::keys::{JwksError, Keys};
use crate::http_client::{self, HttpConnection};
use crate::tls::{ClientTls, HandshakeFault, TlsError};

/// The timeout of a fetch, from the DNS lookup to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The URL of a key set (JWKS). Displayed without path and query, which may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySetUrl(Url);

/// Why a text is no URL of a key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetUrlError {
    /// Not a URL.
    #[error("this is no URL")]
    Malformed,
    /// Another scheme.
    #[error("keys are fetched over https:// or http://")]
    Scheme,
    /// The URL has a user or a password.
    #[error("the URL of keys has no user information")]
    UserInformation,
}

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection, or a certificate that is not trusted.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// TLS could not be set up.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// A failure of the HTTP exchange.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// A status other than 200; redirects are not followed.
    #[error("the response is {0}")]
    Status(StatusCode),
    /// The body is incomplete or too long.
    #[error("the response's body: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The timeout has passed.
    #[error("no response within {} seconds", TIMEOUT.as_secs())]
    TimedOut,
    /// The response has no keys.
    #[error("the response is no JWKS: {0}")]
    Keys(#[from] JwksError),
}

impl KeySetUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, KeySetUrlError> {
        let url = Url::parse(text).map_err(|_| KeySetUrlError::Malformed)?;
        match url.scheme() {
            "http" | "https" => {}
            _ => return Err(KeySetUrlError::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(KeySetUrlError::UserInformation);
        }
        Ok(Self(url))
    }

    /// Whether keys are fetched over plain HTTP from another machine, where others may read and change them.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let is_local = match self.0.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        self.0.scheme() == "http" && !is_local
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Fetches the key set, within [`TIMEOUT`].
    pub(super) async fn fetch(&self, tls: Option<&ClientTls>) -> Result<Bytes, FetchError> {
        tokio::time::timeout(TIMEOUT, self.get(tls)).await.unwrap_or(Err(FetchError::TimedOut))
    }

    async fn get(&self, tls: Option<&ClientTls>) -> Result<Bytes, FetchError> {
        // The URL parser has escaped all characters that are not allowed here.
        let uri: Uri = self.0.as_str().parse().map_err(io::Error::other)?;
        let stream = http_client::connect(&uri, tls).await;
        let stream = stream.map_err(|error| HandshakeFault::add_cure(&error, cure))?;
        let mut request = Request::new(Full::default());
        *request.uri_mut() = uri;
        let accepted = HeaderValue::from_static("application/jwk-set+json, application/json");
        request.headers_mut().insert(ACCEPT, accepted);
        let mut connection = HttpConnection::http1(stream).await?;
        let response = connection.send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        http_client::read(response.into_body(), Keys::MAX_TEXT).await.map_err(FetchError::Body)
    }
}

/// Help after a failed handshake.
fn cure(fault: HandshakeFault) -> &'static str {
    match fault {
        HandshakeFault::UnknownIssuer => {
            "install the authority that has signed its certificate on this system"
        }
        HandshakeFault::NotTls => "it does not speak TLS, so its URL begins with http://",
        _ => "",
    }
}

impl std::fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0[..Position::BeforePath])
    }
}

impl std::fmt::Debug for KeySetUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeySetUrl({self})")
    }
}
