//! `[client_ip]`.

use super::key::{Default, Key, Keys, Kind};

/// The keys of `[client_ip]`.
pub static CLIENT_IP: Keys = Keys {
    all: &[
        Key {
            name: "trusted_proxies",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Networks or addresses of the proxies whose headers are trusted",
        },
        Key {
            name: "header",
            kind: Kind::Text,
            default: Default::Toml("\"x-forwarded-for\""),
            doc: "The header that holds the address of the client; `\"forwarded\"` is parsed by its own \
              grammar (RFC 7239)",
        },
        Key {
            name: "remove_headers",
            kind: Kind::List(&Kind::Text),
            default: Default::Words("see [below](#headers-that-clients-may-not-send)"),
            doc: "Headers that are removed from requests, unless a trusted proxy sends them; `*` at the end of \
              a name makes it a prefix",
        },
        Key {
            name: "ipv4_prefix",
            kind: Kind::Integer(0, 32),
            default: Default::Toml("32"),
            doc: "Bits of an IPv4 address that identify a client",
        },
        Key {
            name: "ipv6_prefix",
            kind: Kind::Integer(0, 128),
            default: Default::Toml("64"),
            doc: "Bits of an IPv6 address that identify a client",
        },
    ],
    has_own_table: false,
};
