//! tidegate: a reverse proxy with exact, distributed rate limiting built in.
//!
//! [`limits`] is the library for programs that have a server of their own: the same limits, without the proxy. It is the only public
//! module, and follows semantic versioning. All others are internal and may change in any version: they are hidden in this
//! documentation, unless it is made with `RUSTDOCFLAGS='--cfg internals'`.
//!
//! ARCHITECTURE.md describes the modules. Each may import only those to its left:
//!
//! `text < suggest < boxed < id_vec < sharded < generations < time < plot < convert < limit < http1 < usage < overload < telemetry < socket < tls <
//! http_client < acme < otlp < store < limiter < upstream < jwt < consumers < gate < proxy < ratelimit_service < server < admin < config < limits < reload <
//! replay < app < cli`

#[cfg_attr(not(internals), doc(hidden))]
pub mod acme;
#[cfg_attr(not(internals), doc(hidden))]
pub mod admin;
#[cfg(feature = "cli")]
#[cfg_attr(not(internals), doc(hidden))]
pub mod app;
#[cfg_attr(not(internals), doc(hidden))]
pub mod body;
#[cfg_attr(not(internals), doc(hidden))]
pub mod boxed;
#[cfg(feature = "cli")]
#[cfg_attr(not(internals), doc(hidden))]
pub mod cli;
#[cfg_attr(not(internals), doc(hidden))]
pub mod config;
#[cfg_attr(not(internals), doc(hidden))]
pub mod consumers;
#[cfg_attr(not(internals), doc(hidden))]
pub mod gate;
#[cfg_attr(not(internals), doc(hidden))]
pub mod generations;
#[cfg_attr(not(internals), doc(hidden))]
pub mod http_client;
#[cfg_attr(not(internals), doc(hidden))]
pub mod jwt;
#[cfg_attr(not(internals), doc(hidden))]
pub mod limiter;
pub mod limits;
#[cfg_attr(not(internals), doc(hidden))]
pub mod otlp;
#[cfg_attr(not(internals), doc(hidden))]
pub mod proxy;
#[cfg_attr(not(internals), doc(hidden))]
pub mod ratelimit_service;
#[cfg(feature = "cli")]
#[cfg_attr(not(internals), doc(hidden))]
pub mod reload;
#[cfg(feature = "cli")]
#[cfg_attr(not(internals), doc(hidden))]
pub mod replay;
#[cfg_attr(not(internals), doc(hidden))]
pub mod server;
#[cfg_attr(not(internals), doc(hidden))]
pub mod sharded;
#[cfg_attr(not(internals), doc(hidden))]
pub mod socket;
#[cfg_attr(not(internals), doc(hidden))]
pub mod store;
#[cfg_attr(not(internals), doc(hidden))]
pub mod suggest;
#[cfg_attr(not(internals), doc(hidden))]
pub mod telemetry;
#[cfg_attr(not(internals), doc(hidden))]
pub mod tls;
#[cfg_attr(not(internals), doc(hidden))]
pub mod upstream;

#[cfg(feature = "cli")]
#[cfg_attr(not(internals), doc(hidden))]
pub use tidegate_convert as convert;
#[cfg_attr(not(internals), doc(hidden))]
pub use tidegate_http1 as http1;
#[cfg_attr(not(internals), doc(hidden))]
pub use tidegate_limit::{id_vec, limit, text, time};
#[cfg_attr(not(internals), doc(hidden))]
pub use tidegate_overload::overload;
#[cfg(feature = "cli")]
#[cfg_attr(not(internals), doc(hidden))]
pub use tidegate_plot as plot;
#[cfg_attr(not(internals), doc(hidden))]
pub use tidegate_usage::usage;

/// The examples of the documentation, which are tested.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
mod documentation {}
