//! Counts requests by the keys under which limits decide them.

use super::client::ClientConnection;
use super::log_entry::PlannedRequest;
use super::own_limits::only_shows_limits;
use super::snapshot::Proxy;
use crate::gate::{BodyFields, RequestError};
use crate::http1::RequestHead;
use crate::limit::PolicyId;
use crate::limiter::Admission;
use crate::telemetry::{KeyEvent, TopRecorder};

/// Counts a request for each of its limits, unless it only reads them.
#[inline]
pub(super) fn record(proxy: &Proxy, request: &PlannedRequest<'_>, admission: &Admission) {
    if let Some(top) = &proxy.top
        && !only_shows_limits(&proxy.snapshot, request.plan)
    {
        record_charges(top, request, admission);
    }
}

fn record_charges(top: &TopRecorder, request: &PlannedRequest<'_>, admission: &Admission) {
    let PlannedRequest { gate, client, head, plan } = *request;
    let consumer = plan.identity.as_ref().ok().and_then(|consumer| consumer.as_deref());
    let consumer = consumer.map(|consumer| &*consumer.name);
    for charge in &plan.charges {
        let event = KeyEvent { key: charge.key, consumer, is_denied: is_denied(admission, charge.policy) };
        top.record(charge.policy, event, || gate.key_name(client.identity(), head, plan, charge));
    }
}

/// Counts a request that the `block` list of a limit denies. A request without a key, whose address is blocked, is not
/// counted.
pub(super) fn record_rejected(
    proxy: &Proxy,
    client: &ClientConnection,
    (head, body): (&RequestHead, Option<&BodyFields>),
    error: &RequestError,
) {
    let (Some(top), &RequestError::Blocked(limit)) = (&proxy.top, error) else { return };
    let gate = &proxy.snapshot.gate;
    let location = gate.locate(client.identity(), head);
    let Ok(matched) = gate.match_route(head, &location) else { return };
    let mut subject = gate.subject(client.identity(), head, &matched, &location);
    subject.body = body;
    let Some(key) = gate.limit_rules[limit].key.find(&subject, &gate.hasher).key() else { return };
    let consumer = subject.consumer().map(|consumer| &*consumer.name);
    let event = KeyEvent { key, consumer, is_denied: true };
    top.record(limit, event, || gate.key_name_of(limit, key, &subject));
}

/// Whether the limit of a policy denies the request, or would deny it in shadow mode. A denial for lack of the store does
/// not count.
fn is_denied(admission: &Admission, policy: PolicyId) -> bool {
    if admission.verdict.is_ok() && admission.shadow_denials.is_empty() {
        return false;
    }
    let denies = admission.statuses.iter().any(|it| it.policy == policy && !it.decision.allowed);
    denies || admission.shadow_denials.contains(&policy)
}
