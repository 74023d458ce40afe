//! The attributes and events of a request's server span, by the semantic conventions of OpenTelemetry for HTTP.

use std::net::IpAddr;

use http::Version;

use super::client::ClientConnection;
use super::log_entry::PlannedRequest;
use super::rejection::Rejection;
use super::request_id::RequestId;
use crate::gate::{Gate, RouteId, RouteMatch};
use crate::http1::{RequestHead, names};
use crate::limit::{DenyReason, PolicyId};
use crate::limiter::{Admission, LimitStatus, StatusSource};
use crate::telemetry::{LimitNote, LimitOutcome, RequestTrace, Span, known_method};
use crate::time::Clock;

/// The event of the decision of one limit.
const DECISION: &str = "tidegate.limit.decision";

/// Records the head of a request, and its scheme if that is known. The query may have credentials, so it is left out.
pub(super) fn begin(
    trace: &mut RequestTrace,
    client: &ClientConnection,
    (head, scheme): (&RequestHead, Option<&'static str>),
    id: &RequestId,
) {
    let Some(span) = trace.server_span() else { return };
    let method = known_method(&head.method);
    span.attribute("http.request.method", method.unwrap_or("_OTHER"));
    if method.is_none() {
        span.attribute("http.request.method_original", head.method.as_str());
    }
    if let Some(scheme) = scheme {
        span.attribute("url.scheme", scheme);
    }
    span.attribute("url.path", head.uri.path());
    span.attribute("network.protocol.version", protocol_version(head.version));
    span.attribute("network.peer.address", client.address_text());
    if let Some(agent) = head.fields.get(names::USER_AGENT) {
        span.attribute("user_agent.original", agent);
    }
    span.attribute("tidegate.request_id", id.as_bytes());
    trace.set_name(&head.method, None);
}

/// Records the client, consumer, host and route of a request, and the decisions of its limits.
pub(super) fn describe(trace: &mut RequestTrace, request: &PlannedRequest<'_>, admission: &Admission) {
    let PlannedRequest { gate, head, plan, .. } = *request;
    let Some(span) = trace.server_span() else { return };
    describe_client(span, plan.client, &plan.matched.host);
    if let Some(consumer) = plan.identity.name() {
        span.attribute("tidegate.consumer", consumer);
    }
    if !plan.charges.is_empty() {
        span.attribute(
            "tidegate.limit.outcome",
            if admission.verdict.is_ok() { "allowed" } else { "denied" },
        );
        span.attribute("tidegate.limit.source", source(admission.source));
        let now = Clock::System.now();
        for status in &admission.statuses {
            let LimitStatus { policy, decision, .. } = status;
            span.event(
                DECISION,
                now,
                &[
                    ("tidegate.limit.name", limit_name(gate, *policy).into()),
                    ("tidegate.limit.outcome", outcome(status).into()),
                    ("tidegate.limit.limit", decision.limit.into()),
                    ("tidegate.limit.remaining", decision.remaining.into()),
                ],
            );
        }
        for (note, limit) in admission.notes(&gate.limits.policies) {
            let outcome = match note {
                LimitNote::ShadowDenied => "shadow_denied",
                LimitNote::Marked => "marked",
                LimitNote::Warned => "warned",
            };
            let name = limit_name(gate, limit).into();
            span.event(
                DECISION,
                now,
                &[("tidegate.limit.name", name), ("tidegate.limit.outcome", outcome.into())],
            );
        }
    }
    set_route(trace, gate, head, plan.matched.route);
}

/// Records the host and the route of a request without a plan, as far as they are known.
pub(super) fn describe_match(
    trace: &mut RequestTrace,
    (gate, client): (&Gate, IpAddr),
    head: &RequestHead,
    matched: Option<&RouteMatch<'_>>,
) {
    let Some(span) = trace.server_span() else { return };
    describe_client(span, client, matched.map_or("", |matched| &matched.host));
    set_route(trace, gate, head, matched.and_then(|matched| matched.route));
}

/// Records why a request is rejected.
pub(super) fn describe_rejection(trace: &mut RequestTrace, gate: &Gate, rejection: &Rejection) {
    if let Some(word) = rejection.error_word() {
        trace.set_error(word);
    }
    let Some(span) = trace.server_span() else { return };
    let outcome = match rejection.decision() {
        Some((_, LimitOutcome::Blocked)) => "blocked",
        Some((_, LimitOutcome::MissingKey)) => "missing_key",
        _ => return,
    };
    if let Some((limit, _)) = rejection.decision() {
        let name = limit_name(gate, limit).into();
        let attributes = [("tidegate.limit.name", name), ("tidegate.limit.outcome", outcome.into())];
        span.event(DECISION, Clock::System.now(), &attributes);
    }
}

fn describe_client(span: &mut Span, client: IpAddr, host: &str) {
    span.attribute("client.address", &*client.to_string());
    if !host.is_empty() {
        span.attribute("server.address", host);
    }
}

/// Records the route: its pattern, which is what the conventions mean, and its name.
fn set_route(trace: &mut RequestTrace, gate: &Gate, head: &RequestHead, route: Option<RouteId>) {
    let Some((route, span)) = route.zip(trace.server_span()) else { return };
    let route = gate.routes.get(route);
    let pattern = route.path.to_string();
    span.attribute("http.route", &*pattern);
    span.attribute("tidegate.route", &*route.name);
    trace.set_name(&head.method, Some(&pattern));
}

fn limit_name(gate: &Gate, limit: PolicyId) -> &str {
    &gate.limits.policies[limit].name
}

fn outcome(LimitStatus { decision, .. }: &LimitStatus) -> &'static str {
    match (decision.allowed, decision.reason) {
        (true, _) => "allowed",
        (false, DenyReason::Quota) => "denied",
        (false, DenyReason::Ban) => "banned",
        (false, DenyReason::Block) => "blocked",
    }
}

fn source(source: StatusSource) -> &'static str {
    match source {
        StatusSource::Store => "store",
        StatusSource::Local => "local",
    }
}

fn protocol_version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
