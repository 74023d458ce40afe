//! `forwardAuth`: the server that Traefik asks whether a request may pass, as `authorize` of a route.

use crate::document::DocNode;
use crate::model::{TomlAuthorization, TomlRoute, TomlTarget};
use crate::note::Note;

/// Settings that are converted.
const CONVERTED: [&str; 4] = ["address", "authRequestHeaders", "authResponseHeaders", TRUST];
/// Settings without which requests could pass, or servers get other headers, than with Traefik.
const NEEDED: [&str; 3] = ["authResponseHeadersRegex", "forwardBody", "preserveRequestMethod"];
/// With it Traefik passes X-Forwarded headers of the request on to the authentication server, instead of its own values.
const TRUST: &str = "trustForwardHeader";
/// How long Traefik waits for the server.
const TIMEOUT: &str = "30s";

/// Has the requests of a route authorized. `is_changed` says that another path would be asked about than that of the client.
pub(super) fn forward_auth(text: &str, node: &DocNode, is_changed: bool, route: &mut TomlRoute) {
    match authorization(node, is_changed, route) {
        Ok(authorization) => {
            route.authorization = Some(authorization);
            route.notes.push(node.origin(text));
            let is_known =
                |key: &&str| CONVERTED.iter().chain(&NEEDED).any(|it| it.eq_ignore_ascii_case(key));
            let keys = node.entries().iter().map(|(key, _)| &**key);
            route.notes.extend(node.remarks(&keys.filter(is_known).collect::<Vec<_>>()));
            if setting(node, TRUST).is_true() {
                let reason = "of proxies in `trusted_proxies` tidegate takes X-Forwarded-For, -Proto and -Host, and Traefik also -Method and -Uri";
                let trust = setting(node, TRUST).finding(&format!("{TRUST}: true"), reason);
                route.notes.push(trust.for_information());
            }
            let text = "Of the responses of the authorization server clients get 401, 403, 429 and redirects, and 503 for others than 2xx; \
                        Traefik sends them all of these.";
            route.notes.push(Note::text(text));
        }
        Err(reason) => {
            let reason = format!("{reason}: requests get 501 until you replace it");
            route.notes.push(node.finding(text, reason));
            route.target = TomlTarget::missing();
        }
    }
}

/// A setting: Traefik ignores the case of keys.
fn setting<'n>(node: &'n DocNode, name: &str) -> &'n DocNode {
    let own = node.entries().iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    own.map_or_else(|| node.get(name), |(_, value)| value)
}

fn authorization(node: &DocNode, is_changed: bool, route: &TomlRoute) -> Result<TomlAuthorization, String> {
    if route.authorization.is_some() {
        return Err("a route has one authorization server".to_owned());
    }
    if is_changed || !route.set_headers.is_empty() || !route.remove_headers.is_empty() {
        return Err(
            "the server would be asked about the request as the middlewares before it change it".to_owned()
        );
    }
    let is_set =
        |name: &&&str| setting(node, name).is_present() && setting(node, name).text() != Some("false");
    if let Some(name) = NEEDED.iter().find(is_set) {
        return Err(format!("`authorize` has no counterpart of `{name}`"));
    }
    let address = setting(node, "address").text().unwrap_or_default();
    let (scheme, rest) = address.split_once("://").unwrap_or_default();
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if !matches!(scheme, "http" | "https") || host.is_empty() || address.contains(['#', '@', '$', '{']) {
        return Err(format!("`{address}` is no URL of a server"));
    }
    let names = |key: &str| -> Vec<String> {
        setting(node, key).texts().iter().map(|name| name.to_ascii_lowercase()).collect()
    };
    let send = Some(names("authRequestHeaders")).filter(|names| !names.is_empty());
    Ok(TomlAuthorization {
        upstream: format!("{scheme}://{host}"),
        path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        send: send.unwrap_or_else(|| vec!["*".to_owned()]),
        copy: names("authResponseHeaders"),
        timeout: TIMEOUT.to_owned(),
        is_first: route.limits.is_empty(),
    })
}

/// Sets the order of limits and authorization, once the limits of a route are known: `is_first` says that there were none before.
pub(super) fn set_order(route: &mut TomlRoute) {
    let has_limits = !route.limits.is_empty();
    if let Some(authorization) = &mut route.authorization {
        authorization.is_first &= has_limits;
    }
}
