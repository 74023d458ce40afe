//! Explains a request.

use std::fmt::Write as _;

use http::{Method, StatusCode};

use super::explained::{CountedRequest, Explained, RequestInfo, ResponseInfo, TextRows};
use super::{forwarding, limits, routing};
use crate::config::Loaded;
use crate::consumers::ConsumerError;
use crate::gate::{
    BodyFields, ClientIdentity, ClientLocation, ConsumerRules, Gate, MAX_READ_BODY, NoField, RecordedParts,
    RequestError, RequestPlan, RequestUsage, RequestView, RouteId, RouteMatch, Subject, normalize,
};
use crate::http1::{RequestHead, names};
use crate::id_vec::Id as _;
use crate::proxy::ConfigSnapshot;
use crate::store::StoreSpec;

/// The fields of a body that was not read.
static NO_BODY: BodyFields = BodyFields::NONE;

/// A request as it arrives.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub client: ClientIdentity<'a>,
    pub head: &'a RequestHead,
    pub body: Option<&'a [u8]>,
    /// What is known of it beside its head.
    pub recorded: Option<&'a RecordedParts>,
}

/// Explains a request: its route, its limits and its response or upstream.
pub(super) fn explain(loaded: &Loaded, arrival: Arrival<'_>) -> Explained {
    let Arrival { client: peer, head, .. } = arrival;
    let request =
        RequestInfo { method: head.method.to_string(), url: head.uri.to_string(), from: Some(peer.address) };
    let mut explained = Explained { request, ..Explained::default() };
    explained.rows.row("request", format!("{} {} from {}", head.method, head.uri, peer.address));
    let Some(decision) = routing::decision(loaded, peer, head) else {
        explain_request(&mut explained, loaded, arrival);
        return explained;
    };
    let head = match &decision.original {
        Some(Err((status, why))) => {
            explained.rows.row("response", format!("{status}: {why}"));
            explained.response = ResponseInfo::rejected(*status, why);
            return explained;
        }
        Some(Ok(original)) => {
            let host = original.fields.get_str(names::HOST).unwrap_or_default();
            explained.rows.row("original", format!("{} {} of {host}", original.method, original.uri));
            original
        }
        None => head,
    };
    explain_known(&mut explained, loaded, Arrival { head, body: None, ..arrival });
    decision.explain(&mut explained.rows);
    if explained.response.is_success() {
        explained.response = ResponseInfo::new("allow", StatusCode::OK);
    }
    explained
}

/// Explains a request that is served here.
fn explain_request(explained: &mut Explained, loaded: &Loaded, arrival: Arrival<'_>) {
    let gate = &loaded.config.snapshot.gate;
    let rules = loaded.config.snapshot.cors.as_deref();
    match rules.and_then(|rules| rules.preflight(gate, arrival.client, arrival.head)) {
        Some(preflight) => routing::explain_preflight(explained, gate, arrival.head, &preflight),
        None => explain_known(explained, loaded, arrival),
    }
}

/// Explains a request that is no preflight.
fn explain_known(explained: &mut Explained, loaded: &Loaded, arrival: Arrival<'_>) {
    let Arrival { client: peer, head, body, recorded } = arrival;
    let snapshot = &loaded.config.snapshot;
    let gate = &snapshot.gate;
    let location = gate.locate(peer, head);
    let matched = gate.match_route(head, &location).ok();
    let fields = matched.as_ref().and_then(|matched| body_fields(gate, matched, head, body));
    let subject = matched.as_ref().map(|matched| {
        let mut subject = Subject { body: fields.as_ref(), ..gate.subject(peer, head, matched, &location) };
        if let Some(recorded) = recorded {
            gate.add_recorded(&mut subject, recorded);
        }
        subject
    });
    explained.route = subject.as_ref().and_then(|subject| Some(subject.route?.name.to_string()));
    let plan = match recorded {
        Some(recorded) => gate.plan_recorded(peer, head, fields.as_ref().unwrap_or(&NO_BODY), recorded),
        None => gate.plan(peer, head, fields.as_ref()),
    };
    match (plan, subject) {
        (Err(error), subject) => {
            if let Ok(path) = normalize(head.uri.path()) {
                explained.rows.row("path", path.matched());
            }
            explained.rows.row("client", describe_client(gate, peer, head));
            explain_error(explained, snapshot, subject.as_ref(), &error);
        }
        (Ok(plan), Some(subject)) => explain_plan(explained, loaded, peer, &plan, &subject),
        // A request with a plan can be matched with a route, too.
        (Ok(_), None) => {}
    }
    explained.counted = Some(CountedRequest { head: head.clone(), body: fields.unwrap_or(BodyFields::NONE) });
}

/// What the limits of the request's route read of its body, as a proxy would read it.
fn body_fields(
    gate: &Gate,
    matched: &RouteMatch<'_>,
    head: &RequestHead,
    body: Option<&[u8]>,
) -> Option<BodyFields> {
    let route = gate.routes.get(matched.route?);
    let (fields, rules) = (route.body_fields(), route.usage_rules());
    let usage = rules.map(|rules| match body {
        None => rules.unread(head),
        Some(body) if body.len() as u64 > rules.read_body => RequestUsage::of_length(body.len() as u64),
        Some(body) => rules.read(head, body),
    });
    let is_short = |body: &&[u8]| body.len() <= MAX_READ_BODY;
    let body =
        body.ok_or(NoField::NoBody).and_then(|body| Some(body).filter(is_short).ok_or(NoField::TooLong));
    let is_read = !fields.is_empty() || usage.is_some();
    is_read.then(|| BodyFields::find(fields, head, body).with_usage(usage))
}

/// Explains why a request is rejected before any limit is checked.
fn explain_error(
    explained: &mut Explained,
    snapshot: &ConfigSnapshot,
    subject: Option<&Subject<'_>>,
    error: &RequestError,
) {
    let rows = &mut explained.rows;
    rows.gap();
    explained.response = explain_rejection(rows, snapshot, error.status(), error);
    if let RequestError::EncodedSlash = error {
        rows.row("", "a route accepts such paths with encoded_slash = \"keep\"");
    }
    if let (RequestError::TooLarge, Some(subject)) = (error, subject) {
        let max = subject.route.and_then(|route| route.max_body).unwrap_or_default();
        rows.row("", format!("its route has a max_body of {max} bytes"));
    }
    if let RequestError::Blocked(limit) = error {
        let name = &snapshot.gate.limits.policies[*limit].name;
        explained.response.reason = Some(format!("{error} (limit {name})"));
        if let Some(subject) = subject {
            limits::explain_block(rows, &snapshot.gate, *limit, subject);
        }
    }
}

/// Explains the route and the limits of a request, and its response or upstream.
fn explain_plan(
    explained: &mut Explained,
    loaded: &Loaded,
    peer: ClientIdentity<'_>,
    plan: &RequestPlan<'_>,
    subject: &Subject<'_>,
) {
    let snapshot = &loaded.config.snapshot;
    let gate = &snapshot.gate;
    let (head, location) = (subject.head, subject.location);
    let rows = &mut explained.rows;
    rows.row("path", plan.matched.path.matched());
    rows.row("host", if plan.matched.host.is_empty() { "none" } else { &plan.matched.host });
    rows.row("client", describe_client(gate, peer, head));
    if let Some(rules) = &gate.consumers {
        rows.row("consumer", describe_consumer(rules, subject));
    }
    if gate.geo.is_some() {
        rows.row("location", describe_location(location));
    }
    let index = plan.matched.route.map(RouteId::index);
    let request = RequestView { head, method: &head.method, query: &plan.matched.query, location };
    routing::explain(rows, gate.routes.routes(), index, request, plan);
    routing::explain_cors(rows, snapshot, plan.matched.route, head);
    let ids = subject.route.map_or(&gate.default_limits, |route| &route.limits);
    if ids.is_empty() {
        rows.row("limits", "none");
    }
    for id in ids {
        rows.gap();
        explained.limits.push(limits::explain(rows, loaded, *id, subject));
    }
    rows.gap();
    explained.response = explain_response(rows, loaded, plan, subject);
    explained.path = Some(plan.matched.path.matched().to_owned());
    explained.host = (!plan.matched.host.is_empty()).then(|| plan.matched.host.to_string());
    explained.client = Some(plan.client);
    explained.consumer = plan.identity.consumer.as_ref().map(|consumer| consumer.name.to_string());
}

/// Explains the response to a request, or where it is forwarded.
fn explain_response(
    rows: &mut TextRows,
    loaded: &Loaded,
    plan: &RequestPlan<'_>,
    subject: &Subject<'_>,
) -> ResponseInfo {
    let snapshot = &loaded.config.snapshot;
    let head = subject.head;
    if let (Some(error @ ConsumerError::NotFetched), Some(rules)) =
        (plan.identity.error, &snapshot.gate.consumers)
    {
        rows.row(
            "response",
            "depends on the consumer, which is in Redis, if there is one; this command does not read it",
        );
        if let StoreSpec::Redis(servers) = &loaded.config.store {
            for hash in rules.hashes_to_fetch(subject) {
                let prefix = &servers.first().prefix;
                rows.row("", format!("see: redis-cli HGETALL {prefix}:consumer:{hash}"));
            }
        }
        return ResponseInfo { kind: "unknown", ..ResponseInfo::rejected(error.status(), &error) };
    }
    if let Some(error) = plan.identity.error {
        let response = explain_rejection(rows, snapshot, error.status(), &error);
        rows.row("", "its limits are charged, and may deny it first");
        return response;
    }
    if let Some(refusal) = plan.refused {
        let response = explain_rejection(rows, snapshot, refusal.status(), &refusal);
        rows.row("", "its limits are charged, and may deny it first");
        return response;
    }
    if let Some(missing) = &plan.missing {
        let response = explain_rejection(rows, snapshot, missing.status, &missing.detail());
        rows.row("", "its other limits are charged, and may deny it first");
        return response;
    }
    match plan.matched.route.map(|route| &snapshot.actions[route]) {
        Some(action) => forwarding::explain(rows, loaded, action, subject, &plan.matched.path.sent),
        None if head.method == Method::OPTIONS && head.uri.path() == "*" => {
            rows.row("response", "204 No Content: `OPTIONS *` addresses the server as a whole");
            ResponseInfo::new("respond", StatusCode::NO_CONTENT)
        }
        None => explain_rejection(rows, snapshot, StatusCode::NOT_FOUND, &"no route matches"),
    }
}

/// Explains the response to a rejected request.
fn explain_rejection(
    rows: &mut TextRows,
    snapshot: &ConfigSnapshot,
    status: StatusCode,
    why: &impl ToString,
) -> ResponseInfo {
    let response = ResponseInfo::rejected(status, why);
    rows.row("response", format!("{status}: {}", response.reason.as_deref().unwrap_or_default()));
    if let Some(custom) = snapshot.response_policy.custom.of(status) {
        let status = custom.status.unwrap_or(status);
        rows.row("", format!("sent as {status} with a body from [answers]"));
    }
    response
}

/// The country and the autonomous system of the client.
fn describe_location(location: &ClientLocation<'_>) -> String {
    let country = location.country().map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let asn = location.asn().map_or_else(|| "unknown".to_owned(), |asn| asn.to_string());
    format!("country {country}, asn {asn}")
}

/// The consumer, and how it was identified.
fn describe_consumer(rules: &ConsumerRules, subject: &Subject<'_>) -> String {
    let source = match subject.recorded.and_then(|recorded| recorded.consumer.as_ref()) {
        Some(_) => "--consumer".to_owned(),
        None => rules.source.to_string(),
    };
    let identity = &subject.identity;
    match (&identity.consumer, identity.error) {
        (Some(consumer), _) => match &consumer.tier {
            Some(tier) => format!("{}, tier {tier} (by {source})", consumer.name),
            None => format!("{}, without a tier (by {source})", consumer.name),
        },
        (None, None) => format!("none: served without a known credential in {source}"),
        (None, Some(error)) => format!("none: {error} ({source})"),
    }
}

/// The client's address, and how it was determined.
fn describe_client(gate: &Gate, peer: ClientIdentity<'_>, head: &RequestHead) -> String {
    let from = peer.address;
    let rules = &gate.client_ip;
    let found = rules.client(from, &head.fields);
    let mut text = found.to_string();
    // Writing to a string can't fail.
    if found != from.to_canonical() {
        let _ = write!(text, " (from {}, sent by the trusted proxy {from})", rules.header);
    } else if head.fields.contains(&rules.header) && !rules.is_trusted(from) {
        let _ = write!(text, " (not a trusted proxy: its {} is ignored)", rules.header);
    }
    let counted = rules.counted(found);
    if counted != found {
        let bits = if counted.is_ipv4() { rules.ipv4_prefix } else { rules.ipv6_prefix };
        let _ = write!(text, ", counted as {counted}/{bits}");
    }
    text
}
