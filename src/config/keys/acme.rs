//! `[acme]`.

use super::key::{Default, Key, Keys, Kind};

/// The keys of `[acme]`.
pub static ACME: Keys = Keys {
    all: &[
        Key {
            name: "terms_of_service_agreed",
            kind: Kind::Boolean,
            default: Default::Required("terms_of_service_agreed = true"),
            doc: "`true`: you have read the terms of the authority, and agree to them",
        },
        Key {
            name: "storage",
            kind: Kind::Text,
            default: Default::Required("storage = \"/var/lib/tidegate/acme\""),
            doc: "The directory for the account, certificates and private keys, with mode 0700; created if it does not \
              exist",
        },
        Key {
            name: "email",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "Where the authority may write to you",
        },
        Key {
            name: "directory",
            kind: Kind::Text,
            default: Default::Toml("\"https://acme-v02.api.letsencrypt.org/directory\""),
            doc: "The URL of the directory of the ACME server",
        },
        Key {
            name: "ca",
            kind: Kind::Text,
            default: Default::Words("the system's authorities"),
            doc: "A file with the certificate authorities to trust instead, for the ACME server itself",
        },
        Key {
            name: "challenge",
            kind: Kind::Choice(&["http-01", "tls-alpn-01"]),
            default: Default::Toml("\"http-01\""),
            doc: "How the authority validates names: `\"http-01\"` by a request to port 80, `\"tls-alpn-01\"` by a TLS \
              handshake with port 443",
        },
        Key {
            name: "eab",
            kind: Kind::Table(&EAB),
            default: Default::Words("none"),
            doc: "External account binding: credentials of an account with the authority, if it requires one",
        },
    ],
    has_own_table: false,
};

/// The keys of `eab` in `[acme]`.
pub static EAB: Keys = Keys {
    all: &[
        Key {
            name: "kid",
            kind: Kind::Text,
            default: Default::Required("kid = \"kid-1\""),
            doc: "The key identifier",
        },
        Key {
            name: "hmac_key",
            kind: Kind::Text,
            default: Default::Required("hmac_key = \"${EAB_HMAC_KEY}\""),
            doc: "The key in base64url, as authorities show it",
        },
    ],
    has_own_table: false,
};
