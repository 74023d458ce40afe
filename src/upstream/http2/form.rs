//! The form of a request over HTTP/2.

use http::header::{CONNECTION, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::uri::{Authority, InvalidUri, Scheme, Uri};
use http::{Method, Request};
use hyper::ext::Protocol;

use crate::upstream::body::RequestBody;

/// Gives a request the form that it has over HTTP/2: the host in its target, nothing of a connection, and CONNECT for
/// the handshake of a tunnel.
pub(super) fn put_in_form(request: &mut Request<RequestBody>, scheme: &Scheme) -> Result<(), InvalidUri> {
    let host = request.headers_mut().remove(HOST);
    request.headers_mut().remove(CONNECTION);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(scheme.clone());
    parts.authority = host.map(|host| Authority::try_from(host.as_bytes())).transpose()?;
    // It has a scheme, and a path before as well.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    if request.body().is_handshake() {
        *request.method_mut() = Method::CONNECT;
        request.headers_mut().remove(UPGRADE);
        request.headers_mut().remove(SEC_WEBSOCKET_KEY);
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    Ok(())
}
