//! The opening handshake of a WebSocket (RFC 6455 §4; over HTTP/2 RFC 8441). Inside it has the form of HTTP/1.1.

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
/// What a server adds to a key (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request that asks for a WebSocket. Any other upgrade is not passed on.
pub(super) fn handshake_key(head: &RequestHead) -> Option<Box<[u8]>> {
    // HTTP/1.0 has no upgrades (RFC 9110 §7.8).
    let is_asked = head.fields.contains(UPGRADE)
        && head.version != Version::HTTP_10
        && head.method == Method::GET
        && has_element(&head.fields, UPGRADE, WEBSOCKET)
        && has_element(&head.fields, CONNECTION, b"upgrade");
    head.fields.get(SEC_WEBSOCKET_KEY).filter(|_| is_asked).map(Into::into)
}

/// Asks the server for it.
pub(super) fn set_upgrade_fields(fields: &mut Fields) {
    fields.remove(TE);
    fields.set(CONNECTION, b"upgrade");
    fields.set(UPGRADE, WEBSOCKET);
}

/// Gives a CONNECT of HTTP/2 with this `:protocol` the form that a handshake has over HTTP/1.1.
///
/// # Errors
/// Another protocol.
pub(super) fn from_connect(head: &mut RequestHead, protocol: &str) -> Result<(), RequestError> {
    if protocol.as_bytes() != WEBSOCKET {
        return Err(RequestError::Connect);
    }
    head.method = Method::GET;
    set_upgrade_fields(&mut head.fields);
    // A key is no secret; it shows that the answer is one to this request.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_ne_bytes());
    head.fields.set(SEC_WEBSOCKET_KEY, key.as_bytes());
    head.fields.set_default(SEC_WEBSOCKET_VERSION, b"13");
    Ok(())
}

/// Whether an answer of a server agrees to a handshake with this key. `Upgrade` must name `websocket` alone: with another
/// protocol beside it, that one would be spoken too (RFC 9110 §7.8), which the client has not asked for.
pub(super) fn accepts_handshake(fields: &Fields, key: &[u8]) -> bool {
    let mut upgrades = fields.get_all(UPGRADE);
    upgrades.next().is_some_and(|value| value.eq_ignore_ascii_case(WEBSOCKET))
        && upgrades.next().is_none()
        && has_element(fields, CONNECTION, b"upgrade")
        && fields.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|accept| accept == accept_value(key).as_bytes())
}

/// Answers a key in place of a server that has agreed over HTTP/2, where there are none.
pub(super) fn set_accept(fields: &mut Fields, key: &[u8]) {
    fields.set(SEC_WEBSOCKET_ACCEPT, accept_value(key).as_bytes());
}

/// Agrees to a client's handshake.
pub(super) fn accept_upgrade(head: &mut ResponseHead, is_http2: bool) {
    if is_http2 {
        head.fields.remove(SEC_WEBSOCKET_ACCEPT);
        head.status = StatusCode::OK;
    } else {
        head.fields.set(CONNECTION, b"upgrade");
        head.fields.set(UPGRADE, WEBSOCKET);
    }
}

/// What a server answers to a key.
fn accept_value(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

/// Whether a list has this element, whatever the case.
fn has_element(fields: &Fields, name: FieldName<'_>, token: &[u8]) -> bool {
    fields.elements(name).any(|element| element.eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_the_standard_has_it() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
