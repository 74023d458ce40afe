//! Upgrades to another protocol (RFC 9110 §7.8): the opening handshake of a WebSocket (RFC 6455 §4; over HTTP/2 RFC 8441), internally
//! in the form of HTTP/1.1, and upgrades to other protocols that a route allows.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{Method, StatusCode, Version};

use super::route_action::Upgrades;
use crate::gate::RequestError;
use crate::http1::names::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TE, UPGRADE,
};
use crate::http1::{FieldName, Fields, RequestHead, ResponseHead};

const WEBSOCKET: &str = "websocket";
/// The GUID that a server appends to the key (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An upgrade that a client requests and its route allows.
#[derive(Debug)]
pub(super) enum Upgrade {
    /// A WebSocket handshake with this key.
    WebSocket { key: Box<[u8]> },
    /// Another protocol, as the route names it.
    Other(Box<str>),
}

impl Upgrade {
    /// The upgrade that a request asks for, if its route allows it; none for other requests. HTTP/1.0 has no upgrades.
    pub fn requested(head: &RequestHead, allowed: &Upgrades) -> Option<Self> {
        let is_upgrade = head.fields.contains(UPGRADE)
            && head.version != Version::HTTP_10
            && has_element(&head.fields, CONNECTION, "upgrade");
        if !is_upgrade {
            return None;
        }
        if allowed.websocket && head.method == Method::GET && has_element(&head.fields, UPGRADE, WEBSOCKET) {
            return head.fields.get(SEC_WEBSOCKET_KEY).map(|key| Self::WebSocket { key: key.into() });
        }
        let requested = allowed.others.iter().find(|other| has_element(&head.fields, UPGRADE, other));
        requested.cloned().map(Self::Other)
    }

    /// The name of the protocol.
    fn protocol(&self) -> &str {
        match self {
            Self::WebSocket { .. } => WEBSOCKET,
            Self::Other(protocol) => protocol,
        }
    }

    /// Requests the upgrade from the server.
    pub fn set_fields(&self, fields: &mut Fields) {
        set_upgrade_fields(fields, self.protocol());
    }

    /// Whether a server's response accepts the upgrade over HTTP/1.1. `Upgrade` must name the protocol alone: any other one that it
    /// names would be in use as well (RFC 9110 §7.8), which the client has not requested.
    pub fn is_accepted(&self, fields: &Fields) -> bool {
        let mut upgrades = fields.get_all(UPGRADE);
        let is_named =
            upgrades.next().is_some_and(|value| value.eq_ignore_ascii_case(self.protocol().as_bytes()));
        let is_valid = is_named && upgrades.next().is_none() && has_element(fields, CONNECTION, "upgrade");
        match self {
            Self::WebSocket { key } => {
                let accept = fields.get(SEC_WEBSOCKET_ACCEPT);
                is_valid && accept.is_some_and(|accept| accept == accept_value(key).as_bytes())
            }
            Self::Other(_) => is_valid,
        }
    }

    /// Completes a response that accepts the upgrade: `is_http2` if it came over HTTP/2, where Sec-WebSocket-Accept is not used.
    pub fn complete(&self, fields: &mut Fields, is_http2: bool) {
        if let Self::WebSocket { key } = self
            && is_http2
        {
            fields.set(SEC_WEBSOCKET_ACCEPT, accept_value(key).as_bytes());
        }
        fields.set(CONNECTION, b"upgrade");
        fields.set(UPGRADE, self.protocol().as_bytes());
    }
}

fn set_upgrade_fields(fields: &mut Fields, protocol: &str) {
    fields.remove(TE);
    fields.set(CONNECTION, b"upgrade");
    fields.set(UPGRADE, protocol.as_bytes());
}

/// Converts an extended CONNECT over HTTP/2 with this `:protocol` to a handshake in the form of HTTP/1.1. Rejects another
/// protocol.
pub(super) fn from_connect(head: &mut RequestHead, protocol: &str) -> Result<(), RequestError> {
    if protocol != WEBSOCKET {
        return Err(RequestError::Connect);
    }
    head.method = Method::GET;
    set_upgrade_fields(&mut head.fields, WEBSOCKET);
    // Not a secret: the key only ties the response to this request.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_ne_bytes());
    head.fields.set(SEC_WEBSOCKET_KEY, key.as_bytes());
    head.fields.set_default(SEC_WEBSOCKET_VERSION, b"13");
    Ok(())
}

/// Turns the response to an upgrade into the one to an extended CONNECT, which a client over HTTP/2 has sent.
pub(super) fn to_connect_response(head: &mut ResponseHead) {
    for name in [SEC_WEBSOCKET_ACCEPT, CONNECTION, UPGRADE] {
        head.fields.remove(name);
    }
    head.status = StatusCode::OK;
}

/// The Sec-WebSocket-Accept for a key.
fn accept_value(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

/// Whether a list header has this element, ignoring case.
fn has_element(fields: &Fields, name: FieldName<'_>, token: &str) -> bool {
    fields.elements(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_is_that_of_rfc_6455() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
