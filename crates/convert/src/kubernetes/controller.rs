//! The `ConfigMap` of the controller of ingress-nginx.

use super::objects::Object;
use crate::document::{DocNode, boolean};
use crate::model::DenyStatus;
use crate::nginx::may_restrict;
use crate::note::Note;

/// Settings of the controller's `ConfigMap` that restrict access for all Ingresses.
const GLOBAL: [&str; 6] = [
    "block-cidrs",
    "block-referers",
    "block-user-agents",
    "denylist-source-range",
    "global-auth-url",
    "whitelist-source-range",
];
/// Those that do so if they are true.
const SWITCHES: [&str; 2] = ["enable-modsecurity", "enable-owasp-modsecurity-crs"];
/// Those with nginx directives.
const SNIPPETS: [&str; 3] = ["http-snippet", "location-snippet", "server-snippet"];

/// The settings of a `ConfigMap` that restrict access for all Ingresses, with their lines.
pub(super) fn restricting<'d>(map: &Object<'d>) -> impl Iterator<Item = (&'d DocNode, String)> {
    let entries = map.node.get("data").entries().iter();
    entries.filter_map(|(key, value)| {
        let text = value.text().unwrap_or("");
        let restricts = GLOBAL.contains(&&**key) && !text.is_empty()
            || SWITCHES.contains(&&**key) && !text.is_empty() && boolean(text) != Some(false)
            || SNIPPETS.contains(&&**key) && may_restrict(text);
        restricts.then(|| (value, format!("{key}: {text}")))
    })
}

/// The settings of the controller for all Ingresses.
pub(super) struct Controller {
    /// The statuses of requests that `limit-rps` and `limit-rpm` deny, and of those that `limit-connections` denies.
    pub statuses: [DenyStatus; 2],
    /// Notes on settings that restrict access to all Ingresses.
    pub closing: Vec<Note>,
}

impl Controller {
    /// The settings of these `ConfigMaps`.
    pub fn of<'d>(maps: impl Iterator<Item = Object<'d>>) -> Self {
        let mut found = Self { statuses: [DenyStatus::Status(503); 2], closing: Vec::new() };
        for map in maps {
            let data = map.node.get("data");
            for (status, key) in
                found.statuses.iter_mut().zip(["limit-req-status-code", "limit-conn-status-code"])
            {
                let set = data.get(key).number().and_then(|code| DenyStatus::of(code.try_into().ok()?));
                *status = set.unwrap_or(*status);
            }
            for (value, text) in restricting(&map) {
                let reason =
                    "it restricts access to all Ingresses: their requests get 501 until you replace it";
                found.closing.push(value.finding(&text, reason));
            }
        }
        found
    }
}
