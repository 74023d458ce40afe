//! The connection to a collector: requests over HTTP/1.1, with TLS or without.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::request::encode;
use super::spec::ExportSpec;
use crate::tls::Transport;

/// The longest response that is read.
const MAX_RESPONSE: usize = 64 * 1024;

/// A client of one collector, which keeps its connection.
#[derive(Debug)]
pub(super) struct Client {
    spec: ExportSpec,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The connection's task, which is aborted with this value.
    _task: JoinSet<()>,
}

/// Why the collector has not accepted a request.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No connection.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// A failure of the HTTP exchange.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The response is too long or incomplete.
    #[error("the response's body: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// A status other than 200.
    #[error("the response is {0}")]
    Status(StatusCode, Option<Duration>),
    /// The timeout has passed.
    #[error("no response in time")]
    TimedOut,
}

impl ExportError {
    /// Whether the same request may succeed later (OTLP specification, "Retryable Response Codes").
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Status(status, _) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Connect(_) | Self::Http(_) => true,
            Self::Body(_) | Self::TimedOut => false,
        }
    }

    /// How long the collector asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Status(_, retry_after) = self { *retry_after } else { None }
    }
}

impl Client {
    pub fn new(spec: ExportSpec) -> Self {
        Self { spec, connection: None }
    }

    pub fn spec(&self) -> &ExportSpec {
        &self.spec
    }

    /// Sends a request, and returns the body of the response.
    pub async fn send(&mut self, body: Bytes) -> Result<Bytes, ExportError> {
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && connection.sender.ready().await.is_err()
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let response = connection.sender.send_request(self.request(body)?).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await.map_err(ExportError::Body)?.to_bytes();
        self.connection = Some(connection);
        if head.status == StatusCode::OK {
            Ok(body)
        } else {
            Err(ExportError::Status(head.status, retry_after(&head.headers)))
        }
    }

    async fn connect(&self) -> Result<Connection, ExportError> {
        let (host, port) = self.spec.endpoint.address();
        let stream = TcpStream::connect((host, port)).await?;
        let stream = match &self.spec.tls {
            None => Transport::Plain(stream),
            Some(tls) => tls.connect(host, stream).await?,
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut task = JoinSet::new();
        // Its error is also that of the request.
        task.spawn(async { drop(connection.await) });
        Ok(Connection { sender, _task: task })
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, io::Error> {
        let endpoint = &self.spec.endpoint;
        let mut request = Request::post(endpoint.target()).body(Full::new(body)).map_err(io::Error::other)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION"))));
        headers.extend(self.spec.headers.iter().cloned());
        headers.insert(HOST, endpoint.authority().parse().map_err(io::Error::other)?);
        Ok(request)
    }
}

/// Sends a request without spans, within the timeout of an export.
///
/// # Errors
/// Why the collector has not accepted it.
pub async fn check_collector(spec: &ExportSpec) -> Result<(), ExportError> {
    let body = Bytes::from(encode(&spec.resource, &[]));
    let sent = tokio::time::timeout(spec.timeout, Client::new(spec.clone()).send(body)).await;
    sent.unwrap_or(Err(ExportError::TimedOut)).map(drop)
}

/// The seconds of Retry-After.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}
