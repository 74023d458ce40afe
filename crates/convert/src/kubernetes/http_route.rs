//! `HTTPRoute`s of the Gateway API.

use std::cmp::Reverse;

use super::attachment::{RouteHost, close_ungranted, hosts};
use super::filters::{HARMLESS, apply_filter};
use super::hosts::{HostRoutes, Placed, by_host};
use super::objects::{MOST_WEIGHT, Object, Upstreams};
use super::paths::{Located, below_start, is_path};
use super::policy::Policies;
use crate::document::DocNode;
use crate::duration::shown;
use crate::model::{Condition, ConditionKind, Test, TomlRoute, TomlTarget, TomlUpstream, UniqueNames};
use crate::nginx::{literal, milliseconds, paths_of_regex, start_of_regex};
use crate::note::Note;

/// Exact paths are preferred, then regular expressions, then longer paths, then a method, then more headers, then more parameters.
type Rank = (u8, Reverse<usize>, bool, Reverse<usize>, Reverse<usize>);

/// What a match becomes.
struct Matched<'d> {
    node: &'d DocNode,
    /// Whether its path is not converted, and may be any one.
    is_of_all: bool,
    rank: Rank,
    paths: Vec<String>,
    /// The prefix that filters may replace.
    prefix: Option<String>,
    route: TomlRoute,
}

/// Converts the routes. `names` are those of limits, which policies make.
pub(super) fn http_routes<'d>(
    upstreams: &mut Upstreams<'d>,
    policies: &mut Policies<'d>,
    names: &mut UniqueNames,
) -> (Vec<HostRoutes>, Vec<Note>) {
    let (objects, mut placed, mut notes) = (upstreams.objects, Vec::new(), Vec::new());
    let mut all: Vec<Object<'d>> = objects.of_kind("HTTPRoute").collect();
    // Of equal ones the oldest is preferred, and then the first one of the alphabet.
    let created =
        |it: &Object<'d>| it.node.get("metadata").get("creationTimestamp").text().unwrap_or("").to_owned();
    all.sort_by_key(|it| (created(it), it.namespace, it.name));
    notes.extend(exposed(&all));
    notes.extend(objects.of_kind("Gateway").flat_map(|gateway| of_gateway(&gateway)));
    for route in &all {
        let (hosts, of_hosts) = hosts(objects, route);
        let mut of_object = vec![route.origin()];
        of_object.extend(of_hosts);
        of_object.extend(route.spec.remarks(&["hostnames", "parentRefs", "rules"]));
        for rule in route.spec.get("rules").items() {
            let mut base = TomlRoute::default();
            let settings = policies.settings(route, rule, &mut base);
            let wanted = TomlUpstream { balance: settings, ..TomlUpstream::default() };
            close_ungranted(objects, route, rule, &mut base);
            forward(upstreams, (route, rule), (&mut base, wanted));
            set_times(rule, &mut base);
            policies.close(route, &mut base);
            let known = ["backendRefs", "filters", "matches", "name", "retry", "timeouts"];
            base.notes.extend(rule.remarks(&known));
            for matched in matches(rule) {
                if matched.is_of_all && !restricts(rule, &base) {
                    let reason = "its requests get the routes of other matches until you replace it";
                    of_object.push(matched.node.finding("path", reason));
                    of_object.extend(policies.lost(route, rule));
                    continue;
                }
                let mut routes = of_match(&matched, rule, &base);
                routes = policies.apply((route, rule), routes, names);
                base.notes.clear();
                if let Some(first) = routes.first_mut() {
                    of_object.append(&mut first.notes);
                    first.notes = std::mem::take(&mut of_object);
                }
                placed.extend(on_hosts(routes, &hosts, matched.rank));
            }
        }
        notes.extend(of_object.into_iter().filter(|note| matches!(note, Note::Finding(_))));
    }
    (by_host(placed), notes)
}

/// Notes on a Gateway.
fn of_gateway(gateway: &Object<'_>) -> Vec<Note> {
    let listeners = gateway.spec.get("listeners");
    let reason = "write `listen`, or `[[listeners]]` with `tls`: all of them serve all routes";
    let mut notes = gateway.spec.remarks(&["gatewayClassName", "listeners"]);
    notes.push(listeners.finding(&format!("{}: listeners", gateway.text()), reason));
    notes
}

/// A note if routes are those of several Gateways or listeners, which may be for other clients.
fn exposed(all: &[Object<'_>]) -> Option<Note> {
    let parents = |route: &Object<'_>| {
        let parents = route.spec.get("parentRefs").items().iter();
        let namespace = route.namespace;
        let text = |parent: &DocNode, key: &str| {
            parent.get(key).text().unwrap_or(if key == "namespace" { namespace } else { "" }).to_owned()
        };
        parents
            .map(|it| ["namespace", "name", "sectionName", "port"].map(|key| text(it, key)))
            .collect::<Vec<_>>()
    };
    let other = all.iter().find(|route| parents(route) != parents(&all[0]))?;
    let reason = "ACCESS IS OPEN on all listeners: they serve the routes of all Gateways. Serve routes that only some clients may reach by \
                  another process";
    Some(Note::finding(&other.spec.get("parentRefs").place, "parentRefs", reason))
}

/// The routes of a match for each host; those without a listener get 501. The notes are those of the first one.
fn on_hosts(mut routes: Vec<TomlRoute>, hosts: &[RouteHost], rank: Rank) -> Vec<Placed<Rank>> {
    let mut placed = Vec::new();
    for RouteHost { host, is_served } in hosts {
        for route in &mut routes {
            let mut own = route.clone();
            if !is_served {
                own.target = TomlTarget::missing();
            }
            placed.push(Placed { host: host.clone(), rank, route: own });
            route.notes.clear();
        }
    }
    placed
}

/// Lets a route forward requests to the services of a rule.
fn forward(
    upstreams: &mut Upstreams<'_>,
    (route, rule): (&Object<'_>, &DocNode),
    (base, mut upstream): (&mut TomlRoute, TomlUpstream),
) {
    for backend in rule.get("backendRefs").items() {
        let name = backend.get("name").text().unwrap_or("");
        let text = format!("backendRefs: {name}");
        let known = ["group", "kind", "name", "namespace", "port", "weight"];
        base.notes.extend(backend.remarks(&known));
        let weight = backend.get("weight").number().unwrap_or(1);
        let namespace = backend.get("namespace").text().unwrap_or(route.namespace);
        let url = match backend.get("kind").text() {
            None | Some("Service") => upstreams.objects.url("http", (namespace, name), backend.get("port")),
            Some(kind) => Err(format!("only services can be converted, and no {kind}")),
        };
        match url {
            Ok(url) if weight > 0 => {
                upstream.notes.push(backend.origin(&text));
                if upstream.name.is_empty() {
                    name.clone_into(&mut upstream.name);
                }
                upstream.servers.push((url, weight));
            }
            Ok(_) => base.notes.push(backend.finding(&text, "its weight is 0: it gets no requests")),
            Err(reason) => base.notes.push(backend.finding(&text, format!("{reason}: it is left out"))),
        }
        let filters = backend.get("filters");
        let changes = ["RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror"];
        if filters.items().iter().any(|it| !changes.contains(&it.get("type").text().unwrap_or(""))) {
            base.notes.push(Note::text(
                "A filter of a service may restrict access: requests get 501 until you replace it.",
            ));
            base.target = TomlTarget::missing();
        }
    }
    let most = upstream.servers.iter().map(|(_, weight)| *weight).max().unwrap_or(0);
    for (_, weight) in upstream.servers.iter_mut().filter(|_| most > MOST_WEIGHT) {
        *weight = (*weight * MOST_WEIGHT / most).max(1);
    }
    if let [(_, weight)] = &mut upstream.servers[..] {
        *weight = 1;
    }
    if base.target == TomlTarget::missing() {
        return;
    }
    base.target = if !upstream.servers.is_empty() {
        TomlTarget::Upstream(upstreams.name(upstream))
    } else if rule.get("backendRefs").items().iter().all(|it| it.get("weight").text() == Some("0")) {
        // A rule without services responds with 500, unless a filter redirects.
        TomlTarget::Respond { status: 500, body: String::new() }
    } else {
        TomlTarget::missing()
    };
}

fn set_times(rule: &DocNode, base: &mut TomlRoute) {
    let timeouts = rule.get("timeouts");
    let (whole, of_server) = (timeouts.get("request"), timeouts.get("backendRequest"));
    let set = if whole.is_present() { whole } else { of_server };
    match set.text().map(milliseconds) {
        Some(Some(milliseconds @ 1..)) => base.total_timeout = Some(shown(milliseconds)),
        None | Some(Some(0)) => {}
        Some(None) => base.notes.push(set.finding("timeouts", "this is no duration")),
    }
    if whole.is_present() && of_server.is_present() {
        let reason = "see `response_timeout` of the route";
        base.notes.push(of_server.finding("timeouts.backendRequest", reason));
    }
    let retry = rule.get("retry");
    base.retries = retry.get("attempts").number().map(|tries| tries.min(5)).or(base.retries);
    base.notes.extend(
        retry.remarks_for(&["attempts"], "see `retries` of the route: it has no statuses and pauses"),
    );
}

/// The matches of a rule; without any all requests match.
fn matches(rule: &DocNode) -> Vec<Matched<'_>> {
    let all = rule.get("matches").items();
    // A missing key is an empty match.
    (if all.is_empty() { std::slice::from_ref(rule.get("")) } else { all }).iter().map(matched).collect()
}

fn matched(node: &DocNode) -> Matched<'_> {
    let (path, mut route) = (node.get("path"), TomlRoute::default());
    route.notes.extend(node.remarks(&["headers", "method", "path", "queryParams"]));
    let value = path.get("value").text().unwrap_or("/");
    let kind = path.get("type").text().unwrap_or("PathPrefix");
    let is_plain = is_path(value);
    let mut prefix = None;
    let (rank, paths) = match kind {
        "Exact" if is_plain => (0, Some(vec![value.to_owned()])),
        "PathPrefix" if is_plain => {
            prefix = Some(value.trim_end_matches('/').to_owned());
            (2, Some(Located::below(value).paths))
        }
        _ => (1, (kind == "RegularExpression").then(|| paths_of_regex(&format!("^(?:{value})$"))).flatten()),
    };
    let mut lost: Vec<(&DocNode, String, &str)> = Vec::new();
    let paths = paths.unwrap_or_else(|| {
        lost.push((path, format!("path: {value}"), "no patterns of paths match what it matches"));
        let is_regex = kind == "RegularExpression";
        vec![below_start(&if is_regex { start_of_regex(&format!("^{value}"), true) } else { String::new() })]
    });
    let is_lost = !lost.is_empty();
    route.methods.extend(node.get("method").text().map(str::to_owned));
    for (key, kind) in [("headers", ConditionKind::Header), ("queryParams", ConditionKind::Query)] {
        for item in node.get(key).items() {
            let (name, value) =
                (item.get("name").text().unwrap_or(""), item.get("value").text().unwrap_or(""));
            let name =
                if kind == ConditionKind::Header { name.to_ascii_lowercase() } else { name.to_owned() };
            // Of several conditions on a name only the first one counts.
            if route.conditions.iter().any(|known| (known.kind, &known.name) == (kind, &name)) {
                continue;
            }
            let is_regex = item.get("type").text() == Some("RegularExpression");
            if is_regex {
                lost.push((item, format!("{key}: {name}"), "values are compared with texts"));
            }
            let test = if is_regex { Test::Present(true) } else { Test::Any(vec![literal(value)]) };
            route.conditions.push(Condition { kind, name, test });
        }
    }
    for (node, text, reason) in lost {
        let reason = format!("{reason}: the requests that it may match get 501 until you replace this route");
        route.notes.push(node.finding(&text, reason));
        route.target = TomlTarget::missing();
    }
    let count = |key: &str| Reverse(node.get(key).items().len());
    let length = if value == "/" && rank == 2 { 0 } else { value.trim_end_matches('/').len() };
    let rank = (rank, Reverse(length), route.methods.is_empty(), count("headers"), count("queryParams"));
    let is_of_all = is_lost && paths == ["/*"];
    Matched { node, is_of_all, rank, paths, prefix, route }
}

/// Whether a rule restricts access.
fn restricts(rule: &DocNode, base: &TomlRoute) -> bool {
    let mut filters = rule.get("filters").items().iter().filter_map(|filter| filter.get("type").text());
    base.target == TomlTarget::missing() || filters.any(|kind| !HARMLESS.contains(&kind))
}

/// The routes of a match of a rule.
fn of_match(matched: &Matched<'_>, rule: &DocNode, base: &TomlRoute) -> Vec<TomlRoute> {
    let TomlRoute { methods, conditions, notes, target, .. } = &matched.route;
    let mut route = TomlRoute { methods: methods.clone(), conditions: conditions.clone(), ..base.clone() };
    route.notes.extend(notes.iter().cloned());
    for filter in rule.get("filters").items() {
        apply_filter(filter, matched.prefix.as_ref(), &mut route);
    }
    if *target == TomlTarget::missing() || base.target == TomlTarget::missing() {
        route.target = TomlTarget::missing();
    }
    let with = |path: &String| TomlRoute { path: path.clone(), notes: Vec::new(), ..route.clone() };
    let mut routes: Vec<TomlRoute> = matched.paths.iter().map(with).collect();
    if let Some(first) = routes.first_mut() {
        first.notes = route.notes;
    }
    routes
}
