//! Which listeners of Gateways serve an `HTTPRoute`, and which services of other namespaces it may use.

use super::objects::{Object, Objects};
use crate::document::DocNode;
use crate::model::{TomlRoute, TomlTarget};
use crate::note::Note;

/// A host of a route.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RouteHost {
    pub host: Option<String>,
    /// Whether a listener serves the route for it, as far as the files say.
    pub is_served: bool,
}

/// Whether a listener admits the routes of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Yes,
    No,
    /// The files don't say so.
    Unknown,
}

/// The listeners of a route's Gateways.
struct Listeners {
    /// The host of each, and whether it admits the route.
    all: Vec<(Option<String>, Admission)>,
    /// Whether all Gateways of the route are in the files.
    are_complete: bool,
}

impl Listeners {
    fn of(objects: &Objects<'_>, route: &Object<'_>) -> Self {
        let parents = route.spec.get("parentRefs").items();
        let mut found = Self { all: Vec::new(), are_complete: !parents.is_empty() };
        for parent in parents {
            let namespace = parent.get("namespace").text().unwrap_or(route.namespace);
            let is_gateway = parent.get("kind").text().is_none_or(|kind| kind == "Gateway");
            let mut gateways = objects.of_kind("Gateway").filter(|it| {
                is_gateway && it.namespace == namespace && Some(it.name) == parent.get("name").text()
            });
            let Some(gateway) = gateways.next() else {
                found.are_complete = false;
                continue;
            };
            let is_named = |listener: &&DocNode| {
                [("sectionName", "name"), ("port", "port")].iter().all(|(wanted, key)| {
                    let wanted = parent.get(wanted).text();
                    wanted.is_none() || listener.get(key).text() == wanted
                })
            };
            for listener in gateway.spec.get("listeners").items().iter().filter(is_named) {
                let host = listener.get("hostname").text().filter(|host| !host.is_empty());
                let admission = admission(objects, listener, (gateway.namespace, route.namespace));
                found.all.push((host.map(str::to_ascii_lowercase), admission));
            }
        }
        found
    }
}

/// Whether a listener admits routes, by the namespaces of its Gateway and of the route.
fn admission(objects: &Objects<'_>, listener: &DocNode, (of_gateway, of_route): (&str, &str)) -> Admission {
    let allowed = listener.get("allowedRoutes");
    let kinds = allowed.get("kinds").items();
    let is_http = listener.get("protocol").text().is_none_or(|it| !matches!(it, "TCP" | "TLS" | "UDP"));
    if !is_http || !kinds.is_empty() && kinds.iter().all(|it| it.get("kind").text() != Some("HTTPRoute")) {
        return Admission::No;
    }
    let namespaces = allowed.get("namespaces");
    match namespaces.get("from").text() {
        Some("All") => Admission::Yes,
        None | Some("Same") if of_gateway == of_route => Admission::Yes,
        Some("Selector") => selects(objects, namespaces.get("selector"), of_route),
        _ => Admission::No,
    }
}

/// Whether a selector selects a namespace.
fn selects(objects: &Objects<'_>, selector: &DocNode, name: &str) -> Admission {
    let namespace = objects.all().iter().find(|it| it.is("Namespace") && it.name == name);
    let labels = namespace.map(|it| it.node.get("metadata").get("labels"));
    let (mut found, expressions) = (Admission::Yes, selector.get("matchExpressions"));
    if !expressions.items().is_empty() {
        found = Admission::Unknown;
    }
    for (key, wanted) in selector.get("matchLabels").entries() {
        let label = match labels {
            _ if key == "kubernetes.io/metadata.name" => Some(name),
            Some(labels) => labels.get(key).text(),
            None => {
                found = Admission::Unknown;
                continue;
            }
        };
        if label != wanted.text() {
            return Admission::No;
        }
    }
    found
}

/// Whether a host, which may begin with `*.`, has all requests of another one.
fn covers(host: &str, other: &str) -> bool {
    host == other || host.strip_prefix('*').is_some_and(|suffix| other.ends_with(suffix) && other != suffix)
}

/// The hosts of a route: its own that listeners of its Gateways have, or those of the listeners; and notes on those that none serves.
pub(super) fn hosts(objects: &Objects<'_>, route: &Object<'_>) -> (Vec<RouteHost>, Vec<Note>) {
    let (own, listeners) = (route.spec.get("hostnames"), Listeners::of(objects, route));
    let admitting: Vec<_> = listeners.all.iter().filter(|(_, it)| *it != Admission::No).collect();
    let (mut found, mut notes): (Vec<RouteHost>, Vec<Note>) = (Vec::new(), Vec::new());
    if listeners.all.iter().any(|(_, admission)| *admission == Admission::Unknown) {
        let reason = "ACCESS IS OPEN if its namespace is none that the listeners of its Gateway select: the labels of the namespace are \
                      not in the files";
        notes.push(Note::finding(&route.node.place, &route.text(), reason));
    }
    let is_refused = listeners.are_complete && admitting.is_empty();
    if own.texts().is_empty() {
        let of_listeners = listeners.all.iter().filter(|(_, it)| is_refused || *it != Admission::No);
        found.extend(of_listeners.map(|(host, _)| RouteHost { host: host.clone(), is_served: !is_refused }));
        found.sort_by(|a, b| a.host.cmp(&b.host));
        if found.is_empty() || found.iter().any(|it| it.host.is_none()) {
            found = vec![RouteHost { host: None, is_served: !is_refused }];
        }
    }
    for host in own.texts().iter().map(|host| host.to_ascii_lowercase()) {
        let is_covered = |(of_listener, _): &&(Option<String>, Admission)| {
            of_listener.as_ref().is_none_or(|it| covers(it, &host))
        };
        let is_served = !listeners.are_complete || admitting.iter().copied().any(|it| is_covered(&it));
        // Listeners that have a part of a wildcard.
        let parts = admitting.iter().filter_map(|(it, _)| it.clone().filter(|it| covers(&host, it)));
        let parts = parts.map(|part| RouteHost { host: Some(part), is_served: true });
        let known = found.len();
        found.extend(parts.filter(|_| !is_served));
        if found.len() == known {
            found.push(RouteHost { host: Some(host), is_served });
        }
    }
    let mut seen: Vec<Option<String>> = Vec::new();
    found.retain(|it| {
        let is_new = !seen.contains(&it.host);
        seen.push(it.host.clone());
        is_new
    });
    for RouteHost { host, .. } in found.iter().filter(|it| !it.is_served) {
        let place = if own.is_present() { &own.place } else { &route.node.place };
        let reason = "no listener of its Gateway has this host and admits the routes of this namespace: its requests get 501";
        notes.push(Note::finding(place, &format!("host: {}", host.as_deref().unwrap_or("any")), reason));
    }
    (found, notes)
}

/// Closes a route for services of other namespaces which no `ReferenceGrant` lets it use.
pub(super) fn close_ungranted(
    objects: &Objects<'_>,
    route: &Object<'_>,
    rule: &DocNode,
    base: &mut TomlRoute,
) {
    for backend in rule.get("backendRefs").items() {
        let namespace = backend.get("namespace").text().unwrap_or(route.namespace);
        if namespace == route.namespace || is_granted(objects, route, (backend, namespace)) {
            continue;
        }
        let text = format!("backendRefs: {}", backend.get("name").text().unwrap_or(""));
        let reason = format!(
            "no ReferenceGrant of the files lets routes of `{}` use services of `{namespace}`: requests get 501",
            route.namespace
        );
        base.notes.push(backend.finding(&text, reason));
        base.target = TomlTarget::missing();
    }
}

fn is_granted(objects: &Objects<'_>, route: &Object<'_>, (backend, namespace): (&DocNode, &str)) -> bool {
    let is_from = |from: &DocNode| {
        from.get("kind").text() == Some("HTTPRoute") && from.get("namespace").text() == Some(route.namespace)
    };
    let kind = backend.get("kind").text().unwrap_or("Service");
    let is_to = |to: &DocNode| {
        let name = to.get("name").text();
        to.get("kind").text() == Some(kind) && (name.is_none() || name == backend.get("name").text())
    };
    let mut grants = objects.all().iter().filter(|it| it.is("ReferenceGrant") && it.namespace == namespace);
    grants.any(|grant| {
        grant.spec.get("from").items().iter().any(is_from) && grant.spec.get("to").items().iter().any(is_to)
    })
}
