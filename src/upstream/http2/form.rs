//! The form of a request over HTTP/2.

use http::header::{CONNECTION, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::uri::{Authority, InvalidUri, Scheme, Uri};
use http::{HeaderValue, Method, Request};
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

/// Gives a request that was not sent its host back in a header, and its target without: it is put into a form again, or
/// goes to another server. What makes a handshake of it, its body knows.
pub(super) fn take_out_of_form(request: &mut Request<RequestBody>) {
    let parts = std::mem::take(request.uri_mut()).into_parts();
    // What was a target before can be one again, and what was a header too.
    *request.uri_mut() = parts.path_and_query.map(Uri::from).unwrap_or_default();
    let host = parts.authority.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
}
