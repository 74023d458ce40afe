//! Authorization requests: the original request that one describes, and the decision on it.

use bytes::Bytes;
use http::StatusCode;

use super::client::ClientConnection;
use super::consumer_forwarding::ConsumerForwarding;
use super::forward_auth::{ForwardAuth, ForwardAuthError};
use super::local_reply::{self, LocalReply};
use super::rejection::Rejection;
use super::response_body::BodySource;
use super::route_action::{RouteAction, Target};
use super::snapshot::{ConfigSnapshot, Proxy};
use crate::consumers::Consumer;
use crate::gate::{OriginalRequest, RequestError, names_original, original};
use crate::http1::{RequestHead, ResponseHead};

/// How the decision is returned if this is an authorization request: all requests of a listener are, or those of a route. A
/// request of such a route that names no original request is rejected once it has a plan, by [`missing`].
pub(super) fn settings(proxy: &Proxy, client: &ClientConnection, head: &RequestHead) -> Option<ForwardAuth> {
    let is_candidate = || proxy.has_decisions && names_original(head);
    client.forward_auth().or_else(|| if is_candidate() { route_settings(proxy, client, head) } else { None })
}

/// The settings of the route of a request. The original request is matched with the routes again, by its plan.
#[cold]
fn route_settings(proxy: &Proxy, client: &ClientConnection, head: &RequestHead) -> Option<ForwardAuth> {
    let gate = &proxy.snapshot.gate;
    let location = gate.locate(client.identity(), head);
    proxy.snapshot.actions[gate.match_route(head, &location).ok()?.route?].target.forward_auth()
}

/// The rejection of a request to a route for authorization requests that names no original request.
#[cold]
pub(super) fn missing(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &RequestHead,
    is_connect: bool,
) -> Rejection {
    read(proxy, client, head, is_connect).err().unwrap_or(Rejection::NoRoute)
}

/// Replaces the head of an authorization request by that of the original request. Returns its scheme, if that is known, and why
/// there is no decision: a peer that is no trusted proxy, or headers that describe no original request.
#[cold]
pub(super) fn restore(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &mut RequestHead,
    is_connect: bool,
) -> (Option<&'static str>, Option<Box<Rejection>>) {
    match read(proxy, client, head, is_connect) {
        Ok(original) => {
            *head = original.head;
            (original.scheme, None)
        }
        Err(rejection) => (Some(client.scheme()), Some(Box::new(rejection))),
    }
}

/// The original request. Rejects a peer that is no trusted proxy, headers that describe no original request, and variants of
/// protected headers, which tidegate itself would remove.
fn read(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &RequestHead,
    is_connect: bool,
) -> Result<OriginalRequest, Rejection> {
    if is_connect {
        return Err(Rejection::Malformed(RequestError::Connect));
    }
    let ConfigSnapshot { gate, protected_headers, .. } = &*proxy.snapshot;
    let variant = || head.fields.iter().find(|field| protected_headers.is_variant_of_any(field.name));
    let result = if !proxy.trusts(client.ip()) {
        Err(ForwardAuthError::Untrusted)
    } else if let Some(variant) = variant() {
        Err(ForwardAuthError::Variant(variant.name.as_str().to_owned()))
    } else {
        original(head, &gate.client_ip.header).map_err(ForwardAuthError::Original)
    };
    result.map_err(|error| {
        if proxy.warnings.borrow_mut().is_due() {
            tracing::warn!(peer = %client.ip(), "rejected an authorization request: {error}");
        }
        Rejection::ForwardAuth(error)
    })
}

/// The decision on an original request that its limits allow. Rejects a route that denies its requests, or that is for
/// authorization requests.
#[cold]
pub(super) fn decide(
    action: &RouteAction,
    forwarding: Option<&ConsumerForwarding>,
    consumer: Option<&Consumer>,
) -> Result<LocalReply, Rejection> {
    match &action.target {
        Target::Respond { status, body } if !status.is_success() => {
            return Ok(local_reply::reply(*status, b"text/plain; charset=utf-8", body.clone()));
        }
        Target::Block => return Err(Rejection::BlockedByRoute),
        Target::Decide(_) => return Err(Rejection::NoRoute),
        // One that needs authorization has it by now.
        Target::Forward(_)
        | Target::Authorize(_)
        | Target::Respond { .. }
        | Target::Redirect(_)
        | Target::Limits => {}
    }
    let mut head = ResponseHead::new(StatusCode::OK);
    if let Some(forwarding) = forwarding {
        forwarding.add_to_decision(&mut head.fields, consumer);
    }
    Ok(LocalReply::new(head, BodySource::Local(Bytes::new())))
}
