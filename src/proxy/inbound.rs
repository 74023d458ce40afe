//! The response side: makes a server's response fit for the client, and gives units back by its status.

use bytes::Bytes;
use http::{StatusCode, Version};

use super::grpc_body::GrpcBody;
use super::rejection::Rejection;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::upgrade::Upgrade;
use super::{grpc, hop, http2, upgrade};
use crate::http1::ResponseHead;
use crate::http1::names::{CONNECTION, GRPC_STATUS, UPGRADE};
use crate::limiter::{LimitStatuses, Reservation};
use crate::upstream::{ForwardError, ResponseBody, ServerEnd};

/// Prepares a server's response for the client; `upgrade` is what was requested from the server. Rejects a switch of protocols that
/// was not requested, and a message whose end is ambiguous.
pub(super) fn prepare_response(
    (mut head, body): (ResponseHead, ResponseBody),
    upgrade: Option<&Upgrade>,
) -> Result<ProxyResponse<BodySource>, ForwardError> {
    let is_http2 = head.version == Version::HTTP_2;
    let accepts = |upgrade: &Upgrade| upgrade.is_accepted(&head.fields) || is_http2;
    let is_switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if is_switched && !upgrade.is_some_and(accepts) {
        return Err(ForwardError::Switched(body.server()));
    }
    let has_valid_names = !is_http2 || http2::names_are_valid(&head.fields);
    if !has_valid_names || !hop::normalize_length(&mut head.fields, head.version) {
        return Err(ForwardError::Framing(body.server()));
    }
    // A server that requires an upgrade names it (RFC 9110 §15.5.22).
    let is_required = head.status == StatusCode::UPGRADE_REQUIRED;
    let required = head.fields.get(UPGRADE).filter(|_| is_required).map(<[u8]>::to_vec);
    hop::remove_hop_by_hop(&mut head.fields);
    if let Some(upgrade) = upgrade.filter(|_| is_switched) {
        upgrade.complete(&mut head.fields, is_http2);
    } else if let Some(protocols) = required {
        head.fields.set(CONNECTION, b"upgrade");
        head.fields.set(UPGRADE, &protocols);
    }
    Ok(ProxyResponse::new(head, BodySource::Upstream(body)))
}

/// Takes the server's end of the tunnel from the response to an upgrade; any other response is unchanged. Rejects a server that has
/// not switched protocols as requested.
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
    if is_connect {
        upgrade::to_connect_response(&mut response.head);
    }
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
    let ProxyResponse { head, body, is_over_capacity, closes, tunnel } = response;
    let grpc_status = head.fields.get(GRPC_STATUS).and_then(grpc::http_status).filter(|_| is_grpc);
    let body = match body {
        BodySource::Upstream(body) if is_grpc && grpc_status.is_none() && head.status == StatusCode::OK => {
            let body = BodySource::Grpc(Box::new(GrpcBody::new(body, reservation)));
            return ProxyResponse { head, body, is_over_capacity, closes, tunnel };
        }
        body => body,
    };
    let status = grpc_status.unwrap_or(head.status.as_u16());
    for after in reservation.finish(status).await {
        let earlier = statuses.iter_mut().filter(|before| before.policy == after.policy);
        earlier.for_each(|status| *status = after);
    }
    ProxyResponse { head, body, is_over_capacity, closes, tunnel }
}
