//! Converts declarative configurations of Kong.

mod bodies;
mod entities;
mod plugins;
mod restrictions;

use self::entities::all_routes;
use self::plugins::{PluginScope, Plugins};
use self::restrictions::restrictions;
use super::document::{DocNode, documents};
use super::duration::{shown, timeout};
use super::model::{
    Condition, ConditionKind, Converted, Test, TomlRoute, TomlTarget, TomlUpstream, UniqueNames,
};
use super::nginx::{paths_of_regex, start_of_regex};
use super::note::{Note, SyntaxError};
use super::source::SourceFile;

/// The keys of a file that are converted, or that describe the file itself.
const KNOWN: [&str; 9] = [
    "_comment",
    "_format_version",
    "_info",
    "_transform",
    "plugins",
    "routes",
    "services",
    "tags",
    "upstreams",
];

/// Converts files, which are one configuration together.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let (root, notes) = DocNode::joined(documents(files, |_| false)?, 1);
    let mut converted = Converted { notes, restrictions: restrictions(&root), ..Converted::default() };
    for (name, node) in root.entries().iter().filter(|(name, _)| !KNOWN.contains(&&**name)) {
        let reason = match &**name {
            "consumers" | "keyauth_credentials" | "consumer_groups" => {
                "write them to the file of `[consumers]`, and use the key part `consumer`"
            }
            "certificates" | "snis" => "name the files of certificates in `tls` of `[[listeners]]`",
            "apiVersion" | "kind" | "metadata" | "spec" | "plugin" | "config" => {
                "objects of Kubernetes are not read: convert what `deck gateway dump` writes"
            }
            _ => "tidegate has no counterpart",
        };
        converted.notes.push(node.finding(name, reason));
    }
    let mut plugins = Plugins::of(&root);
    let mut services = Services::of(&root);
    converted.routes = routes(&root, &mut services, &mut plugins);
    converted.notes.extend(plugins.unused());
    converted.notes.append(&mut plugins.notes);
    converted.limits = plugins.limits;
    converted.upstreams = services.upstreams;
    converted.store = plugins.store;
    converted.denied = plugins.denied;
    converted.count_each_ipv6_address("Kong counts each IPv6 address by itself");
    Ok(converted)
}

/// The highest weight of a server.
const MOST_WEIGHT: u64 = 1_000;

/// The services of a file as upstreams.
struct Services<'d> {
    root: &'d DocNode,
    names: UniqueNames,
    /// By their nodes.
    made: Vec<(*const DocNode, Option<String>)>,
    pub upstreams: Vec<TomlUpstream>,
}

impl<'d> Services<'d> {
    pub fn of(root: &'d DocNode) -> Self {
        Self { root, names: UniqueNames::default(), made: Vec::new(), upstreams: Vec::new() }
    }

    /// The name of a service's upstream, which is made if it is new; `None` if it has no servers.
    fn upstream(&mut self, service: &DocNode) -> Option<String> {
        if let Some((_, name)) = self.made.iter().find(|(node, _)| std::ptr::eq(*node, service)) {
            return name.clone();
        }
        let text = |key: &str| service.get(key).text();
        let name = self.names.unique(text("name").unwrap_or("service"));
        let mut upstream = TomlUpstream { name: name.clone(), ..TomlUpstream::default() };
        upstream.notes.push(service.origin(&format!("service {name}")));
        let known = [
            "connect_timeout",
            "read_timeout",
            "write_timeout",
            "enabled",
            "host",
            "name",
            "path",
            "plugins",
            "port",
            "protocol",
            "retries",
            "routes",
            "tags",
            "url",
        ];
        upstream.notes.extend(service.remarks(&known));
        let url = text("url").map_or_else(|| written_url(service), str::to_owned);
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
        let scheme = match scheme {
            "grpc" => {
                upstream.speaks_h2 = true;
                "http"
            }
            "grpcs" => {
                upstream.speaks_h2 = true;
                "https"
            }
            other => other,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/');
        let host = authority.split(':').next().unwrap_or("");
        let group =
            self.root.get("upstreams").items().iter().find(|group| group.get("name").text() == Some(host));
        match group {
            Some(group) => add_targets(group, (scheme, path), &mut upstream),
            None => upstream.servers.push((format!("{scheme}://{authority}{path}"), 1)),
        }
        set_timeouts(service, &mut upstream);
        upstream.retries = service.get("retries").number().map(|retries| retries.min(5));
        let name = (!upstream.servers.is_empty()).then_some(name);
        if name.is_some() {
            self.upstreams.push(upstream);
        }
        self.made.push((std::ptr::from_ref(service), name.clone()));
        name
    }
}

/// The URL of a service that has only its parts.
fn written_url(service: &DocNode) -> String {
    let text = |key: &str| service.get(key).text();
    let protocol = text("protocol").unwrap_or("http");
    let port =
        text("port").map_or_else(|| if protocol == "https" { "443" } else { "80" }.to_owned(), str::to_owned);
    format!("{protocol}://{}:{port}{}", text("host").unwrap_or("127.0.0.1"), text("path").unwrap_or(""))
}

/// Sets the timeouts of a service. The default of those for reading and writing is a minute, as in tidegate.
fn set_timeouts(service: &DocNode, upstream: &mut TomlUpstream) {
    let time = |key: &str| service.get(key).number().filter(|time| *time > 0);
    let connect = time("connect_timeout").map(|time| ("connect_timeout", shown(time)));
    upstream.timeouts.extend(connect);
    upstream.timeout = time("read_timeout").and_then(timeout);
    let write = service.get("write_timeout");
    if write.is_present() && time("write_timeout") != Some(time("read_timeout").unwrap_or(60_000)) {
        let reason = "`stall_timeout` is that of `read_timeout`, and also bounds writes to the server";
        upstream.notes.push(write.finding(&format!("write_timeout: {}", write.text().unwrap_or("")), reason));
    }
}

/// Adds the targets of a group of Kong to an upstream.
fn add_targets(group: &DocNode, (scheme, path): (&str, &str), upstream: &mut TomlUpstream) {
    for target in group.get("targets").items() {
        let weight = target.get("weight").number().unwrap_or(100).min(MOST_WEIGHT);
        let address = target.get("target").text().unwrap_or("127.0.0.1");
        if weight > 0 {
            upstream.servers.push((format!("{scheme}://{address}{path}"), weight));
        }
    }
    if group.get("algorithm").text() == Some("least-connections") {
        upstream.balance = Some("least_requests".to_owned());
    }
    let hash = (group.get("hash_on").text() == Some("none")).then_some("hash_on");
    let known: Vec<&str> = ["name", "targets", "algorithm", "tags"].into_iter().chain(hash).collect();
    upstream.notes.extend(group.remarks(&known));
}

/// The routes of a file, in the order in which Kong prefers them.
fn routes(root: &DocNode, services: &mut Services<'_>, plugins: &mut Plugins<'_>) -> Vec<TomlRoute> {
    let with_services = all_routes(root);
    let mut found: Vec<((usize, bool, u64, usize), TomlRoute)> = Vec::new();
    // The limits of hosts and paths without a route.
    let mut lost: Vec<String> = Vec::new();
    for (node, service) in with_services {
        if let Some(note) = left_out(node, service) {
            plugins.notes.push(note);
            continue;
        }
        let upstream = service.map(|service| services.upstream(service));
        let mut base = base(node, upstream);
        plugins.apply(PluginScope { service, route: Some(node) }, &mut base);
        let (routes, notes) = combinations(node, &base);
        if !notes.is_empty() && !restricts(&base) {
            lost.extend(base.limits.iter().cloned());
        }
        plugins.notes.extend(notes);
        let count =
            ["hosts", "methods", "headers", "paths"].iter().filter(|key| node.get(key).is_present()).count();
        for (index, (route, is_regex)) in routes.into_iter().enumerate() {
            let notes = if index == 0 { route.notes.clone() } else { Vec::new() };
            // Kong tries regular expressions first.
            let priority = node.get("regex_priority").number().filter(|_| is_regex).unwrap_or(0);
            let length = if is_regex { usize::MAX } else { route.path.len() };
            found.push(((count, is_regex, priority, length), TomlRoute { notes, ..route }));
        }
    }
    // Where all routes have a limit, those requests have it too.
    lost.retain(|name| found.iter().any(|(_, route)| !route.limits.contains(name)));
    plugins.lose(&lost);
    // More conditions and longer paths are preferred; the sort keeps the order of others.
    found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    found.into_iter().map(|(_, route)| route).collect()
}

/// A note on a route that Kong does not serve over HTTP, if it is one.
fn left_out(node: &DocNode, service: Option<&DocNode>) -> Option<Note> {
    let protocols = node.get("protocols");
    let is_stream = |name: &String| matches!(&**name, "tcp" | "tls" | "tls_passthrough" | "udp");
    if !protocols.texts().is_empty() && protocols.texts().iter().all(is_stream) {
        return Some(protocols.finding(&listed(protocols), "tidegate forwards HTTP only"));
    }
    let enabled = service?.get("enabled");
    let reason = "the service is disabled: its routes are left out";
    (enabled.text() == Some("false")).then(|| enabled.finding("enabled: false", reason))
}

/// The protocols of a route, as in its line.
fn listed(protocols: &DocNode) -> String {
    format!("protocols: {}", protocols.texts().join(", "))
}

/// Notes on conditions of a route that are not converted; it gets 501 if it would match more requests without them.
fn restrict(node: &DocNode, route: &mut TomlRoute) {
    let protocols = node.get("protocols");
    let is_plain = |name: &String| matches!(&**name, "http" | "grpc" | "ws");
    if !protocols.texts().is_empty() && !protocols.texts().iter().any(is_plain) {
        let status = node.get("https_redirect_status_code").text().unwrap_or("426");
        let reason = format!(
            "ACCESS IS OPEN over plain HTTP, where Kong responds with {status}. Leave out listeners without `tls`"
        );
        route.notes.push(protocols.finding(&listed(protocols), reason));
    }
    for key in ["destinations", "expression", "snis", "sources"] {
        let value = node.get(key);
        if value.is_present() {
            let text = value.text().map_or_else(|| key.to_owned(), |text| format!("{key}: {text}"));
            let reason = "routes have no such condition: requests get 501 until you replace it";
            route.notes.push(value.finding(&text, reason));
            route.target = TomlTarget::missing();
        }
    }
    for (header, values) in node.get("headers").entries() {
        if values.texts().iter().any(|value| value.starts_with("~*")) {
            let reason =
                "values are compared with texts: requests that have the header get 501 until you replace it";
            route.notes.push(values.finding(&format!("headers.{header}"), reason));
            route.target = TomlTarget::missing();
            let name = header.to_ascii_lowercase();
            let same = route.conditions.iter_mut().filter(|condition| condition.name == name);
            same.for_each(|condition| condition.test = Test::Present(true));
        }
    }
}

/// A route without its hosts and paths.
/// `upstream` is that of its service, if it has one; `Some(None)` is one without servers.
#[expect(clippy::option_option, reason = "no service, or a service without servers")]
fn base(node: &DocNode, upstream: Option<Option<String>>) -> TomlRoute {
    let mut route = TomlRoute::default();
    let name = node.get("name").text().unwrap_or("without a name");
    route.notes.push(node.origin(&format!("route {name}")));
    let known = [
        "destinations",
        "expression",
        "headers",
        "hosts",
        "methods",
        "name",
        "paths",
        "plugins",
        "preserve_host",
        "protocols",
        "regex_priority",
        "service",
        "snis",
        "sources",
        "strip_path",
        "tags",
        "request_buffering",
        "response_buffering",
        "path_handling",
        "https_redirect_status_code",
    ];
    route.notes.extend(node.remarks(&known));
    route.methods = node.get("methods").texts();
    for (index, (header, values)) in node.get("headers").entries().iter().enumerate() {
        let name = header.to_ascii_lowercase();
        let before = &node.get("headers").entries()[..index];
        if before.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            continue;
        }
        let test = Test::Any(values.texts().iter().map(|value| value.replace('*', "\\*")).collect());
        route.conditions.push(Condition { kind: ConditionKind::Header, name, test });
    }
    route.target = if let Some(Some(name)) = upstream {
        TomlTarget::Upstream(name)
    } else {
        let lacking = if upstream.is_some() { "its service has no servers" } else { "it has no service" };
        route.notes.push(node.finding(&format!("route {name}"), format!("{lacking}: requests get 501")));
        TomlTarget::missing()
    };
    restrict(node, &mut route);
    if !node.get("preserve_host").is_true() {
        route.rewrite_host = Some("upstream".to_owned());
    }
    route
}

/// How Kong compares a path.
#[derive(PartialEq)]
enum PathKind {
    Prefix,
    Regex,
    /// A regular expression that is not converted.
    LostRegex,
}

/// Whether a route refuses requests, so that those of its hosts and paths without a route of their own get 501.
fn restricts(base: &TomlRoute) -> bool {
    base.target == TomlTarget::missing() || !base.refused.is_empty()
}

/// A route for each of its hosts and paths, and whether its path is a regular expression; and notes on those that can't be
/// converted. Where the route restricts access, routes with 501 have their requests, and no other route.
fn combinations(node: &DocNode, base: &TomlRoute) -> (Vec<(TomlRoute, bool)>, Vec<Note>) {
    let mut notes: Vec<Note> = Vec::new();
    let restricts = restricts(base);
    let mut hosts: Vec<Option<String>> = Vec::new();
    let mut has_lost_host = false;
    for host in node.get("hosts").texts() {
        let host = host.split(':').next().unwrap_or("").to_ascii_lowercase();
        if host.strip_prefix("*.").unwrap_or(&host).contains('*') {
            let reason = "the host of a route is a name, or `*.` and a name";
            notes.push(node.get("hosts").finding(&host, reason));
            hosts.extend(restricts.then_some(None));
            has_lost_host = true;
        } else {
            hosts.push(Some(host));
        }
    }
    if !node.get("hosts").is_present() {
        hosts.push(None);
    }
    let mut paths: Vec<(String, Option<String>, PathKind)> = Vec::new();
    let strips = node.get("strip_path").text() != Some("false");
    for path in node.get("paths").texts() {
        if !path.starts_with('/') || path.contains(['*', '{', '[', '\\', '^']) {
            let patterns = path.strip_prefix('~').and_then(|regex| paths_of_regex(&format!("^(?:{regex})")));
            if let Some(patterns) = patterns.filter(|_| !strips) {
                paths.extend(patterns.into_iter().map(|path| (path, None, PathKind::Regex)));
                continue;
            }
            let reason = "no patterns of paths match what this regular expression matches, or its match is removed from the path";
            notes.push(node.get("paths").finding(&path, reason));
            let start = start_of_regex(&format!("^{}", path.trim_start_matches('~')), true);
            let start = if start.starts_with('/') { start } else { "/".to_owned() };
            paths.extend(restricts.then(|| (format!("{start}*"), None, PathKind::LostRegex)));
            continue;
        }
        let prefix = path.trim_end_matches('/');
        paths.push((
            format!("{path}*"),
            (strips && !prefix.is_empty()).then(|| prefix.to_owned()),
            PathKind::Prefix,
        ));
    }
    if !node.get("paths").is_present() {
        paths.push(("/*".to_owned(), None, PathKind::Prefix));
    }
    let mut routes = Vec::new();
    for host in &hosts {
        for (path, strip_prefix, kind) in &paths {
            let (host, path, strip_prefix) = (host.clone(), path.clone(), strip_prefix.clone());
            let mut route = TomlRoute { host, path, strip_prefix, ..base.clone() };
            // A route for more requests than those of Kong's.
            if *kind == PathKind::LostRegex || has_lost_host && route.host.is_none() {
                route.target = TomlTarget::missing();
                route.refused.clear();
            }
            routes.push((route, *kind != PathKind::Prefix));
        }
    }
    (routes, notes)
}
