//! The limits of a configuration file in a program: a [`Limiter`] that checks requests, and a [`RateLimitLayer`] for
//! services of axum, hyper and tonic.
//!
//! A program that already has a server does not need the proxy for its limits. The library reads the same file, counts in the same
//! stores, and makes the same decisions, headers and 429 responses. Limits in Redis have one count for all proxies and programs that
//! name the same Redis, `prefix` and `hash_key`.
//!
//! This module is the public API of the crate, and follows semantic versioning. All other modules are internal: they may change in
//! any version.
//!
//! # Checking requests
//!
//! ```
//! use http::Request;
//! use tidegate::limits::{Decision, Limiter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::from_toml(
//!     r#"
//!     default_limits = ["per-client"]
//!     limits.per-client = { rate = "2/minute" }
//!     "#,
//! )?;
//! let request = Request::get("http://api.example/users").body(())?;
//! let peer: std::net::IpAddr = "192.0.2.7".parse()?;
//!
//! assert!(limiter.check(&request, peer).await.is_allowed());
//! assert!(limiter.check(&request, peer).await.is_allowed());
//! match limiter.check(&request, peer).await {
//!     Decision::Allowed(_) => unreachable!("the third request of a minute"),
//!     Decision::Denied(denied) => {
//!         assert_eq!(denied.status(), 429);
//!         assert_eq!(denied.limit(), Some("per-client"));
//!         assert_eq!(denied.headers()["retry-after"], "30");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A layer
//!
//! [`RateLimitLayer`] is a [`tower_layer::Layer`]. docs/library.md has whole programs for axum and hyper.
//!
//! # The file
//!
//! The file is that of the proxy. The library reads `[limits]`, `[[routes]]`, `default_limits`, `[client_ip]`, `[store]`, `[jwt]`,
//! `[consumers]`, `[geo]` and `[answers]`. It ignores what is about listening, forwarding and operating a proxy, so a program can read
//! the file of the proxies beside it. A route needs no `upstream`: the program responds. With `block = true` its requests get 403. A
//! request that matches no route has the `default_limits`, and is served. Limits whose key is a field of the body are an error,
//! because the library does not read bodies.
//!
//! # Outages
//!
//! If Redis is unavailable, each limit follows its `on_store_failure`, as in the proxy: a check never waits longer than `timeout` of
//! `[store]`, and not at all once the circuit breaker is open. Creating a limiter does not wait for Redis; the first checks wait for
//! the first connection, for half a second at most, and those that verify tokens for the keys of `[jwt]`, for five seconds at most.
//!
//! # Reload
//!
//! [`Limiter::reload_file`] and [`Limiter::reload_toml`] replace the configuration. Limits keep their counts, and requests in flight
//! what they hold.
//!
//! ```
//! # use tidegate::limits::Limiter;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::from_toml(r#"limits.all = { rate = "10/minute" }"#)?;
//! limiter.reload_toml(r#"limits.all = { rate = "20/minute" }"#).await?;
//! // The last configuration stays in use.
//! assert!(limiter.reload_toml(r#"limits.all = { rate = "many" }"#).await.is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Runtime
//!
//! A limiter has one thread of its own, with the connection to the store. Futures of checks are [`Send`] and need no runtime. The
//! layer waits for the delays of leaky buckets with tokio's timer, so such limits need a tokio runtime.

#![warn(clippy::missing_errors_doc)]

mod active;
mod body;
mod calls;
mod check;
mod client;
mod decision;
mod engine;
mod layer;
mod limiter;
mod shared;

pub use body::LimitedBody;
pub use client::Client;
pub use decision::{Allowed, ConfigErrors, Decision, Denied, Error, LimitState};
pub use layer::{RateLimit, RateLimitLayer};
pub use limiter::Limiter;
