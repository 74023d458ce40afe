//! Converts dynamic configurations of Traefik, in YAML or TOML.

mod authorization;
mod entry_points;
mod middlewares;
mod restrictions;
mod rule;
#[cfg(test)]
mod tests;

use std::path::Path;

use self::entry_points::EntryPoints;
use self::middlewares::Middlewares;
use self::restrictions::restrictions;
use self::rule::{alternatives, widest};
use super::document::{DocNode, documents};
use super::duration::shown;
use super::model::{Converted, TomlRoute, TomlTarget, TomlUpstream, UniqueNames};
use super::note::{Note, SyntaxError};
use super::source::SourceFile;

/// Converts files, which are one configuration together; a name that ends with `.toml` is that of a file in TOML.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let is_toml = |file: &SourceFile<'_>| {
        let name = Path::new(file.name);
        name.extension().is_some_and(|it| it == "toml") || file.text.trim_start().starts_with('[')
    };
    let (root, notes) = DocNode::joined(documents(files, is_toml)?, 3);
    let mut converted = of_dynamic(&root, false);
    converted.notes.splice(0..0, notes);
    converted
        .count_each_ipv6_address("Traefik counts each IPv6 address by itself, unless `ipv6Subnet` is set");
    Ok(converted)
}

/// Converts a dynamic configuration. With `has_pods` its servers are Services of Kubernetes, of which each has several servers.
pub(super) fn of_dynamic(root: &DocNode, has_pods: bool) -> Converted {
    let mut converted = Converted { restrictions: restrictions(root), ..Converted::default() };
    let http = root.get("http");
    converted.notes.extend(root.remarks_for(&["http", "tls"], foreign(root)));
    converted.notes.extend(of_tls(root.get("tls")));
    converted.notes.extend((!root.items().is_empty()).then(|| root.finding("list", foreign(root))));
    converted.notes.extend(http.remarks(&["routers", "services", "middlewares"]));
    let routers = http.get("routers");
    let mut maker = RouterConverter {
        middlewares: Middlewares::new(http.get("middlewares"), routers),
        services: TraefikServices::new(http.get("services"), has_pods),
    };
    let mut found: Vec<(i64, &DocNode, Vec<TomlRoute>)> = Vec::new();
    let mut lost: Vec<&(String, DocNode)> = Vec::new();
    for entry @ (name, router) in routers.entries() {
        match maker.routes(name, router) {
            Ok(made) => found.push((priority(router), router, made)),
            Err(note) => {
                converted.notes.push(note);
                lost.push(entry);
            }
        }
    }
    for (name, router) in lost {
        converted.notes.extend(maker.middlewares.lost(name, router.get("middlewares"), 0));
    }
    // The sort keeps the order of routers with the same priority.
    found.sort_by_key(|(priority, ..)| std::cmp::Reverse(*priority));
    let points = EntryPoints::of(routers);
    converted.routes.extend(found.into_iter().flat_map(|(_, entry, routes)| points.routes(entry, routes)));
    converted.listeners = points.listeners();
    converted.notes.extend(maker.middlewares.unused());
    converted.limits.append(&mut maker.middlewares.limits);
    converted.upstreams.append(&mut maker.services.upstreams);
    let text = "Addresses of clients, certificates and entry points are in Traefik's static configuration: write `listen`, or correct \
                the addresses of `[[listeners]]`, and write `trusted_proxies` of `[client_ip]` behind other proxies.";
    converted.notes.push(Note::text(text));
    if converted.routes.iter().any(|route| route.scheme == Some("https")) {
        let text = "NO TLS YET: Traefik serves routers with `tls` over TLS only. Add tls = { certificates = [{ cert = …, key = … }] } or \
                    tls = { acme = true } to a listener.";
        converted.notes.push(Note::text(text));
    }
    converted
}

/// Why keys of a file are not converted that is no dynamic configuration.
fn foreign(root: &DocNode) -> &'static str {
    if root.get("kind").is_present() {
        "objects of Kubernetes are read by `tidegate convert kubernetes`"
    } else if root.get("services").is_present() || root.entries().is_empty() {
        "labels of containers are not read: write a dynamic configuration with the routers, services and middlewares that Traefik's \
         API shows"
    } else {
        "tidegate has no counterpart"
    }
}

/// The priority of a router, which may be negative: by default the length of its rule.
fn priority(router: &DocNode) -> i64 {
    let set =
        router.get("priority").text().and_then(|text| text.parse().ok()).filter(|priority| *priority != 0);
    set.unwrap_or_else(|| {
        router.get("rule").text().map_or(0, |rule| i64::try_from(rule.len()).unwrap_or(i64::MAX))
    })
}

/// Makes the routes of routers, with the limits and upstreams that they name.
struct RouterConverter<'d> {
    middlewares: Middlewares<'d>,
    services: TraefikServices<'d>,
}

impl RouterConverter<'_> {
    /// The routes of a router.
    fn routes(&mut self, name: &str, router: &DocNode) -> Result<Vec<TomlRoute>, Note> {
        let text = router.get("rule").text().unwrap_or("");
        let restricts = self.middlewares.restrict(router.get("middlewares"))
            || router.get("tls").get("options").is_present();
        let mut base = TomlRoute::default();
        let failed = |reason: String| router.get("rule").finding(&format!("rule: {text}"), reason);
        let (matches, is_lost) = match alternatives(text) {
            Ok(matches) => (matches, false),
            Err(reason) if restricts => {
                let reason = format!(
                    "{reason}: the router restricts access, so the requests that it may match get 501"
                );
                base.notes.push(failed(reason));
                (widest(text), true)
            }
            Err(reason) => return Err(failed(reason)),
        };
        base.notes.push(router.origin(&format!("router {name}: {text}")));
        let known = [
            "entryPoints",
            "middlewares",
            "priority",
            "rule",
            "ruleSyntax",
            "service",
            "tls",
            "observability",
        ];
        base.notes.extend(router.remarks(&known));
        self.set_target(router, &mut base);
        base.scheme = router.get("tls").is_present().then_some("https");
        let prefixes = self.middlewares.apply(name, router.get("middlewares"), &mut base);
        if let Some((status, note)) = base.https_redirect.take() {
            base.notes.push(note);
            // A router with TLS has no requests by plain HTTP, and one without TLS no others.
            if base.scheme.is_none() {
                let location = "https://{host}{path_and_query}".to_owned();
                (base.scheme, base.target) = (Some("http"), TomlTarget::Redirect { status, location });
            }
        }
        if is_lost {
            base.target = TomlTarget::missing();
        }
        let with_base = |matched: TomlRoute| {
            let TomlRoute { host, path, methods, conditions, .. } = matched;
            TomlRoute { notes: Vec::new(), host, path, methods, conditions, ..base.clone() }
        };
        let stripped = matches.into_iter().flat_map(|matched| stripped(&with_base(matched), &prefixes));
        let mut all: Vec<TomlRoute> = stripped.collect();
        if let Some(first) = all.first_mut() {
            first.notes.clone_from(&base.notes);
        }
        Ok(all)
    }

    fn set_target(&mut self, router: &DocNode, route: &mut TomlRoute) {
        let service = router.get("service").text().unwrap_or("");
        match self.services.upstream(service) {
            Ok((upstream, host)) => {
                route.target = TomlTarget::Upstream(upstream);
                route.rewrite_host = host;
            }
            Err(reason) => {
                let text = format!("service: {service}");
                route.notes.push(router.get("service").finding(&text, reason));
                route.target = TomlTarget::missing();
            }
        }
        let options = router.get("tls").get("options");
        if let Some(text) = options.text() {
            let reason = "they may require client certificates: requests get 501 until you set `client_ca` of the listener's `tls`";
            route.notes.push(options.finding(&format!("tls.options: {text}"), reason));
            route.target = TomlTarget::missing();
        }
    }
}

/// A route that removes one of these prefixes from paths: routes for the paths that have it, and one for all others.
fn stripped(route: &TomlRoute, prefixes: &[String]) -> Vec<TomlRoute> {
    let strip = |path: String, prefix: &String| TomlRoute {
        path,
        strip_prefix: Some(prefix.clone()),
        ..route.clone()
    };
    let body = route.path.strip_suffix('*').unwrap_or(&route.path);
    if body.contains(['*', '{']) {
        // The paths that have the prefix are not known; a path without it stays as it is.
        return match prefixes {
            [] => vec![route.clone()],
            [prefix] => vec![strip(route.path.clone(), prefix)],
            _ => vec![TomlRoute { target: TomlTarget::missing(), ..route.clone() }],
        };
    }
    let whole = prefixes.iter().find(|prefix| route.path.starts_with(&***prefix));
    if let Some(prefix) = whole {
        return vec![strip(route.path.clone(), prefix)];
    }
    let start = route.path.strip_suffix('*').unwrap_or(&route.path);
    let inner = prefixes.iter().filter(|prefix| start.len() < route.path.len() && prefix.starts_with(start));
    let routes =
        inner.flat_map(|prefix| [prefix.clone(), format!("{prefix}/*")].map(|path| strip(path, prefix)));
    let mut routes: Vec<TomlRoute> = routes.collect();
    routes.push(route.clone());
    routes
}

/// The highest weight of a server.
const MOST_WEIGHT: u64 = 1_000;

/// The upstreams that were made so far.
struct TraefikServices<'d> {
    nodes: &'d DocNode,
    /// Whether a server may be several ones.
    has_pods: bool,
    names: UniqueNames,
    made: Vec<(String, String)>,
    pub upstreams: Vec<TomlUpstream>,
}

impl<'d> TraefikServices<'d> {
    pub fn new(nodes: &'d DocNode, has_pods: bool) -> Self {
        Self { nodes, has_pods, names: UniqueNames::default(), made: Vec::new(), upstreams: Vec::new() }
    }

    /// A note on cookies that select the server of a client.
    fn sticky(&self, balancer: &DocNode) -> Option<Note> {
        let sticky = balancer.get("sticky");
        let is_single = !self.has_pods && balancer.get("servers").items().len() == 1;
        let reason = if is_single {
            "its only server gets all requests; clients get no cookie with its name"
        } else {
            "tidegate has no counterpart"
        };
        let note = sticky.finding("sticky", reason);
        sticky.is_present().then(|| if is_single { note.for_information() } else { note })
    }

    /// The name of a service's upstream, and the Host header that its servers get, if it is not the client's.
    pub fn upstream(&mut self, service: &str) -> Result<(String, Option<String>), String> {
        let plain = service.split('@').next().unwrap_or("");
        let node = self.nodes.get(plain);
        let balancer = node.get("loadBalancer");
        if !balancer.is_present() {
            let reason = if node.is_present() {
                "only `loadBalancer` can be converted"
            } else {
                "there is no such service"
            };
            return Err(format!("{reason}: requests get 501"));
        }
        let passes_host = balancer.get("passHostHeader").text() != Some("false");
        let host = (!passes_host).then(|| "upstream".to_owned());
        if let Some((_, name)) = self.made.iter().find(|(known, _)| known == plain) {
            return Ok((name.clone(), host));
        }
        let mut upstream = TomlUpstream { name: self.names.unique(plain), ..TomlUpstream::default() };
        upstream.notes.push(node.origin(&format!("service {plain}")));
        let known = ["healthCheck", "passHostHeader", "servers", "sticky", "strategy"];
        upstream.notes.extend(balancer.remarks(&known).into_iter().chain(self.sticky(balancer)));
        for server in balancer.get("servers").items() {
            add_server(server, &mut upstream);
        }
        if upstream.servers.is_empty() {
            return Err("none of its servers can be converted: requests get 501".to_owned());
        }
        add_settings(balancer, &mut upstream);
        let name = upstream.name.clone();
        self.upstreams.push(upstream);
        self.made.push((plain.to_owned(), name.clone()));
        Ok((name, host))
    }
}

fn add_server(server: &DocNode, upstream: &mut TomlUpstream) {
    let url = server.get("url").text().unwrap_or("").trim_end_matches('/');
    upstream.notes.extend(server.remarks(&["preservePath", "url", "weight"]));
    let of_h2c = url.strip_prefix("h2c://").map(|rest| format!("http://{rest}"));
    upstream.speaks_h2 |= of_h2c.is_some();
    let url = of_h2c.as_deref().unwrap_or(url);
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        let reason = "the URL of a server begins with `http://` or `https://`";
        upstream.notes.push(server.finding(&format!("url: {url}"), reason));
        return;
    }
    let weight = server.get("weight").number().unwrap_or(1).clamp(1, MOST_WEIGHT);
    let origin = without_path(url);
    if server.get("preservePath").is_true() {
        upstream.servers.push((url.to_owned(), weight));
    } else {
        if origin.len() < url.len() {
            let text = format!("Traefik ignores the path of {url}, since `preservePath` is not set.");
            upstream.notes.push(Note::text(text));
        }
        upstream.servers.push((origin.to_owned(), weight));
    }
}

/// Adds the balancing and the health checks of a service.
fn add_settings(balancer: &DocNode, upstream: &mut TomlUpstream) {
    let strategy = balancer.get("strategy");
    match strategy.text() {
        Some("p2c") => upstream.balance = Some("power_of_two".to_owned()),
        None | Some("wrr") => {}
        Some(name) => {
            let reason = "see `balance` of the upstream";
            upstream.notes.push(strategy.finding(&format!("strategy: {name}"), reason));
        }
    }
    let check = balancer.get("healthCheck");
    upstream.health_path = check.get("path").text().map(str::to_owned);
    for (name, value) in check.entries().iter().filter(|(name, _)| name != "path") {
        let key = match &**name {
            "interval" => Some("interval"),
            "timeout" => Some("timeout"),
            _ => None,
        };
        if let Some((key, time)) = key.zip(value.text().and_then(milliseconds)) {
            upstream.health.insert(key, format!("\"{}\"", shown(time)));
            continue;
        }
        let reason = match &**name {
            "interval" | "timeout" => "this is no time".to_owned(),
            "unhealthyInterval" => "set `health.interval` of the upstream".to_owned(),
            _ => "tidegate requests the path from each server with GET, and expects a status of 2xx or 3xx"
                .to_owned(),
        };
        upstream.notes.push(value.finding(&format!("healthCheck.{name}"), reason));
    }
}

/// Reads a time of Traefik, such as `10s`, `500ms` or a number of seconds.
fn milliseconds(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[number.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|time| *time > 0)
}

/// Remarks on certificates and options of TLS.
fn of_tls(tls: &DocNode) -> Vec<Note> {
    let mut notes = Vec::new();
    for (name, node) in tls.entries() {
        let is_known = |options: &DocNode| {
            let known = |(key, value): &(String, DocNode)| match &**key {
                "minVersion" => value.text() == Some("VersionTLS12"),
                "cipherSuites" | "curvePreferences" => true,
                _ => false,
            };
            options.entries().iter().all(known)
        };
        // The options of routers with a name of their own are remarked there.
        let note = match &**name {
            "certificates" | "stores" => {
                let reason = "name the files of certificates in `tls` of `[[listeners]]`";
                node.finding(&format!("tls.{name}"), reason).for_information()
            }
            "options" if node.entries().iter().all(|(name, it)| name != "default" || is_known(it)) => {
                let reason = "tidegate accepts TLS 1.2 and 1.3 with its own ciphers";
                node.finding("tls.options", reason).for_information()
            }
            _ => node.finding(
                &format!("tls.{name}"),
                "tidegate accepts TLS 1.2 and 1.3; see `tls` of `[[listeners]]`",
            ),
        };
        notes.push(note);
    }
    notes
}

/// A URL up to its path.
fn without_path(url: &str) -> &str {
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    url[start..].find('/').map_or(url, |path| &url[..start + path])
}
