//! `[admin]`.

use super::key::{Default, Key, Keys, Kind};
use super::listeners::SERVER_TLS;

/// The keys of `[admin]`.
pub static ADMIN: Keys = Keys {
    all: &[
        Key {
            name: "listen",
            kind: Kind::Text,
            default: Default::Required("listen = \"127.0.0.1:9900\""),
            doc: "Address and port, such as `\"127.0.0.1:9900\"`, not the address of a listener; or a Unix \
              socket, such as `\"unix:/run/tidegate/admin.sock\"`",
        },
        Key {
            name: "mode",
            kind: Kind::Text,
            default: Default::Toml("\"0600\""),
            doc: "Permissions of the Unix socket in octal digits: `\"0660\"` lets its group connect too",
        },
        Key {
            name: "token",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "The secret that a client must send as `Authorization: Bearer TOKEN`: at least 16 visible \
              ASCII characters, such as the output of `openssl rand -hex 32`; required unless `listen` is \
              on the loopback interface or a Unix socket, or `tls` has `client_ca`",
        },
        Key {
            name: "read_token",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "Another secret, for clients that may read and change nothing, such as a monitoring system: \
              a change with it gets 403. Needs `token`",
        },
        Key {
            name: "tls",
            kind: Kind::Table(&SERVER_TLS),
            default: Default::Words("none"),
            doc: "TLS, with the keys of `tls` of a [listener](#tls-to-clients): `certificates` and `client_ca`. \
              Not for a Unix socket",
        },
    ],
    has_own_table: false,
};
