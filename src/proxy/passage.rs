//! Requests and answers from one side to the other.

use http::{HeaderValue, Response, StatusCode, Version, request};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::ext::ReasonPhrase;

use super::reply::Source;
use super::{Peer, hop, http2, websocket};
use crate::http1::{Fields, RequestHead, ResponseHead};
use crate::upstream::{ForwardError, RequestBody, ResponseBody, UpstreamRequest};

/// A body as it goes on. A small one is read whole before, unless it belongs to a call of gRPC. One that has no bytes by
/// its length, and has not ended, has to end first in any case: without a body its request would be whole before more
/// could come.
pub(super) async fn carried(
    mut body: RequestBody,
    peer: &Peer,
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

/// A request with this head, which is left empty. What is spoken with the server, its connection knows.
pub(super) fn with_head(head: &mut request::Parts, body: RequestBody) -> UpstreamRequest {
    let mut request = RequestHead::new(std::mem::take(&mut head.method), std::mem::take(&mut head.uri));
    request.fields = Fields::from(&std::mem::take(&mut head.headers));
    UpstreamRequest { head: request, body }
}

/// A server's response as it goes back; `handshake` is the key of a WebSocket that was asked for.
pub(super) fn returned(
    (head, body): (ResponseHead, ResponseBody),
    handshake: Option<&HeaderValue>,
) -> Result<Response<Source>, ForwardError> {
    let is_http2 = head.version == Version::HTTP_2;
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.fields.to_map();
    if let Some(reason) = head.reason.and_then(|reason| ReasonPhrase::try_from(&*reason).ok()) {
        response.extensions_mut().insert(reason);
    }
    let agrees = |key| websocket::is_agreed(response.headers(), key) || is_http2;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && !handshake.is_some_and(agrees) {
        return Err(ForwardError::Switched(response.body().server()));
    }
    let is_named = !is_http2 || http2::has_names(response.headers());
    if !is_named || !hop::remove_hop_by_hop(response.headers_mut()).has_one_length {
        return Err(ForwardError::Framing(response.body().server()));
    }
    if let Some(key) = handshake.filter(|_| is_http2 && response.status() == StatusCode::SWITCHING_PROTOCOLS)
    {
        websocket::answer(response.headers_mut(), key);
    }
    // Each side speaks its own version, whatever the other's is.
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(Source::Upstream))
}
