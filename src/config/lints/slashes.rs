//! Encoded slashes: whether a route that keeps them lets requests bypass the limits of another route.
//!
//! A kept `%2F` goes upstream as it is, and a server may read it as a slash: `/files/a%2Fb` is then
//! `/files/a/b`, and `/files/..%2Flogin` is `/login`. So the decoded path can be any path that ends as the
//! kept route's pattern does, and no limited route may match one of those paths without charging the same limits.

use http::Method;

use crate::config::limits::ReadLimits;
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::gate::{KeyPart, PathPattern, Route, normalize};
use crate::limit::PolicyId;
use crate::proxy::Target;

/// The label of the bypassed route.
const DECODED: &str = "a server that decodes %2F may treat the request as one of this route";

/// A problem for each route whose encoded slashes bypass a limit or a route that denies.
pub(super) fn bypassed(sections: &Sections<'_>) -> Vec<Problem> {
    let mut problems = bypassed_limits(sections.routes(), &sections.limits);
    problems.extend(bypassed_denials(sections.routes()));
    problems
}

fn bypassed_limits(routes: &[ReadRoute], limits: &ReadLimits) -> Vec<Problem> {
    let limited: Vec<&ReadRoute> = routes.iter().filter(|read| !read.route.limits.is_empty()).collect();
    let kept = routes.iter().filter(|read| read.route.keeps_encoded_slash);
    kept.filter_map(|kept| {
        let reach = Reach::of(&kept.route.path);
        limited.iter().find_map(|limited| {
            let escaped = bypassed_limit(&kept.route, &limited.route, limits)?;
            let may_bypass = reach.may_match(&limited.route.path) && overlap(&kept.route, &limited.route);
            may_bypass.then(|| problem(kept, limited, escaped, limits))
        })
    })
    .collect()
}

/// Warnings rather than errors: the server may deny these paths itself.
fn bypassed_denials(routes: &[ReadRoute]) -> impl Iterator<Item = Problem> {
    let denies = |read: &ReadRoute| match &read.action.target {
        Target::Respond { status, .. } => status.is_client_error() || status.is_server_error(),
        Target::Block => true,
        Target::Forward(_)
        | Target::Authorize(_)
        | Target::Redirect(_)
        | Target::Limits
        | Target::Decide(_) => false,
    };
    let forwards = |read: &&ReadRoute| read.action.target.forwarding().is_some();
    let kept = routes.iter().filter(|read| read.route.keeps_encoded_slash).filter(forwards);
    kept.filter_map(move |kept| {
        let reach = Reach::of(&kept.route.path);
        let may_bypass =
            |other: &ReadRoute| reach.may_match(&other.route.path) && overlap(&kept.route, &other.route);
        let denying = routes.iter().find(|other| denies(other) && may_bypass(other))?;
        let span = kept.slash_span.clone().unwrap_or_else(|| kept.span.clone());
        let title = format!("an encoded slash may bypass route `{}`, which denies", denying.route.name);
        let problem = Problem::warning(span, title).related(denying.span.clone(), DECODED);
        Some(problem.help("leave `encoded_slash` out, or make the server deny these paths as well"))
    })
}

fn problem(kept: &ReadRoute, limited: &ReadRoute, escaped: PolicyId, limits: &ReadLimits) -> Problem {
    let name = limits.get(escaped).map_or("", |limit| &*limit.policy.name);
    let span = kept.slash_span.clone().unwrap_or_else(|| kept.span.clone());
    let (title, help) = if std::ptr::eq(kept, limited) {
        (
            format!("an encoded slash would bypass the limit `{name}`, which counts by the path"),
            "leave `encoded_slash` out, or let the limit count by something else".to_owned(),
        )
    } else {
        (
            format!("an encoded slash would bypass the limit `{name}` of route `{}`", limited.route.name),
            format!("leave `encoded_slash` out, or put the limit `{name}` on this route as well"),
        )
    };
    let problem = Problem::error(span, title).help(help);
    if std::ptr::eq(kept, limited) {
        return problem;
    }
    problem.related(limited.span.clone(), DECODED)
}

/// A limit of `limited` that charges a request under another key, or not at all, when `kept` matches it.
fn bypassed_limit(kept: &Route, limited: &Route, limits: &ReadLimits) -> Option<PolicyId> {
    let is_same = std::ptr::eq(kept, limited);
    limited.limits.iter().copied().find(|id| {
        let by_path = limits.get(*id).is_none_or(|limit| {
            limit.rule.key.parts.iter().any(|part| match part {
                KeyPart::Path | KeyPart::PathParam(_) => true,
                KeyPart::Route => !is_same,
                _ => false,
            })
        });
        by_path || !kept.limits.contains(id)
    })
}

/// The paths that a server may see in those of a route once it has decoded their slashes.
enum Reach {
    /// No other path: no path of the route has an encoded slash.
    Nothing,
    /// One path, or `None` for any.
    One(Option<PathPattern>),
    /// Any path that ends in these segments, the last one first.
    EndingIn(Vec<String>),
}

impl Reach {
    fn of(pattern: &PathPattern) -> Self {
        let written = pattern.to_string();
        if written.contains('*') {
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

    /// Whether one of the paths may match; true in doubt.
    fn may_match(&self, pattern: &PathPattern) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(path) => {
                path.as_ref().is_none_or(|path| pattern.covers(path) || !pattern_is_plain(pattern))
            }
            Self::EndingIn(end) => {
                let written = pattern.to_string();
                if written.contains('*') {
                    return true;
                }
                let mut segments = written.rsplit('/');
                end.iter()
                    .all(|want| segments.next().is_some_and(|have| have == want || have.starts_with('{')))
            }
        }
    }
}

/// Whether a pattern matches only its own text.
fn pattern_is_plain(pattern: &PathPattern) -> bool {
    let written = pattern.to_string();
    !written.contains(['{', '*'])
}

/// Whether a request can match the host and method of both.
fn overlap(a: &Route, b: &Route) -> bool {
    let hosts = match (&a.host, &b.host) {
        (Some(a), Some(b)) => a.covers(b) || b.covers(a),
        _ => true,
    };
    hosts && (any_method(a, b) || any_method(b, a))
}

/// Whether `b` matches one of the methods of `a`.
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

    fn may_match(kept: &str, limited: &str) -> bool {
        let pattern = |text| PathPattern::parse(text).unwrap();
        Reach::of(&pattern(kept)).may_match(&pattern(limited))
    }

    #[test]
    fn decoded_paths_can_reach_any_path() {
        assert!(may_match("/files/*", "/login"));
        assert!(may_match("/files/{name}", "/login"));
        assert!(may_match("/files/{name}/raw", "/private/raw"));
        assert!(may_match("/files/{name}/raw", "/private/{x}"));
        assert!(may_match("/files/{name}/raw", "/private/*"));
        assert!(may_match("/a%2Fb", "/a/b"));
        assert!(may_match("/a%2F%2Fb", "/a/{x}"));
    }

    #[test]
    fn decoded_paths_keep_their_fixed_end() {
        assert!(!may_match("/files/{name}/raw", "/login"));
        assert!(!may_match("/files/{name}/", "/login"));
        assert!(!may_match("/a%2Fb", "/a/c"));
        assert!(!may_match("/a/b", "/*"));
    }

    /// Every route that matches a decoded path is one that the check considers.
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
                    assert!(may_match(kept, limited), "{kept} {limited} {decoded}");
                }
            }
        }
    }
}
