//! `[cors]`, and `cors` of a route.

use super::key::{Default, Key, Keys, Kind};
use super::units::{DAY, ZERO};

/// The keys of `[cors]`.
pub static CORS: Keys = Keys {
    all: &[
        Key {
            name: "origins",
            kind: Kind::List(&Kind::Text),
            default: Default::Required("origins = [\"https://app.example.com\"]"),
            doc: "The origins whose pages may read responses: `\"https://app.example.com\"`, \
              `\"https://*.example.com\"` for all its subdomains, or `\"*\"` for all origins",
        },
        Key {
            name: "methods",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[\"PUT\", \"PATCH\", \"DELETE\"]"),
            doc: "The methods that pages may use besides GET, HEAD and POST; `[\"*\"]` for all",
        },
        Key {
            name: "headers",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[\"*\"]"),
            doc: "The request headers that pages may set, such as `[\"content-type\", \"x-api-key\"]`; `[\"*\"]` for all",
        },
        Key {
            name: "expose_headers",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml(
                "[\"retry-after\", \"x-request-id\", \"x-ratelimit-limit\", \"x-ratelimit-remaining\", \
                 \"x-ratelimit-reset\", \"ratelimit\", \"ratelimit-policy\"]",
            ),
            doc: "The response headers that pages may read; `[\"*\"]` for all, unless `credentials` is `true`",
        },
        Key {
            name: "credentials",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Whether pages may send cookies, HTTP authentication and client certificates with requests",
        },
        Key {
            name: "max_age",
            kind: Kind::Duration(ZERO, DAY),
            default: Default::Toml("\"10m\""),
            doc: "How long a browser may keep the response to a preflight",
        },
    ],
    has_own_table: false,
};
