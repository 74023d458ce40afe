//! Lints of routes with a CORS policy.

use std::ops::Range;

use super::cors::RouteCors;
use super::report::Problem;
use super::routes::ReadRoute;

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
