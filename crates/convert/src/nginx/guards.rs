//! Restrictions of access, as routes for the requests that are refused.

use super::keys::condition;
use super::scope::{Scope, refuses};
use super::template::{is_constant, redirect_location};
use super::tree::Directive;
use crate::model::{Condition, TomlRoute, TomlTarget};
use crate::note::Note;

/// Whether a restriction is an authorization server that has to allow each request.
pub(super) fn is_asked(guard: &Directive, scope: &Scope<'_>) -> bool {
    guard.name == "auth_request" && !is_any(scope)
}

/// Whether one of the restrictions suffices that let a request pass.
fn is_any(scope: &Scope<'_>) -> bool {
    scope.last("satisfy").is_some_and(|satisfy| satisfy.arg(0) == "any")
}

/// Restricts access to a route as nginx does: returns routes for the requests that are refused. Where that is not possible the
/// route becomes inaccessible, because its requests must not pass without the restriction.
pub(super) fn guard(route: &mut TomlRoute, scope: &Scope<'_>) -> Vec<TomlRoute> {
    let denies_all = |guard: &&Directive| guard.name == "deny" && guard.arg(0) == "all";
    let is_any = is_any(scope);
    let is_closed =
        scope.guards.iter().any(denies_all) && scope.guards.iter().all(|guard| guard.name != "allow");
    if is_closed && !is_any {
        route.target = TomlTarget::Block;
        // It does not matter that the location forwards no requests.
        let own = route.notes.iter().find_map(|note| match note {
            Note::Origin(place, _) => Some(place.clone()),
            _ => None,
        });
        route.notes.retain(|note| !matches!(note, Note::Finding(it) if Some(&it.place) == own.as_ref()));
        route.notes.extend(scope.guards.iter().map(|guard| guard.origin()));
        return Vec::new();
    }
    let is_address = |guard: &&&Directive| matches!(&*guard.name, "allow" | "deny");
    let addresses: Vec<&Directive> = scope.guards.iter().filter(is_address).copied().collect();
    let by_address = if is_any { None } else { refused_addresses(&addresses, &route.path) };
    let is_converted = by_address.is_some();
    let mut refused = by_address.unwrap_or_default();
    for guard in scope.guards.iter().filter(|guard| !is_converted || !is_address(guard)) {
        if is_asked(guard, scope) {
            continue;
        }
        if let Some(of_guard) = refused_by(guard, &route.path) {
            refused.push(of_guard);
            continue;
        }
        let reason = "it restricts access, which tidegate can't do in this way: all requests get 501 until you replace it";
        route.notes.push(guard.finding(reason));
        route.target = TomlTarget::missing();
    }
    refused
}

/// The route for the requests for which an `if` decides, if a route can have its condition.
fn refused_by(guard: &Directive, path: &str) -> Option<TomlRoute> {
    let [inner] = guard.directives() else { return None };
    let mut route = TomlRoute { path: path.to_owned(), ..TomlRoute::default() };
    if is_plain_http(guard) {
        route.scheme = Some("http");
    } else {
        route.conditions.push(refusal(guard)?);
    }
    route.notes.push(guard.origin());
    if inner.name == "return" {
        respond(&mut route, inner);
    } else {
        let reason = "the requests for which the `if` around it holds get 501 until you replace this route";
        route.notes.push(inner.finding(reason));
        route.target = TomlTarget::missing();
    }
    Some(route)
}

/// Whether an `if` is about requests by plain HTTP.
fn is_plain_http(guard: &Directive) -> bool {
    let text = guard.args.join(" ");
    guard.name == "if" && matches!(&*text, "($scheme = http)" | "($scheme != https)" | "($https != on)")
}

/// Routes for the requests that `allow` and `deny` refuse: the first one that matches an address decides. `None` if routes can't do
/// the same.
fn refused_addresses(rules: &[&Directive], path: &str) -> Option<Vec<TomlRoute>> {
    let (mut routes, mut allowed): (Vec<TomlRoute>, Vec<String>) = (Vec::new(), Vec::new());
    let (mut notes, mut is_decided) = (Vec::new(), false);
    for rule in rules {
        let network = rule.arg(0);
        notes.push(rule.origin());
        if is_decided {
            continue;
        }
        let condition = match (&*rule.name, network) {
            ("allow", _) => {
                allowed.push(network.to_owned());
                continue;
            }
            (_, "all") => Condition::client_ip(&allowed, false),
            // An allowed network may have addresses in common with it.
            _ if !allowed.is_empty() => return None,
            _ => Condition::client_ip(&[network.to_owned()], true),
        };
        routes.push(TomlRoute {
            path: path.to_owned(),
            conditions: vec![condition.ok()?],
            notes: std::mem::take(&mut notes),
            target: TomlTarget::Block,
            ..TomlRoute::default()
        });
        is_decided = network == "all";
    }
    match routes.last_mut() {
        Some(last) => last.notes.extend(notes),
        // Nothing is refused.
        None if !rules.is_empty() => return None,
        None => {}
    }
    Some(routes)
}

/// The condition of an `if`, such as `($http_user_agent ~* (bot|crawler))`, if a route can have it.
fn refusal(guard: &Directive) -> Option<Condition> {
    let text = guard.args.join(" ");
    let text =
        text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).filter(|_| guard.name == "if")?;
    let mut words = text.trim().splitn(3, ' ');
    let source = words.next()?.strip_prefix('$')?;
    let (operator, value) = (words.next(), words.next().unwrap_or(""));
    let (pattern, is_negated) = match operator {
        // A variable alone: neither empty nor `0`.
        None => (String::new(), true),
        Some("=") => (value.to_owned(), false),
        Some("!=") => (value.to_owned(), true),
        Some(regex) => (format!("{}{value}", regex.trim_start_matches('!')), regex.starts_with('!')),
    };
    condition(source, &[pattern.as_str()], is_negated).ok().map(|(condition, _)| condition)
}

/// The response of a `return`.
pub(super) fn respond(route: &mut TomlRoute, returned: &Directive) {
    let (status, text) = match (returned.arg(0).parse::<u16>(), returned.arg(1)) {
        (Ok(status), text) => (status, text),
        // A URL alone is a redirect.
        (Err(_), _) => (302, returned.arg(0)),
    };
    route.notes.extend(refuses(returned).then(|| returned.origin()));
    route.target = TomlTarget::missing();
    if status == 444 {
        route.target = TomlTarget::Close;
    } else if matches!(status, 301 | 302 | 303 | 307 | 308) {
        match redirect_location(text) {
            Some(location) => route.target = TomlTarget::Redirect { status, location },
            None => route.notes.push(returned.finding("a redirect of tidegate has no such variable")),
        }
    } else if !is_constant(text) {
        route.notes.push(returned.finding("a response of tidegate has no variables"));
    } else if !(200..=599).contains(&status) {
        route.notes.push(returned.finding("a response of tidegate has a status from 200 to 599"));
    } else {
        route.target = TomlTarget::Respond { status, body: text.to_owned() };
    }
}
