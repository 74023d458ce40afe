//! Ingresses with the annotations of ingress-nginx.

use std::cmp::Reverse;

use super::aliases::Aliases;
use super::annotations::{IngressSettings, settings};
use super::controller::Controller;
use super::hosts::{HostRoutes, Placed, by_host};
use super::known::annotation;
use super::locations::{Location, Rank, close_others, lost_limits, with_redirects, without_duplicates};
use super::objects::{Object, Upstreams};
use super::paths::{Located, PathType, located, rewrite};
use crate::document::DocNode;
use crate::model::{Limit, TomlRoute, TomlTarget, TomlUpstream, UniqueNames};
use crate::note::Note;

/// What Ingresses are converted to.
#[derive(Default)]
pub(super) struct Ingresses {
    pub hosts: Vec<HostRoutes>,
    pub limits: Vec<Limit>,
    pub notes: Vec<Note>,
}

/// A path of an Ingress.
struct IngressPath<'d> {
    host: Option<String>,
    text: &'d str,
    kind: PathType,
    backend: &'d DocNode,
    node: &'d DocNode,
}

/// Converts the Ingresses.
pub(super) fn ingresses(upstreams: &mut Upstreams<'_>, names: &mut UniqueNames) -> Ingresses {
    let (objects, mut found) = (upstreams.objects, Ingresses::default());
    let maps = objects.of_kind("").filter(|it| it.is("ConfigMap"));
    let controller = Controller::of(maps);
    let (canaries, all): (Vec<Object<'_>>, Vec<Object<'_>>) =
        objects.of_kind("Ingress").partition(|it| annotation(it, "canary").is_true());
    let reason = "all requests get the service of the main Ingress: add the other one to `servers` of its upstream, with a `weight`";
    found.notes.extend(canaries.iter().map(|it| it.finding(reason)));
    found.notes.extend(exposed(&all));
    let mut with_settings: Vec<WithSettings<'_>> = Vec::new();
    let mut aliases = Aliases::of(&all);
    for ingress in &all {
        let mut settings = settings(ingress, &controller, names);
        aliases.keep_new(ingress, &mut settings);
        let paths = paths(ingress, &settings.aliases);
        with_settings.push((*ingress, settings, paths));
    }
    let mut locations: Vec<Location> = Vec::new();
    for (ingress, settings, paths) in &with_settings {
        let mut notes = vec![ingress.origin()];
        notes.extend(of_spec(ingress));
        notes.extend(settings.route.notes.iter().cloned());
        for path in paths {
            let facts = HostFacts::of(path.host.as_ref(), &with_settings);
            let (mut made, of_path) = make(upstreams, (ingress, settings), (path, &facts));
            notes.extend(of_path);
            if let Some(first) = made.first_mut() {
                first.placed.route.notes = std::mem::take(&mut notes);
            }
            locations.append(&mut made);
        }
        if paths.is_empty() {
            found.notes.push(ingress.finding("it has no path with a service"));
        }
        found.notes.extend(notes.into_iter().filter(|note| matches!(note, Note::Finding(_))));
    }
    found.limits = with_settings.into_iter().flat_map(|(_, settings, _)| settings.limits).collect();
    locations.sort_by_key(|location| location.placed.rank);
    found.notes.extend(without_duplicates(&mut locations));
    close_others(&mut locations);
    found.hosts = by_host(with_redirects(locations));
    found
}

/// A note if Ingresses are of several classes, which may have controllers for other clients.
fn exposed(all: &[Object<'_>]) -> Option<Note> {
    let class = |ingress: &Object<'_>| {
        let annotations = ingress.node.get("metadata").get("annotations");
        let old = annotations.get("kubernetes.io/ingress.class").text();
        ingress.spec.get("ingressClassName").text().or(old).unwrap_or("").to_owned()
    };
    let other = all.iter().find(|ingress| class(ingress) != class(&all[0]))?;
    let reason = format!(
        "ACCESS IS OPEN on all listeners: they serve Ingresses of the classes `{}` and `{}`. Serve routes that only some clients may \
         reach by another process",
        class(&all[0]),
        class(other)
    );
    let node = other.spec.get("ingressClassName");
    let place = if node.is_present() { &node.place } else { &other.node.place };
    Some(Note::finding(place, "ingressClassName", reason))
}

/// Notes on what an Ingress has besides annotations and rules.
fn of_spec(ingress: &Object<'_>) -> Vec<Note> {
    let known = ["defaultBackend", "backend", "ingressClassName", "rules", "tls"];
    let mut notes = ingress.spec.remarks(&known);
    for tls in ingress.spec.get("tls").items() {
        let secret = tls.get("secretName");
        let reason =
            "its certificate is in a Secret: name files with it and its key in `tls` of `[[listeners]]`";
        notes.push(tls.finding(&format!("tls: {}", secret.text().unwrap_or("")), reason));
    }
    for rule in ingress.spec.get("rules").items() {
        if let Some(host) = rule.get("host").text().filter(|host| host.starts_with("*.")) {
            let reason = "an Ingress has it for one label, such as a.example.com, and tidegate for several, such as a.b.example.com, too";
            notes.push(rule.get("host").finding(&format!("host: {host}"), reason));
        }
    }
    notes
}

/// The paths of an Ingress, for its hosts and their aliases.
fn paths<'d>(ingress: &Object<'d>, aliases: &[String]) -> Vec<IngressPath<'d>> {
    let mut found = Vec::new();
    for rule in ingress.spec.get("rules").items() {
        let host = rule.get("host").text().filter(|host| !host.is_empty()).map(str::to_ascii_lowercase);
        let aliases = aliases.iter().filter(|_| host.is_some()).cloned().map(Some);
        for host in std::iter::once(host.clone()).chain(aliases) {
            for node in rule.get("http").get("paths").items() {
                let kind = match node.get("pathType").text() {
                    Some("Exact") => PathType::Exact,
                    Some("Prefix") => PathType::Prefix,
                    _ => PathType::Text,
                };
                let text = node.get("path").text().filter(|path| !path.is_empty()).unwrap_or("/");
                found.push(IngressPath {
                    host: host.clone(),
                    text,
                    kind,
                    backend: node.get("backend"),
                    node,
                });
            }
            let node = [ingress.spec.get("defaultBackend"), ingress.spec.get("backend")];
            if let Some(node) = node.into_iter().find(|node| node.is_present())
                && found
                    .iter()
                    .all(|path| path.host != host || path.text != "/" || path.kind == PathType::Exact)
            {
                found.push(IngressPath { host, text: "/", kind: PathType::Prefix, backend: node, node });
            }
        }
    }
    let node = [ingress.spec.get("defaultBackend"), ingress.spec.get("backend")];
    if let (Some(node), []) =
        (node.into_iter().find(|node| node.is_present()), ingress.spec.get("rules").items())
    {
        found.push(IngressPath { host: None, text: "/", kind: PathType::Prefix, backend: node, node });
    }
    found
}

/// An Ingress with its settings and its paths.
type WithSettings<'d> = (Object<'d>, IngressSettings<'d>, Vec<IngressPath<'d>>);

/// What the Ingresses of a host decide together.
struct HostFacts {
    has_regexes: bool,
    has_tls: bool,
    is_closed: bool,
}

impl HostFacts {
    fn of(host: Option<&String>, all: &[WithSettings<'_>]) -> Self {
        let is_of_host = |path: &&IngressPath<'_>| path.host.as_ref() == host;
        let any = |holds: &dyn Fn(&IngressSettings<'_>, &IngressPath<'_>) -> bool| {
            all.iter()
                .any(|(_, settings, paths)| paths.iter().filter(is_of_host).any(|path| holds(settings, path)))
        };
        // An entry without hosts is for all hosts of its Ingress.
        let has_tls = |(ingress, _, paths): &WithSettings<'_>| {
            ingress.spec.get("tls").items().iter().any(|tls| match &tls.get("hosts").texts()[..] {
                [] => paths.iter().any(|path| is_of_host(&path)),
                hosts => host.is_some_and(|host| hosts.iter().any(|it| it.eq_ignore_ascii_case(host))),
            })
        };
        Self {
            has_regexes: any(&|settings, path| {
                let rewrites = settings.rewrite_target.is_some_and(|it| it.text() != Some(path.text));
                settings.uses_regexes || rewrites
            }),
            has_tls: all.iter().any(has_tls),
            is_closed: any(&|settings, _| settings.closes_hosts),
        }
    }
}

/// The routes of a path, and notes on it.
fn make(
    upstreams: &mut Upstreams<'_>,
    (ingress, settings): (&Object<'_>, &IngressSettings<'_>),
    (path, facts): (&IngressPath<'_>, &HostFacts),
) -> (Vec<Location>, Vec<Note>) {
    let mut base = TomlRoute { notes: Vec::new(), ..settings.route.clone() };
    let kind = if facts.has_regexes { PathType::Regex } else { path.kind };
    let found = located(path.text, kind);
    let Located { paths, lost, is_narrower, .. } = &found;
    let text = format!("path: {}", path.text);
    let service = forward(upstreams, (ingress, settings), (path, &mut base));
    set_rewrite(settings, path, &found, &mut base);
    let is_closed = facts.is_closed || settings.route.target == TomlTarget::missing();
    if let Some(reason) = lost {
        // All other routes of the host would be behind it.
        let is_left_out = !is_closed && base.refused.is_empty() && paths == &["/*"];
        let consequence = if is_left_out {
            "its requests get the routes of other paths"
        } else {
            "the requests that it may match get 501"
        };
        base.notes.push(path.node.finding(&text, format!("{reason}: {consequence} until you replace it")));
        if is_left_out {
            base.notes.extend(lost_limits(&base, &format!("the {text}, which has it, is not converted")));
            return (Vec::new(), base.notes);
        }
        base.target = TomlTarget::missing();
    } else if kind == PathType::Regex && *is_narrower {
        let reason = "nginx ignores case and takes a dot for any character, since this host has `use-regex` or `rewrite-target`: other \
                      paths that it matches get the routes of shorter paths, or 404";
        base.notes.push(Note::finding(&path.node.place, &text, reason));
    }
    if facts.is_closed {
        base.target = TomlTarget::missing();
    }
    let notes = std::mem::take(&mut base.notes);
    let at = |route: &str, base: TomlRoute| Location {
        placed: Placed {
            host: path.host.clone(),
            rank: rank(path, kind, route),
            route: TomlRoute { path: route.to_owned(), ..base },
        },
        service: service.clone(),
        is_narrower: kind == PathType::Regex && *is_narrower,
        is_closed,
        redirects_to_https: settings.redirects_to_https.unwrap_or(facts.has_tls),
        place: path.node.place.clone(),
    };
    let mut made: Vec<Location> = paths.iter().map(|route| at(route, base.clone())).collect();
    if let Some(root) = &settings.app_root {
        let target = TomlTarget::Redirect { status: 302, location: root.clone() };
        let mut location = at("/", TomlRoute { target, ..TomlRoute::default() });
        location.placed.rank = (false, true, Reverse(0), true);
        made.push(location);
    }
    (made, notes)
}

/// Rewrites the path as `rewrite-target` says.
fn set_rewrite(
    settings: &IngressSettings<'_>,
    path: &IngressPath<'_>,
    found: &Located,
    base: &mut TomlRoute,
) {
    match settings.rewrite_target.filter(|target| target.text() != Some(path.text)) {
        Some(target) => {
            let failed = rewrite(base, found, target.text().unwrap_or("")).err();
            let text = format!("rewrite-target: {}", target.text().unwrap_or(""));
            base.notes.extend(failed.map(|reason| target.finding(&text, reason)));
        }
        None => base.set_headers.clear(),
    }
}

/// The rank of a route for a path.
fn rank(path: &IngressPath<'_>, kind: PathType, route: &str) -> Rank {
    let is_regex = kind == PathType::Regex;
    let is_implied =
        kind == PathType::Prefix && !route.ends_with('*') || std::ptr::eq(path.node, path.backend);
    let length = if is_regex { path.text.len() } else { route.len() };
    (true, is_regex || route.ends_with('*'), Reverse(length), is_implied)
}

/// Lets a route forward requests to its service. Returns the namespace and name of the service.
fn forward(
    upstreams: &mut Upstreams<'_>,
    (ingress, settings): (&Object<'_>, &IngressSettings<'_>),
    (path, route): (&IngressPath<'_>, &mut TomlRoute),
) -> String {
    let service = path.backend.get("service");
    let old = (path.backend.get("serviceName"), path.backend.get("servicePort"));
    let port = service.get("port");
    let port = if port.get("number").is_present() { port.get("number") } else { port.get("name") };
    let (name, port) = if service.is_present() { (service.get("name"), port) } else { old };
    let text = format!("service: {}", name.text().unwrap_or(""));
    let scheme = if settings.is_https { "https" } else { "http" };
    let url = match name.text() {
        Some(name) => upstreams.objects.url(scheme, (ingress.namespace, name), port),
        None => Err("only services can be converted".to_owned()),
    };
    let is_forwarding = settings.route.target == TomlRoute::default().target;
    match url {
        Ok(url) => {
            if is_forwarding {
                let notes = [&[path.backend.origin(&text)], &settings.upstream.notes[..]].concat();
                let TomlUpstream { balance, speaks_h2, .. } = &settings.upstream;
                let upstream = TomlUpstream {
                    notes,
                    name: name.text().unwrap_or("").to_owned(),
                    servers: vec![(url, 1)],
                    balance: balance.clone(),
                    speaks_h2: *speaks_h2,
                    ..TomlUpstream::default()
                };
                route.target = TomlTarget::Upstream(upstreams.name(upstream));
            }
        }
        Err(reason) => {
            if is_forwarding {
                route.target = TomlTarget::missing();
            }
            route.notes.push(path.backend.finding(&text, format!("{reason}: requests get 501")));
        }
    }
    format!("{}/{}", ingress.namespace, name.text().unwrap_or(""))
}
