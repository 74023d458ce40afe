//! tidegate: a reverse proxy with exact, distributed rate limiting built in.
//!
//! ARCHITECTURE.md describes the modules. Each may import only those to its left:
//!
//! `text < suggest < id_vec < sharded < generations < time < plot < limit < http1 < telemetry < socket < tls < acme < otlp < store <
//! limiter < upstream < jwt < consumers < gate < proxy < ratelimit_service < server < admin < config < reload < replay < app <
//! cli`

pub mod acme;
pub mod admin;
pub mod app;
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
pub mod otlp;
pub mod plot;
pub mod proxy;
pub mod ratelimit_service;
pub mod reload;
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
