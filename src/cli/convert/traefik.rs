//! Converts dynamic configurations of Traefik, in YAML or TOML.

mod middlewares;
mod rule;
mod services;

use std::path::Path;

use self::middlewares::Middlewares;
use self::rule::alternatives;
use self::services::Services;
use super::document::{Document, Node};
use super::model::{Converted, Route, Target};
use super::note::{Note, SyntaxError};

/// Converts a file with this name and text; a name that ends with `.toml` is that of a file in TOML.
///
/// # Errors
/// The place of an error of syntax.
pub(super) fn convert(file: &str, text: &str) -> Result<Converted, SyntaxError> {
    let is_toml =
        Path::new(file).extension().is_some_and(|it| it == "toml") || text.trim_start().starts_with('[');
    let document = if is_toml { Document::toml(file, text)? } else { Document::yaml(file, text)? };
    let mut converted = Converted::default();
    for root in &document.roots {
        let http = root.get("http");
        converted.notes.extend(document.remarks(root, &["http"]));
        converted.notes.extend(document.remarks(http, &["routers", "services", "middlewares"]));
        let mut middlewares = Middlewares::new(&document, http.get("middlewares"), http.get("routers"));
        let mut services = Services::new(&document, http.get("services"));
        let mut found: Vec<(u64, Vec<Route>)> = Vec::new();
        for (name, router) in http.get("routers").entries() {
            match routes(&document, name, router, &mut middlewares, &mut services) {
                Ok(routes) => found.push((priority(router), routes)),
                Err(note) => converted.notes.push(note),
            }
        }
        // The sort keeps the order of routers with the same priority.
        found.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        converted.routes.extend(found.into_iter().flat_map(|(_, routes)| routes));
        converted.notes.append(&mut middlewares.notes);
        converted.limits.append(&mut middlewares.limits);
        converted.upstreams.append(&mut services.upstreams);
    }
    let text = "Addresses of clients, certificates and entry points are in Traefik's static configuration: write `listen`, and \
                `trusted_proxies` of `[client_ip]` behind other proxies.";
    converted.notes.push(Note::text(text));
    if converted.limits.iter().any(|limit| limit.key.iter().any(|part| part == "client_ip")) {
        converted.client_ip.ipv6_prefix = Some(128);
        let text = "Traefik counts each IPv6 address by itself, unless `ipv6Subnet` is set. A client has at least 2^64 of them, \
                    so the default of tidegate is a prefix of 64 bits: consider to remove `ipv6_prefix`.";
        converted.client_ip.notes.push(Note::text(text));
    }
    Ok(converted)
}

/// The priority of a router: by default the length of its rule.
fn priority(router: &Node) -> u64 {
    let set = router.get("priority").number().filter(|priority| *priority > 0);
    set.unwrap_or_else(|| router.get("rule").text().map_or(0, str::len) as u64)
}

/// The routes of a router.
fn routes(
    document: &Document,
    name: &str,
    router: &Node,
    middlewares: &mut Middlewares<'_>,
    services: &mut Services<'_>,
) -> Result<Vec<Route>, Note> {
    let text = router.get("rule").text().unwrap_or("");
    let matches = alternatives(text)
        .map_err(|reason| document.finding(router.get("rule"), &format!("rule: {text}"), reason))?;
    let mut base = Route::default();
    base.notes.push(document.origin(router, &format!("router {name}: {text}")));
    let known =
        ["entryPoints", "middlewares", "priority", "rule", "ruleSyntax", "service", "tls", "observability"];
    base.notes.extend(document.remarks(router, &known));
    let service = router.get("service").text().unwrap_or("");
    match services.upstream(service) {
        Ok((upstream, host)) => {
            base.target = Target::Upstream(upstream);
            base.rewrite_host = host;
        }
        Err(reason) => {
            base.notes.push(document.finding(router.get("service"), &format!("service: {service}"), reason));
            base.target = Target::missing();
        }
    }
    let options = router.get("tls").get("options");
    if let Some(text) = options.text() {
        let reason = "they may require client certificates: requests get 501 until you set `client_ca` of the listener's `tls`";
        base.notes.push(document.finding(options, &format!("tls.options: {text}"), reason));
        base.target = Target::missing();
    }
    let points = router.get("entryPoints");
    if !points.items().is_empty() {
        let reason = "the route is served by all listeners: serve those that only some clients may reach by another process";
        base.notes.push(document.finding(points, "entryPoints", reason));
    }
    middlewares.apply(name, router.get("middlewares"), &mut base);
    let route = |(index, matched): (usize, Route)| {
        let notes = if index == 0 { base.notes.clone() } else { Vec::new() };
        let Route { host, path, methods, conditions, .. } = matched;
        // A prefix can be removed only where the path has it.
        let has_prefix = |prefix: &String| path.starts_with(&**prefix);
        let strip_prefix = base.strip_prefix.clone().filter(has_prefix);
        Route { notes, host, path, methods, conditions, strip_prefix, ..base.clone() }
    };
    Ok(matches.into_iter().enumerate().map(route).collect())
}
