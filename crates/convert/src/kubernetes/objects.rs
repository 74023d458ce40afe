//! The objects of files, and the Services that others name.

use crate::document::DocNode;
use crate::model::{TomlUpstream, UniqueNames};
use crate::note::Note;

/// The kinds that are read, with the beginning of their API groups.
const KINDS: [(&str, &str); 9] = [
    ("BackendTrafficPolicy", "gateway.envoyproxy.io/"),
    ("Gateway", "gateway.networking.k8s.io/"),
    ("HTTPRoute", "gateway.networking.k8s.io/"),
    ("Ingress", "networking.k8s.io/"),
    ("Ingress", "extensions/"),
    ("IngressRoute", "traefik."),
    ("Middleware", "traefik."),
    ("Service", "v1"),
    ("TraefikService", "traefik."),
];
/// The highest weight of a server.
pub(super) const MOST_WEIGHT: u64 = 1_000;

/// An object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'d> {
    pub node: &'d DocNode,
    /// Its kind, or an empty text if it is none of those that are read.
    pub kind: &'d str,
    pub namespace: &'d str,
    pub name: &'d str,
    pub spec: &'d DocNode,
}

impl<'d> Object<'d> {
    fn of(node: &'d DocNode) -> Self {
        let (kind, group) = (node.get("kind").text().unwrap_or(""), node.get("apiVersion").text());
        let is_read = |(known, start): &(&str, &str)| {
            *known == kind && group.is_none_or(|group| group.starts_with(start))
        };
        let metadata = node.get("metadata");
        Self {
            node,
            kind: if KINDS.iter().any(is_read) { kind } else { "" },
            namespace: metadata.get("namespace").text().unwrap_or("default"),
            name: metadata.get("name").text().unwrap_or(""),
            spec: node.get("spec"),
        }
    }

    /// Whether it is of a kind, which may be one that is not read.
    pub fn is(&self, kind: &str) -> bool {
        self.node.get("kind").text() == Some(kind)
    }

    /// Its kind and name.
    pub fn text(&self) -> String {
        let kind = self.node.get("kind").text().unwrap_or("object");
        format!("{kind} {}/{}", self.namespace, self.name)
    }

    /// A note that it is converted here.
    pub fn origin(&self) -> Note {
        self.node.origin(&self.text())
    }

    /// A note that it is not converted, with all that is in it.
    pub fn finding(&self, reason: impl Into<String>) -> Note {
        self.node.finding(&self.text(), reason)
    }
}

/// The objects of all files, the oldest first.
pub(super) struct Objects<'d>(Vec<Object<'d>>);

impl<'d> Objects<'d> {
    /// The objects of these documents, and those in their lists.
    pub fn of(roots: &'d [DocNode]) -> Self {
        let mut all = Vec::new();
        for root in roots.iter().filter(|root| root.is_present()) {
            let is_list = root.get("kind").text().is_some_and(|kind| kind.ends_with("List"));
            if is_list && root.get("items").is_present() {
                all.extend(root.get("items").items().iter().map(Object::of));
            } else {
                all.push(Object::of(root));
            }
        }
        // The sort keeps the order of the files where they have no times.
        all.sort_by_key(|object| object.node.get("metadata").get("creationTimestamp").text().unwrap_or(""));
        Self(all)
    }

    pub fn all(&self) -> &[Object<'d>] {
        &self.0
    }

    /// Those of a kind that is read, or others with an empty one.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = Object<'d>> {
        self.0.iter().filter(move |object| object.kind == kind).copied()
    }

    /// The number of a Service's port, which may be named.
    pub fn port(&self, namespace: &str, service: &str, port: &DocNode) -> Result<u64, String> {
        if let Some(number) = port.number() {
            return Ok(number);
        }
        let Some(name) = port.text() else { return Err("it names no port".to_owned()) };
        let mut services = self.of_kind("Service");
        let service = services.find(|it| (it.namespace, it.name) == (namespace, service));
        let ports = service.map_or(&[][..], |service| service.spec.get("ports").items());
        let found = ports.iter().find(|port| port.get("name").text() == Some(name));
        found
            .and_then(|port| port.get("port").number())
            .ok_or_else(|| format!("the port `{name}` has its number in the Service, which the files lack"))
    }

    /// The URL of a Service.
    pub fn url(
        &self,
        scheme: &str,
        (namespace, service): (&str, &str),
        port: &DocNode,
    ) -> Result<String, String> {
        let port = self.port(namespace, service, port)?;
        Ok(format!("{scheme}://{service}.{namespace}.svc.cluster.local:{port}"))
    }
}

/// The upstreams that were made so far.
pub(super) struct Upstreams<'d> {
    pub objects: &'d Objects<'d>,
    names: UniqueNames,
    pub all: Vec<TomlUpstream>,
}

impl<'d> Upstreams<'d> {
    /// No upstreams yet, besides those with these names.
    pub fn beside(others: &[TomlUpstream], objects: &'d Objects<'d>) -> Self {
        let mut upstreams = Self { objects, names: UniqueNames::default(), all: Vec::new() };
        for other in others {
            upstreams.names.unique(&other.name);
        }
        upstreams
    }

    /// The name of an upstream with these servers and settings, which is made if it is new.
    pub fn name(&mut self, wanted: TomlUpstream) -> String {
        let is_same = |known: &&TomlUpstream| {
            (&known.servers, &known.balance, known.speaks_h2)
                == (&wanted.servers, &wanted.balance, wanted.speaks_h2)
        };
        if let Some(known) = self.all.iter().find(is_same) {
            return known.name.clone();
        }
        let name = self.names.unique(&wanted.name);
        self.all.push(TomlUpstream { name: name.clone(), ..wanted });
        name
    }
}
