//! `[[listeners]]`.

use super::key::{Default, Key, Keys, Kind};
use super::routes::DENY_STATUS;
use super::units::{DAY, MILLISECOND};

/// The keys of a listener.
pub static LISTENER: Keys = Keys {
    all: &[
        Key {
            name: "address",
            kind: Kind::Text,
            default: Default::Required("address = \"0.0.0.0:8080\""),
            doc: "Address and port, such as `\"0.0.0.0:8080\"` or `\"[::1]:8080\"`",
        },
        Key {
            name: "serve",
            kind: Kind::Choice(&["proxy", "envoy-ratelimit"]),
            default: Default::Toml("\"proxy\""),
            doc: "What clients find here: with `\"proxy\"` the routes, with `\"envoy-ratelimit\"` the rate-limit service of Envoy, which decides by \
              [`[[descriptors]]`](#descriptors)",
        },
        Key {
            name: "protocols",
            kind: Kind::List(&Kind::Choice(&["h1", "h2"])),
            default: Default::Toml("[\"h2\", \"h1\"]"),
            doc: "Versions of HTTP: `\"h1\"` is HTTP/1.1 and 1.0, `\"h2\"` is HTTP/2; see \
              [below](#http2-to-clients)",
        },
        Key {
            name: "tls",
            kind: Kind::Table(&LISTENER_TLS),
            default: Default::Words("none"),
            doc: "TLS; see [below](#tls-to-clients)",
        },
        Key {
            name: "proxy_protocol",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Whether connections start with a PROXY header; see [below](#proxy-protocol)",
        },
        Key {
            name: "respond",
            kind: Kind::Choice(&["decide"]),
            default: Default::Words("as their routes say"),
            doc: "`\"decide\"`: each request here is the authorization request of a trusted proxy, and gets the decision on the \
              original request that it describes; see [forward auth](forward-auth.md)",
        },
        DENY_STATUS,
        Key {
            name: "max_connections",
            kind: Kind::Integer(1, 10_000_000),
            default: Default::Toml("10_000"),
            doc: "Open connections over all workers. When the limit is reached, a new connection replaces an \
              idle one or is closed at once; see [below](#when-all-connections-of-a-listener-are-in-use). \
              A warning at startup says if the limit of open files is too low for this number",
        },
        Key {
            name: "max_connections_per_client",
            kind: Kind::Integer(0, 10_000_000),
            default: Default::Toml("0"),
            doc: "Open connections of one client over all workers, 0 for no limit; see \
              [below](#connections-of-one-client)",
        },
        Key {
            name: "handshake_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"10s\""),
            doc: "For the PROXY header and the TLS handshake together",
        },
        Key {
            name: "header_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"10s\""),
            doc: "From the first byte of a request head to its last",
        },
        Key {
            name: "body_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"30s\""),
            doc: "Between two reads of a request body",
        },
        Key {
            name: "min_body_rate",
            kind: Kind::Integer(0, 1_000_000_000),
            default: Default::Toml("240"),
            doc: "The average rate in bytes per second at which a client has to send a request body and read a \
              response, 0 for no minimum; see [below](#slow-clients)",
        },
        Key {
            name: "idle_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"75s\""),
            doc: "Between requests of a connection; also the longest that a write to the client may block, \
              unless the client still sends a body",
        },
        Key {
            name: "tunnel_timeout",
            kind: Kind::Duration(MILLISECOND, DAY),
            default: Default::Toml("\"1h\""),
            doc: "How long both sides of a WebSocket may be silent, and the client of a gRPC call",
        },
        Key {
            name: "max_header_bytes",
            kind: Kind::Size(1_024, 1_048_576),
            default: Default::Toml("\"32KiB\""),
            doc: "The size of a request head; a larger one gets 431",
        },
        Key {
            name: "max_headers",
            kind: Kind::Integer(1, 10_000),
            default: Default::Toml("100"),
            doc: "The number of headers of a request; more get 431",
        },
    ],
    has_own_table: false,
};

/// The keys of `tls` in a listener.
pub static LISTENER_TLS: Keys = Keys {
    all: &[
        Key {
            name: "certificates",
            kind: Kind::List(&Kind::Table(&CERTIFICATE)),
            default: Default::Words("none"),
            doc: "A table for each certificate; required without `acme`",
        },
        Key {
            name: "acme",
            kind: Kind::Either(&[Kind::Boolean, Kind::List(&Kind::Text)]),
            default: Default::Words("none"),
            doc: "Certificates that [`[acme]`](#acme) obtains: `true` for the hosts of all routes, or a list of names",
        },
        CLIENT_CA,
    ],
    has_own_table: true,
};

/// The keys of `tls` in `[admin]`.
pub static SERVER_TLS: Keys = Keys {
    all: &[
        Key {
            name: "certificates",
            kind: Kind::List(&Kind::Table(&CERTIFICATE)),
            default: Default::Required("certificates = [{ cert = \"api.pem\", key = \"api.key\" }]"),
            doc: "A table for each certificate",
        },
        CLIENT_CA,
    ],
    has_own_table: true,
};

const CLIENT_CA: Key = Key {
    name: "client_ca",
    kind: Kind::Text,
    default: Default::Words("none"),
    doc: "A file with certificate authorities: every client must show a certificate that one of them has signed",
};

/// The keys of a certificate of a listener.
pub static CERTIFICATE: Keys = Keys {
    all: &[
        Key {
            name: "cert",
            kind: Kind::Text,
            default: Default::Required("cert = \"api.pem\""),
            doc: "The file with the certificate, followed by its intermediate certificates",
        },
        Key {
            name: "key",
            kind: Kind::Text,
            default: Default::Required("key = \"api.key\""),
            doc: "The file with the private key",
        },
    ],
    has_own_table: false,
};
