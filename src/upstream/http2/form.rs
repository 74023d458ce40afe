//! The form of a request over HTTP/2.

use http::header::{CONNECTION, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::uri::{Authority, InvalidUri, Scheme, Uri};
use http::{Method, Request};
use hyper::ext::Protocol;

use crate::http1::RequestHead;
use crate::upstream::body::RequestBody;

/// A request in the form that it has over HTTP/2: the host in its target, nothing of a connection, and CONNECT for the
/// handshake of a tunnel.
///
/// # Errors
/// A Host header that does not fit into a target.
pub(super) fn request(
    head: &RequestHead,
    body: RequestBody,
    scheme: &Scheme,
) -> Result<Request<RequestBody>, InvalidUri> {
    let is_handshake = body.is_handshake();
    let mut request = Request::new(body);
    *request.method_mut() = if is_handshake { Method::CONNECT } else { head.method.clone() };
    *request.headers_mut() = head.fields.to_map();
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
    // It has a scheme, and a path as well.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    Ok(request)
}
