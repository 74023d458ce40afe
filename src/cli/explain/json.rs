//! Explains a request in JSON.

use std::net::IpAddr;

use http::{Method, StatusCode};
use serde::Serialize;

use super::decision;
use super::report::body_fields;
use crate::config::Loaded;
use crate::consumers::ConsumerError;
use crate::gate::{
    ClientIdentity, Gate, KeyPart, LimitMatch, PartValue, PolicySource, RequestError, RequestPlan, RouteId,
    Subject,
};
use crate::http1::RequestHead;
use crate::limit::{Key, PolicyId};
use crate::proxy::Target;
use crate::store::StoreSpec;
use crate::store::redis::stored_key;
use crate::upstream::ServerSpec;

/// What happens to a request.
#[derive(Debug, Default, Serialize)]
pub(super) struct Explained {
    request: RequestInfo,
    /// The normal path, which routes match; none if the path is rejected.
    path: Option<String>,
    /// The host that the request names.
    host: Option<String>,
    /// The address that counts as that of the client.
    client: Option<IpAddr>,
    consumer: Option<String>,
    /// The name of the route that matches.
    route: Option<String>,
    limits: Vec<LimitInfo>,
    response: ResponseInfo,
}

#[derive(Debug, Default, Serialize)]
struct RequestInfo {
    method: String,
    url: String,
    from: Option<IpAddr>,
}

/// How a limit applies.
#[derive(Debug, Serialize)]
pub(super) struct LimitInfo {
    name: String,
    algorithm: &'static str,
    /// `enforce` or `shadow`.
    mode: &'static str,
    /// The rate and what belongs to it, as the file has them, of the limit itself or of its tier or override.
    numbers: String,
    key: Vec<KeyPartInfo>,
    /// `charged`, `allowed` or `skipped`; or a denial whatever the counts are: `blocked`, `missing` or `too_many_values`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    overridden: Option<String>,
    /// The units of a request that is charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    /// The tag of the key, as `tidegate keys` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// The key in Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_as: Option<String>,
}

#[derive(Debug, Serialize)]
struct KeyPartInfo {
    part: String,
    /// None if the request lacks it, or has several values that differ.
    value: Option<String>,
}

/// What the client gets, if no limit denies the request.
#[derive(Debug, Default, Serialize)]
struct ResponseInfo {
    /// `forward`, `respond`, `limits`, `block`, `preflight` or `reject`; `allow` for a decision; `unknown` if a consumer in Redis decides.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Why it is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The upstream of `forward`.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// The URL of the request at each of its servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    urls: Vec<String>,
}

impl ResponseInfo {
    fn new(kind: &'static str, status: StatusCode) -> Self {
        Self { kind, status: Some(status.as_u16()), ..Self::default() }
    }

    fn rejected(status: StatusCode, reason: &impl ToString) -> Self {
        Self { reason: Some(reason.to_string()), ..Self::new("reject", status) }
    }
}

/// Explains a request: its route, its limits and its response or upstream.
pub(super) fn explain(
    loaded: &Loaded,
    peer: ClientIdentity<'_>,
    head: &RequestHead,
    body: Option<&[u8]>,
) -> Explained {
    let request =
        RequestInfo { method: head.method.to_string(), url: head.uri.to_string(), from: Some(peer.address) };
    let explained = Explained { request, ..Explained::default() };
    match decision::decision(loaded, peer, head).map(|decision| decision.original) {
        None => explain_request(explained, loaded, peer, (head, body)),
        Some(Some(Err((status, why)))) => {
            Explained { response: ResponseInfo::rejected(status, &why), ..explained }
        }
        Some(original) => {
            let original = original.and_then(Result::ok);
            let explained = explain_known(explained, loaded, peer, original.as_ref().unwrap_or(head), None);
            let is_allowed = match explained.response.kind {
                "forward" | "limits" => true,
                "respond" => explained.response.status.is_some_and(|status| status < 300),
                _ => false,
            };
            let response =
                if is_allowed { ResponseInfo::new("allow", StatusCode::OK) } else { explained.response };
            Explained { response, ..explained }
        }
    }
}

/// Explains a request that is served here.
fn explain_request(
    explained: Explained,
    loaded: &Loaded,
    peer: ClientIdentity<'_>,
    (head, body): (&RequestHead, Option<&[u8]>),
) -> Explained {
    let gate = &loaded.config.snapshot.gate;
    let rules = loaded.config.snapshot.cors.as_deref();
    if let Some(preflight) = rules.and_then(|rules| rules.preflight(gate, peer, head)) {
        let route = preflight.matched.as_ref().and_then(|matched| matched.route);
        let response = ResponseInfo::new("preflight", StatusCode::NO_CONTENT);
        return Explained { route: route_name(gate, route), response, ..explained };
    }
    explain_known(explained, loaded, peer, head, body)
}

/// Explains a request that is no preflight.
fn explain_known(
    explained: Explained,
    loaded: &Loaded,
    peer: ClientIdentity<'_>,
    head: &RequestHead,
    body: Option<&[u8]>,
) -> Explained {
    let gate = &loaded.config.snapshot.gate;
    let fields = body_fields(gate, peer, head, body);
    let location = gate.locate(peer, head);
    match gate.plan(peer, head, fields.as_ref()) {
        Ok(plan) => {
            // A request with a plan can be matched with a route, too.
            let Ok(located) = gate.match_route(head, &location) else { return explained };
            let mut subject = gate.subject(peer, head, &located, &location);
            subject.body = plan.body;
            explain_plan(explained, loaded, &plan, &subject)
        }
        Err(error) => {
            let located = gate.match_route(head, &location).ok();
            let route = located.and_then(|located| located.route);
            let response = ResponseInfo::rejected(error.status(), &rejection(gate, &error));
            Explained { route: route_name(gate, route), response, ..explained }
        }
    }
}

/// Why a request is rejected before any limit is checked.
fn rejection(gate: &Gate, error: &RequestError) -> String {
    match error {
        RequestError::Blocked(limit) => format!("{error} (limit {})", gate.limits.policies[*limit].name),
        _ => error.to_string(),
    }
}

fn route_name(gate: &Gate, route: Option<RouteId>) -> Option<String> {
    route.map(|id| gate.routes.get(id).name.to_string())
}

fn explain_plan(
    explained: Explained,
    loaded: &Loaded,
    plan: &RequestPlan<'_>,
    subject: &Subject<'_>,
) -> Explained {
    let gate = &loaded.config.snapshot.gate;
    let ids = plan.route.map_or(&gate.default_limits, |id| &gate.routes.get(id).limits);
    Explained {
        path: Some(plan.path.matched().to_owned()),
        host: (!plan.host.is_empty()).then(|| plan.host.to_string()),
        client: Some(plan.client),
        consumer: plan.identity.consumer.as_ref().map(|consumer| consumer.name.to_string()),
        route: route_name(gate, plan.route),
        limits: ids.iter().map(|id| limit(loaded, *id, subject)).collect(),
        response: response(loaded, plan, subject),
        ..explained
    }
}

/// How a limit applies to a request or a descriptor.
pub(super) fn limit(loaded: &Loaded, id: PolicyId, subject: &Subject<'_>) -> LimitInfo {
    let gate = &loaded.config.snapshot.gate;
    let (policy, rule) = (&gate.limits.policies[id], &gate.limit_rules[id]);
    let part = |part: &KeyPart| KeyPartInfo {
        part: part.to_string(),
        value: match part.value(subject) {
            PartValue::One(value) => Some(String::from_utf8_lossy(&value).into_owned()),
            PartValue::Several(_) | PartValue::Missing => None,
        },
    };
    let mut info = LimitInfo {
        name: policy.name.to_string(),
        algorithm: policy.quota.algorithm().name(),
        mode: if policy.shadow { "shadow" } else { "enforce" },
        numbers: loaded.limits[id].numbers.to_string(),
        key: rule.key.parts.iter().map(part).collect(),
        outcome: "charged",
        tier: None,
        overridden: None,
        cost: None,
        tag: None,
        stored_as: None,
    };
    let found = rule.key.find(subject, &gate.hasher);
    let (charge, source) = match gate.match_limit(id, subject, &found) {
        LimitMatch::Charged { charge, source } => (charge, source),
        LimitMatch::Allowed(_) => return LimitInfo { outcome: "allowed", ..info },
        LimitMatch::Skipped => return LimitInfo { outcome: "skipped", ..info },
        LimitMatch::Blocked(_) => return LimitInfo { outcome: "blocked", ..info },
        LimitMatch::TooManyValues(_) => return LimitInfo { outcome: "too_many_values", ..info },
        LimitMatch::Missing(_) => return LimitInfo { outcome: "missing", ..info },
    };
    match source {
        PolicySource::Base => {}
        PolicySource::Tier(name) => info.tier = Some(name.to_owned()),
        PolicySource::Override(name) => info.overridden = Some(name.to_owned()),
    }
    let charged = &gate.limits.policies[charge.policy];
    if let StoreSpec::Redis(redis) = &loaded.config.store {
        let name = stored_key(&redis.prefix, charged, charge.key, charged.letter());
        info.stored_as = Some(String::from_utf8_lossy(&name).into_owned());
    }
    let text = charge.key.text();
    LimitInfo {
        numbers: loaded.limits[charge.policy].numbers.to_string(),
        cost: Some(charge.cost),
        tag: Some(format!("{}{}", Key::TAG, String::from_utf8_lossy(&text))),
        ..info
    }
}

fn response(loaded: &Loaded, plan: &RequestPlan<'_>, subject: &Subject<'_>) -> ResponseInfo {
    let (snapshot, head) = (&loaded.config.snapshot, subject.head);
    if let Some(error) = plan.identity.error {
        let kind = if error == ConsumerError::NotFetched { "unknown" } else { "reject" };
        return ResponseInfo { kind, ..ResponseInfo::rejected(error.status(), &error) };
    }
    if let Some(missing) = &plan.missing {
        return ResponseInfo::rejected(missing.status, &missing.detail());
    }
    let Some(route) = plan.route else {
        let is_of_server = head.method == Method::OPTIONS && head.uri.path() == "*";
        return if is_of_server {
            ResponseInfo::new("respond", StatusCode::NO_CONTENT)
        } else {
            ResponseInfo::rejected(StatusCode::NOT_FOUND, &"no route matches")
        };
    };
    match &snapshot.actions[route].target {
        Target::Respond { status, .. } => ResponseInfo::new("respond", *status),
        Target::Limits => ResponseInfo::new("limits", StatusCode::OK),
        Target::Block => ResponseInfo::new("block", StatusCode::FORBIDDEN),
        Target::Decide(_) => {
            ResponseInfo::rejected(StatusCode::NOT_FOUND, &"it is an authorization request itself")
        }
        Target::Forward { upstream, rewrite, .. } => {
            let upstream = &snapshot.upstreams[*upstream];
            let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
            let target = format!("{}{query}", rewrite.path(&plan.path.sent));
            // A part of the URL may be a secret from an environment variable.
            let url = |server: &ServerSpec| format!("{}{target}", loaded.without_variables(&server.url()));
            ResponseInfo {
                kind: "forward",
                upstream: Some(upstream.label().to_owned()),
                urls: upstream.servers.iter().map(url).collect(),
                ..ResponseInfo::default()
            }
        }
    }
}
