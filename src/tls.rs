//! TLS: to clients, to servers and to a Redis.

mod client;
mod transport;

pub use client::{ClientTls, ClientTlsSpec, TlsError};
pub use transport::Transport;
