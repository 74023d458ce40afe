//! Traefik's `Middleware` and `IngressRoute`, as the dynamic configuration that they are the parts of.

use super::objects::{Object, Objects};
use crate::document::{DocNode, DocValue};

/// The keys of a service that are those of its server.
const OF_SERVER: [&str; 7] = ["kind", "name", "namespace", "nativeLB", "port", "scheme", "weight"];

/// The dynamic configuration of the objects; none if there are no routers.
pub(super) fn dynamic(objects: &Objects<'_>) -> Option<DocNode> {
    let first = ["IngressRoute", "Middleware"].into_iter().find_map(|kind| objects.of_kind(kind).next())?;
    let place = &first.node.place;
    let middlewares = objects.of_kind("Middleware").map(|it| (key(it.namespace, it.name), middleware(&it)));
    let middlewares: Vec<_> = middlewares.collect();
    let (mut routers, mut services) = (Vec::new(), Vec::new());
    for object in objects.of_kind("IngressRoute") {
        for (index, route) in object.spec.get("routes").items().iter().enumerate() {
            let name = format!("{}-{index}", key(object.namespace, object.name));
            let (router, service) = router(objects, &object, route, &name);
            services.push((name.clone(), service));
            routers.push((name, router));
        }
    }
    let entry = |name: &str, entries| (name.to_owned(), DocNode::map(place, entries));
    let http =
        vec![entry("routers", routers), entry("services", services), entry("middlewares", middlewares)];
    Some(DocNode::map(place, vec![entry("http", http)]))
}

/// The name of an object, as Traefik shows it.
fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}")
}

/// The name of the object that another one in a namespace refers to.
fn reference(namespace: &str, node: &DocNode) -> DocNode {
    let name = node.get("name").text().unwrap_or("");
    // That of another provider has its own.
    let is_foreign = name.contains('@');
    let namespace = node.get("namespace").text().unwrap_or(namespace);
    DocNode::scalar(&node.place, if is_foreign { name.to_owned() } else { key(namespace, name) })
}

/// The settings of a middleware; those of a chain have the names of other ones.
fn middleware(object: &Object<'_>) -> DocNode {
    let mut node = object.spec.clone();
    if let DocValue::Map(kinds) = &mut node.value {
        for (_, chain) in kinds.iter_mut().filter(|(kind, _)| kind == "chain") {
            let items = chain.get("middlewares").items().iter();
            let names = items.map(|item| reference(object.namespace, item)).collect();
            let list = DocNode { place: chain.place.clone(), value: DocValue::List(names) };
            chain.value = DocValue::Map(vec![("middlewares".to_owned(), list)]);
        }
    }
    node
}

/// The router of a route, and its service.
fn router(objects: &Objects<'_>, object: &Object<'_>, route: &DocNode, name: &str) -> (DocNode, DocNode) {
    let mut entries = vec![("service".to_owned(), DocNode::scalar(&route.place, name))];
    for (key, value) in route.entries() {
        let (key, value) = match &**key {
            "match" => ("rule", value.clone()),
            "syntax" => ("ruleSyntax", value.clone()),
            "middlewares" => {
                let names = value.items().iter().map(|it| reference(object.namespace, it)).collect();
                ("middlewares", DocNode { place: value.place.clone(), value: DocValue::List(names) })
            }
            "kind" | "services" => continue,
            other => (other, value.clone()),
        };
        entries.push((key.to_owned(), value));
    }
    for key in ["entryPoints", "tls"] {
        let mut value = object.spec.get(key).clone();
        if let DocValue::Map(settings) = &mut value.value {
            for (_, options) in settings.iter_mut().filter(|(key, _)| key == "options") {
                *options = reference(object.namespace, options);
            }
        }
        entries.push((key.to_owned(), value));
    }
    (DocNode::map(&route.place, entries), service(objects, object, route))
}

/// The service of a route: all of its Services are servers of one.
fn service(objects: &Objects<'_>, object: &Object<'_>, route: &DocNode) -> DocNode {
    let all = route.get("services");
    let (mut servers, mut settings): (Vec<DocNode>, Vec<(String, DocNode)>) = (Vec::new(), Vec::new());
    for node in all.items() {
        if node.get("kind").text().is_some_and(|kind| kind != "Service") {
            return DocNode::map(&node.place, vec![("weighted".to_owned(), node.clone())]);
        }
        let (name, port) = (node.get("name").text().unwrap_or(""), node.get("port"));
        let namespace = node.get("namespace").text().unwrap_or(object.namespace);
        let is_tls = port.text() == Some("443") || port.text().is_some_and(|port| port.starts_with("https"));
        let scheme = node.get("scheme").text().unwrap_or(if is_tls { "https" } else { "http" });
        // What is no URL gets a remark.
        let url =
            objects.url(scheme, (namespace, name), port).unwrap_or_else(|reason| format!("{name}: {reason}"));
        let mut entries = vec![("url".to_owned(), DocNode::scalar(&node.place, url))];
        entries.extend(node.entries().iter().filter(|(key, _)| key == "weight").cloned());
        servers.push(DocNode::map(&node.place, entries));
        let others = node.entries().iter().filter(|(key, _)| !OF_SERVER.contains(&&**key));
        for (key, value) in others {
            if settings.iter().all(|(known, _)| known != key) {
                settings.push((key.clone(), value.clone()));
            }
        }
    }
    let servers = DocNode { place: all.place.clone(), value: DocValue::List(servers) };
    settings.push(("servers".to_owned(), servers));
    DocNode::map(&route.place, vec![("loadBalancer".to_owned(), DocNode::map(&all.place, settings))])
}
