//! The opening handshake of a WebSocket (RFC 6455 §4; over HTTP/2 RFC 8441). Inside it has the form of HTTP/1.1.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TE, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request, response};
use hyper::upgrade::OnUpgrade;

use crate::gate::Malformed;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
/// What a server adds to a key (RFC 6455 §1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request that asks for a WebSocket. Any other upgrade is not passed on.
pub(super) fn asked(head: &request::Parts) -> Option<HeaderValue> {
    // hyper puts one there if there is any upgrade to speak of.
    head.extensions.get::<OnUpgrade>()?;
    let is_asked = head.method == Method::GET
        && names(&head.headers, &UPGRADE, "websocket")
        && names(&head.headers, &CONNECTION, "upgrade");
    head.headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_asked).cloned()
}

/// Asks the server for it.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.remove(TE);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Gives a CONNECT of HTTP/2 with this `:protocol` the form that a handshake has over HTTP/1.1.
///
/// # Errors
/// Another protocol.
pub(super) fn from_connect(head: &mut request::Parts, protocol: &str) -> Result<(), Malformed> {
    if protocol != "websocket" {
        return Err(Malformed::Connect);
    }
    head.method = Method::GET;
    ask(&mut head.headers);
    // A key is no secret; it shows that the answer is one to this request.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_ne_bytes());
    let key = HeaderValue::from_str(&key).unwrap_or(WEBSOCKET);
    head.headers.insert(SEC_WEBSOCKET_KEY, key);
    head.headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    Ok(())
}

/// Whether an answer of a server agrees to a handshake with this key. `Upgrade` must name `websocket` alone: with another
/// protocol beside it, that one would be spoken too (RFC 9110 §7.8), which the client has not asked for.
pub(super) fn is_agreed(headers: &HeaderMap, key: &HeaderValue) -> bool {
    let mut upgrades = headers.get_all(UPGRADE).iter();
    let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes());
    upgrades.next().is_some_and(is_websocket)
        && upgrades.next().is_none()
        && names(headers, &CONNECTION, "upgrade")
        && headers
            .get(SEC_WEBSOCKET_ACCEPT)
            .is_some_and(|accept| accept.as_bytes() == accept_of(key).as_bytes())
}

/// Answers a key in place of a server that has agreed over HTTP/2, where there are none.
pub(super) fn answer(headers: &mut HeaderMap, key: &HeaderValue) {
    if let Ok(accept) = HeaderValue::try_from(accept_of(key)) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
}

/// Agrees to a client's handshake.
pub(super) fn agree(head: &mut response::Parts, is_http2: bool) {
    if is_http2 {
        head.headers.remove(SEC_WEBSOCKET_ACCEPT);
        head.status = StatusCode::OK;
    } else {
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, WEBSOCKET);
    }
}

/// What a server answers to a key.
fn accept_of(key: &HeaderValue) -> String {
    let keyed = [key.as_bytes(), GUID.as_bytes()].concat();
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &keyed))
}

/// Whether a list of names holds this one, whatever the case.
fn names(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|named| named.trim_matches([' ', '\t']).eq_ignore_ascii_case(token))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_the_standard_has_it() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept_of(&key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
