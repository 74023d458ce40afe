//! Requests and answers from one side to the other.

use http::{StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use super::reply::BodySource;
use super::{ClientConnection, ProxyResponse, hop, http2, websocket};
use crate::http1::ResponseHead;
use crate::upstream::{ForwardError, RequestBody, ResponseBody};

/// A body as it goes on. A small one is read whole before, unless it belongs to a call of gRPC. One that has no bytes by
/// its length, and has not ended, has to end first in any case: without a body its request would be whole before more
/// could come.
pub(super) async fn carried(
    mut body: RequestBody,
    peer: &ClientConnection,
    is_call: bool,
) -> Result<RequestBody, ForwardError> {
    if body.size_hint().exact() != Some(0) {
        return if is_call {
            Ok(body)
        } else {
            body.buffered(peer.buffers()).await.map_err(ForwardError::of_body)
        };
    }
    while let Some(frame) = body.frame().await {
        frame.map_err(ForwardError::of_body)?;
    }
    Ok(RequestBody::empty())
}

/// A server's response as it goes back; `handshake` is the key of a WebSocket that was asked for.
pub(super) fn returned(
    (mut head, body): (ResponseHead, ResponseBody),
    handshake: Option<&[u8]>,
) -> Result<ProxyResponse<BodySource>, ForwardError> {
    let is_http2 = head.version == Version::HTTP_2;
    let agrees = |key| websocket::is_agreed(&head.fields, key) || is_http2;
    let is_switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if is_switched && !handshake.is_some_and(agrees) {
        return Err(ForwardError::Switched(body.server()));
    }
    let is_named = !is_http2 || http2::has_names(&head.fields);
    if !is_named || !hop::normalize_length(&mut head.fields, head.version) {
        return Err(ForwardError::Framing(body.server()));
    }
    hop::remove_hop_by_hop(&mut head.fields);
    if let Some(key) = handshake.filter(|_| is_http2 && is_switched) {
        websocket::answer(&mut head.fields, key);
    }
    Ok(ProxyResponse::new(head, BodySource::Upstream(body)))
}
