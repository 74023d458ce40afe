//! The response side: makes a server's response fit for the client, and gives units back by its status.

use bytes::Bytes;
use http::{StatusCode, Version};

use super::grpc_body::GrpcBody;
use super::rejection::Rejection;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::{grpc, hop, http2, websocket};
use crate::http1::ResponseHead;
use crate::http1::names::GRPC_STATUS;
use crate::limiter::{LimitStatuses, Reservation};
use crate::upstream::{ForwardError, ResponseBody, ServerEnd};

/// Prepares a server's response for the client; `handshake` is the key of a WebSocket handshake, if there was one. Rejects a
/// switch of protocols that was not requested, and a message whose end is ambiguous.
pub(super) fn prepare_response(
    (mut head, body): (ResponseHead, ResponseBody),
    handshake: Option<&[u8]>,
) -> Result<ProxyResponse<BodySource>, ForwardError> {
    let is_http2 = head.version == Version::HTTP_2;
    let accepts = |key| websocket::accepts_handshake(&head.fields, key) || is_http2;
    let is_switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if is_switched && !handshake.is_some_and(accepts) {
        return Err(ForwardError::Switched(body.server()));
    }
    let has_valid_names = !is_http2 || http2::names_are_valid(&head.fields);
    if !has_valid_names || !hop::normalize_length(&mut head.fields, head.version) {
        return Err(ForwardError::Framing(body.server()));
    }
    hop::remove_hop_by_hop(&mut head.fields);
    if let Some(key) = handshake.filter(|_| is_http2 && is_switched) {
        websocket::set_accept(&mut head.fields, key);
    }
    Ok(ProxyResponse::new(head, BodySource::Upstream(body)))
}

/// Completes the response to a WebSocket handshake, and takes the server's end of the tunnel from it; any other response stays as
/// it is. Rejects a server that has not switched protocols as requested.
pub(super) fn accept_upgrade(
    response: &mut ProxyResponse<BodySource>,
    is_connect: bool,
) -> Result<Option<ServerEnd>, Rejection> {
    // Without a tunnel behind it, a success would make the client of a CONNECT treat the body as tunnel data.
    let is_misleading = is_connect && response.head.status.is_success();
    if response.head.status != StatusCode::SWITCHING_PROTOCOLS && !is_misleading {
        return Ok(None);
    }
    let server = match std::mem::replace(&mut response.body, BodySource::Local(Bytes::new())) {
        BodySource::Upstream(body) if !is_misleading => body.into_tunnel(),
        _ => None,
    };
    let server = server.ok_or(Rejection::NotSwitched)?;
    websocket::accept_upgrade(&mut response.head, is_connect);
    Ok(Some(server))
}

/// Refunds the units that a request with this response does not pay, before the response is sent, so that the client's
/// next request finds them. The status of a gRPC call may come in its trailers, so its body refunds then. Changes the
/// statuses of the limits that have changed.
pub(super) async fn settle(
    reservation: Box<Reservation>,
    response: ProxyResponse<BodySource>,
    is_grpc: bool,
    statuses: &mut LimitStatuses,
) -> ProxyResponse<BodySource> {
    let ProxyResponse { head, body, is_over_capacity, tunnel } = response;
    let grpc_status = head.fields.get(GRPC_STATUS).and_then(grpc::http_status).filter(|_| is_grpc);
    let body = match body {
        BodySource::Upstream(body) if is_grpc && grpc_status.is_none() && head.status == StatusCode::OK => {
            let body = BodySource::Grpc(Box::new(GrpcBody::new(body, reservation)));
            return ProxyResponse { head, body, is_over_capacity, tunnel };
        }
        body => body,
    };
    let status = grpc_status.unwrap_or(head.status.as_u16());
    for after in reservation.finish(status).await {
        let earlier = statuses.iter_mut().filter(|before| before.policy == after.policy);
        earlier.for_each(|status| *status = after);
    }
    ProxyResponse { head, body, is_over_capacity, tunnel }
}
