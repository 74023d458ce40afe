//! From an accepted socket to a connection on which requests can come.

use std::net::SocketAddr;

use crate::tls::Transport;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Accepted {
    pub stream: Transport,
    /// Who the client is.
    pub address: SocketAddr,
}
