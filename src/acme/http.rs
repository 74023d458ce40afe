//! Requests to an ACME server, one connection each, over TLS and HTTP/1.1; and the meaning of its errors for the next attempt.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use parking_lot::Mutex;

use super::spec::AcmeSpec;
use super::status::{ErrorKind, ObtainError};
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
    /// The `Retry-After` of the last response with an error.
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

/// Help after a failed handshake.
fn cure(fault: HandshakeFault) -> &'static str {
    match fault {
        HandshakeFault::UnknownIssuer => {
            "if it is a private one, name the authority that has signed its certificate: `ca` of [acme]"
        }
        HandshakeFault::NotTls => "it does not speak TLS on this port",
        _ => "",
    }
}

/// The begin of the types of problems.
const NAMESPACE: &str = "urn:ietf:params:acme:error:";

/// Why a request has failed.
pub(super) fn failure(spec: &AcmeSpec, http: &Http, error: Error) -> ObtainError {
    let server = spec.server();
    let (kind, message) = match error {
        Error::Api(problem) if kind_of(&problem) == "accountDoesNotExist" => {
            let message = "the ACME server does not know the account: another one is registered";
            (ErrorKind::UnknownAccount, message.to_owned())
        }
        Error::Api(problem) => {
            let message = format!("the ACME server {server} refuses: {}", describe(&problem));
            let kind = if is_temporary(&problem) { ErrorKind::Unavailable } else { ErrorKind::Rejected };
            (kind, message)
        }
        error => (ErrorKind::Unavailable, format!("the ACME server {server} is unavailable: {error}")),
    };
    ObtainError { kind, message, retry_after: http.retry_after() }
}

/// The text of the ACME server.
pub(super) fn describe(problem: &Problem) -> String {
    let kind = kind_of(problem);
    let detail = problem.detail.as_deref().unwrap_or_default();
    let parts = problem.subproblems.iter().filter_map(|part| part.detail.as_deref());
    let all: Vec<&str> = [detail].into_iter().chain(parts).filter(|text| !text.is_empty()).collect();
    match (all.is_empty(), kind) {
        (true, kind) => kind.to_owned(),
        (false, "") => all.join("; "),
        (false, kind) => format!("{} ({kind})", all.join("; ")),
    }
}

/// Whether the ACME server has a problem that may be gone soon.
pub(super) fn is_temporary(problem: &Problem) -> bool {
    // The member `status` is optional.
    problem.status.is_some_and(|status| status >= 500)
        || ["badNonce", "serverInternal"].contains(&kind_of(problem))
}

/// Whether the client has to wait before its next request: the problem is temporary, or a rate limit is reached.
pub(super) fn asks_to_wait(problem: &Problem) -> bool {
    is_temporary(problem) || kind_of(problem) == "rateLimited"
}

/// The type of a problem without its namespace.
fn kind_of(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix(NAMESPACE).unwrap_or(kind)
}
