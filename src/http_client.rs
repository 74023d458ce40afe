//! Requests of tidegate's own, as to an ACME server or a collector of spans: HTTP/1.1 or HTTP/2 with hyper, over one connection.
//! Users bound their time, and say what an error means.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::time::{Clock, Timestamp};
use crate::tls::{ClientTls, Transport};

/// A connection for one request after the other.
#[derive(Debug)]
pub struct HttpConnection {
    sender: Sender,
    /// Drives the connection; aborted when this value is dropped.
    _task: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Connects to the host of a URI, with TLS or without. Fails when the host has no address, refuses the connection, or is not
/// trusted.
pub async fn connect(uri: &Uri, tls: Option<&ClientTls>) -> io::Result<Transport> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let default_port = if tls.is_some() { 443 } else { 80 };
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(default_port))).await?;
    match tls {
        None => Ok(Transport::Plain(stream)),
        Some(tls) => tls.connect(host, stream).await,
    }
}

impl HttpConnection {
    /// HTTP/1.1 over this stream.
    pub async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self::new(Sender::Http1(sender), connection))
    }

    /// HTTP/2 over this stream.
    pub async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> hyper::Result<Self> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        Ok(Self::new(Sender::Http2(sender), connection))
    }

    fn new(sender: Sender, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) -> Self {
        let mut task = JoinSet::new();
        // Its error is also that of the request.
        task.spawn(async { drop(connection.await) });
        Self { sender, _task: task }
    }

    /// Waits until a further request can be sent; false if the connection has ended.
    pub async fn is_ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request with an absolute URI, and waits for the head of the response. Adds User-Agent unless the request has one.
    /// Fails when the connection ends before, or the response is not valid.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let agent = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        match &mut self.sender {
            Sender::Http1(sender) => {
                let uri = std::mem::take(request.uri_mut());
                if let Some(authority) = uri.authority().and_then(|authority| authority.as_str().parse().ok())
                {
                    request.headers_mut().insert(HOST, authority);
                }
                *request.uri_mut() = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
                sender.send_request(request).await
            }
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}

/// The body of a response. Fails when it is incomplete, or has more than `most` bytes.
pub async fn read(body: Incoming, most: usize) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Limited::new(body, most).collect().await?.to_bytes())
}

/// The wait that Retry-After asks for, in either of its forms (RFC 9110 §10.2.3).
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = Timestamp::from(httpdate::parse_http_date(text).ok()?);
    Some(Duration::from_micros(date.since(Clock::System.now()).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §10.2.3.
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
