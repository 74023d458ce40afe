//! Which route a request meets, and which it misses by little.

use http::Method;

use super::rows::Rows;
use crate::gate::{RequestPlan, RequestView, Route, RouteTable};
use crate::http1::RequestHead;

/// No more routes are listed than this that a request nearly met.
const NEAR_MISSES: usize = 5;

/// Tells of the route at `place`, and of those before it whose path fits as well.
pub(super) fn tell(
    rows: &mut Rows,
    routes: &[Route],
    place: Option<usize>,
    head: &RequestHead,
    examined: &RequestPlan<'_>,
) {
    let before = place.and_then(|place| routes.get(..place)).unwrap_or(routes);
    for (route, why) in near_misses(before, head, examined).take(NEAR_MISSES) {
        rows.row("not", format!("route {}, though its path fits: {why}", route.name));
    }
    match place.and_then(|place| routes.get(place)) {
        Some(route) => rows.row("route", format!("{}: {}", route.name, conditions(route))),
        None => rows.row("route", "none matches"),
    }
}

/// Routes whose host and path fit, with the condition that does not hold.
fn near_misses<'r>(
    routes: &'r [Route],
    head: &'r RequestHead,
    examined: &'r RequestPlan<'_>,
) -> impl Iterator<Item = (&'r Route, String)> {
    let request = RequestView { head, query: &examined.query };
    let fits = move |route: &Route| {
        let bare = Route { methods: Vec::new(), headers: Vec::new(), query: Vec::new(), ..route.clone() };
        RouteTable::new(vec![bare]).find(&examined.host, examined.path.matched(), request).is_some()
    };
    routes.iter().filter(move |route| fits(route)).map(move |route| (route, miss(route, request)))
}

fn miss(route: &Route, request: RequestView<'_>) -> String {
    let methods = Route { headers: Vec::new(), query: Vec::new(), ..route.clone() };
    if !methods.accepts(request) {
        let named: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
        return format!("it takes only {}", named.join(", "));
    }
    let headers = Route { methods: Vec::new(), query: Vec::new(), ..route.clone() };
    if headers.accepts(request) { "its query differs".to_owned() } else { "its headers differ".to_owned() }
}

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
    let headers = route.headers.iter().map(|(name, _)| format!("header {name}"));
    let query = route.query.iter().map(|(name, _)| format!("query {name}"));
    conditions.extend(headers.chain(query));
    conditions.join("; ")
}
