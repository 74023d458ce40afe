//! The `ConfigMap` of the controller of ingress-nginx.

use super::objects::Object;
use crate::model::DenyStatus;
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
        for data in maps.map(|map| map.node.get("data")) {
            for (status, key) in
                found.statuses.iter_mut().zip(["limit-req-status-code", "limit-conn-status-code"])
            {
                let set = data.get(key).number().and_then(|code| DenyStatus::of(code.try_into().ok()?));
                *status = set.unwrap_or(*status);
            }
            for (key, value) in data.entries().iter().filter(|(key, _)| GLOBAL.contains(&&**key)) {
                let reason =
                    "it restricts access to all Ingresses: their requests get 501 until you replace it";
                found.closing.push(value.finding(&format!("{key}: {}", value.text().unwrap_or("")), reason));
            }
        }
        found
    }
}
