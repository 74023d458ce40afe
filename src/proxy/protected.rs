//! The headers that have a meaning for the proxy.

use http::header::HeaderName;

use super::RouteAction;
use super::authorization::DESCRIBING;
use super::hop::HOP_BY_HOP;
use super::soft_headers;
use crate::gate::{Cost, Gate, KeyPart};
use crate::http1::FieldName;
use crate::http1::names::{
    CONTENT_LENGTH, FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REQUEST_ID,
};
use crate::upstream::HeaderScrub;

/// Headers that the proxy itself writes or removes, besides hop-by-hop headers.
const OWN: [FieldName<'static>; 6] =
    [CONTENT_LENGTH, FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REQUEST_ID];

/// The headers that the proxy writes, and those that a limit, a route's conditions or a change of request headers names.
/// Built once for each configuration.
#[must_use]
pub fn protected_headers(gate: &Gate, actions: &[RouteAction]) -> HeaderScrub {
    let own = [&gate.client_ip.header].into_iter();
    let of_tokens = gate.jwt.iter().map(|verifier| &verifier.spec().header);
    let of_consumers = gate.consumers.iter().filter_map(|rules| rules.source.header());
    let of_limits = gate.limit_rules.iter().flat_map(|rule| {
        let parts = rule.key.parts.iter().chain(rule.tiers.as_ref().map(|tiers| &tiers.by));
        let (cost, reserve) = match &rule.cost {
            Cost::Fixed(_) => (None, None),
            Cost::Header { name, .. } => (Some(name), None),
            Cost::Settled(cost) => (None, Some(cost.request_headers())),
        };
        parts.filter_map(of_part).chain(cost).chain(reserve.into_iter().flatten())
    });
    let of_routes = gate
        .routes
        .routes()
        .iter()
        .flat_map(|route| route.headers.iter().map(|(name, _)| name).chain(&route.priority.header));
    let of_actions = actions.iter().flat_map(|action| {
        let edits = &action.request_headers;
        let target = action.target.forwarding();
        let of_key = target.and_then(|target| target.key.as_ref());
        let admission = target.and_then(|target| target.admission.as_deref());
        let keys = of_key.into_iter().chain(admission.map(|rule| &rule.fair_by));
        let parts = keys.flat_map(|key| &key.parts).filter_map(of_part);
        edits.names().chain(parts)
    });
    let of_authorization = actions.iter().filter_map(|action| action.target.authorization());
    let of_authorization = of_authorization.flat_map(|rule| rule.copy.iter().chain(&DESCRIBING));
    let soft = gate.limits.have_soft.then_some([soft_headers::WARNING, soft_headers::DENIED]);
    let names = own.chain(of_tokens).chain(of_consumers).chain(of_limits).chain(of_routes).chain(of_actions);
    let names = names.chain(of_authorization);
    own_headers()
        .chain(names.cloned())
        .chain(soft.into_iter().flatten())
        .collect::<HeaderScrub>()
        .without(gate.client_ip.remove_headers.clone())
}

/// The headers that the proxy writes or removes under every configuration.
pub(super) fn own_headers() -> impl Iterator<Item = HeaderName> {
    let names = OWN.iter().chain(&HOP_BY_HOP);
    names.filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
}

fn of_part(part: &KeyPart) -> Option<&HeaderName> {
    if let KeyPart::Header(name) = part { Some(name) } else { None }
}
