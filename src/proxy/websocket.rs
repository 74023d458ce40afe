//! The opening handshake of a WebSocket (RFC 6455 §4; over HTTP/2 RFC 8441), internally in the form of HTTP/1.1.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{Method, StatusCode, Version};

use crate::gate::RequestError;
use crate::http1::names::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TE, UPGRADE,
};
use crate::http1::{FieldName, Fields, RequestHead, ResponseHead};

const WEBSOCKET: &[u8] = b"websocket";
/// The GUID that a server appends to the key (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a WebSocket handshake; none for other requests. No other upgrade is forwarded.
pub(super) fn handshake_key(head: &RequestHead) -> Option<Box<[u8]>> {
    // HTTP/1.0 has no upgrades (RFC 9110 §7.8).
    let is_handshake = head.fields.contains(UPGRADE)
        && head.version != Version::HTTP_10
        && head.method == Method::GET
        && has_element(&head.fields, UPGRADE, WEBSOCKET)
        && has_element(&head.fields, CONNECTION, b"upgrade");
    head.fields.get(SEC_WEBSOCKET_KEY).filter(|_| is_handshake).map(Into::into)
}

/// Requests an upgrade to WebSocket from the server.
pub(super) fn set_upgrade_fields(fields: &mut Fields) {
    fields.remove(TE);
    fields.set(CONNECTION, b"upgrade");
    fields.set(UPGRADE, WEBSOCKET);
}

/// Converts an extended CONNECT over HTTP/2 with this `:protocol` to a handshake in the form of HTTP/1.1. Rejects another
/// protocol.
pub(super) fn from_connect(head: &mut RequestHead, protocol: &str) -> Result<(), RequestError> {
    if protocol.as_bytes() != WEBSOCKET {
        return Err(RequestError::Connect);
    }
    head.method = Method::GET;
    set_upgrade_fields(&mut head.fields);
    // Not a secret: the key only ties the response to this request.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_ne_bytes());
    head.fields.set(SEC_WEBSOCKET_KEY, key.as_bytes());
    head.fields.set_default(SEC_WEBSOCKET_VERSION, b"13");
    Ok(())
}

/// Whether a server's response accepts a handshake with this key. `Upgrade` must name `websocket` alone: any other
/// protocol that it names would be in use as well (RFC 9110 §7.8), which the client has not requested.
pub(super) fn accepts_handshake(fields: &Fields, key: &[u8]) -> bool {
    let mut upgrades = fields.get_all(UPGRADE);
    upgrades.next().is_some_and(|value| value.eq_ignore_ascii_case(WEBSOCKET))
        && upgrades.next().is_none()
        && has_element(fields, CONNECTION, b"upgrade")
        && fields.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|accept| accept == accept_value(key).as_bytes())
}

/// Sets Sec-WebSocket-Accept for a handshake that the server has accepted over HTTP/2, where the header is not used.
pub(super) fn set_accept(fields: &mut Fields, key: &[u8]) {
    fields.set(SEC_WEBSOCKET_ACCEPT, accept_value(key).as_bytes());
}

/// Completes the response that accepts a client's handshake.
pub(super) fn accept_upgrade(head: &mut ResponseHead, is_http2: bool) {
    if is_http2 {
        head.fields.remove(SEC_WEBSOCKET_ACCEPT);
        head.status = StatusCode::OK;
    } else {
        head.fields.set(CONNECTION, b"upgrade");
        head.fields.set(UPGRADE, WEBSOCKET);
    }
}

/// The Sec-WebSocket-Accept for a key.
fn accept_value(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

/// Whether a list header has this element, ignoring case.
fn has_element(fields: &Fields, name: FieldName<'_>, token: &[u8]) -> bool {
    fields.elements(name).any(|element| element.eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_is_that_of_rfc_6455() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
