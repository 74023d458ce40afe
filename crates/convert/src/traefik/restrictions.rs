//! The middlewares of a file that limit requests, or that may restrict access, in a dynamic configuration, labels or objects of
//! Kubernetes.

use super::middlewares::{may_restrict, plain};
use crate::document::DocNode;
use crate::note::FileLine;
use crate::restrictions::Restriction;

/// Middlewares that limit requests or connections.
const LIMITS: [&str; 3] = ["rateLimit", "inFlightReq", "inFlightConn"];

/// The restrictions of a file, wherever they are in it.
pub(super) fn restrictions(root: &DocNode) -> Vec<Restriction> {
    let mut found = Vec::new();
    walk(root, &[], &mut found);
    found
}

fn walk(node: &DocNode, around: &[FileLine], found: &mut Vec<Restriction>) {
    let within: Vec<FileLine> = around.iter().chain([&node.place]).cloned().collect();
    let is_object = node.get("kind").text().is_some_and(|kind| kind.starts_with("Middleware"));
    for (key, value) in node.entries() {
        if key == "middlewares" {
            let inner: Vec<FileLine> = within.iter().chain([&value.place]).cloned().collect();
            found.extend(value.entries().iter().filter_map(|(name, node)| middleware(name, node, &inner)));
        } else if is_object && key == "spec" {
            found.extend(middleware(node.get("metadata").get("name").text().unwrap_or(""), value, &within));
        } else if let Some(text) = label(key, value.text().unwrap_or("")) {
            add_label(found, &text, &value.place, &within);
        } else {
            walk(value, &within, found);
        }
    }
    for item in node.items() {
        match item.text().and_then(|text| text.split_once('=')).and_then(|(key, value)| label(key, value)) {
            Some(text) => add_label(found, &text, &item.place, &within),
            None => walk(item, &within, found),
        }
    }
}

/// The restriction of a middleware with this name and kind.
fn middleware(name: &str, node: &DocNode, around: &[FileLine]) -> Option<Restriction> {
    let (kind, settings) = node.entries().first()?;
    let is_one = node.entries().len() == 1;
    let within = around.iter().chain([&node.place]).cloned().collect();
    let text = format!("{}: {kind}", plain(name));
    let limits = LIMITS.iter().any(|limit| limit.eq_ignore_ascii_case(kind));
    if limits && is_one {
        Some(Restriction::limit(settings.place.clone(), text, within))
    } else {
        (may_restrict(kind) || !is_one).then(|| Restriction::access(settings.place.clone(), text, within))
    }
}

/// The text of a label or an annotation that defines or names a middleware, if it is one: the middleware and its kind.
fn label(key: &str, value: &str) -> Option<String> {
    let lower = key.to_ascii_lowercase();
    if lower.starts_with("traefik.ingress.kubernetes.io/") && lower.contains("middlewares") {
        return Some(format!("{key}: {value}"));
    }
    let rest = ["traefik.http.middlewares.", "traefik.tcp.middlewares."];
    let rest = rest.iter().find_map(|start| lower.strip_prefix(start))?;
    let mut parts = rest.split('.');
    let (name, kind) = (parts.next()?, parts.next()?.split('[').next()?);
    Some(format!("{name}: {kind}"))
}

/// Adds a restriction for the first label of a middleware.
fn add_label(found: &mut Vec<Restriction>, text: &str, place: &FileLine, within: &[FileLine]) {
    let kind = text.rsplit(' ').next().unwrap_or("");
    if found.iter().any(|known| known.text == text) {
        return;
    }
    if LIMITS.iter().any(|limit| limit.eq_ignore_ascii_case(kind)) {
        found.push(Restriction::limit(place.clone(), text.to_owned(), within.to_vec()));
    } else if may_restrict(kind) {
        found.push(Restriction::access(place.clone(), text.to_owned(), within.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::model::{Converted, TomlTarget};
    use crate::{SourceFile, SourceFormat, convert};

    fn converted(routers: &str, middlewares: &str) -> Converted {
        let text = format!(
            "http:\n  services: {{ s: {{ loadBalancer: {{ servers: [{{ url: \"http://a\" }}] }} }} }}\n  \
             middlewares: {{ {middlewares} }}\n  routers:\n{routers}"
        );
        let file = SourceFile { name: "f.yaml", text: &text, directory: Path::new("") };
        convert(SourceFormat::Traefik, &[file]).unwrap()
    }

    #[test]
    fn middlewares_that_traefik_would_not_apply_close_their_routes() {
        for middleware in [
            "m: { headers: {}, basicAuth: { users: [a] } }",
            "m: { headers: { allowedHosts: [a.test] } }",
            "m: { headers: { sslRedirect: true } }",
            "m: { redirectRegex: { regex: a, replacement: b } }",
        ] {
            let made =
                converted("    r: { rule: \"PathPrefix(`/`)\", service: s, middlewares: [m] }\n", middleware);
            assert_eq!(made.routes[0].target, TomlTarget::missing(), "{middleware}");
        }
        let other = "    r: { rule: \"PathPrefix(`/`)\", service: s, middlewares: [m@docker] }\n";
        assert_eq!(converted(other, "m: { compress: {} }").routes[0].target, TomlTarget::missing());
    }

    #[test]
    fn routers_with_a_negative_priority_come_last() {
        let routers = "    all: { rule: \"PathPrefix(`/`) || PathPrefix(`/a-long-one`)\", service: s, priority: -1 }\n    \
                       adm: { rule: \"PathPrefix(`/adm`)\", service: s }\n";
        assert_eq!(converted(routers, "").routes[0].path, "/adm*");
    }
}
