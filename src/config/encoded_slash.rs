//! Encoded slashes: whether a route that keeps them opens a way round another route's limits.
//!
//! A kept `%2F` goes upstream as it is, and a server may read it as a slash: `/files/a%2Fb` is then
//! `/files/a/b`, and `/files/..%2Flogin` is `/login`. So the decoded path can be any path that ends as the
//! kept route's pattern does, and no limited route may match one of those without charging the same.

use http::Method;

use super::limits::ReadLimits;
use super::report::Problem;
use super::routes::ReadRoute;
use crate::gate::{KeyPart, PathPattern, Route, normalize};
use crate::limit::PolicyId;
use crate::proxy::Target;

/// Said of the route that is evaded.
const DECODED: &str = "a server that decodes %2F may take the request for one of this route";

/// A problem for each route that keeps encoded slashes where that is a way round a limit or a refusal.
pub(super) fn problems(routes: &[ReadRoute], limits: &ReadLimits) -> Vec<Problem> {
    let mut problems = round_limits(routes, limits);
    problems.extend(round_refusals(routes));
    problems
}

fn round_limits(routes: &[ReadRoute], limits: &ReadLimits) -> Vec<Problem> {
    let limited: Vec<&ReadRoute> = routes.iter().filter(|read| !read.route.limits.is_empty()).collect();
    let kept = routes.iter().filter(|read| read.route.keeps_encoded_slash);
    kept.filter_map(|kept| {
        let reach = Reach::of(&kept.route.path);
        limited.iter().find_map(|limited| {
            let escaped = escaped_limit(&kept.route, &limited.route, limits)?;
            let meets = reach.may_meet(&limited.route.path) && overlap(&kept.route, &limited.route);
            meets.then(|| problem(kept, limited, escaped, limits))
        })
    })
    .collect()
}

/// Warnings: the server may refuse by itself what another route refuses here.
fn round_refusals(routes: &[ReadRoute]) -> impl Iterator<Item = Problem> {
    let refusal = |read: &ReadRoute| match &read.treatment.target {
        Target::Respond { status, .. } => status.is_client_error() || status.is_server_error(),
        Target::Forward { .. } => false,
    };
    let forwards = |read: &&ReadRoute| matches!(read.treatment.target, Target::Forward { .. });
    let kept = routes.iter().filter(|read| read.route.keeps_encoded_slash).filter(forwards);
    kept.filter_map(move |kept| {
        let reach = Reach::of(&kept.route.path);
        let meets =
            |other: &ReadRoute| reach.may_meet(&other.route.path) && overlap(&kept.route, &other.route);
        let refusing = routes.iter().find(|other| refusal(other) && meets(other))?;
        let place = kept.slash_span.clone().unwrap_or_else(|| kept.span.clone());
        let title =
            format!("an encoded slash may be a way round route `{}`, which refuses", refusing.route.name);
        let problem = Problem::warning(place, title).related(refusing.span.clone(), DECODED);
        Some(problem.help("leave `encoded_slash` out, or have the server refuse these paths as well"))
    })
}

fn problem(kept: &ReadRoute, limited: &ReadRoute, escaped: PolicyId, limits: &ReadLimits) -> Problem {
    let name = limits.get(escaped).map_or("", |limit| &*limit.policy.name);
    let place = kept.slash_span.clone().unwrap_or_else(|| kept.span.clone());
    let (title, help) = if std::ptr::eq(kept, limited) {
        (
            format!("an encoded slash would be a way round the limit `{name}`, which counts by the path"),
            "leave `encoded_slash` out, or let the limit count by something else".to_owned(),
        )
    } else {
        (
            format!(
                "an encoded slash would be a way round the limit `{name}` of route `{}`",
                limited.route.name
            ),
            format!("leave `encoded_slash` out, or put the limit `{name}` on this route as well"),
        )
    };
    let problem = Problem::error(place, title).help(help);
    if std::ptr::eq(kept, limited) {
        return problem;
    }
    problem.related(limited.span.clone(), DECODED)
}

/// A limit of `limited` that a request pays under another key, or not at all, when `kept` takes it.
fn escaped_limit(kept: &Route, limited: &Route, limits: &ReadLimits) -> Option<PolicyId> {
    let is_same = std::ptr::eq(kept, limited);
    limited.limits.iter().copied().find(|id| {
        let by_path = limits.get(*id).is_none_or(|limit| {
            limit.terms.key.parts.iter().any(|part| match part {
                KeyPart::Path | KeyPart::PathParam(_) => true,
                KeyPart::Route => !is_same,
                _ => false,
            })
        });
        by_path || !kept.limits.contains(id)
    })
}

/// What a server may make of the paths of a route once it has decoded their slashes.
enum Reach {
    /// Nothing else: no path of the route has an encoded slash.
    Nothing,
    /// One path, or any if it can't be told.
    One(Option<PathPattern>),
    /// Any path that ends in these segments, the last one first.
    EndingIn(Vec<String>),
}

impl Reach {
    fn of(pattern: &PathPattern) -> Self {
        let written = pattern.to_string();
        if written.ends_with('*') {
            return Self::EndingIn(Vec::new());
        }
        if written.contains('{') {
            let fixed = |segment: &&str| !segment.starts_with('{') && !segment.contains("%2F");
            return Self::EndingIn(written.rsplit('/').take_while(fixed).map(str::to_owned).collect());
        }
        if !written.contains("%2F") {
            return Self::Nothing;
        }
        let decoded = written.replace("%2F", "/");
        Self::One(normalize(&decoded).ok().and_then(|path| PathPattern::parse(path.matched()).ok()))
    }

    /// Whether such a path may match; says yes in doubt.
    fn may_meet(&self, pattern: &PathPattern) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(path) => {
                path.as_ref().is_none_or(|path| pattern.covers(path) || !pattern_is_plain(pattern))
            }
            Self::EndingIn(end) => {
                let written = pattern.to_string();
                if written.ends_with('*') {
                    return true;
                }
                let mut segments = written.rsplit('/');
                end.iter()
                    .all(|want| segments.next().is_some_and(|have| have == want || have.starts_with('{')))
            }
        }
    }
}

/// Whether a pattern's text is all that it matches.
fn pattern_is_plain(pattern: &PathPattern) -> bool {
    let written = pattern.to_string();
    !written.contains('{') && !written.ends_with('*')
}

/// Whether one request can have the host and method of both.
fn overlap(a: &Route, b: &Route) -> bool {
    let hosts = match (&a.host, &b.host) {
        (Some(a), Some(b)) => a.covers(b) || b.covers(a),
        _ => true,
    };
    hosts && (any_method(a, b) || any_method(b, a))
}

/// Whether one of the methods that `a` names is one that `b` takes.
fn any_method(a: &Route, b: &Route) -> bool {
    let takes = |method: &Method| {
        b.methods.is_empty()
            || b.methods.contains(method)
            || (*method == Method::HEAD && b.methods.contains(&Method::GET))
    };
    (a.methods.is_empty() && b.methods.is_empty()) || a.methods.iter().any(takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meets(kept: &str, limited: &str) -> bool {
        let pattern = |text| PathPattern::parse(text).unwrap();
        Reach::of(&pattern(kept)).may_meet(&pattern(limited))
    }

    #[test]
    fn decoded_paths_can_climb_anywhere() {
        assert!(meets("/files/*", "/login"));
        assert!(meets("/files/{name}", "/login"));
        assert!(meets("/files/{name}/raw", "/private/raw"));
        assert!(meets("/files/{name}/raw", "/private/{x}"));
        assert!(meets("/files/{name}/raw", "/private/*"));
        assert!(meets("/a%2Fb", "/a/b"));
        assert!(meets("/a%2F%2Fb", "/a/{x}"));
    }

    #[test]
    fn but_their_fixed_end_stays() {
        assert!(!meets("/files/{name}/raw", "/login"));
        assert!(!meets("/files/{name}/", "/login"));
        assert!(!meets("/a%2Fb", "/a/c"));
        assert!(!meets("/a/b", "/*"));
    }

    /// What the route table makes of a decoded path is among what the check reckons with.
    #[test]
    fn no_decoded_path_is_missed() {
        let kept = ["/f/*", "/f/{x}", "/f/{x}/raw", "/{x}/{y}/", "/a%2Fb"];
        let limited = ["/", "/*", "/raw", "/a/b", "/a/{x}", "/{x}/raw", "/f/a/", "/login"];
        let names = ["a%2Fb", "..%2Fraw", "..%2F..%2Flogin", "a%2F..", "%2F", "..%2Fa%2Fb"];
        for (kept, limited) in kept.iter().flat_map(|kept| limited.map(|limited| (*kept, limited))) {
            for name in names {
                let path = kept.replace("{x}", name).replace("{y}", name).replace('*', name);
                let decoded = path.replace("%2F", "/");
                let upstream = normalize(&decoded).unwrap();
                let exact = PathPattern::parse(upstream.matched()).unwrap();
                if PathPattern::parse(limited).unwrap().covers(&exact) {
                    assert!(meets(kept, limited), "{kept} {limited} {decoded}");
                }
            }
        }
    }
}
