//! Explains which route matches a request, and which routes nearly match.

use http::Method;

use super::rows::TextRows;
use crate::gate::{RequestPlan, RequestView, Route, RouteTable, Unmet};

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
    conditions.extend(route.country.iter().map(|condition| format!("country {condition}")));
    conditions.extend(route.asn.iter().map(|condition| format!("asn {condition}")));
    conditions.join("; ")
}
