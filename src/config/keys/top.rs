//! The top level of the file.

use super::acme::ACME;
use super::admin::ADMIN;
use super::answers::{ANSWERS, LOG};
use super::client_ip::CLIENT_IP;
use super::consumers::CONSUMERS;
use super::cors::CORS;
use super::descriptors::DESCRIPTOR;
use super::geo::GEO;
use super::jwt::JWT;
use super::key::{Default, Key, Keys, Kind};
use super::limits::LIMIT;
use super::listeners::LISTENER;
use super::routes::ROUTE;
use super::store::STORE;
use super::tracing::TRACING;
use super::units::{DAY, ZERO};
use super::upstreams::UPSTREAM;

/// The keys and tables of the file itself.
pub static TOP: Keys = Keys {
    all: &[
        Key {
            name: "listen",
            kind: Kind::Text,
            default: Default::Words(""),
            doc: "Address and port; short for one `[[listeners]]` with defaults. The file has exactly one of \
              the two",
        },
        Key {
            name: "listeners",
            kind: Kind::List(&Kind::Table(&LISTENER)),
            default: Default::Words(""),
            doc: "Where clients connect",
        },
        Key {
            name: "acme",
            kind: Kind::Table(&ACME),
            default: Default::Words(""),
            doc: "Certificates from an ACME server, such as Let's Encrypt",
        },
        Key {
            name: "workers",
            kind: Kind::Either(&[Kind::Choice(&["auto"]), Kind::Integer(1, 1024)]),
            default: Default::Toml("\"auto\""),
            doc: "Threads that serve requests; `\"auto\"` is one per CPU",
        },
        Key {
            name: "shutdown_delay",
            kind: Kind::Duration(ZERO, DAY),
            default: Default::Toml("\"0s\""),
            doc: "After SIGTERM or SIGINT, how long new requests are served as before while `/ready` responds \
              with 503; a second SIGINT ends the delay",
        },
        Key {
            name: "shutdown_grace",
            kind: Kind::Duration(ZERO, DAY),
            default: Default::Toml("\"30s\""),
            doc: "How long the drain that follows waits for requests in flight; a SIGINT during the drain \
              exits at once",
        },
        Key {
            name: "watch",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Reload the file whenever it changes; see [operations.md](operations.md#reload)",
        },
        Key {
            name: "default_limits",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Limits of every route, and of requests that match no route",
        },
        Key {
            name: "client_ip",
            kind: Kind::Table(&CLIENT_IP),
            default: Default::Words(""),
            doc: "How the address of a client is found",
        },
        Key {
            name: "geo",
            kind: Kind::Table(&GEO),
            default: Default::Words(""),
            doc: "Databases of countries and autonomous systems",
        },
        Key {
            name: "jwt",
            kind: Kind::Table(&JWT),
            default: Default::Words(""),
            doc: "Which JSON Web Tokens are trusted",
        },
        Key {
            name: "consumers",
            kind: Kind::Table(&CONSUMERS),
            default: Default::Words(""),
            doc: "The named clients of the API, and their credentials",
        },
        Key {
            name: "cors",
            kind: Kind::Table(&CORS),
            default: Default::Words(""),
            doc: "Which web pages may read responses",
        },
        Key {
            name: "store",
            kind: Kind::Table(&STORE),
            default: Default::Words(""),
            doc: "Where limits are counted",
        },
        Key {
            name: "limits",
            kind: Kind::Named(&Kind::Table(&LIMIT)),
            default: Default::Words(""),
            doc: "Rate limits by name",
        },
        Key {
            name: "upstreams",
            kind: Kind::Named(&Kind::Table(&UPSTREAM)),
            default: Default::Words(""),
            doc: "Groups of servers by name",
        },
        Key {
            name: "routes",
            kind: Kind::List(&Kind::Table(&ROUTE)),
            default: Default::Words(""),
            doc: "Which requests go where, and their limits",
        },
        Key {
            name: "descriptors",
            kind: Kind::List(&Kind::Table(&DESCRIPTOR)),
            default: Default::Words(""),
            doc: "What the rate-limit service of Envoy counts",
        },
        Key {
            name: "answers",
            kind: Kind::Table(&ANSWERS),
            default: Default::Words(""),
            doc: "How responses describe limits",
        },
        Key {
            name: "admin",
            kind: Kind::Table(&ADMIN),
            default: Default::Words(""),
            doc: "The admin interface",
        },
        Key {
            name: "log",
            kind: Kind::Table(&LOG),
            default: Default::Words(""),
            doc: "The log and the access log",
        },
        Key {
            name: "tracing",
            kind: Kind::Table(&TRACING),
            default: Default::Words(""),
            doc: "Distributed tracing",
        },
    ],
    has_own_table: false,
};
