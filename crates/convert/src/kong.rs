//! Converts declarative configurations of Kong.

mod plugins;
mod routes;

use self::plugins::Plugins;
use self::routes::{Services, routes};
use super::document::Document;
use super::model::Converted;
use super::note::{Note, SyntaxError};

/// The keys of a file that are converted, or that describe the file itself.
const KNOWN: [&str; 9] = [
    "_comment",
    "_format_version",
    "_info",
    "_transform",
    "plugins",
    "routes",
    "services",
    "tags",
    "upstreams",
];

/// Converts a file with this name and text.
pub(super) fn convert(file: &str, text: &str) -> Result<Converted, SyntaxError> {
    let document = Document::yaml(file, text)?;
    let mut converted = Converted::default();
    for root in &document.roots {
        for (name, node) in root.entries().iter().filter(|(name, _)| !KNOWN.contains(&&**name)) {
            let reason = match &**name {
                "consumers" | "keyauth_credentials" | "consumer_groups" => {
                    "write them to the file of `[consumers]`, and use the key part `consumer`"
                }
                "certificates" | "snis" => "name the files of certificates in `tls` of `[[listeners]]`",
                _ => "tidegate has no counterpart",
            };
            converted.notes.push(document.finding(node, name, reason));
        }
        let mut plugins = Plugins::of(&document, root);
        let mut services = Services::of(&document, root);
        converted.routes.extend(routes(&document, root, &mut services, &mut plugins));
        converted.notes.append(&mut plugins.notes);
        converted.limits.append(&mut plugins.limits);
        converted.upstreams.append(&mut services.upstreams);
        converted.store = converted.store.or(plugins.store);
        converted.denied = converted.denied.or(plugins.denied);
    }
    converted.client_ip.ipv6_prefix =
        converted.limits.iter().any(|it| it.key == ["client_ip"]).then_some(128);
    if converted.client_ip.ipv6_prefix.is_some() {
        let text = "Kong counts each IPv6 address by itself. A client has at least 2^64 of them, so the default of tidegate is \
                    a prefix of 64 bits: consider to remove `ipv6_prefix`.";
        converted.client_ip.notes.push(Note::text(text));
    }
    Ok(converted)
}
