//! `tls` in `[store]` and `[upstreams.NAME]`: TLS to servers.

use super::key::{Default, Key, Keys, Kind};

/// The keys of a table `tls` for connections to servers.
pub static CLIENT_TLS: Keys = Keys {
    all: &[
        Key {
            name: "ca",
            kind: Kind::Text,
            default: Default::Words("the system's authorities"),
            doc: "A file with the certificate authorities to trust instead",
        },
        Key {
            name: "cert",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "A file with the client certificate, followed by its intermediate certificates; requires \
              `key`",
        },
        Key {
            name: "key",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "A file with the private key of the client certificate; requires `cert`",
        },
        Key {
            name: "server_name",
            kind: Kind::Text,
            default: Default::Words("the host of the URL"),
            doc: "The name or address that the certificate of the server must have; also sent as SNI",
        },
    ],
    has_own_table: true,
};
