//! `[upstreams.NAME]`.

use super::client_tls::CLIENT_TLS;
use super::key::{Default, Key, Keys, Kind};
use super::units::{DAY, MILLISECOND, ZERO};

/// The keys of an upstream.
pub static UPSTREAM: Keys = Keys {
    all: &[
        Key {
            name: "servers",
            kind: Kind::List(&Kind::Either(&[Kind::Text, Kind::Table(&SERVER)])),
            default: Default::Required("servers = [\"http://10.0.1.5:9000\"]"),
            doc: "An array of URLs `http://host[:port][/base]` or `https://…`, or of tables",
        },
        Key {
            name: "balance",
            kind: Kind::Text,
            default: Default::Toml("\"round_robin\""),
            doc: "How the server of a request is chosen; see [below](#which-server)",
        },
        Key {
            name: "hash_balance_factor",
            kind: Kind::Decimal(0.0, 10.0),
            default: Default::Toml("0"),
            doc: "With `hash`: the most requests in flight at a server, as a multiple of its fair part of all, at least 1; \
              others go to the next server. 0 for no bound; see [below](#which-server)",
        },
        Key {
            name: "tls",
            kind: Kind::Table(&CLIENT_TLS),
            default: Default::Words("none"),
            doc: "TLS options for `https` servers; see below",
        },
        Key {
            name: "connect_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"5s\""),
            doc: "The longest that a new connection may take, including the TLS handshake; see \
              [below](#connections-that-take-long)",
        },
        Key {
            name: "pending_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"3s\""),
            doc: "The longest that a request waits for a connection while all are in use",
        },
        Key {
            name: "response_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"60s\""),
            doc: "From the end of the request to the head of the response",
        },
        Key {
            name: "stall_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"60s\""),
            doc: "Between two reads of a response body, unless the server still reads the request body; also \
              the longest that a write may block",
        },
        Key {
            name: "total_timeout",
            kind: Kind::DurationOrOff(MILLISECOND, DAY),
            default: Default::Toml("\"off\""),
            doc: "From the choice of a server to the last byte of the response, or `\"off\"`",
        },
        Key {
            name: "retries",
            kind: Kind::Integer(0, 5),
            default: Default::Toml("1"),
            doc: "How often a request is sent again if that is safe",
        },
        Key {
            name: "retry_budget",
            kind: Kind::Decimal(0.0, 1.0),
            default: Default::Toml("0.2"),
            doc: "The share of the requests that may be sent again",
        },
        Key {
            name: "retry_for",
            kind: Kind::DurationOrOff(MILLISECOND, DAY),
            default: Default::Toml("\"off\""),
            doc: "How long a request waits, and is sent again, while no server answers, or `\"off\"`; see \
              [below](#servers-that-restart)",
        },
        Key {
            name: "max_connections",
            kind: Kind::Integer(1, 1_000_000),
            default: Default::Toml("1024"),
            doc: "Connections to each address of a server over all workers, idle ones included",
        },
        Key {
            name: "max_pending",
            kind: Kind::Integer(0, 1_000_000),
            default: Default::Toml("1024"),
            doc: "Requests over all workers that may wait for a connection, 0 for none",
        },
        Key {
            name: "max_requests_per_client",
            kind: Kind::Integer(0, 1_000_000),
            default: Default::Toml("0"),
            doc: "Requests of one client in flight at once over all workers, up to the last byte of the \
              response; more get 429 with `Retry-After: 1`. 0 for no limit",
        },
        Key {
            name: "health",
            kind: Kind::Table(&HEALTH),
            default: Default::Words("none"),
            doc: "Health checks, such as `{ path = \"/healthz\" }`",
        },
        Key {
            name: "eject",
            kind: Kind::Either(&[Kind::Choice(&["off"]), Kind::Table(&EJECT)]),
            default: Default::Toml("{}"),
            doc: "Ejection of a server after consecutive failures: a table with the keys below, or `\"off\"`",
        },
        Key {
            name: "panic_threshold",
            kind: Kind::Decimal(0.0, 1.0),
            default: Default::Toml("0.5"),
            doc: "If a smaller share of the servers than this is healthy, requests go to all of them",
        },
        Key {
            name: "slow_start",
            kind: Kind::Duration(ZERO, DAY),
            default: Default::Toml("\"0s\""),
            doc: "How long the share of a server that is new or has recovered grows evenly to its full size",
        },
        Key {
            name: "protocol",
            kind: Kind::Choice(&["h1", "h2"]),
            default: Default::Toml("\"h1\""),
            doc: "The version of HTTP to the servers: `\"h1\"` is HTTP/1.1, `\"h2\"` is HTTP/2; see \
              [below](#http2-to-servers)",
        },
    ],
    has_own_table: false,
};

/// The keys of a server that is a table.
pub static SERVER: Keys = Keys {
    all: &[
        Key {
            name: "url",
            kind: Kind::Text,
            default: Default::Required("url = \"http://10.0.1.5:9000\""),
            doc: "The URL, where the server is a table",
        },
        Key {
            name: "weight",
            kind: Kind::Integer(1, 1_000),
            default: Default::Toml("1"),
            doc: "The share of the requests in proportion to the weights of the other servers",
        },
    ],
    has_own_table: false,
};

/// The keys of `health`.
pub static HEALTH: Keys = Keys {
    all: &[
        Key {
            name: "path",
            kind: Kind::Text,
            default: Default::Required("path = \"/healthz\""),
            doc: "The path of the check, with its query",
        },
        Key {
            name: "interval",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"5s\""),
            doc: "The time between two checks of an address",
        },
        Key {
            name: "timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"1s\""),
            doc: "The longest that a check may take",
        },
        Key {
            name: "healthy_after",
            kind: Kind::Integer(1, 1_000),
            default: Default::Toml("2"),
            doc: "Consecutive successful checks after which an address is healthy",
        },
        Key {
            name: "unhealthy_after",
            kind: Kind::Integer(1, 1_000),
            default: Default::Toml("3"),
            doc: "Consecutive failed checks after which an address is unhealthy",
        },
    ],
    has_own_table: false,
};

/// The keys of `eject`.
pub static EJECT: Keys = Keys {
    all: &[
        Key {
            name: "after",
            kind: Kind::Integer(1, 1_000),
            default: Default::Toml("5"),
            doc: "The number of consecutive failures",
        },
        Key {
            name: "for",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"30s\""),
            doc: "How long the server is ejected",
        },
    ],
    has_own_table: false,
};
