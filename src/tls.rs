//! TLS on the connections of clients, and on those to upstream servers and Redis.

mod certificate;
mod client;
mod fault;
mod server;
mod subject;
mod transport;

pub use certificate::CertificateInfo;
pub use client::{ClientTls, ClientTlsSpec, TlsError};
pub use fault::HandshakeFault;
pub use server::{Identity, ServerTls, ServerTlsSpec};
pub use transport::Transport;
