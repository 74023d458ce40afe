//! The plugins of a file that limit requests, or that may restrict access.

use super::plugins::{HARMLESS, PERIODS};
use crate::document::{DocNode, DocValue};
use crate::note::FileLine;
use crate::restrictions::Restriction;

/// Plugins that limit requests.
const LIMITS: [&str; 6] = [
    "ai-rate-limiting-advanced",
    "graphql-rate-limiting-advanced",
    "rate-limiting",
    "rate-limiting-advanced",
    "response-ratelimiting",
    "service-protection",
];
/// Annotations of objects of Kubernetes that name plugins.
const ANNOTATIONS: [&str; 2] = ["konghq.com/plugins", "plugins.konghq.com"];

/// The restrictions of a file, wherever they are in it.
pub(super) fn restrictions(root: &DocNode) -> Vec<Restriction> {
    let mut found = Vec::new();
    walk(root, &[], &mut found);
    found
}

fn walk(node: &DocNode, around: &[FileLine], found: &mut Vec<Restriction>) {
    let within: Vec<FileLine> = around.iter().chain([&node.place]).cloned().collect();
    for (key, value) in node.entries() {
        match (&**key, &value.value) {
            ("plugins", DocValue::List(plugins)) => {
                let inner: Vec<FileLine> = within.iter().chain([&value.place]).cloned().collect();
                found.extend(plugins.iter().flat_map(|plugin| of_plugin(plugin, plugin.get("name"), &inner)));
            }
            ("plugin", DocValue::Scalar(_)) => found.extend(of_plugin(node, value, &within)),
            (key, _) if ANNOTATIONS.contains(&key) => {
                let text = format!("{key}: {}", value.text().unwrap_or_default());
                found.push(Restriction::access(value.place.clone(), text, within.clone()));
            }
            _ => walk(value, &within, found),
        }
    }
    for item in node.items() {
        walk(item, &within, found);
    }
}

/// The restrictions of a plugin; a limit for each period of `rate-limiting`.
fn of_plugin(plugin: &DocNode, name: &DocNode, around: &[FileLine]) -> Vec<Restriction> {
    let name = name.text().unwrap_or_default();
    let within: Vec<FileLine> = around.iter().chain([&plugin.place]).cloned().collect();
    let (place, text) = (plugin.place.clone(), format!("name: {name}"));
    if plugin.get("enabled").text() == Some("false") {
        return Vec::new();
    }
    if !LIMITS.contains(&name) {
        let restricts = !HARMLESS.contains(&name);
        return restricts.then(|| Restriction::access(place, text, within)).into_iter().collect();
    }
    let config = plugin.get("config").entries().iter();
    let periods = config.filter(|(key, value)| is_period(name, key) && value.is_present());
    let limit = |(period, value): &(String, DocNode)| {
        let text = format!("{name}, {period}: {}", value.text().unwrap_or_default());
        Restriction::limit(value.place.clone(), text, within.clone())
    };
    let limits: Vec<Restriction> = periods.map(limit).collect();
    if limits.is_empty() { vec![Restriction::limit(place, text, within)] } else { limits }
}

fn is_period(plugin: &str, key: &str) -> bool {
    plugin == "rate-limiting" && PERIODS.iter().any(|(period, _)| *period == key)
}
