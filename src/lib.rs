//! tidegate: a reverse proxy with exact, distributed rate limiting built in.
//!
//! [`limits`] is the library for programs that have a server of their own: the same limits, without the proxy. It is the only public
//! module, and follows semantic versioning. All others are internal: they may change in any version.
//!
//! ARCHITECTURE.md describes the modules. Each may import only those to its left:
//!
//! `text < suggest < id_vec < sharded < generations < time < plot < limit < http1 < telemetry < socket < tls < acme < otlp < store <
//! limiter < upstream < jwt < consumers < gate < proxy < ratelimit_service < server < admin < config < limits < reload <
//! replay < app < cli`

pub mod acme;
pub mod admin;
#[cfg(feature = "cli")]
pub mod app;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod consumers;
pub mod gate;
pub mod generations;
pub mod http1;
pub mod id_vec;
pub mod jwt;
pub mod limit;
pub mod limiter;
pub mod limits;
pub mod otlp;
#[cfg(feature = "cli")]
pub mod plot;
pub mod proxy;
pub mod ratelimit_service;
#[cfg(feature = "cli")]
pub mod reload;
#[cfg(feature = "cli")]
pub mod replay;
pub mod server;
pub mod sharded;
pub mod socket;
pub mod store;
pub mod suggest;
pub mod telemetry;
pub mod text;
pub mod time;
pub mod tls;
pub mod upstream;

/// The examples of the documentation, which are tested.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
mod documentation {}
