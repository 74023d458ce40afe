//! `[tracing]`.

use std::time::Duration;

use super::key::{Default, Key, Keys, Kind};

/// The keys of `[tracing]`.
pub static TRACING: Keys = Keys {
    all: &[
        Key {
            name: "endpoint",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "The collector, such as `\"http://localhost:4318\"`: spans are exported to it by OTLP over HTTP, at the \
              path `/v1/traces`. Without it no span is recorded, and traces are only passed on",
        },
        Key {
            name: "headers",
            kind: Kind::Named(&Kind::Text),
            default: Default::Words("none"),
            doc: "Headers of each request to the collector, as `{ name = \"value\" }`",
        },
        Key {
            name: "timeout",
            kind: Kind::Duration(Duration::from_millis(100), Duration::from_mins(1)),
            default: Default::Toml("\"10s\""),
            doc: "How long the export of a batch may take, with its retries",
        },
        Key {
            name: "service_name",
            kind: Kind::Text,
            default: Default::Toml("\"tidegate\""),
            doc: "The resource attribute `service.name`",
        },
        Key {
            name: "resource_attributes",
            kind: Kind::Named(&Kind::Text),
            default: Default::Words("none"),
            doc: "Further attributes of this process, as `{ \"deployment.environment.name\" = \"production\" }`",
        },
        Key {
            name: "sample",
            kind: Kind::Decimal(0.0, 1.0),
            default: Default::Toml("0.01"),
            doc: "The share of traces that are sampled, unless `trust` says that the sender has decided",
        },
        Key {
            name: "trust",
            kind: Kind::Choice(&["proxies", "any"]),
            default: Default::Toml("\"proxies\""),
            doc: "Whose `sampled` flag is obeyed: that of `trusted_proxies` of `[client_ip]`, or, with `\"any\"`, that of every client",
        },
    ],
    has_own_table: false,
};
