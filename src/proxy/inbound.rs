//! The response side: makes a server's response fit for the client.

use bytes::Bytes;
use http::{StatusCode, Version};

use super::rejection::Rejection;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::tunnel::AcceptedUpgrade;
use super::upgrade::Upgrade;
use super::{hop, http2, upgrade};
use crate::http1::ResponseHead;
use crate::http1::names::{CONNECTION, UPGRADE};
use crate::upstream::{ForwardError, ResponseBody};

/// Prepares a server's response for the client; `upgrade` is what was requested from the server. Rejects a switch of protocols that
/// was not requested, and a message whose end is ambiguous.
pub(super) fn prepare_response(
    (mut head, body): (ResponseHead, Box<ResponseBody>),
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
    let required = match head.status {
        StatusCode::UPGRADE_REQUIRED => head.fields.get(UPGRADE).map(<[u8]>::to_vec),
        _ => None,
    };
    hop::remove_hop_by_hop(&mut head.fields);
    if let Some(upgrade) = upgrade.filter(|_| is_switched) {
        upgrade.complete(&mut head.fields, is_http2);
    } else if let Some(protocols) = required {
        head.fields.set(CONNECTION, b"upgrade");
        head.fields.set(UPGRADE, &protocols);
    }
    Ok(ProxyResponse::new(head, BodySource::Upstream(body)))
}

/// Takes the server's end of the tunnel from the response to an upgrade, and what the tunnel settles; any other response is
/// unchanged. Rejects a server that has not switched protocols as requested.
#[inline]
pub(super) fn accept_upgrade(
    response: &mut ProxyResponse<BodySource>,
    is_connect: bool,
) -> Result<Option<Box<AcceptedUpgrade>>, Rejection> {
    // Without a tunnel behind it, a success would make the client of a CONNECT treat the body as tunnel data.
    let is_misleading = is_connect && response.head.status.is_success();
    if response.head.status != StatusCode::SWITCHING_PROTOCOLS && !is_misleading {
        return Ok(None);
    }
    take_server(response, is_connect, is_misleading).map(Some)
}

#[cold]
fn take_server(
    response: &mut ProxyResponse<BodySource>,
    is_connect: bool,
    is_misleading: bool,
) -> Result<Box<AcceptedUpgrade>, Rejection> {
    let server = match std::mem::replace(&mut response.body, BodySource::Local(Bytes::new())) {
        BodySource::Upstream(body) if !is_misleading => body.into_tunnel().map(|server| (server, None)),
        BodySource::Settled(body) if !is_misleading => {
            body.into_tunnel().map(|(server, pending)| (server, Some(pending)))
        }
        _ => None,
    };
    let (server, pending) = server.ok_or(Rejection::NotSwitched)?;
    if is_connect {
        upgrade::to_connect_response(&mut response.head);
    }
    Ok(Box::new(AcceptedUpgrade { server, pending }))
}
