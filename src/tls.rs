//! TLS: to clients, to servers and to a Redis.

mod certificate;
mod client;
mod server;
mod subject;
mod transport;

pub use client::{ClientTls, ClientTlsSpec, TlsError};
pub use server::{Identity, ServerTls, ServerTlsSpec};
pub use transport::Transport;
