//! Conversion of requests to HTTP/2.

use http::header::{CONNECTION, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::uri::{Authority, Scheme, Uri};
use http::{Method, Request};
use hyper::ext::Protocol;

use crate::http1::RequestHead;
use crate::upstream::body::RequestBody;

/// A request as HTTP/2 sends it: with the host as `:authority`, without connection headers, and as an extended CONNECT if it is a
/// WebSocket handshake (RFC 8441). Fails when there is no Host header that is a valid authority.
pub(super) fn to_http2(
    head: &RequestHead,
    body: RequestBody,
    scheme: &Scheme,
) -> Result<Request<RequestBody>, http::Error> {
    let is_handshake = body.is_handshake();
    let mut request = Request::new(body);
    *request.method_mut() = if is_handshake { Method::CONNECT } else { head.method.clone() };
    *request.headers_mut() = (&head.fields).into();
    let headers = request.headers_mut();
    let host = headers.remove(HOST);
    headers.remove(CONNECTION);
    if is_handshake {
        headers.remove(UPGRADE);
        headers.remove(SEC_WEBSOCKET_KEY);
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    let mut parts = head.uri.clone().into_parts();
    parts.scheme = Some(scheme.clone());
    parts.authority = host.map(|host| Authority::try_from(host.as_bytes())).transpose()?;
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request)
}
