//! Lints of routes: those that never match, and those that respond otherwise than they seem to.

use std::collections::HashMap;

use crate::config::cors::{RouteCors, for_preflights};
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::gate::{Route, ValueCondition};
use crate::proxy::{CorsPolicy, Target};
use crate::server::Service;

/// The index of routes that may hide another: host, path with its parameters unnamed, whether it ends in `*`, and the
/// first of its other conditions.
type IndexKey = (String, String, bool, Option<(String, ValueCondition)>);

/// Routes that never match because an earlier one matches all of their requests. Comparing each pair would take
/// minutes for 10,000 routes, so only those are compared whose host, path and first condition can cover.
pub(super) fn unreachable(sections: &Sections<'_>) -> Vec<Problem> {
    let routes = sections.routes();
    let mut index: HashMap<IndexKey, Vec<usize>> = HashMap::new();
    let mut rest_lengths: Vec<usize> = Vec::new();
    let mut problems = Vec::new();
    for (number, read) in routes.iter().enumerate() {
        let (path, takes_rest) = shape(&read.route);
        let covers = |candidate: &&usize| {
            routes.get(**candidate).is_some_and(|earlier| earlier.route.covers(&read.route))
        };
        let candidates = covering_keys(&read.route, &path, takes_rest, &rest_lengths);
        let hiding = candidates.filter_map(|key| index.get(&key)?.iter().find(covers).copied()).min();
        if let Some(earlier) = hiding.and_then(|index| routes.get(index)) {
            let (own, other) = (&read.route.name, &earlier.route.name);
            let title =
                format!("route `{own}` never matches: the earlier route `{other}` matches all its requests");
            let problem = Problem::warning(read.span.clone(), title);
            let help = "routes are tried from the top: put the more specific one first";
            problems.push(problem.related(earlier.span.clone(), "this route").help(help));
        }
        if takes_rest && !rest_lengths.contains(&path.len()) {
            rest_lengths.push(path.len());
        }
        let host = read.route.host.as_ref().map_or_else(String::new, ToString::to_string);
        let key = (host, path, takes_rest, conditions(&read.route).next());
        index.entry(key).or_default().push(number);
    }
    problems
}

/// A route's path without the names of its parameters and without its star.
fn shape(route: &Route) -> (String, bool) {
    let written = route.path.to_string();
    let (body, takes_rest) = written.strip_suffix('*').map_or((&*written, false), |body| (body, true));
    let unnamed = |segment: &str| if segment.starts_with('{') { "{}".to_owned() } else { segment.to_owned() };
    (body.split('/').map(unnamed).collect::<Vec<_>>().join("/"), takes_rest)
}

/// The conditions on headers, query and cookies, in an order that equal lists share.
fn conditions(route: &Route) -> impl Iterator<Item = (String, ValueCondition)> {
    let headers = route.headers.iter().map(|(name, condition)| (format!("h {name}"), condition));
    let query = route.query.iter().map(|(name, condition)| (format!("q {name}"), condition));
    let cookies = route.cookies.iter().map(|(name, condition)| (format!("c {name}"), condition));
    headers.chain(query).chain(cookies).map(|(name, condition)| (name, condition.clone()))
}

/// Every index entry of routes that can cover this one.
fn covering_keys(
    route: &Route,
    path: &str,
    takes_rest: bool,
    rest_lengths: &[usize],
) -> impl Iterator<Item = IndexKey> {
    let mut hosts = vec![String::new()];
    if let Some(host) = &route.host {
        let host = host.to_string();
        hosts.extend(host.match_indices('.').map(|(dot, _)| format!("*{}", &host[dot..])));
        hosts.push(host);
    }
    let mut paths: Vec<(&str, bool)> = Vec::new();
    paths.extend(rest_lengths.iter().filter_map(|length| Some((path.get(..*length)?, true))));
    if !takes_rest {
        paths.push((path, false));
    }
    let paths: Vec<(String, bool)> = paths.into_iter().map(|(path, rest)| (path.to_owned(), rest)).collect();
    // A condition that a name is present covers every condition on its values.
    let present = conditions(route).map(|(name, _)| Some((name, ValueCondition::Present)));
    let conditions: Vec<_> =
        std::iter::once(None).chain(conditions(route).map(Some)).chain(present).collect();
    let mut index = Vec::with_capacity(hosts.len() * paths.len() * conditions.len());
    for host in &hosts {
        for (path, rest) in &paths {
            index.extend(conditions.iter().map(|one| (host.clone(), path.clone(), *rest, one.clone())));
        }
    }
    index.into_iter()
}

/// A file whose only path is `/`: probably `/*` is meant.
pub(super) fn only_root(sections: &Sections<'_>) -> Vec<Problem> {
    let [read] = sections.routes() else { return Vec::new() };
    if read.route.path.to_string() != "/" {
        return Vec::new();
    }
    let title = "this is the only route, and it matches only the path `/`: other paths get 404";
    vec![Problem::warning(read.span.clone(), title).help("write path = \"/*\" for every path")]
}

/// Routes that show the limits of a client and have none.
pub(super) fn no_limits_to_show(sections: &Sections<'_>) -> Vec<Problem> {
    let shows = |read: &&ReadRoute| matches!(read.action.target, Target::Limits);
    let empty = sections.routes().iter().filter(shows).filter(|read| read.route.limits.is_empty());
    let problem = |read: &ReadRoute| {
        let title = format!("route `{}` shows the limits of a client, and has none", read.route.name);
        Problem::warning(read.span.clone(), title).help("name in `limits` those that other routes charge")
    };
    empty.map(problem).collect()
}

/// A file with a listener for routes, and without routes.
pub(super) fn none(sections: &Sections<'_>) -> Vec<Problem> {
    let serves_routes = sections.listeners().iter().any(|listener| listener.service == Service::Proxy);
    if !sections.routes().is_empty() || !serves_routes {
        return Vec::new();
    }
    let problem = Problem::without_span("the file has no routes: every request gets 404");
    vec![problem.into_warning().help("add a [[routes]] table with a `path` and an `upstream`")]
}

/// Routes that set or remove headers which their CORS policy writes.
pub(super) fn cors_headers(sections: &Sections<'_>) -> Vec<Problem> {
    let has_policy = |read: &&ReadRoute| match read.cors {
        RouteCors::Inherited => !matches!(sections.cors, Ok(None)),
        RouteCors::Off => false,
        RouteCors::Own(_) => true,
    };
    let written = |read: &ReadRoute| -> Option<Problem> {
        let edits = &read.action.response_headers;
        let names = edits.names();
        let name = names.into_iter().find(|name| name.as_str().starts_with("access-control-"))?;
        let title =
            format!("`response_headers` of route `{}` has `{name}`, which `cors` replaces", read.route.name);
        Some(
            Problem::warning(read.span.clone(), title)
                .help("leave it out, or write cors = \"off\" in the route"),
        )
    };
    sections.routes().iter().filter(has_policy).filter_map(written).collect()
}

/// Routes whose policy preflights for a later route get, since they ignore conditions on headers and cookies.
pub(super) fn preflights(sections: &Sections<'_>) -> Vec<Problem> {
    let (routes, Ok(default)) = (sections.routes(), &sections.cors) else { return Vec::new() };
    let default = default.as_ref();
    let problem = |at: usize, read: &ReadRoute| {
        let seen = for_preflights(&read.route);
        let is_conditional = seen.headers.len() < read.route.headers.len() || !read.route.cookies.is_empty();
        let mut later = routes[at + 1..].iter().filter(|_| is_conditional);
        let differs = |other: &&ReadRoute| policy(other, default) != policy(read, default);
        let other = later.find(|other| differs(other) && seen.covers(&other.route))?;
        let title = format!(
            "preflights for route `{}` get the CORS policy of route `{}`, which differs",
            other.route.name, read.route.name
        );
        let help = "preflights ignore conditions on headers and cookies: give both routes the same `cors`, or other paths";
        Some(Problem::warning(read.span.clone(), title).help(help))
    };
    routes.iter().enumerate().filter_map(|(at, read)| problem(at, read)).collect()
}

fn policy<'r>(read: &'r ReadRoute, default: Option<&'r CorsPolicy>) -> Option<&'r CorsPolicy> {
    match &read.cors {
        RouteCors::Inherited => default,
        RouteCors::Off => None,
        RouteCors::Own(policy) => Some(policy),
    }
}
