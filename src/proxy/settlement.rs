//! The settlement of a request: units are given back by the status of the response before it is sent, and limits whose cost the
//! response decides are settled at its end.
//!
//! A response that settles limits has a [`SettledBody`], which passes its parts on and reads them after that. All limits of a
//! request are settled at once.

mod body;
mod cost;
#[cfg(feature = "cli")]
mod decoder;
mod hidden;
mod observer;
mod open_response;
mod pending;
mod step;
mod warnings;
#[cfg(not(feature = "cli"))]
mod without_decoder;
#[cfg(feature = "cli")]
mod zstd;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::Body as _;

pub(super) use self::body::SettledBody;
use self::cost::End;
pub(super) use self::cost::SettledRequest;
use self::hidden::HiddenFields;
use self::observer::Observer;
use self::open_response::OpenResponse;
pub(super) use self::pending::{LimitCost, Pending};
pub(super) use self::warnings::SettleWarnings;
use super::grpc;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::snapshot::Proxy;
use crate::gate::{CostBasis, CostSource, RouteId};
use crate::http1::names::{ACCEPT_ENCODING, CONNECTION, GRPC_STATUS, TE};
use crate::http1::{Fields, ResponseHead};
use crate::limiter::LimitStatuses;

/// What a request asks of the server so that its response can be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseNeeds {
    /// Its body is read, so it should not be compressed.
    reads_body: bool,
    /// Its trailers are read.
    reads_trailers: bool,
}

impl ResponseNeeds {
    /// What the limits of a request need.
    pub fn of(pending: &Pending) -> Self {
        let is_trailer =
            |basis: &CostBasis| matches!(basis, CostBasis::Parts { settle: CostSource::Trailer(_), .. });
        Self {
            reads_body: pending.costs().any(|cost| cost.basis.reads_response()),
            reads_trailers: pending.costs().any(|cost| is_trailer(&cost.basis)),
        }
    }

    /// Asks the server for it.
    pub fn request(self, fields: &mut Fields) {
        if self.reads_body {
            fields.set(ACCEPT_ENCODING, b"identity");
        }
        if self.reads_trailers && !fields.contains(TE) {
            fields.push(TE, b"trailers");
            fields.push(CONNECTION, b"te");
        }
    }
}

/// Refunds the units that a request with this response does not pay, before the response is sent, so that the client's
/// next request finds them. The status of a gRPC call may come in its trailers, so its body refunds then. Changes the
/// statuses of the limits that have changed. Returns what limits have charged, as far as that is settled.
pub(super) async fn respond(
    mut pending: Box<Pending>,
    response: ProxyResponse<BodySource>,
    is_grpc: bool,
    statuses: &mut LimitStatuses,
) -> (ProxyResponse<BodySource>, Vec<LimitCost>) {
    let ProxyResponse { mut head, body, is_over_capacity, closes, tunnel } = response;
    let is_local = !matches!(body, BodySource::Upstream(_));
    let grpc_status = head.fields.get(GRPC_STATUS).and_then(grpc::http_status).filter(|_| is_grpc);
    let awaits_grpc_status = is_grpc && grpc_status.is_none() && head.status == StatusCode::OK && !is_local;
    // What follows a switch of protocols is a tunnel.
    let is_switch = is_switch(&head);
    let is_bodiless = !is_local && (pending.request.is_head || head.is_bodiless() && !is_switch);
    pending.set_status(grpc_status.unwrap_or(head.status.as_u16()));
    pending.find_known((!is_local).then_some(&head.fields), is_bodiless);
    let observer = if is_local { Observer::none() } else { observe(&pending, &mut head) };
    if !awaits_grpc_status {
        for after in pending.respond().await {
            let earlier = statuses.iter_mut().filter(|before| before.policy == after.policy);
            earlier.for_each(|status| *status = after);
        }
    }
    let mut charged = Vec::new();
    let body = match body {
        BodySource::Upstream(body)
            if awaits_grpc_status
                || (is_switch || !body.is_end_stream())
                    && (pending.is_open() || pending.hidden().has_trailers()) =>
        {
            let body = SettledBody::new(body, *pending, observer, awaits_grpc_status);
            BodySource::Settled(Box::new(body))
        }
        body => {
            if is_local {
                pending.abandon();
            }
            let mut response = OpenResponse::new(*pending, observer);
            response.settle(End::Whole);
            charged = response.pending.charged();
            body
        }
    };
    (ProxyResponse { head, body, is_over_capacity, closes, tunnel }, charged)
}

/// Removes the fields of costs from the head of a response, and prepares to read its body if a limit does.
fn observe(pending: &Pending, head: &mut ResponseHead) -> Observer {
    let fields = &mut head.fields;
    let is_read = pending.costs().any(|cost| cost.basis.reads_response());
    let observer = if is_read { Observer::new(fields, &pending.pointers()) } else { Observer::none() };
    pending.hidden().remove(fields);
    observer
}

/// Hides the fields of costs in the response to a request that has reserved nothing. Few routes have such fields.
#[inline]
pub(super) fn hide_costs(proxy: &Proxy, route: RouteId, response: &mut ProxyResponse<BodySource>) {
    if proxy.snapshot.gate.routes.get(route).is_settled {
        hide(proxy, route, response);
    }
}

#[cold]
fn hide(proxy: &Proxy, route: RouteId, response: &mut ProxyResponse<BodySource>) {
    let hidden = HiddenFields { gate: &proxy.snapshot.gate, route: Some(route) };
    hidden.remove(&mut response.head.fields);
    if !hidden.has_trailers() {
        return;
    }
    response.body = match std::mem::replace(&mut response.body, BodySource::Local(Bytes::new())) {
        BodySource::Upstream(body) if !body.is_end_stream() => {
            let pending = Pending::without_units(proxy, route);
            BodySource::Settled(Box::new(SettledBody::new(body, pending, Observer::none(), false)))
        }
        body => body,
    };
}

fn is_switch(head: &ResponseHead) -> bool {
    head.status == StatusCode::SWITCHING_PROTOCOLS
}
