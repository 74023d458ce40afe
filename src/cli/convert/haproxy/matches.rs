//! Conditions as parts of routes, and routes for the requests for which a condition holds.

use super::conditions::{Conjunction, Criterion};
use crate::cli::convert::model::{Condition, Route, Test};
use crate::cli::convert::note::Note;

/// Requests that a route can select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub host: Option<String>,
    pub path: Option<String>,
    pub methods: Vec<String>,
    pub conditions: Vec<Condition>,
}

/// The selections of alternatives, one of which must match.
///
/// # Errors
/// Why a route can't select the requests.
pub(super) fn matches(alternatives: &[Conjunction]) -> Result<Vec<Match>, String> {
    let mut all = Vec::new();
    for conjunction in alternatives {
        let mut found = vec![Match::default()];
        for term in conjunction {
            found = match (&term.criterion, term.is_negated) {
                (Criterion::Path(paths), false) => {
                    each(&found, paths, |it, path| it.path = Some(path.to_owned()))
                }
                (Criterion::Host(hosts), false) => {
                    each(&found, hosts, |it, host| it.host = Some(host.to_owned()))
                }
                (Criterion::Method(methods), false) => {
                    found.iter().map(|it| Match { methods: methods.clone(), ..it.clone() }).collect()
                }
                (Criterion::Value(condition), is_negated) => {
                    let condition = if is_negated { opposite(condition) } else { condition.clone() };
                    for it in &mut found {
                        it.conditions.push(condition.clone());
                    }
                    found
                }
                (Criterion::Source(_), _) => return Err("routes have no condition on addresses".to_owned()),
                (Criterion::Counter(..), _) => return Err("routes have no condition on counters".to_owned()),
                (_, true) => {
                    return Err("routes select paths, hosts and methods, and can't exclude them".to_owned());
                }
            };
        }
        all.extend(found);
    }
    Ok(all)
}

fn each(found: &[Match], values: &[String], set: impl Fn(&mut Match, &str)) -> Vec<Match> {
    let with = |it: &Match, value: &String| {
        let mut it = it.clone();
        set(&mut it, value);
        it
    };
    found
        .iter()
        .flat_map(|it| values.iter().map(move |value| (it, value)))
        .map(|(it, value)| with(it, value))
        .collect()
}

fn opposite(condition: &Condition) -> Condition {
    let test = match &condition.test {
        Test::Any(values) => Test::Not(values.clone()),
        Test::Not(values) => Test::Any(values.clone()),
        Test::Present(is_present) => Test::Present(!is_present),
    };
    Condition { test, ..condition.clone() }
}

/// The part of a route that a selection matches: `None` if there is none, or if both have a condition on the same value.
pub(super) fn narrowed(route: &Route, by: &Match) -> Option<Route> {
    let mut narrow = route.clone();
    narrow.host = narrower(route.host.as_deref(), by.host.as_deref(), host_within)?;
    narrow.path = narrower(Some(&route.path), by.path.as_deref(), path_within)??;
    if narrow.methods.is_empty() {
        narrow.methods.clone_from(&by.methods);
    } else if !by.methods.is_empty() {
        narrow.methods.retain(|method| by.methods.contains(method));
        if narrow.methods.is_empty() {
            return None;
        }
    }
    for condition in &by.conditions {
        let same = |known: &&Condition| known.kind == condition.kind && known.name == condition.name;
        match narrow.conditions.iter().find(same) {
            Some(known) if known == condition => {}
            Some(_) => return None,
            None => narrow.conditions.push(condition.clone()),
        }
    }
    Some(narrow)
}

/// The requests that two selections match, if there are some.
pub(super) fn both(a: &Match, b: &Match) -> Option<Match> {
    let route = narrowed(&Route { path: "/*".to_owned(), ..Route::default() }, a)?;
    let Route { host, path, methods, conditions, .. } = narrowed(&route, b)?;
    Some(Match { host, path: (path != "/*").then_some(path), methods, conditions })
}

/// The narrower one of two patterns, where one is within the other.
#[expect(clippy::option_option, reason = "no common value, or a common value that may be none")]
fn narrower(
    a: Option<&str>,
    b: Option<&str>,
    is_within: impl Fn(&str, &str) -> bool,
) -> Option<Option<String>> {
    match (a, b) {
        (Some(a), Some(b)) if is_within(a, b) => Some(Some(a.to_owned())),
        (Some(a), Some(b)) if is_within(b, a) => Some(Some(b.to_owned())),
        (Some(_), Some(_)) => None,
        (one, other) => Some(one.or(other).map(str::to_owned)),
    }
}

/// Whether all hosts that the first pattern matches are matched by the second one.
fn host_within(inner: &str, outer: &str) -> bool {
    inner == outer || outer.strip_prefix('*').is_some_and(|suffix| inner.ends_with(suffix))
}

/// The same for patterns of paths.
fn path_within(inner: &str, outer: &str) -> bool {
    inner == outer || outer.strip_suffix('*').is_some_and(|prefix| inner.starts_with(prefix))
}

/// A limit of some requests.
#[derive(Debug, Default)]
pub(super) struct Restricted {
    pub name: String,
    /// It applies to these; to all if there are none.
    pub only: Vec<Match>,
    /// But not to these.
    pub except: Vec<Match>,
}

/// A route with its limits: as many routes as are needed to tell the requests apart to which they apply.
pub(super) fn limited(route: Route, limits: &[&Restricted]) -> Vec<Route> {
    let mut selections: Vec<&Match> = Vec::new();
    for selection in limits.iter().flat_map(|limit| limit.only.iter().chain(&limit.except)) {
        if !selections.contains(&selection) {
            selections.push(selection);
        }
    }
    let mut routes: Vec<(Route, Vec<&Match>)> = vec![(route, Vec::new())];
    for selection in selections {
        let mut refined: Vec<(Route, Vec<&Match>)> = Vec::new();
        for (route, mut holding) in routes {
            match narrowed(&route, selection) {
                Some(narrow) if is_same(&narrow, &route) => holding.push(selection),
                // An earlier route gets these requests already.
                Some(narrow) if refined.iter().any(|(earlier, _)| is_same(earlier, &narrow)) => {}
                Some(narrow) => {
                    let holding = holding.iter().copied().chain([selection]).collect();
                    refined.push((narrow, holding));
                }
                None => {}
            }
            refined.push((route, holding));
        }
        routes = refined;
    }
    let finish = |(index, (mut route, holding)): (usize, (Route, Vec<&Match>))| {
        let any = |of: &[Match]| of.iter().any(|selection| holding.contains(&selection));
        let applies =
            |limit: &&&Restricted| (limit.only.is_empty() || any(&limit.only)) && !any(&limit.except);
        route.limits = limits.iter().filter(applies).map(|limit| limit.name.clone()).collect();
        if index > 0 {
            route.notes.clear();
        }
        route
    };
    routes.into_iter().enumerate().map(finish).collect()
}

/// Removes routes that select the same requests as an earlier one, which gets them; returns their notes.
pub(super) fn without_repetitions(routes: Vec<Route>) -> (Vec<Route>, Vec<Note>) {
    let (mut kept, mut notes): (Vec<Route>, Vec<Note>) = (Vec::new(), Vec::new());
    for route in routes {
        if kept.iter().any(|earlier| is_same(earlier, &route)) {
            notes.extend(route.notes.into_iter().filter(|note| matches!(note, Note::Finding(_))));
        } else {
            kept.push(route);
        }
    }
    (kept, notes)
}

/// Whether two routes select the same requests.
fn is_same(a: &Route, b: &Route) -> bool {
    a.host == b.host && a.path == b.path && a.methods == b.methods && a.conditions == b.conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_split_where_limits_differ() {
        let path = |path: &str| Match { path: Some(path.to_owned()), ..Match::default() };
        let post = Match { methods: vec!["POST".to_owned()], ..Match::default() };
        let limits = [
            Restricted { name: "all".to_owned(), ..Restricted::default() },
            Restricted {
                name: "api".to_owned(),
                only: vec![path("/api/*")],
                except: vec![path("/api/health")],
            },
            Restricted { name: "posts".to_owned(), only: vec![post], ..Restricted::default() },
            Restricted { name: "other".to_owned(), only: vec![path("/other")], ..Restricted::default() },
        ];
        let route = Route { path: "/api/v1/*".to_owned(), ..Route::default() };
        let describe =
            |route: &Route| format!("{} {} {}", route.methods.concat(), route.path, route.limits.join(","));
        let found: Vec<String> = limited(route, &limits.each_ref()).iter().map(describe).collect();
        assert_eq!(found, ["POST /api/v1/* all,api,posts", " /api/v1/* all,api"]);
        let all = Route { path: "/*".to_owned(), ..Route::default() };
        let (routes, _) = without_repetitions(limited(all, &limits.each_ref()[..2]));
        let found: Vec<String> = routes.iter().map(describe).collect();
        assert_eq!(found, [" /api/health all", " /api/* all,api", " /* all"]);
    }
}
