//! Routes of locations.

use super::authorization::{Asked, authorization};
use super::headers::{ServerVariables, set_request_headers, set_response_headers};
use super::keys::condition;
use super::limits::{NginxLimits, Usage};
use super::locations::{Location, locations};
use super::remarks::{remark, remarks};
use super::restrictions::AppliedRestrictions;
use super::rewrites::{PrefixRewrite, prefix_rewrite};
use super::scope::{Scope, max_body, refuses};
use super::servers::Server;
use super::template::{is_constant, redirect_location};
use super::timeouts::{connect_timeout, set_times};
use super::tree::Directive;
use super::upstreams::Upstreams;
use super::variants::variants;
use crate::model::{Condition, DenyStatus, TomlRoute, TomlTarget};
use crate::note::Note;

/// The default status of a denial by nginx.
const DEFAULT_STATUS: DenyStatus = DenyStatus::Status(503);

/// Makes routes, with the limits and upstreams that they name.
pub(super) struct RouteMaker<'d> {
    pub limits: NginxLimits<'d>,
    pub upstreams: Upstreams<'d>,
    /// The limits and restrictions that apply in locations.
    pub applied: AppliedRestrictions,
    /// The locations of the present server that its `auth_request` may name.
    pub asked: Vec<Asked<'d>>,
    /// The variables of the server whose locations are converted.
    pub variables: ServerVariables,
}

impl<'d> RouteMaker<'d> {
    /// The routes of a server, for any host. `number` is that of the server.
    pub fn server(&mut self, server: &Server<'d>, scope: &Scope<'d>, number: usize) -> Vec<TomlRoute> {
        let block = server.directive.directives();
        self.variables = ServerVariables::of(server.directive, &server.addresses);
        let mut scope = scope.within(block);
        if server.is_verified {
            let is_verified = |guard: &&Directive| guard.name == "ssl_verify_client";
            self.applied.add(scope.guards.iter().copied().filter(is_verified));
            scope.guards.retain(|guard| !is_verified(guard));
        }
        let all = block.iter().filter(|directive| directive.name == "location");
        self.asked = all.map(|location| (location, scope.within(location.directives()))).collect();
        let found = locations(block, &scope);
        let (mut routes, mut notes): (Vec<TomlRoute>, Vec<Note>) = (Vec::new(), remarks(block).collect());
        if let Some(returned) = find(block, "return") {
            let mut route = TomlRoute { path: "/*".to_owned(), ..TomlRoute::default() };
            routes.extend(self.responding(&mut route, returned, &scope));
            routes.push(route);
            let reason = "the `return` of its server responds before a location is found";
            let locations = block.iter().filter(|directive| directive.name == "location");
            notes.extend(locations.map(|location| location.finding(reason).of_block().for_information()));
        } else {
            notes.extend(found.notes);
            for location in &found.locations {
                routes.extend(self.location(location, number));
            }
        }
        notes.extend(self.applied.notes(block, "no location that was converted has it"));
        match routes.first_mut() {
            Some(first) => drop(first.notes.splice(0..0, notes)),
            None => routes.push(TomlRoute { notes, path: "/*".to_owned(), ..TomlRoute::default() }),
        }
        routes
    }

    /// Makes a route respond as a `return` does, which comes before limits and most restrictions. Returns routes for the requests
    /// that are refused before.
    fn responding(
        &mut self,
        route: &mut TomlRoute,
        returned: &Directive,
        scope: &Scope<'d>,
    ) -> Vec<TomlRoute> {
        respond(route, returned);
        let mut earlier = scope.clone();
        earlier.guards.retain(|guard| matches!(&*guard.name, "if" | "internal" | "ssl_verify_client"));
        self.applied.add(earlier.guards.iter().copied());
        guard(route, &earlier)
    }

    fn location(&mut self, location: &Location<'d>, server: usize) -> Vec<TomlRoute> {
        let (directive, scope) = (location.directive, &location.scope);
        if let Some(reason) = &location.lost {
            let reason =
                format!("{reason}. The requests that it may match get 501 until you replace this route");
            let (notes, path) = (vec![directive.finding(reason).of_block()], location.path.clone());
            return vec![TomlRoute { notes, path, target: TomlTarget::missing(), ..TomlRoute::default() }];
        }
        let mut route = TomlRoute { path: location.path.clone(), ..TomlRoute::default() };
        route.notes.push(directive.origin());
        if scope.guards.iter().any(|guard| guard.name == "internal") {
            // Clients get 404 before all else.
            route.target = TomlTarget::Respond { status: 404, body: String::new() };
            self.applied.add(scope.guards.iter().copied());
            route.notes.extend(scope.guards.iter().map(|guard| guard.origin()));
            let reason = "its location is internal: no request of a client gets there";
            route.notes.extend(self.applied.notes(directive.directives(), reason));
            return vec![route];
        }
        let rewrite = prefix_rewrites(location);
        let is_converted = |inner: &&Directive| rewrite.is_none() || inner.name != "rewrite";
        route.notes.extend(directive.directives().iter().filter(is_converted).filter_map(remark));
        set_response_headers(&mut route, scope);
        match max_body(scope) {
            Ok(size) => route.max_body = size,
            Err(note) => route.notes.push(note),
        }
        if let Some(returned) = find(directive.directives(), "return") {
            let mut routes = self.responding(&mut route, returned, scope);
            let reason = "nginx responds by `return` before it applies: it has no effect";
            let without_effect = self.applied.notes(directive.directives(), reason);
            route.notes.extend(without_effect.into_iter().map(Note::for_information));
            routes.push(route);
            return routes;
        }
        self.set_target(&mut route, location, rewrite.is_some());
        self.applied.add(scope.guards.iter().copied());
        let refused = guard(&mut route, scope);
        let limited = self.limited(route, scope, server).into_iter();
        let rewritten = limited.flat_map(|route| match &rewrite {
            Some((directive, rewrite)) => rewrite.routes(directive, route, location.prefix),
            None => vec![route],
        });
        refused.into_iter().chain(rewritten).collect()
    }

    /// Sets where a location forwards its requests; `is_rewritten` says that a `rewrite` has made their path.
    fn set_target(&mut self, route: &mut TomlRoute, location: &Location<'d>, is_rewritten: bool) {
        let (directive, scope) = (location.directive, &location.scope);
        let is_authorized = self.authorize(route, scope);
        route.target = TomlTarget::missing();
        if let Some(pass) = find(directive.directives(), "proxy_pass") {
            let prefix = (!is_rewritten).then_some(location.prefix);
            let connect = connect_timeout(scope);
            match connect.and_then(|it| self.upstreams.passed(pass, prefix, it.as_ref())) {
                Ok(passed) => {
                    if is_authorized {
                        route.target = TomlTarget::Upstream(passed.upstream.clone());
                    }
                    set_request_headers(route, &passed, scope, &self.variables);
                    set_times(route, scope);
                    route.strip_prefix = passed.strip_prefix;
                }
                Err(note) => route.notes.push(note),
            }
        } else {
            let reason = "it does not forward requests by proxy_pass: they get 501";
            route.notes.push(directive.finding(reason));
        }
        if !is_rewritten && directive.directives().iter().any(rewrites) {
            route.notes.push(Note::text(
                "Servers would get other paths: requests get 501 until you replace the rewrite.",
            ));
            route.target = TomlTarget::missing();
        }
    }

    /// Has the requests of a route authorized, if an `auth_request` applies. Returns whether tidegate can do so.
    fn authorize(&mut self, route: &mut TomlRoute, scope: &Scope<'d>) -> bool {
        let Some(guard) = scope.guards.iter().find(|guard| is_asked(guard, scope)) else { return true };
        match authorization(guard, &self.asked, &mut self.upstreams) {
            Ok(authorization) => {
                route.authorization = Some(authorization);
                route.notes.push(guard.origin());
                let text = "Clients get 401, 403, 429 and redirects from the authorization server, and 503 if it responds otherwise; of nginx \
                            they get pages of its own for 401 and 403, and 500 otherwise.";
                route.notes.push(Note::text(text));
                true
            }
            Err(reason) => {
                let reason = format!("{reason}: all requests get 501 until you replace it");
                route.notes.push(guard.finding(reason));
                false
            }
        }
    }

    /// A route with its limits: several routes, if some limits apply to some requests only.
    fn limited(&mut self, mut route: TomlRoute, scope: &Scope<'d>, server: usize) -> Vec<TomlRoute> {
        let (mut all, mut statuses) = (Vec::new(), Vec::new());
        for (kind, status, dry_run) in [
            ("limit_req", "limit_req_status", "limit_req_dry_run"),
            ("limit_conn", "limit_conn_status", "limit_conn_dry_run"),
        ] {
            let is_dry_run = scope.is_on(dry_run);
            let set = scope.last(status);
            let status = set.map_or(Some(DEFAULT_STATUS), |set| DenyStatus::of(set.arg(0).parse().ok()?));
            let status = status.unwrap_or(DEFAULT_STATUS);
            self.applied.add(scope.all(kind).iter().copied());
            for &directive in scope.all(kind) {
                let usage = Usage { directive, is_dry_run, status, server };
                let made = match kind {
                    "limit_req" => self.limits.requests(&usage),
                    _ => self.limits.connections(&usage),
                };
                match made {
                    Ok((applied, notes)) => {
                        route.notes.extend(notes);
                        route.uses.push(directive.place.clone());
                        let by = set.unwrap_or(directive);
                        statuses.extend(applied.iter().map(|it| (it.name.clone(), status, by)));
                        all.extend(applied.into_iter().map(|applied| (applied, directive)));
                    }
                    Err(note) => route.notes.push(note),
                }
            }
        }
        self.set_deny_status(&mut route, &statuses);
        variants(route, all)
    }

    /// Sets the status of denials of a route, if its limits have another one in other locations. `statuses` are those that its limits
    /// must have, with the directives that say so.
    fn set_deny_status(&self, route: &mut TomlRoute, statuses: &[(String, DenyStatus, &Directive)]) {
        let of_limit = |name: &String| self.limits.deny_status(name);
        let denying: Vec<_> = statuses.iter().filter(|(name, ..)| of_limit(name).is_some()).collect();
        let differs =
            |(name, status, _): &&&(String, DenyStatus, &Directive)| of_limit(name) != Some(*status);
        let Some((name, status, by)) = denying.iter().find(differs) else { return };
        if denying.iter().all(|(_, other, _)| other == status) {
            route.deny_status = Some(*status);
            return;
        }
        let reason = format!(
            "the limit `{name}` has another status in another location, and a route has one status for all of its limits"
        );
        route.notes.push(by.finding(reason));
    }
}

/// Whether a restriction is an authorization server that has to allow each request.
fn is_asked(guard: &Directive, scope: &Scope<'_>) -> bool {
    guard.name == "auth_request" && !is_any(scope)
}

/// Whether one of the restrictions suffices that let a request pass.
fn is_any(scope: &Scope<'_>) -> bool {
    scope.last("satisfy").is_some_and(|satisfy| satisfy.arg(0) == "any")
}

/// Restricts access to a route as nginx does: returns routes for the requests that are refused. Where that is not possible the
/// route becomes inaccessible, because its requests must not pass without the restriction.
fn guard(route: &mut TomlRoute, scope: &Scope<'_>) -> Vec<TomlRoute> {
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
        if let Some(condition) = refusal(guard)
            && let [returned] = guard.directives()
        {
            let notes = vec![guard.origin()];
            let mut of_guard = TomlRoute {
                path: route.path.clone(),
                conditions: vec![condition],
                notes,
                ..TomlRoute::default()
            };
            respond(&mut of_guard, returned);
            refused.push(of_guard);
            continue;
        }
        let reason = "it restricts access, which tidegate can't do in this way: all requests get 501 until you replace it";
        route.notes.push(guard.finding(reason));
        route.target = TomlTarget::missing();
    }
    refused
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

/// The directive of this name in a block.
fn find<'d>(block: &'d [Directive], name: &str) -> Option<&'d Directive> {
    block.iter().find(|directive| directive.name == name)
}

/// The only `rewrite` of a location, if routes can do the same. The path of a `proxy_pass` would be that of the requests which it does
/// not concern.
fn prefix_rewrites<'d>(location: &Location<'d>) -> Option<(&'d Directive, PrefixRewrite)> {
    let block = location.directive.directives();
    let mut found = block.iter().filter(|directive| directive.name == "rewrite");
    let (only, None) = (found.next()?, found.next()) else { return None };
    let has_path = |pass: &Directive| pass.arg(0).splitn(4, '/').nth(3).is_some();
    let rewrite = prefix_rewrite(only)?;
    let pass = find(block, "proxy_pass")?;
    let is_certain = !has_path(pass) || rewrite.concerns_all(location.prefix);
    (is_certain && rewrite.fits(location.prefix, &location.path)).then_some((only, rewrite))
}

/// Whether a directive changes the path that servers get, and does not redirect.
fn rewrites(directive: &Directive) -> bool {
    let redirects =
        directive.has("redirect") || directive.has("permanent") || directive.arg(1).starts_with("http");
    directive.name == "rewrite" && !redirects
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
fn respond(route: &mut TomlRoute, returned: &Directive) {
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
