//! Converts configurations of nginx.

mod authorization;
mod guards;
mod headers;
mod keys;
mod limits;
mod locations;
mod patterns;
mod remarks;
mod restrictions;
mod rewrites;
mod routes;
mod scope;
mod servers;
mod template;
mod timeouts;
mod tree;
mod upstreams;
mod variants;

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;

use self::headers::ServerVariables;
use self::limits::NginxLimits;
pub(super) use self::limits::{MOST_IN_FLIGHT, rate};
pub(super) use self::patterns::{literal, paths_of_regex, start_of_regex};
use self::remarks::remarks;
use self::restrictions::{AppliedRestrictions, restrictions};
use self::routes::RouteMaker;
pub(super) use self::scope::size;
use self::scope::{Scope, is_restricted};
use self::servers::{Server, Servers, ServersOfListener};
pub(super) use self::template::redirect_location;
pub(super) use self::timeouts::milliseconds;
use self::tree::{Directive, Tree};
use self::upstreams::Upstreams;
pub(super) use self::upstreams::hash_balance;
use super::model::{Converted, TomlClientIp, TomlRoute, TomlTarget};
use super::note::{Note, SyntaxError};
use super::source::SourceFile;

/// Converts files, which are one configuration together. Files that they name are relative to the directory of the first one.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let directory = files.first().map_or(Path::new(""), |file| file.directory);
    let mut tree = Tree::new(directory);
    let (mut block, mut converted) = (Vec::new(), Converted::default());
    for file in files {
        let top = tree.parse(file.name, file.text)?;
        converted.restrictions.extend(restrictions(&top));
        // A file of sites has no `http` block: nginx includes it in one.
        if top.iter().any(|directive| directive.name == "http") {
            converted.notes.extend(remarks(&top));
            block.extend(top.into_iter().filter(|it| it.name == "http").filter_map(|it| it.block).flatten());
        } else {
            block.extend(top);
        }
    }
    let block = &block[..];
    converted.notes.splice(0..0, tree.notes);
    converted.notes.extend(remarks(block));
    let scope = Scope::default().within(block);
    let mut servers = Servers::of(block, directory);
    converted.client_ip = client_ip(block);
    let mut maker = RouteMaker {
        limits: NginxLimits::new(block),
        upstreams: Upstreams::new(block),
        applied: AppliedRestrictions::default(),
        asked: Vec::new(),
        variables: ServerVariables::default(),
    };
    add_routes(&mut converted, &mut servers, &mut maker, &scope);
    converted.notes.extend(maker.applied.notes(block, "no location that was converted has it"));
    let outside = block.iter().filter(|directive| matches!(&*directive.name, "location" | "return"));
    let reason = "it is in no server: convert the file that includes this one";
    converted.notes.extend(outside.map(|directive| directive.finding(reason).of_block()));
    converted.listeners = servers.listeners;
    converted.notes.extend(maker.limits.unused());
    converted.notes.extend(maker.upstreams.unused());
    converted.limits = maker.limits.all;
    converted.note_deny_statuses("nginx");
    converted.upstreams = maker.upstreams.all;
    converted.count_each_ipv6_address("nginx counts each IPv6 address by itself");
    Ok(converted)
}

/// Beginnings of the names of directives in snippets that restrict no access and change no paths. Those that set or remove headers
/// of requests are not among them: the service may trust these headers, and clients would set them.
const HARMLESS: [&str; 16] = [
    "access_log",
    "add_header",
    "client_body_",
    "error_log",
    "expires",
    "gzip",
    "keepalive_",
    "limit_conn",
    "limit_rate",
    "limit_req",
    "more_clear_headers",
    "more_set_headers",
    "proxy_buffer",
    "proxy_hide_header",
    "sendfile",
    "sub_filter",
];

/// Whether directives without the block around them may restrict access, or change paths or the headers of requests.
pub(super) fn may_restrict(snippet: &str) -> bool {
    let is_harmless =
        |it: &Directive| it.block.is_none() && HARMLESS.iter().any(|start| it.name.starts_with(start));
    let directives = Tree::new(Path::new("")).parse("", snippet);
    !directives.is_ok_and(|directives| directives.iter().all(is_harmless))
}

/// Adds the routes of all servers, for each listener by itself if their servers differ.
fn add_routes<'d>(
    converted: &mut Converted,
    servers: &mut Servers<'d>,
    maker: &mut RouteMaker<'d>,
    scope: &Scope<'d>,
) {
    let groups = servers.by_listener();
    let mut routes = Vec::new();
    for (number, server) in servers.all.iter().enumerate() {
        routes.push(maker.server(server, scope, number));
        converted.notes.extend(server.notes.iter().cloned());
        if !groups.iter().any(|group| group.servers.contains(&number)) {
            let reason = "none of its addresses is one of tidegate: its routes are left out";
            converted.notes.push(server.directive.finding(reason).of_block().lost());
        }
        let is_default = groups.iter().any(|group| group.default == Some(number));
        if !is_default && server.hosts.is_empty() {
            let reason =
                "it has no name that a route can have, and is no default server: its routes are left out";
            converted.notes.push(server.directive.finding(reason).of_block().lost());
        }
    }
    let mut written = HashSet::new();
    for group in groups {
        let of_group = routes_of(&group, &servers.all, &routes, &mut written);
        converted.routes.extend(
            of_group.into_iter().map(|route| TomlRoute { listener: group.listener.clone(), ..route }),
        );
    }
}

/// The routes of servers of one listener: exact hosts first, then longer wildcards before shorter ones, then the default server.
/// `written` are the numbers of servers whose notes are written already.
fn routes_of(
    group: &ServersOfListener,
    servers: &[Server<'_>],
    routes: &[Vec<TomlRoute>],
    written: &mut HashSet<usize>,
) -> Vec<TomlRoute> {
    let of_group = || group.servers.iter().map(|number| (*number, &servers[*number]));
    let hosts: Vec<&String> = of_group().flat_map(|(_, server)| &server.hosts).collect();
    // A name of the default server that another server's wildcard covers.
    let is_covered = |host: &str| {
        let suffixes = hosts.iter().filter_map(|other| other.strip_prefix('*'));
        suffixes.into_iter().any(|suffix| host.ends_with(suffix) && host != format!("*{suffix}"))
    };
    let mut made = |number: usize| {
        let is_first = written.insert(number);
        if is_first { routes[number].clone() } else { repeated(&routes[number], &servers[number]) }
    };
    let mut by_host: Vec<(bool, usize, String, Vec<TomlRoute>)> = Vec::new();
    for (number, server) in of_group() {
        let is_default = group.default == Some(number);
        for host in server.hosts.iter().filter(|host| !is_default || is_covered(host)) {
            by_host.push((host.starts_with('*'), usize::MAX - host.len(), host.clone(), made(number)));
        }
    }
    // A sort that keeps the order of equal ones; the length counts for wildcards only.
    by_host.sort_by_key(|(is_wildcard, length, ..)| (*is_wildcard, if *is_wildcard { *length } else { 0 }));
    let mut all = Vec::new();
    for (_, _, host, mut routes) in by_host {
        if routes.last().is_none_or(|route| route.path != "/*") {
            let notes = vec![Note::text("nginx has no location for other paths of this host.")];
            routes.push(TomlRoute { notes, path: "/*".to_owned(), ..TomlRoute::default() });
        }
        all.extend(routes.into_iter().map(|route| TomlRoute { host: Some(host.clone()), ..route }));
    }
    let others = of_group().filter(|(number, _)| group.default != Some(*number));
    all.extend(others.filter_map(|(_, server)| lost_hosts(server)));
    all.extend(group.default.into_iter().flat_map(made));
    all
}

/// A route for the hosts of a server that can't be converted, if it restricts access. They are matched after all others.
fn lost_hosts(server: &Server<'_>) -> Option<TomlRoute> {
    if !server.has_lost_names || !is_restricted(server.directive.directives()) {
        return None;
    }
    let reason = "it restricts access for hosts that are not converted: requests for hosts without a route of their own get 501 \
                  until you replace this route";
    let notes = vec![server.directive.finding(reason)];
    Some(TomlRoute { notes, path: "/*".to_owned(), target: TomlTarget::missing(), ..TomlRoute::default() })
}

/// The routes of a server for another host, without their notes.
fn repeated(routes: &[TomlRoute], server: &Server<'_>) -> Vec<TomlRoute> {
    let mut routes: Vec<TomlRoute> =
        routes.iter().map(|route| TomlRoute { notes: Vec::new(), ..route.clone() }).collect();
    if let Some(first) = routes.first_mut() {
        let place = &server.directive.place;
        first.notes.push(Note::text(format!(
            "{place}: the same routes for another name or listener of this server."
        )));
    }
    routes
}

/// `[client_ip]`, from the directives of the module `realip`, which apply to all servers here.
fn client_ip(block: &[Directive]) -> TomlClientIp {
    let mut client_ip = TomlClientIp::default();
    let servers = block.iter().filter(|directive| directive.name == "server");
    let all: Vec<&Directive> = block.iter().chain(servers.flat_map(Directive::directives)).collect();
    for directive in &all {
        let value = directive.arg(0);
        match &*directive.name {
            "set_real_ip_from" if value.parse::<IpNet>().is_err() && value.parse::<IpAddr>().is_err() => {
                client_ip.notes.push(directive.finding("trusted proxies are networks and addresses"));
            }
            "set_real_ip_from" if client_ip.trusted_proxies.iter().all(|known| known != value) => {
                client_ip.trusted_proxies.push(value.to_owned());
            }
            "real_ip_header" if value == "proxy_protocol" => {
                let text = "The PROXY header has the address of the client. tidegate also reads X-Forwarded-For from trusted proxies.";
                client_ip.notes.push(Note::text(text));
            }
            "real_ip_header" => match &client_ip.header {
                Some(known) if !known.eq_ignore_ascii_case(value) => {
                    let reason = format!("there is one header for all servers: {known}");
                    client_ip.notes.push(directive.finding(reason));
                }
                _ => client_ip.header = Some(value.to_ascii_lowercase()),
            },
            _ => {}
        }
    }
    let names_header = all.iter().any(|it| it.name == "real_ip_header");
    if !client_ip.trusted_proxies.is_empty() && !names_header {
        client_ip.header = Some("x-real-ip".to_owned());
    }
    let is_recursive = all.iter().any(|it| it.name == "real_ip_recursive" && it.arg(0) == "on");
    if client_ip.trusted_proxies.len() > 1 && !is_recursive && client_ip.header.is_some() {
        let text = "nginx takes the last address of the header (real_ip_recursive off); tidegate the last one that is no \
                    trusted proxy.";
        client_ip.notes.push(Note::text(text));
    }
    client_ip
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::may_restrict;
    use crate::{SourceFile, SourceFormat, convert};

    /// The listener, the host, the path and the target of each route.
    fn routes(text: &str) -> Vec<String> {
        let file = SourceFile { name: "f", text, directory: Path::new("") };
        let converted = convert(SourceFormat::Nginx, &[file]).unwrap();
        assert!(converted.findings().iter().all(|it| !it.changes_behaviour), "{:?}", converted.findings());
        let or_any = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
        let shown = converted.routes.iter().map(|it| {
            let target = format!("{:?}", it.target);
            let target = target.split('"').nth(1).unwrap_or(&target).to_owned();
            format!("{} {} {} {target}", or_any(&it.listener), or_any(&it.host), it.path)
        });
        shown.collect()
    }

    #[test]
    fn servers_are_served_on_their_own_addresses_only() {
        let redirect = "server { listen 80; server_name _; return 301 https://$host$request_uri; }";
        let secure = "server { listen 443 ssl; server_name a.test; location / { proxy_pass http://a; } }";
        assert_eq!(
            routes(&format!("{redirect} {secure}")),
            ["port-80 any /* https://{host}{path_and_query}", "port-443 any /* http://a",]
        );
        let both = "server { listen 80; listen 81; server_name b.test; location / { proxy_pass http://b; } }";
        let other = "server { listen 81 default_server; location / { proxy_pass http://c; } }";
        assert_eq!(
            routes(&format!("{both} {other}")),
            ["port-80 any /* http://b", "port-81 b.test /* http://b", "port-81 any /* http://c"]
        );
        // One set of routes, if all addresses have the same servers.
        let all = "server { listen 80; listen [::]:80; listen 8080; location / { proxy_pass http://a; } }";
        assert_eq!(routes(all), ["any any /* http://a"]);
    }
    #[test]
    fn only_known_directives_without_blocks_restrict_nothing() {
        for snippet in
            ["limit_req zone=a burst=5;", "limit_rate 1m; gzip on;", "more_set_headers a;", "# none"]
        {
            assert!(!may_restrict(snippet), "{snippet}");
        }
        for snippet in [
            "limit_except GET { deny all; }",
            "gzip on { deny all; }",
            "proxy_set_header X-User \"\";",
            "more_clear_input_headers X-User;",
            "more_set_input_headers 'X-User: a';",
            "access_log off; deny all;",
        ] {
            assert!(may_restrict(snippet), "{snippet}");
        }
    }
}
