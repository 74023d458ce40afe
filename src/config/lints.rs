//! Checks of all sections of a file together: errors, and warnings of what is valid but suspicious.

mod limits;
mod listeners;
mod parts;
mod routes;
mod slashes;

use super::report::Problem;
use super::sections::Sections;

/// A check of the sections of a file.
type Lint = fn(&Sections<'_>) -> Vec<Problem>;

/// For a file of a proxy whose routes could be read.
const OF_ROUTES: [Lint; 19] = [
    slashes::bypassed,
    limits::uncharged,
    routes::cors_headers,
    routes::preflights,
    limits::ahead,
    routes::unreachable,
    limits::evadable,
    limits::skipping,
    limits::bodiless,
    limits::unused,
    limits::free,
    listeners::unused_upstreams,
    listeners::loops,
    limits::instances,
    listeners::unknown_to_decisions,
    routes::only_root,
    routes::no_limits_to_show,
    listeners::descriptors,
    routes::none,
];

/// For every file.
const OF_PARTS: [Lint; 6] = [
    parts::claims,
    parts::consumers_in_redis,
    parts::consumers,
    parts::places,
    listeners::untrusted_decisions,
    parts::descriptors,
];

/// The problems of a file, which is read for a proxy or for the library.
pub(super) fn problems(sections: &Sections<'_>, is_for_library: bool) -> Vec<Problem> {
    let first: Lint = if is_for_library { parts::bodies } else { parts::client_certificates };
    let of_routes = OF_ROUTES.iter().filter(|_| !is_for_library && sections.routes.is_some());
    let lints = [first].into_iter().chain(of_routes.copied()).chain(OF_PARTS);
    lints.flat_map(|lint| lint(sections)).collect()
}
