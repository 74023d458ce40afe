//! Counters and gauges of listeners.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Timestamp;

/// A TLS handshake that succeeded: the version, and whether it resumed a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.2 with a resumed session.
    ResumedTls12,
    /// TLS 1.3.
    Tls13,
    /// TLS 1.3 with a resumed session.
    ResumedTls13,
}

/// Why a connection is closed before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// It is not from a trusted proxy, and the listener requires a PROXY header.
    Untrusted,
    /// The PROXY header is missing or malformed.
    ProxyHeader,
    /// The TLS handshake failed.
    Tls,
    /// It took longer than `handshake_timeout`.
    Timeout,
}

/// The counters of a listener, which its workers share: they are incremented once for each connection.
#[derive(Debug, Default)]
pub struct ListenerCounts {
    accepted: AtomicU64,
    handshakes: [AtomicU64; Handshake::ALL.len()],
    failures: [AtomicU64; HandshakeFailure::ALL.len()],
}

/// The values of a listener at one time.
#[derive(Clone, Debug)]
pub struct ListenerValues {
    /// Its address.
    pub address: SocketAddr,
    /// Open connections.
    pub connections: usize,
    /// Connections that were refused since the start because of `max_connections`.
    pub over_limit: u64,
    /// Connections that were refused since the start because of `max_connections_per_client`.
    pub over_client_limit: u64,
    /// The values of its counters.
    pub counts: ListenerSums,
    /// Its certificates by their names, and when they expire; none without TLS.
    pub certificates: Vec<(Box<str>, Timestamp)>,
}

/// The values of [`ListenerCounts`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerSums {
    pub(super) accepted: u64,
    pub(super) handshakes: [u64; Handshake::ALL.len()],
    pub(super) failures: [u64; HandshakeFailure::ALL.len()],
}

impl Handshake {
    /// Every variant with the labels of its version and of whether it was resumed, in the order of the type.
    pub(super) const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Tls12, "TLSv1.2", "false"),
        (Self::ResumedTls12, "TLSv1.2", "true"),
        (Self::Tls13, "TLSv1.3", "false"),
        (Self::ResumedTls13, "TLSv1.3", "true"),
    ];
}

impl HandshakeFailure {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Untrusted, "untrusted"),
        (Self::ProxyHeader, "proxy_header"),
        (Self::Tls, "tls"),
        (Self::Timeout, "timeout"),
    ];
}

impl ListenerCounts {
    /// Counts a connection that is served, or has its handshake next.
    pub fn record_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a TLS handshake that succeeded.
    pub fn record_handshake(&self, handshake: Handshake) {
        self.handshakes[handshake as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that is closed before its first request.
    pub fn record_failure(&self, failure: HandshakeFailure) {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The present values.
    #[must_use]
    pub fn values(&self) -> ListenerSums {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ListenerSums {
            accepted: read(&self.accepted),
            handshakes: self.handshakes.each_ref().map(read),
            failures: self.failures.each_ref().map(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_the_order_of_the_types() {
        assert!(Handshake::ALL.iter().enumerate().all(|(index, (it, ..))| *it as usize == index));
        assert!(HandshakeFailure::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
    }
}
