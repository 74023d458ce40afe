//! The connection to a collector: requests and their messages over HTTP/1.1, with TLS or without.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;

use super::spec::ExportSpec;
use crate::http_client::{self, HttpConnection, retry_after};
use crate::telemetry::protobuf::{FieldValue, Message, fields};
use crate::telemetry::push_attribute;

/// The longest response that is read.
const MAX_RESPONSE: usize = 64 * 1024;

/// A client of one collector, which keeps its connection.
#[derive(Debug)]
pub(super) struct CollectorClient {
    spec: ExportSpec,
    connection: Option<HttpConnection>,
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

impl CollectorClient {
    pub fn new(spec: ExportSpec) -> Self {
        Self { spec, connection: None }
    }

    pub fn spec(&self) -> &ExportSpec {
        &self.spec
    }

    /// Sends a request, and returns the body of the response.
    pub async fn send(&mut self, body: Bytes) -> Result<Bytes, ExportError> {
        let mut request =
            Request::post(self.spec.endpoint.uri()).body(Full::new(body)).map_err(io::Error::other)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        request.headers_mut().extend(self.spec.headers.iter().cloned());
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && !connection.is_ready().await
        {
            kept = None;
        }
        let mut connection = if let Some(connection) = kept {
            connection
        } else {
            let stream = http_client::connect(request.uri(), self.spec.tls.as_ref()).await?;
            HttpConnection::http1(stream).await?
        };
        let (head, body) = connection.send(request).await?.into_parts();
        let body = http_client::read(body, MAX_RESPONSE).await.map_err(ExportError::Body)?;
        self.connection = Some(connection);
        if head.status == StatusCode::OK {
            Ok(body)
        } else {
            Err(ExportError::Status(head.status, retry_after(&head.headers)))
        }
    }
}

/// Sends a request without spans, within the timeout of an export.
pub async fn check_collector(spec: &ExportSpec) -> Result<(), ExportError> {
    let body = Bytes::from(encode(&spec.resource, &[]));
    let sent = tokio::time::timeout(spec.timeout, CollectorClient::new(spec.clone()).send(body)).await;
    sent.unwrap_or(Err(ExportError::TimedOut)).map(drop)
}

/// A request with encoded spans of a process with these attributes.
pub(super) fn encode(resource: &[(Box<str>, Box<str>)], spans: &[Vec<u8>]) -> Vec<u8> {
    let length: usize = spans.iter().map(|span| span.len() + 8).sum();
    let mut request = Message::with_capacity(length + 1024);
    // ResourceSpans
    request.nested(1, |of_resource| {
        of_resource.nested(1, |message| {
            for (key, value) in resource {
                push_attribute(message, 1, key, (&**value).into());
            }
        });
        // ScopeSpans
        of_resource.nested(2, |of_scope| {
            of_scope.nested(1, |scope| {
                scope.bytes(1, b"tidegate");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                of_scope.bytes(2, span);
            }
        });
    });
    request.into_bytes()
}

/// The number of spans that a collector has rejected, by its response.
pub(super) fn rejected(response: &[u8]) -> u64 {
    // The field `partial_success`, and in that `rejected_spans`.
    let partial = fields(response).filter_map(|(field, value)| match (field, value) {
        (1, FieldValue::Bytes(partial)) => Some(partial),
        _ => None,
    });
    let rejected = partial.flat_map(fields).filter_map(|(field, value)| match (field, value) {
        (1, FieldValue::Integer(count)) => Some(count),
        _ => None,
    });
    rejected.last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_spans_are_read() {
        assert_eq!(rejected(b""), 0);
        let mut response = Message::default();
        response.nested(1, |partial| {
            partial.integer(1, 300);
            partial.bytes(2, b"quota exceeded");
        });
        assert_eq!(rejected(&response.into_bytes()), 300);
        assert_eq!(rejected(b"\x0a\x7fnot a message"), 0);
    }
}
