//! Requests to an ACME server: one connection each, over TLS and HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;

use crate::http_client::{self, HttpConnection};
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

    async fn exchange(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (mut head, body) = request.into_parts();
        let stream = http_client::connect(&head.uri, Some(&self.tls)).await;
        let stream = stream.map_err(|error| other(HandshakeFault::add_cure(&error, cure)))?;
        let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " instant-acme");
        head.headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let body = Full::new(body.collect().await.map_err(other)?.to_bytes());
        let mut connection = HttpConnection::http1(stream).await.map_err(other)?;
        let response = connection.send(Request::from_parts(head, body)).await.map_err(other)?;
        let (head, body) = response.into_parts();
        let body = http_client::read(body, MAX_BODY).await.map_err(Error::Other)?;
        let is_error = head.status.is_client_error() || head.status.is_server_error();
        if is_error {
            *self.retry_after.lock() = http_client::retry_after(&head.headers);
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

/// What to change after a failed handshake.
fn cure(fault: HandshakeFault) -> &'static str {
    match fault {
        HandshakeFault::UnknownIssuer => {
            "if it is a private one, name the authority that has signed its certificate: `ca` of [acme]"
        }
        HandshakeFault::NotTls => "it does not speak TLS on this port",
        _ => "",
    }
}
