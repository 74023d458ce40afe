//! What limits requests or restricts access in the objects of files, besides those of Traefik.

use super::controller;
use super::known::{self, PREFIX};
use super::objects::Objects;
use super::policy::{closes, restricts};
use crate::document::DocNode;
use crate::restrictions::Restriction;

/// The restrictions of the objects.
pub(super) fn restrictions(objects: &Objects<'_>) -> Vec<Restriction> {
    let mut found = Vec::new();
    for object in objects.all() {
        let within = |node: &DocNode| vec![object.node.place.clone(), node.place.clone()];
        if object.kind == "Ingress" {
            let annotations = object.node.get("metadata").get("annotations");
            for (name, value) in annotations.entries() {
                let text =
                    format!("{}: {}", name.strip_prefix(PREFIX).unwrap_or(name), value.text().unwrap_or(""));
                match known::restricts(name, value.text().unwrap_or("")) {
                    Some(true) => {
                        found.push(Restriction::limit(value.place.clone(), text, within(annotations)));
                    }
                    Some(false) => {
                        found.push(Restriction::access(value.place.clone(), text, within(annotations)));
                    }
                    None => {}
                }
            }
        } else if object.is("ConfigMap") {
            let lines = controller::restricting(object);
            let of_line = |(value, text): (&DocNode, String)| {
                Restriction::access(value.place.clone(), text, within(object.node.get("data")))
            };
            found.extend(lines.map(of_line));
        } else if object.kind == "BackendTrafficPolicy" {
            let limits = object.spec.get("rateLimit");
            for rule in ["global", "local"].iter().flat_map(|kind| limits.get(kind).get("rules").items()) {
                found.push(Restriction::limit(
                    rule.place.clone(),
                    format!("rule of {}", object.text()),
                    within(limits),
                ));
            }
            for key in ["bandwidthLimit", "circuitBreaker"] {
                let node = object.spec.get(key);
                let limit = || Restriction::limit(node.place.clone(), key.to_owned(), within(object.spec));
                found.extend(node.is_present().then(limit));
            }
        } else if object.kind == "HTTPRoute" {
            for rule in object.spec.get("rules").items() {
                let extensions = |kind: &str| matches!(kind, "ExtensionRef" | "ExternalAuth");
                for filter in rule.get("filters").items() {
                    let kind = filter.get("type").text().unwrap_or("");
                    if extensions(kind) {
                        found.push(Restriction::access(
                            filter.place.clone(),
                            format!("filter: {kind}"),
                            within(rule),
                        ));
                    }
                }
            }
        } else if closes(object) || restricts(object) {
            found.push(Restriction::access(object.node.place.clone(), object.text(), Vec::new()));
        }
    }
    found
}
