//! TLS on the connections of clients, and on those to upstream servers and Redis.

mod certificate;
mod client;
mod fault;
mod identity;
mod resolver;
mod server;
mod transport;

pub use certificate::{CertificateInfo, PeerNames};
pub use client::{ClientTls, ClientTlsSpec, TlsError};
pub use fault::HandshakeFault;
pub use identity::Identity;
pub use server::{ServerTls, ServerTlsSpec};
pub use transport::Transport;
