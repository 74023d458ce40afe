//! `[consumers]`, and the file of consumers.

use super::key::{Default, Key, Keys, Kind};
use super::limits::NUMBERS;
use super::units::{DAY, SECOND};

/// The keys of `[consumers]`.
pub static CONSUMERS: Keys = Keys {
    all: &[
        Key {
            name: "file",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "The file of consumers, relative to the directory of the configuration file; needed unless `redis_cache` is set",
        },
        Key {
            name: "redis_cache",
            kind: Kind::DurationOrOff(SECOND, DAY),
            default: Default::Toml("\"off\""),
            doc: "Looks up credentials that the file does not have in the Redis of `[store]`, and uses what it has read for \
              this time: the longest time until a change there takes effect; `\"off\"`: only the file has consumers",
        },
        Key {
            name: "credential",
            kind: Kind::Text,
            default: Default::Toml("\"header:x-api-key\""),
            doc: "Where the credential of a request is: `header:NAME`, `bearer`, `cookie:NAME`, `query:NAME`, \
              `jwt:CLAIM` or `tls:subject`",
        },
        Key {
            name: "unknown",
            kind: Kind::Choice(&["reject", "anonymous"]),
            default: Default::Toml("\"reject\""),
            doc: "A request without a known credential: `\"reject\"` responds with 401, `\"anonymous\"` serves it without a \
              consumer",
        },
        Key {
            name: "name_header",
            kind: Kind::Text,
            default: Default::Toml("\"x-consumer-name\""),
            doc: "The request header that tells the upstream the name of the consumer; clients can't set it",
        },
        Key {
            name: "tier_header",
            kind: Kind::Text,
            default: Default::Toml("\"x-consumer-tier\""),
            doc: "The same for the tier",
        },
        Key {
            name: "forward_credential",
            kind: Kind::Boolean,
            default: Default::Toml("true"),
            doc: "`false` removes the credential from requests to upstreams",
        },
    ],
    has_own_table: false,
};

/// The keys of one consumer, in the file of consumers.
pub static CONSUMER: Keys = Keys {
    all: &[
        Key {
            name: "credentials",
            kind: Kind::List(&Kind::Text),
            default: Default::Required("credentials = [\"sha256:…\"]"),
            doc: "The credentials that identify the consumer, as they are, or `sha256:` and the SHA-256 hash in \
              hexadecimal digits",
        },
        Key {
            name: "tier",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "The tier, for `tiers = { by = \"consumer\", … }` and the `consumers` of routes",
        },
        Key {
            name: "blocked",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Whether its requests are rejected with 403",
        },
        Key {
            name: "expires",
            kind: Kind::Time,
            default: Default::Words("never"),
            doc: "When its credentials stop to be valid: a time such as `2027-01-31T12:00:00Z`, or a date, which \
              is its start in UTC",
        },
        Key {
            name: "limits",
            kind: Kind::Named(&Kind::Table(&NUMBERS)),
            default: Default::Words("none"),
            doc: "Its own numbers by the name of the limit, such as `{ per-consumer = { rate = \"100/s\" } }`; the \
              first part of the limit's key must be `consumer`",
        },
    ],
    has_own_table: false,
};
