//! Lints of routes with a CORS policy.

use std::ops::Range;

use super::cors::{RouteCors, for_preflights};
use super::report::Problem;
use super::routes::ReadRoute;
use crate::proxy::CorsPolicy;

/// Warnings of headers that routes set or remove, and that their CORS policy writes.
pub(super) fn warnings(routes: &[ReadRoute], has_default: bool) -> Vec<Problem> {
    let has_policy = |read: &&ReadRoute| match read.cors {
        RouteCors::Inherited => has_default,
        RouteCors::Off => false,
        RouteCors::Own(_) => true,
    };
    let written = |read: &ReadRoute| -> Option<Problem> {
        let edits = &read.action.response_headers;
        let names = edits.remove.iter().chain(edits.set.iter().map(|(name, _)| name));
        let name = names.into_iter().find(|name| name.as_str().starts_with("access-control-"))?;
        let span: Range<usize> = read.span.clone();
        let title =
            format!("`response_headers` of route `{}` has `{name}`, which `cors` replaces", read.route.name);
        Some(Problem::warning(span, title).help("leave it out, or write cors = \"off\" in the route"))
    };
    routes.iter().filter(has_policy).filter_map(written).collect()
}

/// Warnings of routes whose policy preflights for a later route get, since they ignore conditions on headers and cookies.
pub(super) fn preflights(routes: &[ReadRoute], default: Option<&CorsPolicy>) -> Vec<Problem> {
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
