//! Requests for decisions: the original request that one describes, and the decision on it.

use bytes::Bytes;
use http::StatusCode;

use super::client::ClientConnection;
use super::consumer_forwarding::ConsumerForwarding;
use super::forward_auth::{ForwardAuth, ForwardAuthError};
use super::local_reply::{self, LocalReply};
use super::rejection::Rejection;
use super::response_body::BodySource;
use super::route_action::{RouteAction, Target};
use super::snapshot::Proxy;
use crate::consumers::Consumer;
use crate::gate::{RequestError, original};
use crate::http1::{RequestHead, ResponseHead};

/// Whether a request asks for a decision, and how it is returned: all requests of a listener do, or those of a route.
pub(super) fn settings(proxy: &Proxy, client: &ClientConnection, head: &RequestHead) -> Option<ForwardAuth> {
    client.forward_auth().or_else(|| if proxy.has_decisions { of_route(proxy, client, head) } else { None })
}

/// The settings of the route of a request. The original request is matched with the routes again, by its plan.
#[cold]
fn of_route(proxy: &Proxy, client: &ClientConnection, head: &RequestHead) -> Option<ForwardAuth> {
    let gate = &proxy.snapshot.gate;
    let location = gate.locate(client.identity(), head);
    let route = gate.match_route(head, &location).ok()?.route?;
    match proxy.snapshot.actions[route].target {
        Target::Decide(settings) => Some(settings),
        _ => None,
    }
}

/// Replaces the head of a request for a decision by that of the original request.
///
/// # Errors
/// A peer that is not trusted, and headers that do not describe a request.
#[cold]
pub(super) fn restore(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &mut RequestHead,
    is_connect: bool,
) -> Result<(), Rejection> {
    if is_connect {
        return Err(Rejection::Malformed(RequestError::Connect));
    }
    let header = &proxy.snapshot.gate.client_ip.header;
    let result = if proxy.trusts(client.ip()) {
        original(head, header).map(|original| *head = original).map_err(ForwardAuthError::Original)
    } else {
        Err(ForwardAuthError::Untrusted)
    };
    result.map_err(|error| {
        if proxy.warnings.borrow_mut().is_due() {
            tracing::warn!(peer = %client.ip(), "a request for a decision got none: {error}");
        }
        Rejection::ForwardAuth(error)
    })
}

/// The decision on a request that its limits allow.
///
/// # Errors
/// A route that denies its requests, or that is for requests for decisions.
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
        Target::Forward { .. } | Target::Respond { .. } | Target::Limits => {}
    }
    let mut head = ResponseHead::new(StatusCode::OK);
    if let (Some(forwarding), Some(consumer)) = (forwarding, consumer) {
        forwarding.add_consumer(&mut head.fields, consumer);
    }
    Ok(LocalReply::new(head, BodySource::Local(Bytes::new())))
}
