//! Requests that ask for decisions: what is explained is the request that they describe.

use http::StatusCode;

use crate::config::Loaded;
use crate::gate::{ClientIdentity, original};
use crate::http1::RequestHead;
use crate::proxy::Target;

/// The original request of one that asks for a decision, or why it gets none; `None` if its route is no such one.
pub(super) fn asked(
    loaded: &Loaded,
    peer: ClientIdentity<'_>,
    head: &RequestHead,
) -> Option<Result<RequestHead, (StatusCode, String)>> {
    let snapshot = &loaded.config.snapshot;
    let gate = &snapshot.gate;
    let route = gate.match_route(head, &gate.locate(peer, head)).ok()?.route?;
    let Target::Decide(_) = snapshot.actions[route].target else { return None };
    if !gate.client_ip.is_trusted(peer.address) {
        let why = format!("decisions are for trusted proxies only, and {} is none", peer.address);
        return Some(Err((StatusCode::FORBIDDEN, why)));
    }
    let original = original(head, &gate.client_ip.header);
    Some(original.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string())))
}
