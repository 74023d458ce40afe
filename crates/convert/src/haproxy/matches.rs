//! Conditions as parts of routes, and routes for the requests for which a condition holds.

use super::conditions::Conjunction;
use super::criteria::{Criterion, Term};
use super::sections::SectionLine;
use crate::model::{Condition, Test, TomlRoute, TomlTarget};
use crate::note::Note;

/// Requests that a route can select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selected {
    pub host: Option<String>,
    pub path: Option<String>,
    pub methods: Vec<String>,
    pub conditions: Vec<Condition>,
}

/// The selections of alternatives, one of which must match; none if the condition never holds.
pub(super) fn matches(alternatives: &[Conjunction]) -> Result<Vec<Selected>, String> {
    let mut all = Vec::new();
    for conjunction in alternatives {
        all.extend(
            conjunction.iter().try_fold(vec![Selected::default()], |found, term| joined(&found, term))?,
        );
    }
    Ok(all)
}

/// Selections of all requests for which a condition may hold: tests that routes do not have are left out.
pub(super) fn widest(alternatives: &[Conjunction]) -> Vec<Selected> {
    let wider = |found: Vec<Selected>, term: &Term| joined(&found, term).unwrap_or(found);
    let selections = |conjunction: &Conjunction| conjunction.iter().fold(vec![Selected::default()], wider);
    alternatives.iter().flat_map(selections).collect()
}

/// The selections of requests that pass one more test.
fn joined(found: &[Selected], term: &Term) -> Result<Vec<Selected>, String> {
    let all = options(term)?;
    let pairs = found.iter().flat_map(|it| all.iter().map(move |other| both(it, other)));
    pairs.filter_map(Result::transpose).collect()
}

/// The selections of a single test.
fn options(term: &Term) -> Result<Vec<Selected>, String> {
    let host = |host: &String| Selected { host: Some(host.clone()), ..Selected::default() };
    let path = |path: &String| Selected { path: Some(path.clone()), ..Selected::default() };
    Ok(match (&term.criterion, term.is_negated) {
        (Criterion::Path(paths), false) => paths.iter().map(path).collect(),
        (Criterion::Host(hosts), false) => hosts.iter().map(host).collect(),
        (Criterion::Method(methods), false) => {
            vec![Selected { methods: methods.clone(), ..Selected::default() }]
        }
        (Criterion::Value(condition), is_negated) => {
            let condition = if is_negated { opposite(condition) } else { condition.clone() };
            vec![Selected { conditions: vec![condition], ..Selected::default() }]
        }
        (Criterion::Source(_), _) => {
            return Err("conditions on addresses are not converted: see `client_ip` of a route".to_owned());
        }
        (Criterion::Counter(..), _) => return Err("routes have no condition on counters".to_owned()),
        (Criterion::Other(it), _) => return Err(it.reason.clone()),
        (_, true) => {
            return Err("routes select paths, hosts and methods, and can't exclude them".to_owned());
        }
    })
}

fn opposite(condition: &Condition) -> Condition {
    let test = match &condition.test {
        Test::Any(values) => Test::Not(values.clone()),
        Test::Not(values) => Test::Any(values.clone()),
        Test::Present(is_present) => Test::Present(!is_present),
    };
    Condition { test, ..condition.clone() }
}

/// The part of a route that a selection matches: `None` if they have no requests in common. Fails if a route can't select what
/// they have in common.
pub(super) fn narrowed(route: &TomlRoute, by: &Selected) -> Result<Option<TomlRoute>, String> {
    let mut narrow = route.clone();
    let Some(host) = narrower(route.host.as_deref(), by.host.as_deref(), host_within) else {
        return Ok(None);
    };
    let Some(Some(path)) = narrower(Some(&route.path), by.path.as_deref(), path_within) else {
        return Ok(None);
    };
    (narrow.host, narrow.path) = (host, path);
    if narrow.methods.is_empty() {
        narrow.methods.clone_from(&by.methods);
    } else if !by.methods.is_empty() {
        narrow.methods = common_methods(&route.methods, &by.methods);
        if narrow.methods.is_empty() {
            return Ok(None);
        }
    }
    for condition in &by.conditions {
        let same = |known: &&Condition| known.kind == condition.kind && known.name == condition.name;
        match narrow.conditions.iter().find(same) {
            Some(known) if known == condition => {}
            Some(_) => return Err(format!("a route has one condition on `{}`", condition.name)),
            None => narrow.conditions.push(condition.clone()),
        }
    }
    Ok(Some(narrow))
}

/// The methods of two routes. One for GET also matches HEAD.
fn common_methods(a: &[String], b: &[String]) -> Vec<String> {
    let matches = |list: &[String], method: &str| {
        list.iter().any(|known| known == method || known == "GET" && method == "HEAD")
    };
    let (of_a, of_b) = (a.iter().filter(|it| matches(b, it)), b.iter().filter(|it| matches(a, it)));
    let mut common: Vec<String> = Vec::new();
    for method in of_a.chain(of_b) {
        if !common.contains(method) {
            common.push(method.clone());
        }
    }
    common
}

/// The requests that two selections match, if there are some. Fails if a route can't select them.
pub(super) fn both(a: &Selected, b: &Selected) -> Result<Option<Selected>, String> {
    let all = TomlRoute { path: "/*".to_owned(), ..TomlRoute::default() };
    let Some(route) = narrowed(&all, a)? else { return Ok(None) };
    let Some(TomlRoute { host, path, methods, conditions, .. }) = narrowed(&route, b)? else {
        return Ok(None);
    };
    Ok(Some(Selected { host, path: (path != "/*").then_some(path), methods, conditions }))
}

/// The route for these requests, without a target.
pub(super) fn selected(by: &Selected) -> TomlRoute {
    let Selected { host, path, methods, conditions } = by.clone();
    TomlRoute {
        host,
        path: path.unwrap_or_else(|| "/*".to_owned()),
        methods,
        conditions,
        ..TomlRoute::default()
    }
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

/// Whether all paths that the first pattern matches are matched by the second one.
fn path_within(inner: &str, outer: &str) -> bool {
    inner == outer || outer.strip_suffix('*').is_some_and(|prefix| inner.starts_with(prefix))
}

/// A limit of some requests.
#[derive(Debug, Default)]
pub(super) struct Restricted {
    pub name: String,
    /// It applies to these; to all if there are none.
    pub only: Vec<Selected>,
    /// But not to these.
    pub except: Vec<Selected>,
    /// The rule that denies.
    pub line: Option<SectionLine>,
}

/// A route with its limits: as many routes as are needed to tell the requests apart to which they apply.
pub(super) fn limited(mut route: TomlRoute, limits: &[&Restricted]) -> Vec<TomlRoute> {
    for limit in limits {
        let failed = limit.only.iter().find_map(|selection| narrowed(&route, selection).err());
        let note = failed.zip(limit.line.as_ref()).map(|(reason, line)| {
            line.finding(format!(
                "{reason}: the limit `{}` does not apply to all of its requests",
                limit.name
            ))
            .lost()
        });
        route.notes.extend(note);
    }
    let mut selections: Vec<&Selected> = Vec::new();
    for selection in limits.iter().flat_map(|limit| limit.only.iter().chain(&limit.except)) {
        if !selections.contains(&selection) {
            selections.push(selection);
        }
    }
    let mut routes: Vec<(TomlRoute, Vec<&Selected>)> = vec![(route, Vec::new())];
    for selection in selections {
        let mut refined: Vec<(TomlRoute, Vec<&Selected>)> = Vec::new();
        for (route, mut holding) in routes {
            match narrowed(&route, selection) {
                Ok(Some(narrow)) if narrow.selects_the_same(&route) => holding.push(selection),
                // An earlier route gets these requests already.
                Ok(Some(narrow)) if refined.iter().any(|(earlier, _)| earlier.selects_the_same(&narrow)) => {}
                Ok(Some(narrow)) => {
                    let holding = holding.iter().copied().chain([selection]).collect();
                    refined.push((narrow, holding));
                }
                Ok(None) | Err(_) => {}
            }
            refined.push((route, holding));
        }
        routes = refined;
    }
    let finish = |(index, (mut route, holding)): (usize, (TomlRoute, Vec<&Selected>))| {
        let any = |of: &[Selected]| of.iter().any(|selection| holding.contains(&selection));
        let applies =
            |limit: &&&Restricted| (limit.only.is_empty() || any(&limit.only)) && !any(&limit.except);
        for limit in limits.iter().filter(applies) {
            if !route.limits.contains(&limit.name) {
                route.limits.push(limit.name.clone());
            }
        }
        if index > 0 {
            route.notes.clear();
        }
        route
    };
    routes.into_iter().enumerate().map(finish).collect()
}

/// Removes routes that select the same requests as an earlier one, which gets them; returns their notes. A route behind one
/// with 501 is kept, for the time when that is replaced.
pub(super) fn without_repetitions(routes: Vec<TomlRoute>) -> (Vec<TomlRoute>, Vec<Note>) {
    let (mut kept, mut notes): (Vec<TomlRoute>, Vec<Note>) = (Vec::new(), Vec::new());
    let is_missing = |route: &TomlRoute| route.target == TomlTarget::missing();
    for route in routes {
        let hides = |earlier: &&mut TomlRoute| {
            earlier.selects_the_same(&route) && (!is_missing(earlier) || is_missing(&route))
        };
        let Some(earlier) = kept.iter_mut().find(hides) else {
            kept.push(route);
            continue;
        };
        if matches!(earlier.target, TomlTarget::Upstream(_)) {
            let reason = "an earlier route has its requests";
            notes.extend(route.notes.iter().filter_map(|note| match note {
                Note::Origin(place, text) if route.uses.contains(place) => {
                    Some(Note::finding(place, text, reason))
                }
                _ => None,
            }));
        } else {
            earlier.uses.extend(route.uses.iter().cloned());
        }
        let to = if is_missing(earlier) { &mut earlier.notes } else { &mut notes };
        for note in route.notes {
            if matches!(note, Note::Finding(_)) && !to.contains(&note) {
                to.push(note);
            }
        }
    }
    (kept, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ConditionKind;

    #[test]
    fn requests_in_common_are_found_or_there_are_none() {
        let methods = |methods: &[&str]| Selected {
            methods: methods.iter().map(|it| (*it).to_owned()).collect(),
            ..Selected::default()
        };
        let path = |path: &str| Selected { path: Some(path.to_owned()), ..Selected::default() };
        let header = |value: &str| {
            let test = Test::Any(vec![value.to_owned()]);
            let condition = Condition { kind: ConditionKind::Header, name: "x".to_owned(), test };
            Selected { conditions: vec![condition], ..Selected::default() }
        };
        assert_eq!(
            both(&methods(&["GET", "POST"]), &methods(&["HEAD", "PUT"])),
            Ok(Some(methods(&["HEAD"])))
        );
        assert_eq!(both(&methods(&["GET"]), &methods(&["POST"])), Ok(None));
        assert_eq!(both(&path("/a*"), &path("/a/b")), Ok(Some(path("/a/b"))));
        assert_eq!(both(&path("/a*"), &path("/b*")), Ok(None));
        assert_eq!(both(&header("a"), &header("a")), Ok(Some(header("a"))));
        assert!(both(&header("a"), &header("*")).is_err());
    }

    #[test]
    fn routes_are_split_where_limits_differ() {
        let path = |path: &str| Selected { path: Some(path.to_owned()), ..Selected::default() };
        let post = Selected { methods: vec!["POST".to_owned()], ..Selected::default() };
        let limits = [
            Restricted { name: "all".to_owned(), ..Restricted::default() },
            Restricted {
                name: "api".to_owned(),
                only: vec![path("/api/*")],
                except: vec![path("/api/health")],
                ..Restricted::default()
            },
            Restricted { name: "posts".to_owned(), only: vec![post], ..Restricted::default() },
            Restricted { name: "other".to_owned(), only: vec![path("/other")], ..Restricted::default() },
        ];
        let route = TomlRoute { path: "/api/v1/*".to_owned(), ..TomlRoute::default() };
        let describe = |route: &TomlRoute| {
            format!("{} {} {}", route.methods.concat(), route.path, route.limits.join(","))
        };
        let found: Vec<String> = limited(route, &limits.each_ref()).iter().map(describe).collect();
        assert_eq!(found, ["POST /api/v1/* all,api,posts", " /api/v1/* all,api"]);
        let all = TomlRoute { path: "/*".to_owned(), ..TomlRoute::default() };
        let (routes, _) = without_repetitions(limited(all, &limits.each_ref()[..2]));
        let found: Vec<String> = routes.iter().map(describe).collect();
        assert_eq!(found, [" /api/health all", " /api/* all,api", " /* all"]);
    }
}
