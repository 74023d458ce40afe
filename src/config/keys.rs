//! The keys of the configuration file: the one list that the readers, their messages, the documentation and the JSON
//! schema are made from.
//!
//! A new key is one entry here, and its use in the reader of its table.

mod acme;
mod admin;
mod answers;
mod client_ip;
mod client_tls;
mod consumers;
mod cors;
mod defaults;
mod descriptors;
mod geo;
mod jwt;
mod key;
mod limits;
mod listeners;
mod mistaken;
mod places;
mod reference;
mod routes;
mod schema;
mod store;
mod top;
mod tracing;
mod units;
mod upstreams;

pub use self::acme::{ACME, EAB};
pub use self::admin::ADMIN;
pub use self::answers::{ANSWER, ANSWERS};
pub use self::client_ip::CLIENT_IP;
pub use self::client_tls::CLIENT_TLS;
pub use self::consumers::{CONSUMER, CONSUMERS};
pub use self::cors::CORS;
pub use self::defaults::default_value;
pub use self::descriptors::DESCRIPTOR;
pub use self::geo::{ASN_NOT, COUNTRY_NOT, GEO};
pub use self::jwt::JWT;
pub use self::key::{Default, Key, Keys, Kind};
pub use self::limits::{BAN, LIMIT, NUMBERS, TIERS};
pub use self::listeners::{CERTIFICATE, LISTENER, LISTENER_TLS, SERVER_TLS};
pub use self::mistaken::cure;
pub use self::places::places;
pub use self::reference::{Block, reference};
pub use self::routes::{EDITS, NOT, RESPOND, RESPONSE_EDITS, REWRITE, ROUTE};
pub use self::schema::schema;
pub use self::top::TOP;
pub use self::tracing::TRACING;
pub use self::upstreams::{EJECT, HEALTH, SERVER, UPSTREAM};
