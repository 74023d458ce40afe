//! Middlewares: limits, changes of requests, and restrictions of access.

use std::collections::HashSet;

use super::authorization;
use crate::document::DocNode;
use crate::model::{Condition, Limit, TomlAlgorithm, TomlRoute, TomlTarget, UniqueNames};
use crate::note::Note;
use crate::route::is_literal;

/// Middlewares that restrict no access, and that change no paths. All others may do so.
const HARMLESS: [&str; 6] = ["circuitBreaker", "compress", "contentType", "errors", "grpcWeb", "retry"];
/// Middlewares that are converted.
const CONVERTED: [&str; 7] =
    ["addPrefix", "buffering", "headers", "inFlightReq", "rateLimit", "replacePath", "stripPrefix"];
/// Middlewares that change the path that servers get.
const PATHS: [&str; 4] = ["addPrefix", "replacePath", "replacePathRegex", "stripPrefixRegex"];
/// Other middlewares that are converted, of which some restrict access.
const OTHERS: [&str; 5] = ["chain", "forwardAuth", "redirectScheme", "ipAllowList", "ipWhiteList"];
/// How deep chains contain each other at most.
const DEPTH: usize = 8;
/// The most requests in flight that a limit can have.
const MOST_IN_FLIGHT: u64 = 10_000;

/// The middlewares, and the limits that were made of them.
pub(super) struct Middlewares<'d> {
    nodes: &'d DocNode,
    /// How many routers name each middleware.
    routers: &'d DocNode,
    names: UniqueNames,
    /// The prefixes that the middlewares of the present router remove.
    prefixes: Vec<String>,
    /// The names of those that a router has.
    used: HashSet<String>,
    pub limits: Vec<Limit>,
}

impl<'d> Middlewares<'d> {
    pub fn new(nodes: &'d DocNode, routers: &'d DocNode) -> Self {
        let (names, prefixes) = (UniqueNames::default(), Vec::new());
        Self { nodes, routers, names, prefixes, used: HashSet::new(), limits: Vec::new() }
    }

    /// Notes on the middlewares that no router has.
    pub fn unused(&self) -> Vec<Note> {
        let unused = self.nodes.entries().iter().filter(|(name, _)| !self.used.contains(name));
        let reason = "no router that was converted has this middleware: add it to the routes whose routers are elsewhere";
        let is_named = |name: &String| {
            self.routers
                .entries()
                .iter()
                .any(|(_, router)| router.get("middlewares").texts().iter().any(|other| plain(other) == name))
        };
        let note = |(name, node): &(String, DocNode)| {
            let note = node.finding(&format!("middleware {name}"), reason);
            if is_named(name) { note } else { note.for_information() }
        };
        unused.map(note).collect()
    }

    /// Notes on the limits of a router that is not converted, of those that other routers have.
    pub fn lost(&self, router: &str, names: &DocNode, depth: usize) -> Vec<Note> {
        let of = |name: String| match self.find(&name) {
            Some(("chain", node)) if depth < DEPTH => self.lost(router, node.get("middlewares"), depth + 1),
            Some((kind @ ("rateLimit" | "inFlightReq"), node)) if self.used.contains(plain(&name)) => {
                let reason = format!("the router {router}, which has it, is not converted");
                vec![node.finding(&format!("{}: {kind}", plain(&name)), reason).lost()]
            }
            _ => Vec::new(),
        };
        names.texts().into_iter().flat_map(of).collect()
    }

    /// Whether one of these middlewares may restrict access, or is missing.
    pub fn restrict(&self, names: &DocNode) -> bool {
        self.any_restricts(names, 0)
    }

    fn any_restricts(&self, names: &DocNode, depth: usize) -> bool {
        let restricts = |name: &String| match self.find(name) {
            Some(("chain", node)) if depth < DEPTH => self.any_restricts(node.get("middlewares"), depth + 1),
            Some((kind, _)) => may_restrict(kind) || PATHS.contains(&kind),
            None => true,
        };
        names.texts().iter().any(restricts)
    }

    /// The kind and the settings of a middleware of this provider. Traefik disables one of several kinds, and its routers.
    fn find(&self, name: &str) -> Option<(&'d str, &'d DocNode)> {
        let is_of_provider =
            name.split_once('@').is_none_or(|(_, provider)| ["file", "kubernetescrd"].contains(&provider));
        let [(kind, node)] = self.nodes.get(plain(name)).entries() else { return None };
        if !is_of_provider {
            return None;
        }
        // Traefik ignores the case of keys.
        let known = CONVERTED.iter().chain(&HARMLESS).chain(&PATHS).chain(&OTHERS);
        let known = known.copied().find(|known| known.eq_ignore_ascii_case(kind));
        Some((known.unwrap_or(kind), node))
    }

    /// Adds to a route what the middlewares of its router do. Returns the prefixes that they remove from paths.
    pub fn apply(&mut self, router: &str, names: &DocNode, route: &mut TomlRoute) -> Vec<String> {
        self.apply_all(router, names, route, 0);
        authorization::set_order(route);
        let prefixes = std::mem::take(&mut self.prefixes);
        if route.rewrite_path.is_some() { Vec::new() } else { prefixes }
    }

    fn apply_all(&mut self, router: &str, names: &DocNode, route: &mut TomlRoute, depth: usize) {
        for name in names.texts() {
            let Some((kind, node)) = self.find(&name) else {
                let reason =
                    "there is no such middleware in this file: it may restrict access, so requests get 501";
                route.notes.push(names.finding(&format!("middlewares: {name}"), reason));
                route.target = TomlTarget::missing();
                continue;
            };
            let name = plain(&name);
            self.used.insert(name.to_owned());
            let text = format!("{name}: {kind}");
            match kind {
                "rateLimit" => self.rate_limit(router, name, node, route),
                "inFlightReq" => self.in_flight(router, name, node, route),
                "chain" if depth < DEPTH => self.apply_all(router, node.get("middlewares"), route, depth + 1),
                "stripPrefix" if !changes_path(route) => self.strip_prefix(&text, node, route),
                "addPrefix" | "replacePath" if !changes_path(route) && replace_path(kind, node, route) => {}
                "headers" => headers(node, route),
                "ipAllowList" | "ipWhiteList" => allow_addresses(&text, node, route),
                "buffering" => {
                    let bytes = node.get("maxRequestBodyBytes").number().filter(|bytes| *bytes > 0);
                    route.max_body = bytes.map(|bytes| format!("{bytes}B"));
                    route.notes.extend(node.remarks(&["maxRequestBodyBytes"]));
                }
                "redirectScheme" => redirect_scheme(&text, node, route),
                "forwardAuth" => {
                    let is_changed = changes_path(route) || !self.prefixes.is_empty();
                    authorization::forward_auth(&text, node, is_changed, route);
                }
                kind if HARMLESS.contains(&kind) => {
                    route.notes.push(node.finding(&text, "tidegate has no counterpart"));
                }
                kind => {
                    let reason = if PATHS.contains(&kind) {
                        "servers would get other paths: requests get 501 until you replace it"
                    } else {
                        "it may restrict access, which is not converted: requests get 501 until you replace it"
                    };
                    route.notes.push(node.finding(&text, reason));
                    route.target = TomlTarget::missing();
                }
            }
        }
    }

    fn strip_prefix(&mut self, text: &str, node: &DocNode, route: &mut TomlRoute) {
        let prefixes = node.get("prefixes").texts();
        if prefixes.is_empty() {
            route.notes.push(node.finding(text, "it names no prefix"));
        }
        route.notes.extend(node.remarks(&["prefixes"]));
        let prefixes = prefixes.iter().map(|prefix| prefix.trim_end_matches('/'));
        let plain = prefixes.filter(|prefix| prefix.starts_with('/') && !prefix.contains(['*', '{', '}']));
        self.prefixes.extend(plain.map(str::to_owned));
    }

    /// The name of a limit: each router has counts of its own.
    fn name(&mut self, router: &str, middleware: &str) -> String {
        let names_it = |router: &DocNode| {
            router.get("middlewares").texts().iter().any(|it| it.split('@').next() == Some(middleware))
        };
        let count = self.routers.entries().iter().filter(|(_, router)| names_it(router)).count();
        let wanted = if count > 1 { format!("{middleware}-{router}") } else { middleware.to_owned() };
        self.names.unique(&wanted)
    }

    fn rate_limit(&mut self, router: &str, name: &str, node: &DocNode, route: &mut TomlRoute) {
        let average = node.get("average").number().unwrap_or(0);
        if average == 0 {
            route
                .notes
                .push(node.finding(&format!("{name}: average: 0"), "it does not limit").for_information());
            return;
        }
        let period = node.get("period").text().unwrap_or("1s");
        let Some(rate) = rate(average, period) else {
            route.notes.push(node.finding(&format!("{name}: period: {period}"), "this is no period"));
            return;
        };
        let burst = node.get("burst").number().unwrap_or(1).max(1);
        let (key, mut notes) = key(node, "client_ip");
        let known = ["average", "burst", "period", "sourceCriterion"];
        notes.extend(node.remarks(&known));
        let mut limit = Limit::new(self.name(router, name), TomlAlgorithm::TokenBucket { rate, burst }, key);
        limit.notes = notes;
        self.add(limit, name, node, route);
    }

    fn in_flight(&mut self, router: &str, name: &str, node: &DocNode, route: &mut TomlRoute) {
        let Some(amount) = node.get("amount").number().filter(|it| (1..=MOST_IN_FLIGHT).contains(it)) else {
            let reason = format!("max_in_flight is a number from 1 to {MOST_IN_FLIGHT}");
            route.notes.push(node.finding(&format!("{name}: inFlightReq"), reason));
            return;
        };
        let (key, notes) = key(node, "host");
        let algorithm = TomlAlgorithm::Concurrency { max_in_flight: amount };
        let mut limit = Limit::new(self.name(router, name), algorithm, key);
        limit.notes = notes;
        self.add(limit, name, node, route);
    }

    fn add(&mut self, mut limit: Limit, name: &str, node: &DocNode, route: &mut TomlRoute) {
        limit.notes.insert(0, node.origin(&format!("middleware {name}")));
        route.limits.push(limit.name.clone());
        route.uses.push(node.place.clone());
        self.limits.push(limit);
    }
}

/// The key of a middleware, and notes on it.
fn key(node: &DocNode, default: &str) -> (Vec<String>, Vec<Note>) {
    let source = node.get("sourceCriterion");
    let strategy = source.get("ipStrategy");
    let mut notes = Vec::new();
    for name in ["depth", "excludedIPs", "ipv6Subnet"] {
        let value = strategy.get(name);
        if value.is_present() && value.text() != Some("0") {
            let reason = match name {
                "ipv6Subnet" => "set `ipv6_prefix` of `[client_ip]`",
                _ => {
                    "name the networks of the proxies in `trusted_proxies` of `[client_ip]`: the first other address counts"
                }
            };
            notes.push(value.finding(&format!("ipStrategy.{name}"), reason));
        }
    }
    let key = if let Some(header) = source.get("requestHeaderName").text() {
        notes.push(Note::text("Traefik counts requests without the header together; tidegate by address."));
        format!("header:{}", header.to_ascii_lowercase())
    } else if source.get("requestHost").is_true() {
        "host".to_owned()
    } else if strategy.is_present() {
        "client_ip".to_owned()
    } else {
        default.to_owned()
    };
    (vec![key], notes)
}

/// Whether a middleware before has changed the path, except by removing a prefix.
fn changes_path(route: &TomlRoute) -> bool {
    route.add_prefix.is_some() || route.rewrite_path.is_some()
}

/// Puts a prefix before the path, or replaces it. Returns whether a route can do so.
fn replace_path(kind: &str, node: &DocNode, route: &mut TomlRoute) -> bool {
    let (key, place) = match kind {
        "addPrefix" => ("prefix", &mut route.add_prefix),
        _ => ("path", &mut route.rewrite_path),
    };
    let trim = |text: &str| {
        if kind == "addPrefix" { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
    };
    let text = node.get(key).text().map(trim);
    *place = text.filter(|text| text.starts_with('/') && !text.contains(['*', '{', '}', '?', '#', '%']));
    route.notes.extend(node.remarks(&[key]));
    place.is_some()
}

/// Whether a middleware of this kind restricts access, or may do so, other than by a limit. Labels have kinds in any case.
pub(super) fn may_restrict(kind: &str) -> bool {
    let others = CONVERTED.iter().chain(&HARMLESS).chain(&PATHS).chain(&["chain", "redirectScheme"]);
    !others.into_iter().any(|other| other.eq_ignore_ascii_case(kind))
}

/// The name of a middleware without its provider.
pub(super) fn plain(name: &str) -> &str {
    name.split('@').next().unwrap_or("")
}

/// The rate of an average in a period, such as `1m` or a number of seconds.
fn rate(average: u64, period: &str) -> Option<String> {
    let digits = period.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    let unit = match &period[digits.len()..] {
        "" => "s",
        unit @ ("ms" | "s" | "m" | "h") => unit,
        _ => return None,
    };
    Some(if number == 1 && unit == "s" {
        format!("{average}/s")
    } else {
        format!("{average}/{number}{unit}")
    })
}

/// Redirects requests by plain HTTP, which are those of routers without TLS.
fn redirect_scheme(text: &str, node: &DocNode, route: &mut TomlRoute) {
    if node.get("scheme").text() != Some("https")
        || !matches!(node.get("port").text(), None | Some("" | "443"))
    {
        let reason = "ACCESS IS OPEN over plain HTTP: only redirects to https on port 443 are converted. See `redirect_to_https`";
        route.notes.push(node.finding(text, reason));
        return;
    }
    let status = if node.get("permanent").is_true() { 308 } else { 307 };
    route.https_redirect = Some((status, node.origin(text)));
}

/// Refuses other addresses than those of an allow list.
fn allow_addresses(text: &str, node: &DocNode, route: &mut TomlRoute) {
    route.notes.extend(node.remarks(&["ipStrategy", "sourceRange"]));
    let has_strategy = !node.get("ipStrategy").entries().is_empty();
    let condition = if has_strategy {
        Err("its `ipStrategy` needs `trusted_proxies` of `[client_ip]`".to_owned())
    } else {
        Condition::client_ip(&node.get("sourceRange").texts(), false)
    };
    match condition {
        Ok(condition) => route.refuse(condition, &node.place, text),
        Err(reason) => {
            route.notes.push(node.finding(text, format!("{reason}: requests get 501 until you replace it")));
            route.target = TomlTarget::missing();
        }
    }
}

/// Settings of `headers` that reject or redirect requests.
const RESTRICTING: [&str; 4] = ["allowedHosts", "sslRedirect", "sslForceHost", "sslTemporaryRedirect"];

fn headers(node: &DocNode, route: &mut TomlRoute) {
    for (name, value) in node.get("customRequestHeaders").entries() {
        match value.text() {
            Some("") | None => route.remove_headers.push(name.to_ascii_lowercase()),
            Some(text) if !is_literal(text) => {
                let reason = "a text in braces would be a placeholder";
                route.notes.push(value.finding(&format!("{name}: {text}"), reason));
            }
            Some(value) => route.set_headers.push((name.to_ascii_lowercase(), value.to_owned())),
        }
    }
    for (name, value) in node.get("customResponseHeaders").entries() {
        match value.text() {
            Some("") | None => route.remove_response_headers.push(name.to_ascii_lowercase()),
            Some(value) => route.set_response_headers.push((name.to_ascii_lowercase(), value.to_owned())),
        }
    }
    for name in RESTRICTING {
        let value = node.get(name);
        if value.is_present() && value.text() != Some("false") {
            let reason = "tidegate has no such header setting: requests get 501 until you replace it";
            route.notes.push(node.finding(name, reason));
            route.target = TomlTarget::missing();
        }
    }
    let known = ["customRequestHeaders", "customResponseHeaders"];
    route.notes.extend(node.remarks(&[&known[..], &RESTRICTING].concat()));
}
