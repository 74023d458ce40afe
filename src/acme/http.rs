//! Requests to an ACME server: one connection each, over TLS and HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::time::{Clock, Timestamp};
use crate::tls::{ClientTls, HandshakeFault};

/// The timeout of a request, from the DNS lookup to the last byte.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a response: a certificate with its chain has some thousand.
const MAX_BODY: usize = 256 * 1024;

/// Makes the requests of one account.
#[derive(Clone, Debug)]
pub(super) struct Http {
    tls: ClientTls,
    /// What the last response with an error said.
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Http {
    pub fn new(tls: ClientTls) -> Self {
        Self { tls, retry_after: Arc::default() }
    }

    /// How long the ACME server has asked to wait in its last error.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.lock().take()
    }

    async fn exchange(&self, mut request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let uri = request.uri().clone();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await.map_err(other)?;
        let stream = self.tls.connect(host, stream).await.map_err(|error| with_cure(&error))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(other)?;
        // Aborts the connection's task when this function returns.
        let mut running = JoinSet::new();
        running.spawn(connection);
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        *request.uri_mut() = target.parse::<Uri>()?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        request.headers_mut().insert(HOST, authority.parse().map_err(other)?);
        let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " instant-acme");
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        let (head, body) = sender.send_request(request).await.map_err(other)?.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(Error::Other)?.to_bytes();
        let is_error = head.status.is_client_error() || head.status.is_server_error();
        if is_error {
            *self.retry_after.lock() = retry_after(&head.headers);
            let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            if !kind.is_some_and(|kind| kind.starts_with("application/problem+json")) {
                return Err(other(io::Error::other(format!("the response is {}", head.status))));
            }
        }
        Ok(Response::from_parts(head, Full::new(body)).into())
    }
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move {
            let timed_out = || {
                let message = format!("no response within {} seconds", TIMEOUT.as_secs());
                Err(other(io::Error::new(io::ErrorKind::TimedOut, message)))
            };
            tokio::time::timeout(TIMEOUT, http.exchange(request)).await.unwrap_or_else(|_| timed_out())
        })
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}

/// The wait that Retry-After asks for, in either of its forms (RFC 9110 §10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = Timestamp::from(httpdate::parse_http_date(text).ok()?);
    Some(Duration::from_micros(date.since(Clock::System.now()).0))
}

/// The error of a handshake, with what to change.
fn with_cure(error: &io::Error) -> Error {
    let cure = match HandshakeFault::of(error) {
        Some(HandshakeFault::UnknownIssuer) => {
            "; if it is a private one, name the authority that has signed its certificate: `ca` of [acme]"
        }
        Some(HandshakeFault::NotTls) => "; it does not speak TLS on this port",
        _ => "",
    };
    other(io::Error::new(error.kind(), format!("{error}{cure}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_read() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(read("120"), Some(120));
        assert_eq!(read("Fri, 31 Dec 1999 23:59:59 GMT"), Some(0));
        assert!(read("Tue, 31 Dec 2199 23:59:59 GMT").unwrap() > 86_400);
        assert_eq!(read("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
