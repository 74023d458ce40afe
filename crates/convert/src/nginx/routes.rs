//! Routes of locations.

use super::authorization::{Asked, authorization};
use super::guards::{guard, is_asked, respond};
use super::headers::{ServerVariables, set_request_headers, set_response_headers};
use super::limits::{NginxLimits, Usage};
use super::locations::{Location, locations};
use super::remarks::{remark, remarks};
use super::restrictions::AppliedRestrictions;
use super::rewrites::{PrefixRewrite, prefix_rewrite, redirected, redirects};
use super::scope::{Scope, max_body};
use super::servers::Server;
use super::timeouts::{connect_timeout, set_times};
use super::tree::Directive;
use super::upstreams::Upstreams;
use super::variants::variants;
use crate::model::{DenyStatus, TomlRoute, TomlTarget};
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
        let mut all = TomlRoute { path: "/*".to_owned(), ..TomlRoute::default() };
        let mut redirected = redirected(block, &mut all);
        redirected.extend((all.target == TomlTarget::missing()).then_some(all));
        routes.splice(0..0, redirected);
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
        let mut refused = guard(&mut route, scope);
        refused.extend(redirected(directive.directives(), &mut route));
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
                    if let Some(start) = passed.start {
                        set_path(route, location.prefix, start);
                    }
                }
                Err(note) => route.notes.push(note),
            }
        } else {
            let reason = "it does not forward requests by proxy_pass: they get 501";
            route.notes.push(directive.finding(reason));
        }
        let rewrites = |inner: &Directive| inner.name == "rewrite" && !redirects(inner);
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

/// Replaces the prefix of a location, with which all paths of the route begin.
fn set_path(route: &mut TomlRoute, prefix: &str, mut start: String) {
    if route.path.ends_with('*') {
        if start.ends_with('/') && !prefix.ends_with('/') {
            route.notes.push(Note::text(format!("Servers get {start}/b for {prefix}/b, as from nginx.")));
        }
        start.push('*');
    }
    route.rewrite_path = Some(start);
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
