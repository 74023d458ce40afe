//! Explains which route matches a request, which routes nearly match, and how CORS and decisions on original requests apply.

use http::{Method, StatusCode};

use super::explained::{Explained, ResponseInfo, TextRows};
use crate::config::Loaded;
use crate::gate::{
    ClientIdentity, Gate, OriginalError, RequestPlan, RequestView, Route, RouteId, RouteTable, Unmet,
    original,
};
use crate::http1::{RequestHead, names};
use crate::proxy::{ConfigSnapshot, CorsPolicy, ForwardAuth, Preflight, Target};

/// The most nearly matching routes that are listed.
const MAX_NEAR_MISSES: usize = 5;

/// Explains the match of the route at index `matched`, and why routes before it do not match although their path does.
pub(super) fn explain(
    rows: &mut TextRows,
    routes: &[Route],
    matched: Option<usize>,
    request: RequestView<'_>,
    plan: &RequestPlan<'_>,
) {
    let before = matched.and_then(|index| routes.get(..index)).unwrap_or(routes);
    for (route, why) in near_misses(before, request, plan).take(MAX_NEAR_MISSES) {
        rows.row("skipped", format!("route {}: its path matches, but {why}", route.name));
    }
    match matched.and_then(|index| routes.get(index)) {
        Some(route) => rows.row("route", format!("{}: {}", route.name, conditions(route))),
        None => rows.row("route", "none matches"),
    }
}

/// Routes whose host and path match, with the condition that does not.
fn near_misses<'r>(
    routes: &'r [Route],
    request: RequestView<'r>,
    plan: &'r RequestPlan<'_>,
) -> impl Iterator<Item = (&'r Route, Unmet<'r>)> {
    let path_matches = move |route: &Route| {
        let mut bare = Route::new(&route.name, route.path.clone());
        bare.host.clone_from(&route.host);
        RouteTable::new(vec![bare]).find(&plan.matched.host, plan.matched.path.matched(), request).is_some()
    };
    let with_path = routes.iter().filter(move |route| path_matches(route));
    with_path.filter_map(move |route| Some((route, route.unmet(request)?)))
}

/// The conditions of a route, such as `host a.test; path /v1/*; methods GET`.
fn conditions(route: &Route) -> String {
    let mut conditions = Vec::new();
    conditions.extend(route.listener.iter().map(|listener| format!("listener {listener}")));
    conditions.extend(route.scheme.iter().map(|scheme| format!("scheme {scheme}")));
    if let Some(host) = &route.host {
        conditions.push(format!("host {host}"));
    }
    conditions.push(format!("path {}", route.path));
    if !route.methods.is_empty() {
        let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
        conditions.push(format!("methods {}", methods.join(", ")));
    }
    conditions.extend(route.headers.iter().map(|(name, condition)| format!("header {name} {condition}")));
    conditions.extend(route.query.iter().map(|(name, condition)| format!("query {name} {condition}")));
    conditions.extend(route.cookies.iter().map(|(name, condition)| format!("cookie {name} {condition}")));
    conditions.extend(route.client_ip.iter().map(|condition| format!("client_ip {condition}")));
    conditions.extend(route.country.iter().map(|condition| format!("country {condition}")));
    conditions.extend(route.asn.iter().map(|condition| format!("asn {condition}")));
    conditions.join("; ")
}

/// Explains whether a page may read the response to a request that has an Origin.
pub(super) fn explain_cors(
    rows: &mut TextRows,
    snapshot: &ConfigSnapshot,
    route: Option<RouteId>,
    head: &RequestHead,
) {
    let (Some(rules), Some(origin)) = (&snapshot.cors, head.fields.get(names::ORIGIN)) else { return };
    let origin = String::from_utf8_lossy(origin);
    rows.row(
        "cors",
        match rules.policy(route) {
            None => "off for this route: the CORS headers are those of the upstream".to_owned(),
            Some(policy) => origin_text(policy, &origin),
        },
    );
}

/// Explains the response to a preflight.
pub(super) fn explain_preflight(
    explained: &mut Explained,
    gate: &Gate,
    head: &RequestHead,
    preflight: &Preflight<'_>,
) {
    let rows = &mut explained.rows;
    let Preflight { policy, method, matched } = preflight;
    if let Some(matched) = matched {
        rows.row("path", matched.path.matched());
        rows.row("host", if matched.host.is_empty() { "none" } else { &matched.host });
    }
    let route = matched.as_ref().and_then(|matched| matched.route).map(|id| gate.routes.get(id));
    let name = route.map_or("none", |route| &route.name);
    rows.row("route", format!("{name} (for {method}, without conditions on headers)"));
    let origin = String::from_utf8_lossy(head.fields.get(names::ORIGIN).unwrap_or_default());
    rows.row("cors", origin_text(policy, &origin));
    if policy.allows(&origin) {
        rows.row("", method_text(policy, method));
    }
    rows.gap();
    rows.row("response", "204 No Content: this is a preflight, which no limit counts");
    explained.route = route.map(|route| route.name.to_string());
    explained.response = ResponseInfo::new("preflight", StatusCode::NO_CONTENT);
}

fn origin_text(policy: &CorsPolicy, origin: &str) -> String {
    let credentials = if policy.credentials { ", also with credentials" } else { "" };
    if policy.allows(origin) {
        format!("pages of {origin} may read the response{credentials}")
    } else {
        format!("pages of {origin} may not read the response: `origins` does not have it")
    }
}

fn method_text(policy: &CorsPolicy, method: &Method) -> String {
    if policy.allows_method(method) {
        format!("they may use the method {method}")
    } else {
        format!("they may not use the method {method}: `methods` does not have it")
    }
}

/// A request for which there is a decision in place of a response.
pub(super) struct AuthDecision {
    /// The original request, or why there is no decision; none if it is the request itself.
    pub original: Option<Result<RequestHead, (StatusCode, String)>>,
    settings: ForwardAuth,
}

/// Whether and on what there is a decision: on the original request, if this is an authorization request to a route or to listeners
/// with `respond = "decide"`; on the request itself if it describes no other one, and all listeners have that.
pub(super) fn decision(
    loaded: &Loaded,
    peer: ClientIdentity<'_>,
    head: &RequestHead,
) -> Option<AuthDecision> {
    let snapshot = &loaded.config.snapshot;
    let gate = &snapshot.gate;
    let route = gate.match_route(head, &gate.locate(peer, head)).ok().and_then(|matched| matched.route);
    let of_route = route.and_then(|route| match snapshot.actions[route].target {
        Target::Decide(settings) => Some(settings),
        _ => None,
    });
    let settings = of_route.or_else(|| of_listeners(loaded))?;
    let described = original(head, &gate.client_ip.header);
    if of_route.is_none() && matches!(described, Err(OriginalError::NoTarget)) {
        return Some(AuthDecision { original: None, settings });
    }
    let original = if gate.client_ip.is_trusted(peer.address) {
        described.map(|original| original.head).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
    } else {
        let why = format!("decisions are for trusted proxies only, and {} is none", peer.address);
        Err((StatusCode::FORBIDDEN, why))
    };
    Some(AuthDecision { original: Some(original), settings })
}

/// The settings of the listeners, if all of them are for authorization requests.
fn of_listeners(loaded: &Loaded) -> Option<ForwardAuth> {
    let mut settings = loaded.config.listeners.iter().map(|spec| spec.forward_auth);
    let first = settings.next()??;
    settings.all(|other| other.is_some()).then_some(first)
}

impl AuthDecision {
    /// Explains the response to the authorization request.
    pub fn explain(&self, rows: &mut TextRows) {
        rows.row("decision", "200 OK if the request passes, in place of what follows its limits above");
        if let Some(status) = self.settings.deny_status {
            rows.row("denial", format!("{status}, with the status above in X-Tidegate-Status"));
        }
    }
}
