//! `[store]`.

use super::client_tls::CLIENT_TLS;
use super::key::{Default, Key, Keys, Kind};
use super::units::{MILLISECOND, MINUTE};

/// The keys of `[store]`.
pub static STORE: Keys = Keys {
    all: &[
        Key {
            name: "url",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "The URL of Redis, in one of the forms below",
        },
        Key {
            name: "tls",
            kind: Kind::Table(&CLIENT_TLS),
            default: Default::Words("none"),
            doc: "TLS options, for a URL with `rediss`; see [redis.md](redis.md#tls)",
        },
        Key {
            name: "sentinel_username",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "With `redis-sentinel`: the user name for the Sentinels",
        },
        Key {
            name: "sentinel_password",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "With `redis-sentinel`: the password for the Sentinels",
        },
        Key {
            name: "timeout",
            kind: Kind::Duration(MILLISECOND, MINUTE),
            default: Default::Toml("\"50ms\""),
            doc: "The longest that a request waits for Redis; at least 1.5 times the round trip",
        },
        Key {
            name: "prefix",
            kind: Kind::Text,
            default: Default::Toml("\"tidegate\""),
            doc: "The prefix of every key in Redis: 1 to 128 visible characters without braces",
        },
        Key {
            name: "clock",
            kind: Kind::Choice(&["server", "client"]),
            default: Default::Toml("\"server\""),
            doc: "Whose time counts. `\"client\"` is for a Redis that does not allow TIME in scripts; the \
              clocks of all proxies must then agree within a second, and no limit can grant units with `ahead`",
        },
        Key {
            name: "hash_key",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "A secret of 16 bytes or more, the same on all proxies. It keeps attackers from guessing the \
              keys in Redis",
        },
        Key {
            name: "instances",
            kind: Kind::Integer(1, 100_000),
            default: Default::Toml("1"),
            doc: "The number of proxies that share the limits. It sets the \
              [share](redis.md#when-redis-is-unavailable) of each while Redis is unavailable; `check` warns if it \
              is missing and Redis is on another machine",
        },
        Key {
            name: "max_keys",
            kind: Kind::Integer(1, 1_000_000_000),
            default: Default::Toml("1_000_000"),
            doc: "The number of keys [in the process](#keys-in-the-process); with `url`, of keys that are \
              known here in case Redis becomes unavailable",
        },
    ],
    has_own_table: false,
};
