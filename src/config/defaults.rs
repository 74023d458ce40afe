//! Settings whose keys all have their defaults, read from the lists of keys.

use std::net::SocketAddr;

use super::table::read_defaults;
use super::{answers, listeners, upstreams};
use crate::gate::ClientIp;
use crate::proxy::ResponsePolicy;
use crate::server::ListenerSpec;
use crate::upstream::{ServerSpec, UpstreamSpec};

/// A listener at this address.
#[must_use]
pub fn listener(address: SocketAddr) -> ListenerSpec {
    listeners::with_defaults(address)
}

/// An upstream with these servers, without TLS.
#[must_use]
pub fn upstream(name: &str, servers: Vec<ServerSpec>) -> UpstreamSpec {
    upstreams::with_defaults(name, servers)
}

/// The server with this URL, which has the default weight.
#[cfg(test)]
pub(crate) fn server(url: &str) -> ServerSpec {
    upstreams::parse_url(url).unwrap()
}

/// How client addresses are found without `[client_ip]`.
#[must_use]
pub fn client_ip() -> ClientIp {
    read_defaults(super::client_ip::client_ip)
}

/// How responses describe limits without `[answers]`.
#[must_use]
pub fn response_policy() -> ResponsePolicy {
    read_defaults(answers::answers)
}
